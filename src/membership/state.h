/* state.h - what the state machine of membership.h consists of; for the files of this folder. */
#ifndef HVD_MEMBERSHIP_STATE_H
#define HVD_MEMBERSHIP_STATE_H

#include "membership/membership.h"

#include <stddef.h>

#define NEVER INT64_MAX

#define RECONNECTS 10

#define EXIT_TEMPORARY 75 /* sysexits.h: EX_TEMPFAIL. A later try may find the hosts */

enum slot_state {
    SLOT_STARTING, /* a newcomer that is not ready */
    SLOT_READY,    /* a newcomer that waits for its first epoch */
    SLOT_IN,       /* a member of the running epoch */
    SLOT_WAITING,  /* a member that waits for the next one */
    SLOT_DONE,     /* a member whose function has returned */
    SLOT_LEAVING,  /* in no epoch any more, and is to end */
    SLOT_ENDED,    /* has ended, but its process group may not have */
    SLOT_GONE
};

struct slot {
    int number;
    enum slot_state state;
    int host, seat;
    int lost_rank;    /* which it has reported while waiting */
    bool holds_state; /* as it said when it last waited; members of epoch 0 from the start */
    bool leaves;      /* it was asked to leave, and does so once the others are enough */
    bool entered;     /* it has asked for an epoch */
    bool warned;      /* that it does not wait, in its epoch */
    bool late;        /* a newcomer without which an epoch has begun */
};

struct seat {
    int slot;     /* which occupies it; -1: free */
    int failures; /* since `counted` */
    int64_t counted;
    int64_t retry; /* no process is started before */
    bool closed;   /* its processes have failed too often */
    bool left;     /* its process was asked to leave; until the seat is withdrawn */
};

enum host_state { HOST_UNPREPARED, HOST_PREPARING, HOST_PREPARED };

struct host {
    char *name;
    int offered; /* seats that it offers; 0: it was removed */
    enum host_state state;
    int64_t retry;      /* not prepared before */
    int64_t out_until;  /* left out; NEVER: forever */
    int refusals;       /* times that it could not be prepared, in a row */
    int times_out;      /* times that it was left out */
    struct seat *seats; /* [seat_count] */
    int seat_count;     /* most that it has offered */
};

struct cause { /* why the running epoch broke first, or why the job ends */
    int slot;  /* that failed; -1: none */
    int exit_code;
};

struct membership {
    struct membership_config config;
    struct host *hosts;
    int host_count;
    struct slot *slots; /* [slot_count] by number, without those that are gone and were not in the epoch */
    int slot_count;
    int next_slot;                           /* number of the next process */
    struct membership_rank *ranks, *planned; /* [size], [planned_size] */
    int epoch, size, planned_size;
    bool broken;    /* a member of the running epoch was lost, or waits for the next one */
    bool synced;    /* a process has said that it holds the state: it was common to an epoch */
    bool entered;   /* some process has asked for an epoch */
    bool finishing; /* the work of a member is complete: no newcomers any more */
    bool finished;  /* MEMBERSHIP_FINISH was issued */
    bool no_memory;
    unsigned noticed;               /* to members of the running epoch */
    int64_t lost;                   /* when the last member was lost */
    int64_t moved;                  /* when a member was last lost, or waited */
    int64_t enough;                 /* since when there are the seats for the first epoch; NEVER: too few */
    int64_t gathering;              /* since when newcomers are ready; NEVER: there are none */
    int64_t starved;                /* since when there are too few seats; NEVER: there are enough */
    int64_t said;                   /* when that was last said */
    int64_t deadline;               /* for membership_tick */
    int64_t reconnects[RECONNECTS]; /* when the last epochs began that changed nothing, latest first */
    struct cause cause;             /* of the running epoch's end */
    struct cause failed; /* of a member of the last epoch, after the function had returned on another one */
    uint64_t random;
    struct membership_action *actions; /* [action_count], those before next_action have been fetched */
    int action_count, action_capacity, next_action;
};

static inline bool host_is_out(const struct host *host, int64_t now)
{
    return now < host->out_until;
}

static inline bool slot_is_newcomer(const struct slot *slot)
{
    return slot->state == SLOT_STARTING || slot->state == SLOT_READY;
}

/* Members that take part in the next epoch, unless they must leave. */
static inline bool slot_is_member(const struct slot *slot)
{
    return slot->state == SLOT_IN || slot->state == SLOT_WAITING;
}

/* Until the first epoch has agreed on a state, all have what the program starts with. */
static inline bool slot_may_hold_state(const struct membership *m, const struct slot *slot)
{
    return !m->synced || slot->state == SLOT_IN || slot->holds_state;
}

/* Why it ends, if its seat is not offered to it. */
static inline enum membership_why slot_why_removed(const struct slot *slot)
{
    return slot->leaves ? MEMBERSHIP_LEAVES : MEMBERSHIP_REMOVED;
}

static inline bool slot_lives(const struct slot *slot)
{
    return slot->state <= SLOT_DONE;
}

/* Calls membership_tick at this time, too. */
static inline void wake_at(struct membership *m, int64_t time)
{
    if (time < m->deadline)
        m->deadline = time;
}

static inline int64_t time_add(int64_t time, int64_t duration)
{
    return duration > NEVER - time ? NEVER : time + duration;
}

#endif
