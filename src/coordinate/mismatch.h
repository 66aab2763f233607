/* mismatch.h - error texts: the first field in which two signatures differ, and a round that failed because
 * the requests of one name differ. No state; any thread. */
#ifndef HVD_COORDINATE_MISMATCH_H
#define HVD_COORDINATE_MISMATCH_H

#include "coordinate/state.h"

/* Writes the first field in which two signatures differ, such as "the shape of tensor 0", and its two values,
 * such as "[2, 3]" and "[2, 4]". names[rank]: the number of a rank of the set in the job; NULL: the same. */
void signature_difference(const struct signature *a, const struct signature *b, const int *names, char *what,
                          char *value_a, char *value_b, size_t capacity);

/* Writes the error of a round: which ranks submitted which form. */
void mismatch_text(const struct coordinator_config *config, const struct entry *entry, char *text,
                   size_t capacity);

#endif
