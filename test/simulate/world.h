/* world.h - one run: virtual ranks, each with a coordinator of the product per process set, on edges with
 * delays, in virtual time. One thread. */
#ifndef SIMULATE_WORLD_H
#define SIMULATE_WORLD_H

#include "coordinate/coordinator.h"
#include "engine/turns.h"
#include "queue.h"
#include "scenario.h"

/* What the root has reported of a name that waits. */
struct stall {
    const char *name;
    int64_t waited;
    const struct rank_set *missing; /* ranks of the job */
};

struct tally {
#define TALLY(field, text) uint64_t field;
#include "tally.def"
#undef TALLY
};

enum slot_state { SLOT_IDLE, SLOT_ASKED, SLOT_RUNS };

/* A name on a member. */
struct slot {
    struct pending pending;
    struct virtual_rank *member;
    char text[48];
    int name, round;
    enum slot_state state;
    int64_t asked_at;
    int found; /* findings of the member before */
};

/* A message for a coordinator that is not there yet. */
struct early {
    struct early *previous;
    struct message *message;
    int from;
};

/* A reporter of a member, as lateness.c and as the coordinator see it. */
struct awaited {
    int rounds;                    /* open ones that lack only this reporter */
    int64_t since, total, longest; /* since 0: there is none */
    struct lateness shown;
};

/* A rank in a process set. */
struct virtual_rank {
    struct set *set;
    int number; /* in the set */
    int rank;   /* in the job */
    struct tree_node tree;
    struct coordinator *coordinator; /* NULL: not there yet */
    struct early *early;             /* messages that arrived before it was there, newest first */
    struct slot *slots;              /* [names] */
    struct awaited *awaited;         /* by reporter */
    struct pending join;
    int begun;                       /* batches before this one have started, of those that wait for a turn */
    int batches;                     /* run so far: all members run the same ones in the same order */
    int running, running_short;      /* batches */
    int epoch, to_submit, to_finish; /* in this epoch */
    int idle_names;                  /* in lockstep: done in this round */
    bool eager;                      /* joins while its last requests are in flight */
    bool opening, added;             /* the batch that adds the set has started here, and is done */
    int sets_added;                  /* by batches of set 0 */
    bool join_planned, joined, started, through;
    bool back;           /* the join is done, but some batches of that epoch still run */
    int64_t timer;       /* the next one that is set */
    int64_t apart_asked; /* when the newest `apart` request that has run was submitted */
    bool turn_planned, left, stopped, closed;
    int64_t left_at;
    int looks;         /* since it waits */
    int found;         /* its own findings so far, */
    int found_at_root; /* those of them that the root has received, */
    int findings;      /* and those of all members that it has received */
};

/* A batch as the first member ran it. */
struct decided {
    uint64_t sequence;
    int64_t time;
    struct choice choice;
    bool is_short;
    uint64_t result;  /* hash of the result that the decision carried; 0: none */
    uint64_t rows;    /* hash of the numbers of rows of its first request; 0: none */
    int first, count; /* in `codes` */
    int started;      /* members that run it */
    bool blocked;     /* those that run it do so for ever */
    bool ordered;     /* it starts in the one order of all sets */
    int findings;     /* that the members receive before it */
};

#define FINDINGS_MOST 20 /* few enough that a coordinator drops none */

/* As the root has received it. */
struct finding_seen {
    int rank; /* in the set */
    hvd_operation operation;
};

/* A name in a round: what has happened. */
struct requested {
    int count;
    int64_t first, last; /* times */
    bool reported;       /* as a stall */
};

struct link {
    int64_t last[2]; /* arrival of the last message down, up the tree; to the next place on the ring, back */
};

struct set {
    struct world *world;
    int id, size;
    int *ranks; /* of the job */
    struct topology topology;
    struct program program;
    struct virtual_rank *members;
    struct link *links;          /* by child; then by place, of the ring */
    struct requested *requested; /* [names][rounds] */
    int64_t *join_times;         /* [epochs][size] and one; 0: not yet */
    int *joined;                 /* [epochs] */
    int *last_joined;            /* [epochs] */
    uint64_t fusion_threshold;   /* the root's now */
    struct choice chosen;        /* by the root for the last batch */
    int last_received;           /* the rank whose join the root received last */
    bool rows_unknown;           /* to the root when it chose */
    int *latest;                 /* [names] the last round that was requested */
    uint64_t *numbers;           /* [rounds] of the unnamed */
    struct decided *decided;
    int *codes;            /* of all batches: name * rounds + round; -1: not known yet */
    uint64_t *hashes;      /* of the agreed forms */
    uint64_t text_checked; /* hash of the last text of a mismatch */
    int decided_count, member_count;
    struct finding_seen findings[FINDINGS_MOST + 1];
};

#define TRACE_LENGTH 40

struct trace {
    int64_t time;
    const char *what;
    int set, rank, argument;
    int64_t detail;
};

