/* state.h - the inside of a coordinator; shared by coordinator.c, receive.c, decide.c, apply.c, join.c,
 * stall.c, mismatch.c and close.c only.
 *
 * Inputs note what happened; coordinator_flush acts: non-roots report, the root decides. Every rank, the root
 * included, carries out decisions from the bytes of the same message. */
#ifndef HVD_COORDINATE_STATE_H
#define HVD_COORDINATE_STATE_H

#include "coordinate/coordinator.h"
#include "coordinate/message.h"
#include "coordinate/round.h"
#include "coordinate/table.h"

/* Long batches that run at the root at the same time: one moves data while the next one starts. Beside them
 * one short batch runs, so that a short request never waits for a long one. */
#define LONG_BATCHES_IN_FLIGHT 2
#define SHORT_BYTES            ((uint64_t)64 << 10)

enum coordinator_state {
    STATE_OPEN,
    STATE_CLOSING,  /* a rank left; batches decided before still run */
    STATE_SHUTDOWN, /* this subtree is done and has told the parent */
    STATE_CLOSED,
    STATE_FAILED
};

struct child {
    uint64_t seen; /* the last decision that it has processed, as far as it said */
    int joined;    /* ranks of its subtree that have joined */
    bool goodbye;
    bool lost; /* after its goodbye */
};

/* Entries with an open round, which is in one list at most. */
struct entry_list {
    struct entry *head, *tail;
    size_t count;
};

/* Asked for by every rank, in one form: by whether they run alone or may share a batch, and whether they are
 * short. So what may start next is at the head of a queue. */
enum { READY_ALONE = 1, READY_SHORT = 2, READY_QUEUES = 4 };

struct ready_queue {
    struct entry_list list;
    bool unsorted;  /* else in the order in which it runs */
    uint64_t least; /* none has fewer bytes */
};

/* What only the root has. */
struct root {
    struct ready_queue ready[READY_QUEUES];
    size_t ready_count;        /* in all queues */
    struct entry_list behind;  /* ready, but behind an `apart` one, which waits for the queues to be empty */
    uint64_t places;           /* given out so far */
    int64_t oldest;            /* none is ready for longer; kept where there is a cycle time */
    struct entry_list members; /* of a batch in the making */
    int unpublished;           /* decisions in `out` */
    uint64_t *joined;          /* a bit per rank; NULL: nobody ever has */
    int last_joined;
};

struct coordinator {
    struct coordinator_config config;
    enum coordinator_state state;
    hvd_status cause; /* why requests are refused, once closing or failed */
    struct table table;
    struct child *children;
    uint64_t seen;                   /* number of the last decision carried out */
    struct pending *oldest, *newest; /* requests of this rank */
    int pending;                     /* how many */
    struct entry_list complete;      /* the whole subtree asked, not yet reported or judged */
    struct pending **members;        /* of the batch being carried out */
    struct member *forms;            /* and what they are, in the same order */
    size_t member_count, member_capacity;
    int running;                     /* batches of this rank */
    uint64_t short_running;          /* at the root: the number of the short one among them; 0: none */
    int evictions_unseen;            /* carried out since the last report */
    bool stall_news;                 /* a child has told of its part since */
    int64_t stall_looked;            /* when the open rounds were looked at */
    uint64_t unnamed[UNNAMED_KINDS]; /* per operation: unnamed submissions of this rank */
    struct pending *join;            /* this rank has joined; NULL: it has not */
    int absent;                      /* reporters whose whole subtree has joined */
    int *joins;                      /* ranks that the parent is to be told of */
    int join_count, join_capacity;
    uint64_t joined_unnamed[UNNAMED_KINDS]; /* the most that a joined rank has come to */
    int leaver;                             /* -1; the first rank known to leave */
    bool leaves, leave_sent;                /* this rank leaves; the parent was told of `leaver` */
    struct wire_writer out;                 /* the message in the making */
    struct root root;
};

static inline bool is_root(const struct coordinator *c)
{
    return c->config.tree.parent < 0;
}

/* Where the payload differs by rank nobody knows its length. */
static inline bool is_short(uint64_t bytes)
{
    return bytes && bytes <= SHORT_BYTES;
}

/* What the users call a rank of this set. */
static inline int rank_name(const struct coordinator_config *config, int rank)
{
    return config->names ? config->names[rank] : rank;
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

/* coordinator.c: takes this rank's request out of its entry. */
struct pending *entry_take_request(struct coordinator *c, struct entry *entry);
void members_free(struct coordinator *c); /* the list */
/* Sends `out` and empties it. */
hvd_code send_out(struct coordinator *c, int rank, hvd_status *status);
void send_to_children(struct coordinator *c, const uint8_t *bytes, size_t length);

/* receive.c: a report counts in its entry; a complete one is noted. */
void note_if_complete(struct coordinator *c, struct entry *entry);
/* The round of an entry has ended; it may be freed. */
void end_round(struct coordinator *c, struct entry *entry);

/* apply.c: carries out all decisions of a message, from the byte after its kind. */
hvd_code apply_decisions(struct coordinator *c, struct wire_reader *reader, hvd_status *status);

/* decide.c: the root judges what is complete, and sends and carries out what it decides. */
void decide_forget(struct coordinator *c); /* what is ready */
hvd_code decide(struct coordinator *c, int64_t now, hvd_status *status);
int64_t decide_next(const struct coordinator *c);

/* mismatch.c: who asked for what, in words. */
void mismatch_text(const struct entry *entry, const int *names, char *text, size_t capacity);

/* close.c */
void close_begin(struct coordinator *c, int leaver); /* the decision to close */
hvd_code close_advance(struct coordinator *c,
                       hvd_status *status); /* says what is due: leave, goodbye, farewell */
void close_end(struct coordinator *c);      /* the farewell */
/* Fails, and tells all neighbours but `except`. */
void fail(struct coordinator *c, int except, const hvd_status *cause);

#endif
