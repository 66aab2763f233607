/* table.h - the names of one coordinator: the agreed form with its id, this rank's own request, and the count
 * of reporters in the present round. Called with the progress lock held.
 *
 * An agreement that was evicted stays readable until all children have seen the eviction, because ids that
 * they sent before may still be on their way (docs/coordination.md, "Crossing"). */
#ifndef HVD_COORDINATE_TABLE_H
#define HVD_COORDINATE_TABLE_H

#include "base/map.h"
#include "base/pool.h"
#include "coordinate/coordinator.h"
#include "coordinate/form.h"
#include "coordinate/ranks.h"

struct entry;

struct agreement {
    uint64_t id;      /* number of the decision that made it */
    uint64_t evicted; /* number of the decision that ended it; 0: it holds */
    struct entry *entry;
    struct form *form;
    struct agreement *previous, *next; /* in `recent` or `retired` */
};

struct agreement_list {
    struct agreement *head, *tail;
    uint32_t count;
};

#define VARIANT_LIMIT 8

struct variant {
    struct form *form;
    struct rank_set ranks;
};

/* The forms that the ranks submitted, where they differ. */
struct variants {
    int count;
    bool others; /* there are more kinds */
    struct variant list[VARIANT_LIMIT];
};

enum round_phase {
    ROUND_COUNTING,
    ROUND_COMPLETE, /* no reporter is missing: in the coordinator's list of those */
    ROUND_REPORTED  /* the parent has it, or the root has judged it */
};

/* The reporters of a name since it last ran: this rank, and its children with their whole subtrees. Exists
 * from the first submission, report or stall report until the round ends. */
struct round {
    struct pending *mine; /* this rank's request */
    struct entry *next;   /* in the list of those complete, later of those ready, then of a batch */
    int missing;          /* of the reporters */
    enum round_phase phase;
    bool own;      /* this rank is not missing */
    bool partial;  /* some rank is excluded because it has joined */
    bool rootless; /* the root of this broadcast is one of them */
    bool apart;    /* some rank demands that it shares no batch */
    union {
        struct { /* ROUND_COUNTING, stall.c: when first seen waiting, and last warned of; 0: not yet */
            int64_t since, warned;
        };
        struct { /* later, at the root: when it became ready everywhere; */
            int64_t ready_since;
            union {
                uint64_t place; /* among all that are ready, first come first, */
                uint64_t id;    /* and then its id in a batch */
            };
        };
    };
    struct stall_report *stalls; /* of children */
    struct form *common;         /* what all reporters submitted; NULL: none yet, or they differ */
    struct variants *variants;   /* where they differ */
    uint64_t reported[];         /* a bit per child */
};

/* All that stays of a name between its rounds, so it is small. */
struct entry {
    struct agreement *agreed;
    struct round *round; /* NULL: none is open */
    int agreements;      /* that point here */
    uint32_t name_length;
    char name[];
};

struct table {
    struct map names, ids;
    struct form_store forms;
    struct pool pool;                      /* of entries, rounds and agreements */
    int reporters;                         /* children and this rank */
    int open;                              /* rounds */
    struct agreement_list recent, retired; /* that hold, last used first; evicted, first one first */
};

void table_free(struct table *table);

/* Finds the entry, or makes one; NULL when memory is out. */
struct entry *table_entry(struct table *table, const char *name, uint32_t length);
/* Begins a round unless one is open; false when memory is out. */
bool table_open_round(struct table *table, struct entry *entry);
void table_close_round(struct table *table, struct entry *entry); /* fine if there is none */
/* Frees an entry without a round or agreement. */
void table_tidy(struct table *table, struct entry *entry);

/* Also one that is retired; NULL when there is none of this id. */
struct agreement *table_agreement(const struct table *table, uint64_t id);
/* Takes over the reference to the form. */
hvd_code table_agree(struct table *table, struct entry *entry, uint64_t id, struct form *form,
                     hvd_status *status);
void table_touch(struct table *table, struct agreement *agreement); /* it was used just now */
/* Ends an agreement, but keeps its id readable if there are children. */
void table_evict(struct table *table, struct agreement *agreement, uint64_t decision);
/* Every child has seen this decision: forgets what ended up to there. */
void table_forget_retired(struct table *table, uint64_t seen_by_all);

#endif
