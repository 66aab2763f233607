/* page.h - the page of a rank: shared memory into which its engine writes what others may know of it. Another
 * process of the same user reads it at any time (page_read.h), without a question or a lock: also while the
 * rank is stopped, holds Python's lock or hangs in C, and after it was killed. The rank listens to nobody.
 *
 * The starter of a process makes its page, so that the page outlives the process; otherwise hvd_init does. A
 * page has one layout, struct page, of which all other offsets and limits follow. The functions that write
 * requests need the progress lock; the others say which threads call them.
 *
 * How a reader detects that a part of its copy was overwritten meanwhile: the part has a number, which is
 * never used again, and which is 0 (in the head: odd) while the part is written. Later changes of a record
 * store one word each, the last of them `ended`. A reporter has no number: a reader compares copies of it. */
#ifndef HVD_WATCH_PAGE_H
#define HVD_WATCH_PAGE_H

#include "base/clock.h"
#include "base/types.h"
#include "horovod.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the file, by which pages of all layouts are recognized. What is never written takes no memory. */
#define PAGE_BYTES ((size_t)1 << 20)
#define PAGE_MAGIC UINT64_C(0x6567617020647668) /* "hvd page" */

#define PAGE_MARK_TIME (60 * CLOCK_SECOND)
#define PAGE_PAUSE     (CLOCK_SECOND / 2)

enum {
    PAGE_OPERATIONS = 16,
    PAGE_SETS = 64, /* process sets; later ones have counters in other memory */
    PAGE_CALLERS = 8,
    PAGE_NAMES = 2048,
    PAGE_NAME_TEXT = 80,
    PAGE_REPORTERS = 192,  /* later ones are not in the page */
    PAGE_NEGOTIATIONS = 7, /* the last one has no limit */
    PAGE_RECORDS = 4090,
    PAGE_STEPS = 128,
    PAGE_STACK_TEXT = 16320,
    PAGE_CAUSE_TEXT = 512,
    PAGE_NAN_TEXT = 128,
    PAGE_DIVERGENCE_TEXT = 320
};
_Static_assert((int)OPERATION_NUMBERS <= (int)PAGE_OPERATIONS, "count PAGE_LAYOUT up, and PAGE_OPERATIONS");

enum page_state {
    PAGE_STARTED, /* the process was started; it may be in hvd_init, which does not know its rank yet */
    PAGE_JOINING, /* it is in hvd_init, and knows its rank */
    PAGE_OPEN,
    PAGE_FAILED, /* no operation runs any longer; `cause` says why */
    PAGE_LEFT    /* it has left the job */
};

/* Texts end with a NUL; numbers that are not known are 0, ranks -1. */
struct page_identity {
    char job[320], host[128], version[16];
    int32_t rank, size, local_rank, local_size, epoch;
    int32_t process;            /* its id, which is also that of its main thread */
    uint64_t process_start;     /* platform_process.h: distinguishes it from a later process of that id */
    int64_t opened;             /* clock_now's */
    int64_t opened_at;          /* the same as ns since 1970 */
    uint64_t running, runnable; /* of the main thread until then: see struct platform_process */
};

/* Written by one thread at a time, except wait_ns. */
struct operation_counters {
    atomic_uint_fast64_t submitted, succeeded, failed, batches, bytes, wait_ns;
    atomic_uint_fast64_t nonfinite; /* tensors given to reductions with NaN or infinity in them */
};

/* A thread that sleeps until an operation ends. */
struct page_caller {
    atomic_uint_fast64_t thread; /* its id; 0: none */
    atomic_uint_fast64_t record; /* number of the record of that operation; 0: it has none */
    _Atomic int64_t since;       /* clock_now's */
    _Atomic int64_t paused;      /* when it was woken before the operation had ended; 0: it sleeps */
};

