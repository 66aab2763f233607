/* rank_trace.c - see rank_trace.h. A rank is a "process" of the trace, and a lane a "thread": requests in a
 * lane follow each other, since Perfetto drops what overlaps. A request is up to two slices: it waits until
 * its rank learns that all ranks have submitted it, then its data move. */
#include "rank_trace.h"
#include "json.h"
#include "units.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Thread numbers are unique in the whole file; lane 0 is for steps, and the end of the rank. */
#define LANES 16384

struct writer {
    const struct rank_trace *trace;
    FILE *file;
    int64_t start;  /* the time that is 0 in the file */
    int64_t *lanes; /* [PAGE_RECORDS]: when the last request of each lane ended */
    int lane_count;
    bool any; /* an event was written */
};

static int64_t local_time(const struct traced_rank *rank, int64_t time)
{
    return time - rank->ahead;
}

/* A request in flight lasts until now, or until its process ended. */
static int64_t end_of(const struct rank_trace *trace, const struct traced_rank *rank,
                      const struct history_request *request)
{
    int64_t last = request->decided ? request->decided : request->submitted, from = local_time(rank, last);
    if (request->ended)
        return local_time(rank, request->ended);
    int64_t end = rank->ended ? rank->ended : trace->now;
    return end > from ? end : from;
}

static int64_t start_of(const struct rank_trace *trace, int64_t *end)
{
    int64_t start = INT64_MAX, last = 0;
    for (int i = 0; i < trace->count; i++) {
        const struct traced_rank *rank = &trace->ranks[i];
        for (int j = 0; j < rank->history->step_count && rank->history->count; j++) {
            int64_t reported = local_time(rank, rank->history->steps[j].reported);
            start = reported < start ? reported : start;
            last = reported > last ? reported : last;
        }
        for (int j = 0; j < rank->history->count; j++) {
            const struct history_request *request = &rank->history->list[j];
            int64_t from = local_time(rank, request->submitted), to = end_of(trace, rank, request);
            start = from < start ? from : start;
            last = to > last ? to : last;
        }
    }
    *end = last;
    return last ? start : 0;
}

struct rank_trace_size rank_trace_measure(const struct rank_trace *trace)
{
    struct rank_trace_size size = {0};
    int64_t end, start = start_of(trace, &end);
    for (int i = 0; i < trace->count; i++) {
        size.requests += trace->ranks[i].history->count;
        size.ranks += trace->ranks[i].history->count > 0;
    }
    size.span = size.requests ? end - start : 0;
    return size;
}