struct world {
    struct scenario scenario;
    uint64_t random;
    int64_t now;
    struct queue queue;
    struct set *sets[SETS_LIMIT + 1]; /* by id; NULL: not there yet */
    struct turns *turns;              /* [ranks of the job] */
    bool *occupied;                   /* [ranks of the job] their devices */
    int cuts[8][2];                   /* ranks of the job */
    int cut_count;
    int garbage_left;
    int findings_left;
    uint64_t finding_random;
    int64_t split_at; /* time */
    bool *lost;       /* [ranks of the job] whose processes do nothing from then on; NULL: no split */
    int64_t
        *cut_times; /* [hosts][hosts] from which on nothing from one arrives at the other; NULL: no split */
    int64_t active; /* the last event of a program or a message */
    struct tally *tally;
    struct trace trace[TRACE_LENGTH];
    uint64_t trace_count, digest;
    bool verbose, corrupt, violated;
};

struct options {
    uint64_t seeds, first;
    int ranks;
    int scale; /* 0: seeds */
    bool verbose;
    bool corrupt; /* flip bits of messages at random: a run then ends, quietly, at the first violation */
};

/* Runs one seed to the end of its virtual time. False when a check failed; the reason and the last events are
 * printed. `digest` is the same for the same run. */
bool world_run(uint64_t seed, const struct options *options, struct tally *tally, uint64_t *digest);

/* world.c */
void world_trace(struct world *world, const char *what, const struct virtual_rank *member, int argument,
                 int64_t detail);
void violation(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t later(struct world *world, int64_t longest);
void plan_event(struct virtual_rank *member, enum event_kind kind, int64_t longest, int argument);
void plan_turn(struct virtual_rank *member);

/* set.c: process sets as a whole, and what reaches all sets of a rank */
struct set *set_create(struct world *world, int id, const int *ranks, int size);
void set_free(struct set *set);
void member_open(struct virtual_rank *member);
/* Gives an added set its coordinator, if it has none, and the messages that arrived before it. */
void member_adopt(struct virtual_rank *member);
struct virtual_rank *find_member(struct set *set, int rank); /* of the job; NULL: none */
int member_parent(const struct virtual_rank *member);        /* its number; -1 at the root */
void change_sets(struct virtual_rank *member, const struct plan *plan);
/* What has happened to one coordinator of a rank concerns all others of it. */
void spread(struct virtual_rank *member);
void rank_leave(struct world *world, int rank);
void rank_lost(struct world *world, int rank, int peer);
void cut_some_edge(struct world *world);

/* member.c: a member's own doings, and what its coordinator requests */
void member_start(struct virtual_rank *member); /* once there is a coordinator and the set may be used */
void member_submit(struct virtual_rank *member, int name);
void member_join(struct virtual_rank *member);
void member_batch_done(struct virtual_rank *member, int batch);
struct coordinator_output member_output(struct virtual_rank *member);

/* All members run it: what a rank of an ordered batch does at its turn. */
void member_started(struct virtual_rank *member, int batch);

/* order.c: batches that need one order over all process sets */
void order_init(struct world *world);
void order_free(struct world *world);
bool order_concerns(const struct virtual_rank *member, const struct batch *batch);
void order_ask(struct virtual_rank *member);    /* it has such a batch */
void order_turn(void *owner, int set);          /* the coordinator's output */
void order_look(struct world *world, int rank); /* starts what may start */
void order_done(const struct virtual_rank *member, int batch);

/* network.c */
void network_send(void *owner, int to, const uint8_t *bytes, size_t length);
void network_flood(void *owner, int except, const uint8_t *bytes, size_t length, bool fatal);
bool network_is_cut(const struct world *world, int from, int to); /* ranks of the job */
void network_deliver(struct world *world, const struct event *event);
void network_deliver_early(struct virtual_rank *member);

/* The connections of a member: of i below network_peers() a member's number, or -1. */
int network_peers(const struct virtual_rank *member);
int network_peer(const struct virtual_rank *member, int i);

/* split.c: lost hosts and a split network */
int64_t split_settling(const struct scenario *scenario);
void split_plan(struct world *world);
bool split_has_lost(const struct world *world, int rank);        /* the process of this rank */
bool split_stops(const struct world *world, int from, int to);   /* ranks of the job */
bool split_blocks(const struct virtual_rank *member, int batch); /* for ever */
void split_look(struct world *world, int rank);
void split_check_cause(const struct virtual_rank *member, const struct silence *silence);
int *split_components(const struct world *world); /* [ranks of the job], malloc'd */

/* lateness.c */
void lateness_look(struct virtual_rank *member); /* after each call that changes its coordinator */
void lateness_shown(void *owner, int reporter, int rank, const struct lateness *lateness); /* its output */

/* findings.c */
void findings_draw(struct slot *slot); /* after each submission */
void findings_received(void *owner, int rank, hvd_operation operation, uint32_t mark); /* its output */
void findings_check(struct virtual_rank *member, const struct batch *batch, struct decided *decided);

/* scale.c: counts the work of a step on this many ranks. Returns false if it grows with them. */
bool scale_run(int size);

/* check.c */
static inline int code_of(const struct slot *slot)
{
    return slot->name * slot->member->set->program.rounds + slot->round;
}
/* What a member contributes to eager data: this and the index of the word. */
uint64_t eager_word(const struct set *set, int code, int member);
void check_batch(struct virtual_rank *member, const struct batch *batch);
void check_finish(struct slot *slot, const hvd_status *status);
void check_joined(struct virtual_rank *member, int last_rank);
void check_stall(struct virtual_rank *member, const struct stall *stall);
void check_end(struct world *world);

#endif