struct page_head {
    atomic_uint_fast64_t magic;
    atomic_uint version;
    atomic_uint state;               /* page_state */
    atomic_uint_fast64_t generation; /* odd while the identity or the cause is written */
    _Atomic int64_t owner;           /* the process that writes; 0: none does */
    struct page_identity identity;
    _Atomic int64_t child; /* the process that the starter has started, which need not be the rank; 0: none */
    atomic_uint_fast64_t child_start;
    char starter_job[320]; /* with which a rank's job begins, also one of only some of the ranks */
    char cause[PAGE_CAUSE_TEXT];

    _Alignas(64) _Atomic int64_t progress; /* when an operation last ended, clock_now's; 0: none has */
    atomic_uint_fast64_t dropped;          /* requests without a record: too many were in flight */
    atomic_uint_fast64_t sets;             /* process sets so far */
    _Atomic int64_t stalled; /* since when ranks wait in the stall that was reported last; 0: none was */
    _Alignas(64) struct page_caller callers[PAGE_CALLERS];

    atomic_uint_fast64_t steps, samples; /* of training, see hvd_step */
    _Atomic int64_t step;                /* the number of the last one; `steps` 0: there is none */
    _Atomic int64_t stepped;             /* when it was reported, clock_now's */
    atomic_uint_fast64_t nans;           /* 1: `nan_step` and `nan` are written */
    _Atomic int64_t nan_step; /* of the first NaN that began on this rank, see page_step; 0: unknown */
    char nan[PAGE_NAN_TEXT];  /* the tensor that had it */
    atomic_uint_fast64_t parameter_checks, divergences;
    atomic_uint_fast64_t difference;       /* the number of `divergence`, which are `parameter_checks` */
    char divergence[PAGE_DIVERGENCE_TEXT]; /* what differed in the latest check; "": nothing */
    _Atomic int64_t progress_thread;       /* its id; 0: it has not started */
};

/* By which other processes request the stack of this rank: see page_stack.h. */
struct page_stack {
    atomic_uint listens;   /* a thread of the rank answers */
    atomic_uint requested; /* the number of the newest question; a futex word */
    atomic_uint begun;     /* the question to which `text` says something */
    atomic_uint answered;  /* the question to which it says all */
    atomic_uint changes;   /* odd while `text` is written */
    atomic_uint length;
    _Alignas(64) char text[PAGE_STACK_TEXT];
};
_Static_assert(sizeof(struct page_stack) == 16384, "pages of the system");

struct page_set {
    _Atomic int32_t id, size; /* size 0: this rank does not take part, or no longer */
    _Alignas(64) struct operation_counters operations[PAGE_OPERATIONS];
};

struct page_name {
    atomic_uint_fast64_t id;
    atomic_uint uses; /* requests with this name so far */
    uint32_t spare;
    char text[PAGE_NAME_TEXT]; /* the end of a longer one */
};

/* Added to the number of a request whose user gave no name. */
#define PAGE_COUNTED UINT32_C(0x80000000)

enum { RECORD_GROUPED = 1, RECORD_HELD = 2 };

/* One request of this rank. The times are clock_now's. */
struct page_record {
    atomic_uint_fast64_t number;
    _Atomic int64_t submitted; /* when the engine took it from its queue */
    _Atomic int64_t decided;   /* when this rank learned that all ranks had submitted it; 0: it has not */
    _Atomic int64_t ended;     /* 0: it is in flight */
    atomic_uint_fast64_t bytes;
    atomic_uint batch; /* low bits of the number of the decision, in its process set */
    atomic_uint name;  /* low bits of page_name.id, or PAGE_COUNTED + n */
    _Atomic int32_t process_set;
    _Atomic uint8_t operation;
    _Atomic uint8_t outcome; /* hvd_code */
    _Atomic uint8_t flags;   /* RECORD_* */
    uint8_t spare;
};
_Static_assert(sizeof(struct page_record) == 56, "without gaps");

/* What a time was at another time, from which a reader computes what was added lately. */
struct page_mark {
    _Atomic int64_t time, total; /* time 0: not yet */
};

