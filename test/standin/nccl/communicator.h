/* communicator.h - what the ranks of a communicator share, and what one of them keeps. Internal to the
 * stand-in for NCCL; any thread. */
#ifndef HVD_TEST_STANDIN_NCCL_COMMUNICATOR_H
#define HVD_TEST_STANDIN_NCCL_COMMUNICATOR_H

#include "standin/nccl/standin_nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MOST_RANKS = 16, SLOT_BYTES = 1 << 16, BOX_BYTES = 1 << 14, MOST_OPERATORS = 64 };

enum nccl_call {
#define CALL(type, member, symbol, parameters) CALL_##symbol,
    ALL_NCCL_CALLS(CALL)
#undef CALL
        CALL_COLLECTIVE,
    NCCL_CALL_KINDS
};

/* Counts the call; returns the error that a test has ordered for it. */
ncclResult_t nccl_enter(enum nccl_call call);

#define ENTER_NCCL(symbol)                                                                                   \
    do {                                                                                                     \
        ncclResult_t ordered = nccl_enter(CALL_##symbol);                                                    \
        if (ordered)                                                                                         \
            return ordered;                                                                                  \
    } while (0)

bool nccl_is_one_at_a_time(void);

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECEIVE };

/* A way to reduce; `scales`: of the elements times the factor. */
struct reduction {
    int base;
    bool scales;
    double factor;
};

/* What all ranks must have in common. */
struct head {
    int kind, type, base, scales, root;
    size_t count;
    double factor;
};

/* One piece of a message from one rank to another. */
struct box {
    atomic_bool full;
    char bytes[BOX_BYTES];
};

/* A mapping that all ranks have. */
struct shared {
    atomic_int joined;
    atomic_bool closed;             /* the process that has made it has closed its descriptor */
    atomic_int arrived, generation; /* of a barrier */
    char gpus[MOST_RANKS][16];      /* UUIDs */
    struct head heads[MOST_RANKS];
    char slots[MOST_RANKS][SLOT_BYTES];
    struct box boxes[MOST_RANKS][MOST_RANKS]; /* from, to */
};

struct group;

struct ncclComm {
    struct shared *shared;
    int made; /* the descriptor of the mapping, in the process that has made it, otherwise -1 */
    int rank, size, device;
    bool blocks;
    atomic_bool aborted;
    atomic_bool failing;            /* a thread has claimed `error` and `text` */
    atomic_int error;               /* NCCL_OK: none */
    char text[256];                 /* of the error */
    atomic_bool busy;               /* set-up or a launch goes on */
    atomic_uint launched, released; /* groups, in the order of launch */

    pthread_t server; /* sets up, and launches groups late, unless the communicator blocks */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct group *pending; /* to be launched by the server; NULL: none; under the lock */
    bool finalizes;        /* the server says when all groups are done; under the lock */
    bool ends;             /* the server ends; under the lock */

    struct reduction operators[MOST_OPERATORS];
    bool operator_used[MOST_OPERATORS];
};

/* Writes the text for ncclGetLastError; the first error of a communicator (NULL: of none) stays. */
ncclResult_t comm_fail(struct ncclComm *comm, ncclResult_t code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns true if this rank must not go on. */
bool comm_given_up(const struct ncclComm *comm);

/* Returns false if the communicator was given up before all ranks came. */
bool comm_meet(struct ncclComm *comm);

/* Sleeps for moments that get longer; *turns is 0 at first. */
void comm_pause(int *turns);

/* NCCL_OK if the communicator takes calls now. */
ncclResult_t comm_check(struct ncclComm *comm);

/* Frees what ncclCommAbort has begun in a group. */
void comm_reclaim(struct ncclComm *comm);

/* ---- launch.c ----------------------------------------------------------------------------------------- */

/* Puts a group on its stream. */
void group_submit(struct group *group);
void group_free(struct group *group);

/* In a thread that has a group open, leaves the communicator for its end, and returns true. */
bool group_defers(struct ncclComm *comm);

/* ---- arithmetic.c ------------------------------------------------------------------------------------- */

size_t width_of(int type);

/* into = into op from; op is one of the plain ones. */
void combine(void *into, const void *from, size_t count, int type, int op);
void scale(void *data, size_t count, int type, double factor);
double scalar_of(const void *scalar, int type);

/* ---- collective.c ------------------------------------------------------------------------------------- */

struct call {
    enum kind kind;
    uint64_t from, to;
    size_t count;
    int type;
    struct reduction op;
    int peer;    /* or root */
    size_t done; /* bytes, of a message */
};

/* In the thread of a stream. */
void collectives_run(struct ncclComm *comm, struct call *calls, int count);

/* That many more groups run on a GPU of this process. */
void device_count_running(int device, int more);
bool device_is_running(int device);

#endif
