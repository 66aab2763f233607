/* world.h - one run: virtual ranks, each a coordinator of the product, on edges with delays, in virtual time.
 * One thread. */
#ifndef SIMULATE_WORLD_H
#define SIMULATE_WORLD_H

#include "coordinate/coordinator.h"
#include "queue.h"
#include "scenario.h"

struct tally {
#define TALLY(field, text) uint64_t field;
#include "tally.def"
#undef TALLY
};

enum slot_state { SLOT_IDLE, SLOT_ASKED, SLOT_RUNS };

/* A name on a rank. */
struct slot {
    struct pending pending;
    struct virtual_rank *rank;
    char text[40];
    int name, round;
    enum slot_state state;
};

struct virtual_rank {
    struct world *world;
    int number;
    struct tree_node tree;
    struct coordinator *coordinator;
    struct slot *slots; /* [names] */
    int batches;        /* run so far: all ranks run the same ones in the same order */
    int running;
    int idle_names;     /* in lockstep: done in this round */
    int finished_names; /* through all rounds */
    bool turn_planned, left, stopped, closed;
};

/* The edge between a rank and its parent. */
struct link {
    int64_t last[2]; /* arrival of the last message upward, downward */
    bool cut;
};

/* A batch as the first rank ran it. */
struct decided {
    uint64_t sequence;
    uint16_t algorithm;
    int first, count; /* in `members` */
};

#define TRACE_LENGTH 40

struct trace {
    int64_t time;
    const char *what;
    int rank, argument;
    int64_t detail;
};

struct world {
    struct scenario scenario;
    uint64_t random;
    int64_t now;
    struct queue queue;
    struct virtual_rank *ranks;
    struct link *links; /* by child */
    struct decided *decided;
    int *members; /* name * rounds + round */
    int decided_count, member_count;
    int *asked; /* [names][rounds]: ranks that submitted it */
    int garbage_left;
    struct tally *tally;
    struct trace trace[TRACE_LENGTH];
    uint64_t trace_count, digest;
    bool verbose, corrupt, violated;
};

struct options {
    uint64_t seeds, first;
    int ranks;
    bool verbose;
    bool corrupt; /* flip bytes of messages at random: a run then ends, quietly, at the first violation */
};

/* Runs one seed to the end of its virtual time. False when a check failed; the reason and the last events are
 * printed. `digest` is the same for the same run. */
bool world_run(uint64_t seed, const struct options *options, struct tally *tally, uint64_t *digest);

/* world.c, for check.c and rank.c */
void world_trace(struct world *world, const char *what, int rank, int argument, int64_t detail);
void violation(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t later(struct world *world, int64_t longest);
void plan_turn(struct virtual_rank *rank);

/* rank.c: a rank's own doings, and what its coordinator asks for */
void rank_start(struct virtual_rank *rank);
void rank_submit(struct virtual_rank *rank, int name);
void rank_batch_done(struct virtual_rank *rank, int batch);
void rank_leave(struct virtual_rank *rank);
void rank_lost(struct virtual_rank *rank, int peer);
struct coordinator_output rank_output(struct virtual_rank *rank);

/* check.c */
void check_batch(struct virtual_rank *rank, const struct batch *batch);
void check_end(struct world *world);

#endif
