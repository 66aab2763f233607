/* reference.h - the result of a phase: its steps are run one by one, element by element, in the arenas of all
 * ranks, as the documentation says, without code of src/device or src/coll. */
#ifndef HVD_TEST_REFERENCE_H
#define HVD_TEST_REFERENCE_H

#include "differential/program.h"

struct reference {
    const struct phase *phase;
    const struct layout *layout;
    char *before[RANKS], *after[RANKS];   /* the arenas */
    char *results[RANKS][STEPS][TENSORS]; /* where they are the engine's */
};

/* `chosen` says which steps of the phase run. */
void reference_make(struct reference *reference, const struct phase *phase, const struct layout *layout,
                    const bool *chosen);
void reference_free(struct reference *reference);

/* Returns true if element `i` of a step's tensor is right on `rank` although its bits differ from those of
 * `should`: any NaN for a NaN, either sign of zero, and a rounded number within the bound of all orders of
 * additions. */
bool reference_accepts(const struct reference *reference, const struct program_step *step,
                       const struct tensor *tensor, int rank, int64_t i, const void *is, const void *should);

/* ---- the parts of it ------------------------------------------------------------------------------------
 */

/* result = a * factor / divisor, as the table of types in docs/algorithms.md says. */
void number_scale(hvd_dtype dtype, void *result, const void *a, double factor, int divisor);

#endif
