/* trace.h - from records of events to a file in Chrome's trace format (docs/timeline.md): elements, their
 * JSON, and a file that is complete after every write. Begin and end of a tensor's elements match even where
 * records were dropped. One thread at a time. */
#ifndef HVD_WATCH_TRACE_H
#define HVD_WATCH_TRACE_H

#include "base/map.h"
#include "base/wire.h"
#include "watch/timeline.h"

#include <stddef.h>
#include <sys/types.h>

/* An event in the queue, with copies of the data that it pointed to. */
struct record {
    enum event_kind kind;
    unsigned recording; /* the number of the timeline's recording */
    int64_t time;
    int process_set, rank, phase;
    const char *operation; /* a constant, e.g. "allreduce" */
    int dtype;             /* -1: no tensors */
    bool unnamed;          /* the name is a number, which never occurs again */
    struct event_batch batch;
    uint32_t name_length, detail_length;
    char texts[]; /* the name; then the detail: a shape, or the text of a failure */
};

/* The record of an EVENT_FINISHED with a failure has this dtype, and the failure as its detail. */
#define RECORD_FAILED (-2)

struct trace {
    struct wire_writer out; /* elements not yet written, each with a comma in front */
    struct map tensors;
    int last_pid;
    int64_t start; /* clock_now's at ts 0 */
};

void trace_init(struct trace *trace, int64_t start);
void trace_free(struct trace *trace);

/* Writes the first element of the file. */
void trace_head(struct wire_writer *text);

void trace_add(struct trace *trace, const struct record *record);

/* Ends open elements at this time, and adds the number of dropped records, if any were. */
void trace_finish(struct trace *trace, int64_t time, uint64_t dropped);

/* ---- JSON ---------------------------------------------------------------------------------------------- */

void text_add(struct wire_writer *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends bytes as the inside of a JSON string: quotes, backslashes and control characters are escaped; bytes
 * that are not UTF-8 become U+FFFD. */
void text_add_escaped(struct wire_writer *text, const char *bytes, size_t length);

/* ---- the file ------------------------------------------------------------------------------------------ */

/* The file has a whole JSON array after every write: each write overwrites the closing bracket of the
 * previous one. */
struct trace_file {
    int descriptor;
    off_t end; /* offset of the closing bracket */
};

/* Makes the file, or empties it, and writes the first element. */
hvd_code trace_file_open(struct trace_file *file, const char *path, const char *element, hvd_status *status);

/* Opens a file whose first element is that of trace_head, to append to it. *start: its ts 0, as clock_now's.
 * Returns false if there is no such file. */
bool trace_file_continue(struct trace_file *file, const char *path, int64_t *start);

/* Appends `text`, which is elements that each have a comma in front. Returns 0, or the errno; then the file
 * is as before. */
int trace_file_append(struct trace_file *file, const void *text, size_t length);

void trace_file_close(struct trace_file *file);

#endif