/* For how long this rank, as a node of the tree, has waited for one reporter alone (coordinate/late.h). */
struct page_late {
    _Atomic int32_t rank;       /* of the job, plus 1; 0: it has never waited for it alone */
    atomic_uint changes;        /* odd while the rest is written */
    _Atomic int64_t total;      /* ns; below 0: it waits now, and clock_now's time must be added */
    _Atomic int64_t longest;    /* ns of one wait */
    atomic_uint_fast64_t count; /* waits */
    struct page_mark marks[2];  /* the older one first; there is at most one in PAGE_MARK_TIME */
};

/* What this rank has seen as the root of a process set: from the first submission of a request to the last.
 */
struct page_negotiations {
    atomic_uint_fast64_t counts[PAGE_NEGOTIATIONS]; /* of at most 100 us, 1 ms, ..., 10 s, and of more */
    _Atomic int64_t total;                          /* ns */
};

/* One step of training. */
struct page_step {
    atomic_uint_fast64_t count; /* how many there were with it; 0: there is none here */
    _Atomic int64_t number;     /* by the program's own count */
    _Atomic int64_t reported;   /* clock_now's */
    atomic_uint_fast64_t samples;
};

struct page {
    union {
        struct page_head head;
        char head_bytes[4096];
    };
    struct page_set sets[PAGE_SETS];
    struct page_name names[PAGE_NAMES];
    struct page_late late[PAGE_REPORTERS]; /* of process set 0 */
    struct page_negotiations negotiations;
    struct page_record records[PAGE_RECORDS];
    struct page_step steps[PAGE_STEPS]; /* the step of `count` is at count % PAGE_STEPS */
    struct page_stack stack;
};
_Static_assert(sizeof(struct page_head) <= 4096 && sizeof(struct page) <= PAGE_BYTES, "it fits");

/* A program refuses the page of one that was built with another layout. PAGE_LAYOUT counts the changes; sizes
 * and places are there for a change that was not counted, whose page would be read as nonsense. */
#define PAGE_LAYOUT 6
#define PAGE_VERSION                                                                                         \
    ((unsigned)(PAGE_LAYOUT + 16 * (sizeof(struct page_head) + 3 * offsetof(struct page_head, progress) +    \
                                    5 * offsetof(struct page_head, steps) +                                  \
                                    7 * offsetof(struct page_head, parameter_checks) +                       \
                                    11 * sizeof(struct page_set) + 13 * offsetof(struct page, late) +        \
                                    17 * offsetof(struct page, records) + 19 * sizeof(struct page))))

/* Copies what is no atomic, in whole words; none of it is stored before what was stored earlier. */
void page_set_words(void *to, const void *from, size_t bytes);

/* ---- the starter of a process -------------------------------------------------------------------------- */

/* Makes a page for a process that is about to start; returns its descriptor, or -1 (errno). */
int page_create(const struct page_identity *identity);
/* The process was started. */
void page_set_child(int fd, int process);

/* ---- a rank -------------------------------------------------------------------------------------------- */

struct page_writer {
    struct page *page;
    atomic_int fd;    /* -1: the page is memory of this process alone */
    uint64_t number;  /* of the newest record */
    uint32_t next;    /* where the next record goes */
    uint32_t name_id; /* of the newest name */
};

/* Opens the page at `path`, unless it is of another job, or another process or context writes it; otherwise,
 * or if there is none ("" as well), makes one. If the system refuses shared memory, the page is memory of
 * this process alone, and the log says so once. */
hvd_code page_open(struct page_writer *writer, const char *path, const struct page_identity *identity,
                   hvd_status *status);
/* All ranks have met. */
void page_joined(struct page_writer *writer, int local_rank, int local_size);
/* The calling thread is the one that makes progress. */
void page_set_progress_thread(struct page_writer *writer);
/* No operation runs any longer. The first cause counts. */
void page_fail(struct page_writer *writer, const char *cause);
/* This rank has reported that some ranks wait for others since then, clock_now's. */
void page_stalled(struct page_writer *writer, int64_t since);
/* This rank writes no longer; what it has written stays. Fine if it was never opened. */
void page_leave(struct page_writer *writer);
/* Unmaps it. Fine if it was never opened. */
void page_free(struct page_writer *writer);
/* In a child of fork(), which must not touch the page: closes the descriptor. */
void page_forget(struct page_writer *writer);

