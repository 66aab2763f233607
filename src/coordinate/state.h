/* state.h - the members of a coordinator, and the functions that the files of this folder share. Called with
 * the progress lock held.
 *
 * Inputs only change the state; coordinator_flush sends: non-roots report, the root decides. Every rank, the
 * root included, carries out decisions from the bytes of the same message. */
#ifndef HVD_COORDINATE_STATE_H
#define HVD_COORDINATE_STATE_H

#include "coordinate/coordinator.h"
#include "coordinate/message.h"
#include "coordinate/table.h"

/* This many long batches run at the root at the same time: one moves data while the next one starts. One
 * short batch may run in addition, so that a short request never waits for a long one. */
#define LONG_BATCHES_IN_FLIGHT 2
#define SHORT_BYTES            ((uint64_t)64 << 10)

enum coordinator_state {
    STATE_OPEN,
    STATE_CLOSING,  /* a rank left; batches decided before still run */
    STATE_SHUTDOWN, /* this subtree is done: SHUTDOWN_DONE was sent */
    STATE_CLOSED,
    STATE_FAILED
};

struct child {
    uint64_t seen; /* the last decision that it has processed, according to its last report */
    int joined;    /* ranks of its subtree that have joined */
    bool done;     /* SHUTDOWN_DONE was received */
    bool lost;     /* the connection was lost after that */
};

/* A place that was reported as silent, or has answered such a report. */
struct silent_place {
    int reporter; /* the place of the first rank that has reported it, plus 1; 0: no rank has */
    bool present; /* it has answered a report about a rank of its host */
};

/* Entries with an open round; an entry is in at most one list. */
struct entry_list {
    struct entry *head, *tail;
    size_t count;
};

/* The queues of names that every rank has submitted in one form. The index says whether a name runs alone or
 * may share a batch, and whether it is short: the next one to start is at the head of a queue. */
enum { READY_ALONE = 1, READY_SHORT = 2, READY_QUEUES = 4 };

struct ready_queue {
    struct entry_list list; /* in the order in which entries run */
    uint64_t least;         /* lower bound of the smallest entry, in bytes */
};

/* State that only the root uses. */
struct root {
    struct ready_queue ready[READY_QUEUES];
    size_t ready_count;       /* entries in all queues */
    struct entry_list behind; /* ready entries after an `apart` one, which waits until the queues are empty */
    uint64_t places;          /* the last `place` that an entry was given */
    int64_t oldest;           /* lower bound of when the oldest entry became ready; used with a cycle time */
    struct entry_list members; /* of the batch that is being composed */
    int unpublished;           /* decisions in `out` */
    uint64_t *joined;          /* a bit per place; NULL: no rank has ever joined */
    int last_joined;
};

struct coordinator {
    struct coordinator_config config;
    enum coordinator_state state;
    int64_t now;      /* the time of the present input or flush */
    hvd_status cause; /* why requests are refused, once closing or failed */
    struct table table;
    struct child *children;
    struct late *late;               /* by reporter: see late.h; NULL: not measured, or no longer */
    uint64_t seen;                   /* number of the last decision carried out */
    struct pending *oldest, *newest; /* requests of this rank */
    int pending;                     /* number of requests of this rank */
    struct entry_list complete;      /* rounds in ROUND_COMPLETE: not yet reported or judged */
    struct pending **members;        /* this rank's requests in the batch being carried out */
    struct member *forms;            /* the agreed requests of that batch, in the same order */
    size_t member_count, member_capacity;
    int running;                     /* running batches of this rank */
    uint64_t short_running;          /* at the root: the number of the short one among them; 0: none */
    int evictions_unseen;            /* carried out since the last report */
    bool stall_received;             /* a child has reported a stall since the last check */
    int64_t stall_checked;           /* when the open rounds were last checked */
    uint64_t unnamed[UNNAMED_KINDS]; /* per operation: unnamed submissions of this rank */
    struct pending *join;            /* this rank has joined; NULL: it has not */
    int absent;                      /* reporters whose whole subtree has joined */
    int *turns;                      /* process sets whose turns must be reported to the parent, or decided */
    int turn_count, turn_capacity;
    int *joins; /* joined ranks that must be reported to the parent */
    int join_count, join_capacity;
    uint64_t joined_unnamed[UNNAMED_KINDS]; /* per operation: the most unnamed submissions of a joined rank */
    int leaver;                             /* -1; the first rank known to leave */
    bool leaves;                            /* this rank leaves */
    bool leave_sent;                        /* `leaver` was sent to the parent */
    struct silent_place *silent_places;     /* by place; NULL: no report was received */
    bool any_silent;                        /* a place has a reporter */
    hvd_status broken;                      /* the first broken network path; code 0: none */
    int64_t silent_since;                   /* when the last report of either was received; 0: none was */
    uint32_t eager_bytes;                   /* bytes of this rank's requests whose data are in a report */
    uint8_t *eager_sum;                     /* room for eager_threshold bytes */
    struct wire_writer out;                 /* the message that is being written */
    struct wire_writer rows;                /* the list of numbers that is being written */
    struct wire_writer findings;            /* that must be reported to the parent, or decided */
    struct root root;
};

static inline bool is_root(const struct coordinator *c)
{
    return c->config.tree.parent < 0;
}

/* A payload that may differ by rank has 0 bytes, and is not short. */
static inline bool is_short(uint64_t bytes)
{
    return bytes && bytes <= SHORT_BYTES;
}

/* The interface numbers members by their rank in the set; this folder and its messages by their place. */
static inline int place_of(const struct coordinator_config *config, int rank)
{
    return config->tree.topology->place_of[rank];
}

static inline int rank_at(const struct coordinator_config *config, int place)
{
    return config->tree.topology->rank_at[place];
}

/* Returns the rank of the job at a place, for texts. */
static inline int name_at(const struct coordinator_config *config, int place)
{
    int rank = rank_at(config, place);
    return config->names ? config->names[rank] : rank;
}

static inline int own_name(const struct coordinator_config *config)
{
    return name_at(config, config->tree.place);
}

static inline void entry_list_push(struct entry_list *list, struct entry *entry)
{
    entry->round->next = NULL;
    *(list->head ? &list->tail->round->next : &list->head) = entry;
    list->tail = entry;
    list->count++;
}

static inline void entry_list_clear(struct entry_list *list)
{
    *list = (struct entry_list){0};
}

/* ---- shared operations ------------------------------------------------------------------------------- */

/* Removes this rank's request from its entry. */
struct pending *entry_take_request(struct coordinator *c, struct entry *entry);
void members_free(struct coordinator *c); /* frees the lists `members` and `forms` */
void ready_clear(struct coordinator *c);  /* empties the queues of the root */

/* Sends `out` and empties it. */
hvd_code send_out(struct coordinator *c, int place, hvd_status *status);
void send_to_children(struct coordinator *c, const uint8_t *bytes, size_t length);

/* Returns true if the whole subtree of a child has joined. */
bool child_is_absent(const struct coordinator *c, int child);

/* Returns how many reporters have neither reported in this round nor joined with their whole subtree. */
int join_missing(const struct coordinator *c, const struct entry *entry);

/* Moves the entry's round to ROUND_COMPLETE, and into the list `complete`, once no reporter is missing. If it
 * completes without reporters that have joined, sets `partial`, and `rootless` if the root of the broadcast
 * is one of them. */
void check_complete(struct coordinator *c, struct entry *entry);

/* Ends the round of an entry, and frees the entry if it has no agreement. */
void end_round(struct coordinator *c, struct entry *entry);

#endif
