/* tuning.h - autotuning of a running job: the root of process set 0 measures its batches, tries values, and
 * uses them in its decisions, so that all ranks follow without a message. Under the progress lock, except
 * open and close. */
#ifndef HVD_ENGINE_TUNING_H
#define HVD_ENGINE_TUNING_H

#include "horovod.h"

struct comm;
struct running_batch;
struct tuning;

/* Opens it if the settings enable it. Called before any thread makes progress, and after the last one has
 * ended. */
hvd_code tuning_open(struct hvd_context *context, hvd_status *status);
void tuning_close(struct hvd_context *context); /* safe on a zeroed context */

/* Counts a batch that starts. */
void tuning_count(struct tuning *tuning, const struct running_batch *running);

/* Applies changed values before the next decisions; once autotuning has finished, closes it. */
void tuning_apply(struct comm *comm);

#endif