/* Returns the place of a new process set, or NULL if there is none left. One thread at a time. */
struct page_set *page_add_set(struct page_writer *writer, int id);

/* Gives a name an id. The oldest name makes room, and its requests in flight, if there are any, become
 * nameless. */
uint32_t page_add_name(struct page_writer *writer, const char *text);

/* Counts a use of a name; returns false if it has lost its id (0: it never had one). */
static inline bool page_use_name(struct page_writer *writer, uint32_t id)
{
    struct page_name *name = &writer->page->names[id % PAGE_NAMES];
    if (!id || atomic_load_explicit(&name->id, memory_order_relaxed) != id)
        return false;
    unsigned uses = atomic_load_explicit(&name->uses, memory_order_relaxed);
    atomic_store_explicit(&name->uses, uses + 1, memory_order_relaxed);
    return true;
}

/* Returns the id of the name of a request; 0: unknown. */
uint32_t page_name_of(const struct page_writer *writer, uint32_t place);
/* Returns true if the name has this id still, so that later requests may have it as well. */
bool page_has_name(const struct page_writer *writer, uint32_t id);
/* Returns how many requests had it so far; 0: it has lost this id. */
uint32_t page_uses(const struct page_writer *writer, uint32_t id);
/* Returns how many names have an id. */
uint32_t page_names(const struct page_writer *writer);
/* Returns how many steps had been reported when a request was submitted; `place` 0: now. */
uint64_t page_steps_before(const struct page_writer *writer, uint32_t place);
/* Returns the number of the step that was under way then: that after the last step that had been reported. If
 * none has been so far, how often the name was used; 0: unknown, or a request without a name. */
int64_t page_step(const struct page_writer *writer, uint32_t place);

struct page_entry {
    int64_t submitted;
    uint64_t bytes;
    uint32_t name;
    int32_t process_set;
    uint8_t operation, flags;
};

/* Returns the place of its record, or 0 if all near places are of requests in flight. Functions that take a
 * place do nothing with 0. */
uint32_t page_submitted(struct page_writer *writer, const struct page_entry *entry);
/* It is no longer held back. */
void page_released(struct page_writer *writer, uint32_t place);
void page_decided(struct page_writer *writer, uint32_t place, uint64_t batch, int64_t now);
void page_ended(struct page_writer *writer, uint32_t place, hvd_code outcome, int64_t now);

struct page_lateness {
    int rank; /* of the job */
    int64_t total, longest;
    uint64_t count;
};

/* Sets the struct page_late of a reporter in process set 0. */
void page_set_late(struct page_writer *writer, int reporter, const struct page_lateness *lateness,
                   int64_t now);
/* One more request was negotiated with this rank as the root, for `time` ns. */
void page_add_negotiation(struct page_writer *writer, int64_t time);

/* A NaN has begun on this rank; the first one counts. */
void page_set_nan(struct page_writer *writer, const char *tensor, int64_t step);

/* The ranks' parameters were compared; `difference`: which differ, or NULL. One thread at a time. */
void page_set_check(struct page_writer *writer, const char *difference);

/* A step of training was reported: there are `count`, of which this one has a number. One thread at a time.
 */
void page_stepped(struct page_writer *writer, uint64_t count, int64_t number, int64_t now);
/* Adds to what is known of the last one. The same thread. */
void page_describe_step(struct page_writer *writer, int64_t number, uint64_t samples);

/* Around a sleep of this thread, which is not the progress thread. Any thread. Returns what the others need.
 */
unsigned page_sleeps(struct page_writer *writer, uint32_t place, int64_t since);
void page_woken(struct page_writer *writer, unsigned caller);
/* In place of page_woken: the operation has not ended. The thread counts as asleep for PAGE_PAUSE, since in
 * most cases it looks for signals, or at what it was woken for, and sleeps again. */
void page_paused(struct page_writer *writer, unsigned caller, int64_t now);

#endif
