/* table.h - the names of one coordinator: the agreed form with its id, this rank's own request, and the count
 * of reporters in the present round (docs/coordination.md, "Counting"). Called with the progress lock held.
 *
 * An evicted agreement stays readable until all children have seen the eviction, because ids that they sent
 * before may still arrive (docs/coordination.md, "Crossing"). */
#ifndef HVD_COORDINATE_TABLE_H
#define HVD_COORDINATE_TABLE_H

#include "base/map.h"
#include "base/pool.h"
#include "coordinate/coordinator.h"
#include "coordinate/request.h"
#include "coordinate/runs.h"
#include "coordinate/tree.h"

/* ---- forms: interned signatures, reference-counted ----------------------------------------------------- */

/* Rounds and agreements of any number of names share a form. A coordinator has each signature only once, so
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

/* Finds the form of a signature, or makes it; the caller releases it. HVD_INVALID_ARGUMENT: the bytes are no
 * signature of a set of `size` ranks. */
hvd_code form_find(struct form_store *store, const struct signature *signature, int size, struct form **form,
                   hvd_status *status);
struct form *form_share(struct form *form);
void form_release(struct form *form); /* NULL is fine */

/* ---- names, rounds and agreements ---------------------------------------------------------------------- */

struct entry;

struct agreement {
    uint64_t id;      /* number of the decision that made it */
    uint64_t evicted; /* number of the decision that ended it; 0: it is valid */
    struct entry *entry;
    struct form *form;
    struct runs *rows; /* numbers of rows of all ranks in the last batch; NULL: unknown, or not counted */
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

/* The forms that the ranks submitted, if they differ. */
struct variants {
    int count;
    bool others; /* there are more forms than in the list */
    struct variant list[VARIANT_LIMIT];
};

/* A child's report of a stalled name: the missing ranks of its subtree. */
struct stall_report {
    int child;
    hvd_operation operation; /* of one of the waiting requests */
    bool grouped;
    int64_t waited; /* ns that the name had waited when it was reported */
    struct rank_set missing;
    struct stall_report *next;
};

enum round_phase {
    ROUND_COUNTING,
    ROUND_COMPLETE, /* no reporter is missing: it is in the coordinator's list `complete` */
    ROUND_REPORTED  /* the parent has it, or the root has judged it */
};

/* Counts the reporters of a name since it last ran: this rank, and its children with their whole subtrees. It
 * exists from the first submission, report or stall report until the round ends. */
struct round {
    struct pending *mine; /* this rank's request */
    struct entry *next;   /* in the list of complete rounds, later of ready ones, then of a batch */
    int missing;          /* number of reporters that are missing */
    int lacks;            /* it lacks only this reporter: its number in late.h, plus 1; 0: not only one */
    enum round_phase phase;
    bool own;          /* this rank has submitted it */
    bool partial;      /* some rank is excluded because it has joined */
    bool rootless;     /* the root of this broadcast is one of them */
    bool apart;        /* some rank requires that it is alone in its batch */
    bool bare;         /* the data of some reporter were not in its report */
    bool rows_unknown; /* the numbers of rows of some reporter were not in its report */
    union {
        struct {            /* while it counts */
            int64_t since;  /* when it was opened */
            int64_t warned; /* when it was last reported or warned about; 0: not yet */
        };
        struct {                 /* afterwards, at the root */
            int64_t ready_since; /* when it became ready on all ranks */
            union {
                uint64_t place; /* in the order in which names became ready */
                uint64_t id;    /* once it is in a batch: its id */
            };
        };
    };
    struct stall_report *stalls; /* the reports of children */
    struct form *common;         /* the form that all reporters submitted; NULL: none yet, or they differ */
    struct variants *variants;   /* NULL unless the reporters' forms differ */
    uint64_t opened;             /* the table's last_apart when the round was opened */
    uint64_t number;             /* in the order in which rounds were first reported */
    uint8_t *parts;              /* part_bytes for each child: the data of its report */
    size_t part_bytes;           /* bytes of the common form; 0: no parts */
    struct runs *agreed_rows;    /* the numbers of rows that reports without any refer to; NULL: none does */
    struct runs **rows;          /* by child: the numbers in its report, or NULL; NULL: no report has any */
    uint64_t reported[];         /* a bit per child */
};

/* The part of a name that stays between its rounds; it is small. */
struct entry {
    struct agreement *agreed;
    struct round *round; /* NULL: none is open */
    int agreements;      /* number of agreements that point here */
    uint32_t mark;       /* see coordinator_mark */
    uint32_t name_length;
    char name[];
};

struct table {
    struct map names, ids;
    struct form_store forms;
    struct pool pool;              /* of entries, rounds and agreements */
    int reporters;                 /* children and this rank */
    int open;                      /* number of open rounds */
    uint64_t rounds;               /* the number of the last round */
    uint64_t last_apart;           /* number of the last decision that runs an `apart` request */
    struct agreement_list recent;  /* valid agreements, the last used one first */
    struct agreement_list retired; /* evicted agreements, the oldest eviction first */
};

void table_free(struct table *table);

/* Finds the entry, or makes one; returns NULL if memory is out. */
struct entry *table_entry(struct table *table, const char *name, uint32_t length);
/* Opens a round unless one is open; returns false if memory is out. */
bool table_open_round(struct table *table, struct entry *entry, int64_t now);
void table_close_round(struct table *table, struct entry *entry); /* fine if there is none */
size_t round_parts_bytes(const struct table *table, const struct round *round);
size_t round_rows_bytes(const struct table *table);
/* Frees an entry without a round or agreement. */
void table_tidy(struct table *table, struct entry *entry);

/* Finds an agreement, which may be retired; returns NULL if there is none of this id. */
struct agreement *table_agreement(const struct table *table, uint64_t id);
/* Adds an agreement; takes ownership of the caller's reference to the form. */
hvd_code table_agree(struct table *table, struct entry *entry, uint64_t id, struct form *form,
                     hvd_status *status);
void table_touch(struct table *table, struct agreement *agreement); /* marks it as used just now */
/* Ends an agreement, but keeps its id readable if there are children. */
void table_evict(struct table *table, struct agreement *agreement, uint64_t decision);
/* Every child has seen this decision: frees agreements that were evicted up to it. */
void table_forget_retired(struct table *table, uint64_t seen_by_all);

/* ---- counting in an open round ------------------------------------------------------------------------- */

/* These count in the entry's open round. This rank submits `form`. */
hvd_code round_add_own(struct entry *entry, const struct tree_node *tree, struct form *form,
                       hvd_status *status);
/* The whole subtree of a child has submitted `form`. */
hvd_code round_add_child(struct entry *entry, const struct tree_node *tree, int child, struct form *form,
                         hvd_status *status);
/* The subtree of a child has submitted different forms; the caller keeps its references to them. */
hvd_code round_add_variants(struct entry *entry, const struct tree_node *tree, int child,
                            const struct variants *variants, hvd_status *status);

/* Returns the operation of a request that was counted in this round, or is known to wait in a subtree. */
hvd_operation round_operation(const struct round *round, bool *grouped);
/* Writes the name of an entry with an open round as users know it. Returns `text`. */
char *entry_title(const struct entry *entry, char *text, size_t capacity);

bool round_has_child(const struct entry *entry, int child);
void variants_release(struct variants *variants); /* releases only the forms */

/* Drops the stall report of one child (-1: of all) from a round, if there is one. */
void stall_drop(struct entry *entry, int child);

#endif
