/* world.h - one run: the state machine of the product, driven as the launcher drives it; agents, homes and
 * programs are scripts, in virtual time. One thread.
 *
 * Messages of one connection keep their order; all else may be delayed at random. A program trains: each step
 * is a collective, each few steps a commit and a look at notices. What the ranks of a new epoch agree on is
 * agreement.h. */
#ifndef MEMBERSHIP_WORLD_H
#define MEMBERSHIP_WORLD_H

#include "membership/membership.h"

#include "agreement.h"
#include "queue.h"

#include "random.h"

#define MS          INT64_C(1000000)
#define SECOND      (1000 * MS)
#define FOREVER     (INT64_MAX / 4)
#define HOST_LIMIT  64
#define CUT_LIMIT   4
#define TRACE_LIMIT 60

struct tally {
#define TALLY(field, text) uint64_t field;
#include "tally.def"
#undef TALLY
};

enum phase {
    PHASE_LOADING,
    PHASE_ASKING, /* waits for an epoch */
    PHASE_OPENING,
    PHASE_AGREEING,
    PHASE_RECEIVING,
    PHASE_STEP,
    PHASE_CHECK,
    PHASE_RETURNED,
    PHASE_ENDED
};

struct model { /* of the training: each step changes the hash in a way that depends on all before */
    int step;
    uint64_t hash;
};

struct program {
    int slot, host, seat;
    int connection; /* of its agent */
    bool newcomer;
    enum phase phase;
    bool inside; /* the phase's collective has been submitted */
    bool alive, out, hangs;
    bool group;                   /* its process group has not ended */
    bool waits, dismissed, ended; /* as the launcher knows; */
    int known_code;               /* likewise */
    bool returned;
    int64_t leaves;        /* when the launcher has received that it is to leave; 0: it is not */
    int64_t stopped_until; /* 0: it runs, */
    int64_t continued;     /* since then */
    int epoch;             /* whose connections it has; -1: none */
    int after, answer;     /* of its open question; -1: no answer */
    bool has_state, failed;
    int lost_rank;
    struct model live, copy;
    int version;   /* of the copy */
    int timer;     /* number of the newest timer: older ones are void */
    int load_time; /* ms */
    int dies_at;   /* enum phase in which it ends by itself; -1: never */
    int exit_code;
};

/* The connections of the ranks of one epoch. */
struct mesh {
    int size;
    struct membership_rank *ranks;
    struct record *records;
    int opened, arrived, number;
    unsigned notices[2]; /* by parity of the collective */
    bool broken, begun;
    int version; /* that the ranks have agreed on; -1: not yet */
    uint64_t hash;
    int committed, commits; /* the newest version, on how many ranks */
    int done;
    unsigned notice; /* sent by the launcher */
};

struct host {
    char name[8];
    int slots;      /* as the user has listed it */
    int offered;    /* as discovery says now */
    int named;      /* as the state machine last received it */
    bool up, agent; /* the machine; the agent, and with it the connection */
    bool can_prepare, prepared;
    int connection; /* number */
    int64_t last_up, last_down;
    int64_t lost_at; /* as reported last */
    int losses;
    unsigned left;     /* seats whose processes were asked to leave, as bits, until they are withdrawn */
    int64_t failed_at; /* when a member on it has failed */
    int epoch;         /* which its home knows, */
    unsigned notice;   /* and for that one */
};

struct world {
    struct membership *membership;
    struct membership_config config;
    uint64_t seed, random;
    int64_t now;
    struct queue queue;
    struct host hosts[HOST_LIMIT];
    int host_count;
    struct program *programs; /* by slot */
    int program_count;
    struct mesh *meshes; /* by epoch */
    int mesh_count;
    int steps, commit_every;
    bool plain;                        /* the programs use no epochs */
    bool entered;                      /* the launcher knows that a program uses epochs */
    bool early;                        /* before it did, a member has ended with 0 */
    bool synced;                       /* some rank holds the state */
    int durable;                       /* the newest version that was committed on all ranks of an epoch */
    int cuts[CUT_LIMIT][2], cut_count; /* slots between which connections break */
    int faults;                        /* still to come */
    int usable;                        /* seats of prepared hosts, before the first epoch */
    int64_t usable_since;              /* that they are enough for it; INT64_MAX: they are not */
    int64_t last_loss, tick_at;
    int64_t began; /* when the newest epoch did, here */
    bool cause;    /* of the next epoch */
    bool ambush;   /* some rank is killed while the next collective ends */
    bool finished;
    int exit_code;
    bool failure; /* something has happened after which the job may end with an error */
    bool verbose, violated;
    struct tally *tally;
    char trace[TRACE_LIMIT][160];
    uint64_t traced, digest;
};

void violation(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
void note(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t later(struct world *world, int64_t longest); /* a time */
void plan(struct world *world, int64_t time, enum kind kind, int a, int b, int c, int d);

/* Returns whether the seed's run kept all invariants. */
bool world_run(uint64_t seed, bool verbose, struct tally *tally, uint64_t *digest);

/* ---- scenario.c: what a seed is ---- */
void scenario_init(struct world *world);
void scenario_program(struct world *world, struct program *program); /* what becomes of one */
void scenario_fault(struct world *world, const struct happening *happening);
void scenario_epoch(struct world *world); /* one with newcomers has begun */
void scenario_rest(struct world *world);  /* no more faults: all hosts are up, and offered */

/* ---- launcher.c: inputs and actions of the state machine, and the agents ---- */
void launcher_discover(struct world *world);
void launcher_tick(struct world *world);
void launcher_receive(struct world *world, const struct happening *happening);
void agent_receive(struct world *world, const struct happening *happening);
void agent_send(struct world *world, int host, enum kind kind, int slot, int b, int c);
void agent_end(struct world *world, int host); /* its processes follow */
void host_crash(struct world *world, int host, bool silent);

/* ---- program.c ---- */
struct program *program_add(struct world *world, int slot, int host, int seat, bool newcomer);
void program_start(struct world *world, struct program *program);
void program_timer(struct world *world, const struct happening *happening);
void program_collective(struct world *world, const struct happening *happening);
void program_error(struct world *world, const struct happening *happening);
void program_news(struct world *world, struct program *program); /* its home knows something new */
void program_end(struct world *world, struct program *program, int exit_code, bool reported);
void mesh_break(struct world *world, int epoch, int rank, int64_t longest);
int mesh_rank(const struct mesh *mesh, int slot); /* -1: it is not in the epoch */

/* ---- check.c ---- */
void check_epoch(struct world *world, const struct membership_rank *ranks, int epoch, int size);
void check_seats(struct world *world); /* before actions follow */
void check_start(struct world *world, const struct membership_action *action);
void check_notice(struct world *world, const struct membership_action *action);
void check_left_out(struct world *world);
void check_dismissal(struct world *world, const struct membership_action *action);
void check_synced(struct world *world, struct mesh *mesh, const struct program *program);
void check_leaving(struct world *world, const struct program *program);
void check_collective(struct world *world, const struct mesh *mesh);
void check_finish(struct world *world, int exit_code);
void check_end(struct world *world);
uint64_t reference(int steps); /* the hash of a model after so many steps */

#endif
