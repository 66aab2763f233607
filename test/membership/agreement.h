/* agreement.h - what the ranks of a new epoch agree on, each for itself, from one record of each: which
 * commit the training continues from, who keeps its state, and who receives it. Pure. */
#ifndef MEMBERSHIP_AGREEMENT_H
#define MEMBERSHIP_AGREEMENT_H

#include <stdbool.h>

struct record {
    bool has_state;
    bool clean;  /* nothing was written since the commit */
    int version; /* of the last commit, whose copy it holds */
};

enum recovery {
    RECOVERY_KEEP,    /* the state as it is */
    RECOVERY_RESTORE, /* the own copy */
    RECOVERY_RECEIVE  /* the copy of another rank */
};

/* Returns the version; -1: nobody has a state. */
int agreement_version(const struct record *records, int size);

enum recovery agreement_recovery(const struct record *record, int version);

/* The rank whose copy is sent; -1: none has it. */
int agreement_source(const struct record *records, int size, int version);

#endif
