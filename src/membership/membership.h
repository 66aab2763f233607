/* membership.h - decides which processes are the ranks of a job, epoch by epoch. A pure state machine: no
 * socket, thread, clock or file. The launcher, the unit tests and the simulator drive the same code. Not
 * thread-safe.
 *
 * A host is an entry of the user's list or of host discovery, by its name. Its number, given in the order in
 * which hosts become known, never changes. A host offers seats, numbered from 0, for one process each. A slot
 * is a process: its number is never used again. Its rank is a property of an epoch.
 *
 * After each input, fetch all actions with membership_next and carry them out in their order; then call
 * membership_tick at membership_deadline, if no other input comes first. Times are any clock's that never
 * runs backwards, in nanoseconds.
 *
 * The processes of epoch 0 are its members from the start. All later ones are newcomers: they cost the
 * members nothing until they are ready, i.e. wait for an epoch themselves. A new epoch begins once the
 * running one is broken (a member is lost, or waits because its operations failed), or a change is noticed
 * (newcomers are ready, hosts were removed), and all remaining members wait. */
#ifndef HVD_MEMBERSHIP_MEMBERSHIP_H
#define HVD_MEMBERSHIP_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

struct membership;

struct membership_config {
    bool fixed;       /* the ranks stay the same from start to end: the first failure ends the job */
    bool listed;      /* all hosts are known from the start: there will be no other ones */
    int start;        /* seats that the first epoch waits for; `min` if the hosts of others can't be used */
    int min, max;     /* ranks of an epoch */
    int spares;       /* processes beyond max that are ready to take the place of a lost one at once */
    int64_t prepare;  /* once there are `min` seats, the first epoch waits this long for hosts that are not
                         prepared yet */
    int64_t settle;   /* after a loss, for more losses with the same cause */
    int64_t rejoin;   /* a member that does not wait this long after the others have is hung */
    int64_t silent;   /* the same of one that all others have lost; it is killed */
    int64_t gather;   /* newcomers that are ready wait this long for others that have been started */
    int64_t timeout;  /* without the seats for an epoch, the job ends after it */
    int reset_limit;  /* epochs after the first; -1: any number */
    bool restart;     /* a failed process is started again at its seat; otherwise its host is left out if
                         another one has members */
    bool drop_last;   /* without `restart`: the host is left out also if no other one has members */
    bool grow_now;    /* a change is noticed once newcomers are started, and the members wait for them */
    int restarts;     /* within MEMBERSHIP_RESTARTS_WINDOW, before the seat or the host is left out */
    int64_t pause[2]; /* least and longest time for which a host is left out; 0: forever */
    uint64_t seed;    /* of the random part of pauses */
};

#define MEMBERSHIP_RESTARTS_WINDOW INT64_C(600000000000) /* ns */

struct membership_host {
    const char *name;
    int slots; /* seats that it offers; a name that is listed twice offers the sum */
};

/* What a process says when it waits for the next epoch. */
struct membership_wait {
    int after;        /* the last epoch that it has been in; -1: none */
    bool holds_state; /* it could hand the state of the training to a newcomer */
    int lost_rank;    /* of that epoch, which its operations have lost; -1: unknown */
};

enum membership_step { /* to which processes are brought: each one includes those before it */
                       MEMBERSHIP_KEEP, /* they continue */
                       MEMBERSHIP_OWN,  /* may end by themselves, for a while */
                       MEMBERSHIP_TERM, /* SIGTERM */
                       MEMBERSHIP_KILL  /* SIGKILL */
};

/* NULL: out of memory. */
struct membership *membership_new(const struct membership_config *config);
void membership_free(struct membership *membership); /* NULL is fine */

/* ---- inputs; `now` never decreases --------------------------------------------------------------------- */

/* All hosts that there are now, in the order of the user. A name that was known before keeps its number. */
void membership_discovered(struct membership *membership, int64_t now, const struct membership_host *hosts,
                           int count);

/* Answers of MEMBERSHIP_PREPARE. */
void membership_host_prepared(struct membership *membership, int64_t now, int host);
void membership_host_failed(struct membership *membership, int64_t now, int host);

/* The connection to a host has ended, or it has been silent for too long: its processes count as gone. */
void membership_host_lost(struct membership *membership, int64_t now, int host, bool silent);

/* The process has asked for the next epoch. Report all such questions, repeated ones, too, and above all the
 * first one of each process, after -1. */
void membership_waits(struct membership *membership, int64_t now, int slot,
                      const struct membership_wait *wait);

