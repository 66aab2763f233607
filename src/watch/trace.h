/* trace.h - records of events to elements of a Chrome trace (docs/timeline.md). Knows what is open on every
 * tensor, so begin and end belong together whatever was left out. One thread at a time. */
#ifndef HVD_WATCH_TRACE_H
#define HVD_WATCH_TRACE_H

#include "base/map.h"
#include "watch/event.h"
#include "watch/text.h"

/* An event as it waits to be written: what the engine's structs said, copied. */
struct record {
    enum event_kind kind;
    unsigned recording; /* which of the timeline's */
    int64_t time;
    int process_set, rank, phase;
    const char *operation; /* a constant, e.g. "allreduce" */
    int dtype;             /* -1: no tensors */
    bool unnamed;          /* this name never comes again */
    struct event_batch batch;
    uint32_t name_length, detail_length;
    char texts[]; /* the name; then the detail: a shape, or with a failure its text */
};

/* EVENT_FINISHED with a failure has this dtype, and the failure as its detail. */
#define RECORD_FAILED (-2)

struct trace {
    struct wire_writer out; /* elements not yet written, each with a comma in front */
    struct map tensors;
    int last_pid;
    int64_t start; /* clock_now's, ts 0 */
};

void trace_init(struct trace *trace, int64_t start);
void trace_free(struct trace *trace);

/* The first element of the file. */
void trace_head(struct wire_writer *text);

void trace_add(struct trace *trace, const struct record *record);

/* Ends what is open at this time, and says how many records are missing, if any are. */
void trace_finish(struct trace *trace, int64_t time, uint64_t dropped);

#endif
