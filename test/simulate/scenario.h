/* scenario.h - the events of one run, drawn from its seed: the tree, the settings, the requests of every rank
 * in each process set, and the faults. */
#ifndef SIMULATE_SCENARIO_H
#define SIMULATE_SCENARIO_H

#include "base/topology.h"
#include "coordinate/request.h"

#define SETS_LIMIT 6 /* added in one run */

/* What becomes of one name in one round. It does not depend on who is quick. */
enum outcome {
    OUTCOME_NONE,     /* no requests */
    OUTCOME_RUNS,     /* all request it or have joined */
    OUTCOME_MISMATCH, /* they request different things */
    OUTCOME_JOINED    /* it can't run without the ranks that have joined */
};

enum set_change { CHANGE_NONE, CHANGE_ADD, CHANGE_REMOVE };

struct plan {          /* of one name in one round */
    uint64_t form;     /* what shape and priority are made from */
    uint64_t mismatch; /* 0: all ranks request the same */
    uint64_t apart;    /* 0: it may share a batch on all ranks */
    uint64_t rows;     /* what the numbers of rows are made from, together with the form */
    enum outcome outcome;
    int requesters;
    enum set_change change; /* of process set `set` */
    int set;
};

/* What the members of one process set do. An epoch is some rounds, of which each rank takes part in the first
 * few, and then joins. */
struct program {
    uint64_t seed;
    int size;
    int names, rounds;
    int unnamed;   /* this name is left to the coordinator's numbering; -1: none */
    int changes;   /* the name under which sets are added and removed; -1: none */
    bool lockstep; /* a round starts when all names of the one before are done; else each name by itself */
    int fresh_percent; /* names that are new in each round */
    int variants;      /* different forms in a mismatch */
    bool joins, join_all;
    int epochs;
    int *starts;        /* [epochs + 1] rounds */
    int *lengths;       /* [epochs][size] */
    struct plan *plans; /* [names][rounds] */
};

/* The members of a set that is added while the job runs. */
struct set_plan {
    int size;
    int *ranks; /* of the job, ascending */
};

struct scenario {
    uint64_t seed;
    int size, fanout;
    struct topology topology;
    bool interleaved;                     /* the ranks of a host need not be neighbours */
    struct program program;               /* of all ranks */
    int set_count;                        /* added, or at least requested */
    struct set_plan sets[SETS_LIMIT + 1]; /* by id */
    uint64_t fusion_threshold;
    int64_t cycle_time, stall_time, stall_shutdown_time;
    uint32_t cache_capacity;
    uint32_t eager_threshold;                /* of most ranks; */
    bool eager_differs;                      /* some have less */
    int tune_percent;                        /* turns of a root before which its limits change */
    int64_t spread, delay, think, execution; /* longest times: between submissions, on an edge, ... */
    int64_t opening;                         /* ... until a new set is connected */
    int duplicate_percent;
    int sleep_percent; /* submissions that are several stall times late, times 100 */
    bool one_order;    /* batches start in one order over all process sets */
    bool mute;         /* one rank never requests the last round of name 0 */
    bool finale;       /* every rank leaves when it is through */
    int leavers, cuts, losses, garbage;
    bool split;      /* hosts are lost, or the network falls apart */
    int broken;      /* ranks that find a broken network path, at about the same time */
    int64_t look;    /* time between two looks at silent peers */
    int64_t trouble; /* about when they come */
};

uint64_t draw_threshold(uint64_t *random);
int64_t draw_cycle_time(uint64_t *random);
void scenario_init(struct scenario *scenario, uint64_t seed, int ranks);
void scenario_free(struct scenario *scenario);

/* Of a set that was added. */
void program_init_small(struct program *program, const struct scenario *scenario, int set);
void program_free(struct program *program);

static inline struct plan *plan_of(const struct program *program, int name, int round)
{
    return &program->plans[name * program->rounds + round];
}

/* Whether a rank takes part in a round of an epoch. */
bool program_requests(const struct program *program, int rank, int epoch, int round);

/* Whether a rank's request must share no batch. */
bool program_apart(const struct plan *plan, int rank);

/* Name and signature of a rank's request. The bytes are malloc'd. */
void program_name(const struct program *program, int name, int round, char *text, size_t capacity);
struct signature program_signature(const struct program *program, const struct scenario *scenario, int name,
                                   int round, int rank);
struct signature join_signature(void);

/* How many numbers of rows a rank's request has, for how many bytes they are good each, and one of them. */
int program_row_numbers(const struct program *program, int name, int round);
int program_row_bytes(const struct plan *plan);
uint64_t program_rows(const struct program *program, int name, int round, int rank, int index);

#endif