/* The function that was to be trained has returned there. */
void membership_done(struct membership *membership, int64_t now, int slot);

/* The process, or all of a host, was asked to leave: it does so by the next epoch if the others are enough.
 * Its seat stays free until discovery has withdrawn it and offers it anew. */
void membership_leaves(struct membership *membership, int64_t now, int slot);
void membership_host_leaves(struct membership *membership, int64_t now, int host);

/* The process has ended; exit_code as in a shell, signal 0: by itself. Before its process group is gone. */
void membership_ended(struct membership *membership, int64_t now, int slot, int exit_code, int signal);

/* It could not be started; exit_code is a shell's (126, 127), or 0. */
void membership_not_started(struct membership *membership, int64_t now, int slot, int exit_code);

/* The process group of a process that has ended, or was to end, is gone: its seat is free. */
void membership_gone(struct membership *membership, int64_t now, int slot);

/* The job is to end for a reason outside: a signal, or lost output. In a job that is ending it only brings
 * all processes to the step. */
void membership_stop(struct membership *membership, int64_t now, int exit_code, enum membership_step step);

void membership_tick(struct membership *membership, int64_t now);

/* When membership_tick has something to do; INT64_MAX: never. */
int64_t membership_deadline(const struct membership *membership);

/* ---- actions ------------------------------------------------------------------------------------------- */

enum membership_action_kind {
    MEMBERSHIP_PREPARE, /* host: membership_host_prepared, _failed or _lost follows */
    MEMBERSHIP_RELEASE, /* host: has no process and gets none until it is prepared again */
    MEMBERSHIP_EPOCH,   /* epoch: membership_ranks are its ranks from now on. Comes before the processes that
                           are members from their start are started */
    MEMBERSHIP_START,  /* slot, host, seat, rank: start a process. membership_planned are the ranks that it is
                          to assume; it is number `rank` of them, or behind them, a spare */
    MEMBERSHIP_END,    /* slot, step, why: the process is in no epoch now, which is the answer if it asks, and
                          ends: by the step at the latest. slot -1: all processes */
    MEMBERSHIP_NOTICE, /* epoch, change: members of that epoch are to wait for the next one, soon */
    MEMBERSHIP_SAY,    /* text for the user */
    MEMBERSHIP_FINISH  /* exit_code, slot, step, text: the job ends; once. slot is the process whose failure
                          is the cause, or -1. text: why, or "" if the user knows already */
};

enum membership_why {
    MEMBERSHIP_REMOVED,  /* its seat is offered no longer, or it is one too many */
    MEMBERSHIP_HOST_OUT, /* another process of its host has failed */
    MEMBERSHIP_LEAVES,   /* it was asked to leave */
    MEMBERSHIP_HUNG,     /* it did not wait when all others did */
    MEMBERSHIP_CUT_OFF,  /* its connections break again and again */
    MEMBERSHIP_OVER      /* the job ends */
};

enum membership_change {                      /* bits */
                         MEMBERSHIP_LESS = 1, /* members are to leave */
                         MEMBERSHIP_MORE = 2, /* newcomers are ready */
                         MEMBERSHIP_LOST =
                             4 /* the epoch is broken: whoever still opens its connections must give up */
};

#define MEMBERSHIP_TEXT 256

struct membership_action {
    enum membership_action_kind kind;
    int host, seat, slot, rank, epoch, exit_code;
    unsigned change; /* enum membership_change */
    enum membership_step step;
    enum membership_why why;
    char text[MEMBERSHIP_TEXT];
};

/* Returns false if there is none. */
bool membership_next(struct membership *membership, struct membership_action *action);

/* ---- its state; pointers are valid until the next input ----------------------------------------------- */

struct membership_rank {
    int slot, host, seat;
    bool newcomer; /* it was in no epoch before */
};

/* The ranks of the epoch, by rank. The epoch is -1 before the first one. */
const struct membership_rank *membership_ranks(const struct membership *membership, int *epoch, int *size);

/* The ranks that the next epoch would have if all processes that were started became ready. The spares are
 * behind them, beyond `size`. */
const struct membership_rank *membership_planned(const struct membership *membership, int *size);

/* Hosts that were ever known. */
int membership_hosts(const struct membership *membership);
const char *membership_host_name(const struct membership *membership, int host);
/* Returns true if its seats are not used now, because a process there has failed or the host was lost. */
bool membership_host_is_out(const struct membership *membership, int64_t now, int host);

#endif
