/* table.h - the names of one coordinator: the agreed form with its id, this rank's own request, and the count
 * of reporters in the present round (docs/coordination.md, "Counting"). Called with the progress lock held.
 *
 * An agreement that was evicted stays readable until all children have seen the eviction, because ids that
 * they sent before may still be on their way (docs/coordination.md, "Crossing"). */
#ifndef HVD_COORDINATE_TABLE_H
#define HVD_COORDINATE_TABLE_H

#include "base/map.h"
#include "base/pool.h"
#include "coordinate/coordinator.h"
#include "coordinate/request.h"
#include "coordinate/tree.h"

/* ---- forms: interned signatures, reference-counted ----------------------------------------------------- */

/* Shared by rounds and agreements of any number of names. A coordinator has each signature only once, so
 * equal forms have equal addresses. */
struct form_store {
    struct map map; /* by signature */
    struct pool pool;
};

struct form {
    int references;
    struct form_store *store;
    struct signature signature; /* `bytes` */
    struct signature_summary summary;
    uint8_t bytes[];
};

/* The one that is there, or a new one. HVD_INVALID_ARGUMENT: it is no signature of a set of `size` ranks. */
hvd_code form_find(struct form_store *store, const struct signature *signature, int size, struct form **form,
                   hvd_status *status);
struct form *form_share(struct form *form);
void form_release(struct form *form); /* NULL is fine */

/* ---- names, rounds and agreements ---------------------------------------------------------------------- */

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

/* A child's report of a stalled name: the missing ranks of its subtree. */
struct stall_report {
    int child;
    hvd_operation operation; /* of one of those that wait */
    bool grouped;
    int64_t waited; /* by then */
    struct rank_set missing;
    struct stall_report *next;
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
    bool bare;     /* the data of some reporter did not come with its report */
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
    uint64_t opened;             /* the table's last_apart by then */
    uint64_t number;             /* in the order in which rounds were first reported */
    uint8_t *parts;              /* part_bytes for each child: the data of its report */
    size_t part_bytes;           /* those of the common form; 0: no parts */
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
    uint64_t rounds;                       /* the number of the last one */
    uint64_t last_apart;                   /* number of the last decision that runs something `apart` */
    struct agreement_list recent, retired; /* that hold, last used first; evicted, first one first */
};

void table_free(struct table *table);

/* Finds the entry, or makes one; NULL when memory is out. */
struct entry *table_entry(struct table *table, const char *name, uint32_t length);
/* Begins a round unless one is open; false when memory is out. */
bool table_open_round(struct table *table, struct entry *entry);
void table_close_round(struct table *table, struct entry *entry); /* fine if there is none */
size_t round_parts_bytes(const struct table *table, const struct round *round);
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

/* ---- counting in an open round ------------------------------------------------------------------------- */

/* All in the entry's open round. This rank submits `form`. */
hvd_code round_add_own(struct entry *entry, const struct tree_node *tree, struct form *form,
                       hvd_status *status);
/* The whole subtree of a child has submitted `form`. */
hvd_code round_add_child(struct entry *entry, const struct tree_node *tree, int child, struct form *form,
                         hvd_status *status);
/* The subtree of a child has submitted different forms, which are shared, not taken over. */
hvd_code round_add_variants(struct entry *entry, const struct tree_node *tree, int child,
                            const struct variants *variants, hvd_status *status);

/* Of a request that has arrived in this round, or is known to wait below. */
hvd_operation round_operation(const struct round *round, bool *grouped);
/* The entry of an open round as users know it. Returns `text`. */
char *entry_title(const struct entry *entry, char *text, size_t capacity);

bool round_has_child(const struct entry *entry, int child);
void variants_release(struct variants *variants); /* the forms only */

/* Drops the stall report of one child (-1: of all) from a round, if there is one. */
void stall_drop(struct entry *entry, int child);

#endif
