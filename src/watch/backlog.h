/* backlog.h - a bounded queue of records of any length between one thread that must not wait and one that
 * may: no lock, no copy on the reader's side. What does not fit is counted and left out. */
#ifndef HVD_WATCH_BACKLOG_H
#define HVD_WATCH_BACKLOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backlog {
    char *memory;
    size_t size;              /* a power of two */
    _Atomic uint64_t written; /* bytes since the beginning; what is between the two is in the queue */
    _Atomic uint64_t read;
    _Atomic uint64_t dropped; /* records */
};

bool backlog_init(struct backlog *backlog, size_t size); /* false when memory is out */
void backlog_fini(struct backlog *backlog);

/* The writer's: room for a record of so many bytes, aligned to 8; NULL when it had to be dropped. */
void *backlog_reserve(struct backlog *backlog, size_t length);
void backlog_commit(struct backlog *backlog); /* what was reserved last is there */
bool backlog_is_half_full(const struct backlog *backlog);

/* The reader's: the oldest record, until backlog_drop; NULL when there is none. */
const void *backlog_first(struct backlog *backlog);
void backlog_drop(struct backlog *backlog);

#endif
