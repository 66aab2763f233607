/* trace.c - elements of the trace and its file. A tensor is negotiated, then its operation runs with one
 * activity inside; a record out of that order first closes the open elements. One thread at a time. */
#include "watch/trace.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/thread.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- JSON ---------------------------------------------------------------------------------------------- */

void text_add(struct wire_writer *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length > 0 && wire_reserve(text, text->length + (size_t)length + 1)) {
        vsnprintf((char *)text->bytes + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

/* Returns the number of bytes of the well-formed UTF-8 character at the start, 0 if there is none: overlong
 * forms, surrogates and numbers above U+10FFFF are not well-formed. */
static size_t character_length(const unsigned char *bytes, size_t length)
{
    size_t whole = *bytes < 0x80   ? 1
                   : *bytes < 0xc0 ? 0
                   : *bytes < 0xe0 ? 2
                   : *bytes < 0xf0 ? 3
                   : *bytes < 0xf8 ? 4
                                   : 0;
    uint32_t character = whole < 2 ? *bytes : *bytes & 0x7fu >> whole;
    if (whole > length)
        return 0;
    for (size_t i = 1; i < whole; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        character = character << 6 | (bytes[i] & 0x3f);
    }
    bool overlong = character < (whole == 2 ? 0x80u : whole == 3 ? 0x800u : whole == 4 ? 0x10000u : 0);
    bool surrogate = character >> 11 == 0xd800 >> 11;
    return overlong || surrogate || character > 0x10ffff ? 0 : whole;
}

void text_add_escaped(struct wire_writer *text, const char *bytes, size_t length)
{
    while (length) {
        size_t step = character_length((const unsigned char *)bytes, length);
        if (!step)
            text_add(text, "\\ufffd");
        else if (*bytes == '"' || *bytes == '\\')
            text_add(text, "\\%c", *bytes);
        else if ((unsigned char)*bytes < 0x20 || *bytes == 0x7f)
            text_add(text, "\\u%04x", (unsigned)*bytes);
        else
            text_add(text, "%.*s", (int)step, bytes);
        step = step ? step : 1;
        bytes += step;
        length -= step;
    }
}

/* ---- tensors ------------------------------------------------------------------------------------------- */

enum state { STATE_IDLE, STATE_NEGOTIATED, STATE_RUNS /* and an activity inside it */ };

/* One tensor is a "process" of the trace. */
struct tensor {
    int pid;
    enum state state;
    int64_t last;     /* time of its last element: later ones have no earlier time */
    const char *next; /* the operation that the early ranks have submitted */
    int *early;       /* ranks that have submitted it again while it runs */
    int early_count, early_room;
    size_t key_length;
    char key[]; /* the process set, then the name */
};

void trace_init(struct trace *trace, int64_t start)
{
    *trace = (struct trace){.start = start};
}

static void tensor_free(struct tensor *tensor)
{
    free(tensor->early);
    free(tensor);
}

void trace_free(struct trace *trace)
{
    size_t cursor = 0;
    struct tensor *tensor;
    while ((tensor = map_next(&trace->tensors, &cursor)))
        tensor_free(tensor);
    map_free(&trace->tensors);
    wire_writer_free(&trace->out);
}

/* ---- elements ---------------------------------------------------------------------------------------- */

#define HEAD                                                                                                 \
    "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"start_time_since_epoch_in_micros\":"

void trace_head(struct wire_writer *text)
{
    text_add(text,
             HEAD "%lld}},\n"
                  "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":0,\"args\":{\"sort_index\":0}}",
             (long long)(clock_since_1970() / 1000));
}

/* Writes `,{"ph":"B","ts":12.345`; the caller writes the rest of the element. */
static void put(struct trace *trace, char phase, int64_t time)
{
    int64_t since = time > trace->start ? time - trace->start : 0;
    text_add(&trace->out, ",\n{\"ph\":\"%c\",\"ts\":%" PRId64 ".%03d", phase, since / 1000,
             (int)(since % 1000));
}

static void put_for(struct trace *trace, struct tensor *tensor, char phase, int64_t time)
{
    if (time > tensor->last)
        tensor->last = time;
    put(trace, phase, tensor->last);
    text_add(&trace->out, ",\"pid\":%d", tensor->pid);
}

static void put_upper(struct wire_writer *text, const char *word)
{
    for (; *word; word++)
        text_add(text, "%c", toupper_l((unsigned char)*word, c_locale()));
}

static void begin_operation(struct trace *trace, struct tensor *tensor, int64_t time, const char *prefix,
                            const char *operation)
{
    put_for(trace, tensor, 'B', time);
    text_add(&trace->out, ",\"name\":\"%s", prefix);
    put_upper(&trace->out, operation);
    text_add(&trace->out, "\"}");
}

static void end(struct trace *trace, struct tensor *tensor, int64_t time)
{
    put_for(trace, tensor, 'E', time);
    text_add(&trace->out, "}");
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

static void name_tensor(struct trace *trace, const struct tensor *tensor, const struct record *record)
{
    struct wire_writer *out = &trace->out;
    text_add(out, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"", tensor->pid);
    text_add_escaped(out, record->texts, record->name_length);
    if (record->process_set)
        text_add(out, " (process set %d)", record->process_set);
    text_add(out,
             "\"}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":%d}}",
             tensor->pid, tensor->pid);
}

/* Finds or adds the tensor of a record; returns NULL if memory is out. */
static struct tensor *find_tensor(struct trace *trace, const struct record *record)
{
    char key[sizeof record->process_set + 4096];
    size_t length = sizeof record->process_set + record->name_length;
    if (length > sizeof key)
        return NULL;
    memcpy(key, &record->process_set, sizeof record->process_set);
    memcpy(key + sizeof record->process_set, record->texts, record->name_length);
    struct tensor *tensor = map_get(&trace->tensors, key, length);
    if (tensor || !(tensor = malloc(sizeof *tensor + length)))
        return tensor;
    *tensor = (struct tensor){.pid = ++trace->last_pid, .key_length = length};
    memcpy(tensor->key, key, length);
    if (!map_put(&trace->tensors, tensor->key, length, tensor)) {
        tensor_free(tensor);
        return NULL;
    }
    name_tensor(trace, tensor, record);
    return tensor;
}

/* ---- events ------------------------------------------------------------------------------------------ */

static void add_rank(struct trace *trace, struct tensor *tensor, int64_t time, const char *operation,
                     int rank)
{
    if (tensor->state == STATE_IDLE)
        begin_operation(trace, tensor, time, "NEGOTIATE_", operation);
    tensor->state = STATE_NEGOTIATED;
    put_for(trace, tensor, 'X', time);
    text_add(&trace->out, ",\"dur\":0,\"name\":\"%d\"}", rank);
}

/* Keeps a rank that has ended the operation, and submitted it again, before this rank has ended it. */
static void keep_early(struct tensor *tensor, const char *operation, int rank)
{
    if (tensor->early_count == tensor->early_room) {
        int room = tensor->early_room ? tensor->early_room * 2 : 8;
        int *early = realloc(tensor->early, (size_t)room * sizeof *early);
        if (!early)
            return;
        tensor->early = early;
        tensor->early_room = room;
    }
    tensor->next = operation;
    tensor->early[tensor->early_count++] = rank;
}

static void add_ready(struct trace *trace, struct tensor *tensor, const struct record *record)
{
    if (tensor->state == STATE_RUNS)
        keep_early(tensor, record->operation, record->rank);
    else
        add_rank(trace, tensor, record->time, record->operation, record->rank);
}

static void add_batch_arguments(struct trace *trace, const struct event_batch *batch, int phase)
{
    text_add(&trace->out, ",\"args\":{\"batch\":%" PRIu64 ",\"tensors\":%d,\"bytes\":%" PRIu64, batch->number,
             batch->requests, batch->bytes);
    if (phase)
        text_add(&trace->out, ",\"phase\":%d", phase);
    text_add(&trace->out, "}}");
}

static void close_open(struct trace *trace, struct tensor *tensor, int64_t time)
{
    for (int depth = tensor->state; depth > 0; depth--)
        end(trace, tensor, time);
    tensor->state = STATE_IDLE;
}

static void add_dispatched(struct trace *trace, struct tensor *tensor, const struct record *record)
{
    close_open(trace, tensor, record->time);
    begin_operation(trace, tensor, record->time, "", record->operation);
    put_for(trace, tensor, 'B', record->time);
    text_add(&trace->out, ",\"name\":\"QUEUE\"");
    add_batch_arguments(trace, &record->batch, 0);
    tensor->state = STATE_RUNS;
}

static void add_phase(struct trace *trace, struct tensor *tensor, const struct record *record)
{
    if (tensor->state != STATE_RUNS)
        return;
    end(trace, tensor, record->time);
    put_for(trace, tensor, 'B', record->time);
    text_add(&trace->out, ",\"name\":\"");
    put_upper(&trace->out, record->batch.transport);
    text_add(&trace->out, "_");
    put_upper(&trace->out, record->batch.algorithm);
    text_add(&trace->out, "\"");
    add_batch_arguments(trace, &record->batch, record->phase);
}

/* Ends the operation, or a negotiation that has failed. */
static void end_with_detail(struct trace *trace, struct tensor *tensor, const struct record *record)
{
    const char *key = record->dtype == RECORD_FAILED ? "error" : "shape";
    put_for(trace, tensor, 'E', record->time);
    if (record->dtype >= 0)
        text_add(&trace->out, ",\"args\":{\"dtype\":\"%s\",", hvd_dtype_name((hvd_dtype)record->dtype));
    else if (record->dtype == RECORD_FAILED)
        text_add(&trace->out, ",\"args\":{");
    if (record->dtype >= 0 || record->dtype == RECORD_FAILED) {
        text_add(&trace->out, "\"%s\":\"", key);
        text_add_escaped(&trace->out, record->texts + record->name_length, record->detail_length);
        text_add(&trace->out, "\"}");
    }
    text_add(&trace->out, "}");
}

static void add_finished(struct trace *trace, struct tensor *tensor, const struct record *record)
{
    if (tensor->state == STATE_RUNS)
        end(trace, tensor, record->time);
    if (tensor->state != STATE_IDLE)
        end_with_detail(trace, tensor, record);
    tensor->state = STATE_IDLE;
    for (int i = 0; i < tensor->early_count; i++)
        add_rank(trace, tensor, record->time, tensor->next, tensor->early[i]);
    tensor->early_count = 0;
    if (tensor->state == STATE_IDLE && record->unnamed) { /* its name never occurs again */
        map_remove(&trace->tensors, tensor->key, tensor->key_length);
        tensor_free(tensor);
    }
}

static void (*const add_to[])(struct trace *, struct tensor *, const struct record *) = {
    [EVENT_SUBMITTED] = add_ready, [EVENT_READY] = add_ready,       [EVENT_DISPATCHED] = add_dispatched,
    [EVENT_PHASE] = add_phase,     [EVENT_FINISHED] = add_finished,
};

void trace_add(struct trace *trace, const struct record *record)
{
    if (record->kind == EVENT_MARKED) {
        put(trace, 'i', record->time);
        text_add(&trace->out, ",\"pid\":0,\"s\":\"g\",\"name\":\"");
        text_add_escaped(&trace->out, record->texts, record->name_length);
        text_add(&trace->out, "\"}");
        return;
    }
    if (record->kind == EVENT_DECIDING) {
        put(trace, 'i', record->time);
        text_add(&trace->out, ",\"pid\":0,\"name\":\"CYCLE_START\",\"s\":\"g\"}");
        return;
    }
    struct tensor *tensor = find_tensor(trace, record);
    if (tensor)
        add_to[record->kind](trace, tensor, record);
}

void trace_finish(struct trace *trace, int64_t time, uint64_t dropped)
{
    size_t cursor = 0;
    struct tensor *tensor;
    while ((tensor = map_next(&trace->tensors, &cursor)))
        close_open(trace, tensor, time);
    if (!dropped)
        return;
    put(trace, 'i', time);
    text_add(&trace->out,
             ",\"pid\":0,\"name\":\"DROPPED_RECORDS\",\"s\":\"g\",\"args\":{\"count\":%" PRIu64 "}}",
             dropped);
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static char closing[] = "\n]\n";

/* Writes text and bracket in one call: a killed process leaves both or neither. A short write (full disk) is
 * retried to get its errno. */
static int write_closed(const struct trace_file *file, const void *text, size_t length)
{
    size_t whole = length + sizeof closing - 1, done = 0;
    int error = 0;
    struct held_signals held = signals_hold();
    while (!error && done < whole) {
        size_t skipped = done > length ? done - length : 0, text_done = done - skipped;
        struct iovec parts[] = {{(char *)text + text_done, length - text_done},
                                {closing + skipped, sizeof closing - 1 - skipped}};
        ssize_t written = pwritev(file->descriptor, parts, 2, file->end + (off_t)done);
        if (written < 0 && errno != EINTR)
            error = errno;
        done += written > 0 ? (size_t)written : 0;
    }
    signals_release(&held);
    return error;
}

/* Removes the half of an element that a short write has left. The bytes up to here were on the disk before,
 * so this needs no room; if it fails nevertheless, the file keeps the half. */
static void restore(const struct trace_file *file)
{
    ssize_t written = pwrite(file->descriptor, closing, sizeof closing - 1, file->end);
    if (written == sizeof closing - 1 && ftruncate(file->descriptor, file->end + written))
        return;
}

hvd_code trace_file_open(struct trace_file *file, const char *path, const char *element, hvd_status *status)
{
    *file = (struct trace_file){.descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    if (file->descriptor < 0)
        return status_set_errno(status, errno, "can't open the timeline file %s", path);
    int error = write_closed(file, "[\n", 2);
    file->end = 2;
    if (!error)
        error = write_closed(file, element, strlen(element));
    file->end += (off_t)strlen(element);
    if (!error)
        return HVD_OK;
    trace_file_close(file);
    return status_set_errno(status, error, "can't write the timeline file %s", path);
}

bool trace_file_continue(struct trace_file *file, const char *path, int64_t *start)
{
    static const char first[] = "[\n" HEAD;
    char head[sizeof first + 32] = "", last[sizeof closing] = "", *rest = NULL;
    *file = (struct trace_file){.descriptor = open(path, O_RDWR | O_CLOEXEC)};
    off_t size = file->descriptor < 0 ? 0 : lseek(file->descriptor, 0, SEEK_END);
    file->end = size - (off_t)(sizeof closing - 1);
    bool whole = file->end > (off_t)sizeof first &&
                 pread(file->descriptor, head, sizeof head - 1, 0) == (ssize_t)sizeof head - 1 &&
                 pread(file->descriptor, last, sizeof closing - 1, file->end) == (ssize_t)sizeof closing - 1;
    long long began = whole && strncmp(head, first, sizeof first - 1) == 0 && strcmp(last, closing) == 0
                          ? strtoll(head + sizeof first - 1, &rest, 10)
                          : 0;
    int64_t age = clock_since_1970() - began * 1000;
    if (rest && *rest == '}' && began > 0 && age >= 0) {
        *start = clock_now() - age;
        return true;
    }
    trace_file_close(file);
    return false;
}

int trace_file_append(struct trace_file *file, const void *text, size_t length)
{
    int error = write_closed(file, text, length);
    if (error)
        restore(file);
    else
        file->end += (off_t)length;
    return error;
}

void trace_file_close(struct trace_file *file)
{
    if (file->descriptor >= 0)
        close(file->descriptor);
    file->descriptor = -1;
}