void rank_trace_describe(const struct rank_trace *trace, int size, const char *path, int64_t bytes,
                         char *text, size_t capacity)
{
    struct rank_trace_size measured = rank_trace_measure(trace);
    text[0] = '\0';
    append_text(text, capacity, "the last ");
    append_duration(text, capacity, (double)measured.span / CLOCK_SECOND);
    append_text(text, capacity, " of ");
    if (measured.ranks < size)
        append_text(text, capacity, "%d of ", measured.ranks);
    append_text(text, capacity, "%d rank%s are in %s", size, size == 1 ? "" : "s", path);
    if (bytes) {
        append_text(text, capacity, " (");
        append_bytes(text, capacity, (double)bytes);
        append_text(text, capacity, ")");
    }
    append_text(text, capacity, "; open it in https://ui.perfetto.dev");
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void put_time(struct writer *writer, const char *name, int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    fprintf(writer->file, ",\"%s\":%" PRId64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

static void put_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', file);
        putc(*text, file);
    }
}

static void begin(struct writer *writer, char phase, const struct traced_rank *rank, int lane)
{
    fprintf(writer->file, "%s{\"ph\":\"%c\",\"pid\":%d,\"tid\":%" PRId64, writer->any ? ",\n" : "", phase,
            rank->rank + 1, (int64_t)(rank->rank + 1) * LANES + lane);
    writer->any = true;
}

/* Writes a slice without arguments and closing brace. */
static void begin_slice(struct writer *writer, const struct traced_rank *rank, int lane, int64_t from,
                        int64_t to, const char *prefix, const char *title)
{
    begin(writer, 'X', rank, lane);
    put_time(writer, "ts", from - writer->start);
    put_time(writer, "dur", to - from);
    fprintf(writer->file, ",\"name\":\"%s", prefix);
    put_escaped(writer->file, title);
    putc('"', writer->file);
}

/* Ends the last slice of a request. */
static void end_slice(struct writer *writer, const struct history_request *request)
{
    fprintf(writer->file, ",\"args\":{\"bytes\":%" PRIu64, request->bytes);
    if (request->decided)
        fprintf(writer->file, ",\"batch\":%" PRIu64, request->batch);
    if (request->process_set)
        fprintf(writer->file, ",\"process_set\":%d", (int)request->process_set);
    if (!request->ended)
        fputs(",\"unfinished\":true", writer->file);
    else if (request->outcome)
        fprintf(writer->file, ",\"error\":\"%s\"", hvd_code_name(request->outcome));
    fputs("}}", writer->file);
}

/* Returns the lowest lane that is free at this time. */
static int find_lane(struct writer *writer, int64_t from, int64_t to)
{
    int lane = 0;
    while (lane < writer->lane_count && writer->lanes[lane] > from)
        lane++;
    writer->lane_count += lane == writer->lane_count;
    writer->lanes[lane] = to;
    return lane + 1;
}

static void put_request(struct writer *writer, const struct traced_rank *rank,
                        const struct history_request *request)
{
    int64_t from = local_time(rank, request->submitted), to = end_of(writer->trace, rank, request);
    int64_t decided = request->decided ? local_time(rank, request->decided) : to;
    const char *title = rank->history->titles[request->title];
    int lane = find_lane(writer, from, to);
    if (decided > from || !request->decided) {
        begin_slice(writer, rank, lane, from, decided, request->held ? "held " : "wait ", title);
        if (request->decided)
            putc('}', writer->file);
        else
            end_slice(writer, request);
    }
    if (request->decided) {
        begin_slice(writer, rank, lane, decided, to, "", title);
        end_slice(writer, request);
    }
}

static void put_name(struct writer *writer, const struct traced_rank *rank, int lane, const char *what,
                     const char *name)
{
    begin(writer, 'M', rank, lane);
    fprintf(writer->file, ",\"name\":\"%s\",\"args\":{", what);
    json_put_text(writer->file, "name", name);
    fputs("}}", writer->file);
}

/* A step lasts from the end of the one before to its own. */
static void put_steps(struct writer *writer, const struct traced_rank *rank)
{
    const struct history *history = rank->history;
    for (int i = 1; i < history->step_count; i++) {
        const struct history_step *before = &history->steps[i - 1], *step = &history->steps[i];
        int64_t from = local_time(rank, before->reported), to = local_time(rank, step->reported);
        char title[32];
        if (step->count != before->count + 1 || to < from)
            continue;
        snprintf(title, sizeof title, "%" PRId64, step->number);
        begin_slice(writer, rank, 0, from, to, "step ", title);
        if (step->samples)
            fprintf(writer->file, ",\"args\":{\"samples\":%" PRIu64 "}", step->samples);
        putc('}', writer->file);
    }
}

static void put_rank(struct writer *writer, const struct traced_rank *rank)
{
    char name[320];
    writer->lane_count = 0;
    put_steps(writer, rank);
    for (int i = 0; i < rank->history->count; i++)
        put_request(writer, rank, &rank->history->list[i]);
    snprintf(name, sizeof name, "rank %d (host %s)", rank->rank, rank->host);
    put_name(writer, rank, 0, "process_name", name);
    begin(writer, 'M', rank, 0);
    fprintf(writer->file, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}", rank->rank);
    for (int lane = 1; lane <= writer->lane_count; lane++)
        put_name(writer, rank, lane, "thread_name", "requests");
    if (rank->history->step_count > 1 || rank->ended)
        put_name(writer, rank, 0, "thread_name", "steps");
    if (!rank->ended)
        return;
    begin(writer, 'i', rank, 0);
    put_time(writer, "ts", rank->ended - writer->start);
    fprintf(writer->file, ",\"s\":\"p\",");
    json_put_text(writer->file, "name", rank->end);
    fputs("}", writer->file);
}

int64_t rank_trace_write(const struct rank_trace *trace, FILE *file)
{
    int64_t end;
    struct writer writer = {.trace = trace, .file = file, .start = start_of(trace, &end)};
    writer.lanes = calloc(PAGE_RECORDS, sizeof *writer.lanes);
    if (!writer.lanes)
        return -1;
    fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{", file);
    json_put_text(file, "job", trace->job);
    fputc(',', file);
    json_put_text(file, "version", hvd_version());
    int64_t at = trace->now_at - (trace->now - writer.start);
    fprintf(file, ",\"start_time_since_epoch_in_micros\":%" PRId64 "},\n\"traceEvents\":[\n", at / 1000);
    for (int i = 0; i < trace->count; i++) {
        if (trace->ranks[i].history->count)
            put_rank(&writer, &trace->ranks[i]);
    }
    fputs("\n]}\n", file);
    free(writer.lanes);
    if (fflush(file) || ferror(file))
        return -1;
    int64_t bytes = ftell(file);
    return bytes < 0 && errno == ESPIPE ? 0 : bytes; /* all is written to a pipe, which has no position */
}
