/* tuning.h - autotuning at work: the root of the first process set measures its batches, tries values, and
 * uses them for what it decides, so that all ranks follow without a message. Under the progress lock, but for
 * open and close. */
#ifndef HVD_ENGINE_TUNING_H
#define HVD_ENGINE_TUNING_H

#include "horovod.h"

struct comm;
struct running_batch;
struct tuning;

/* When the settings enable it. Before any thread makes progress, and when none does any more. */
hvd_code tuning_open(struct hvd_context *context, hvd_status *status);
void tuning_close(struct hvd_context *context); /* safe on a zeroed context */

/* A batch starts. */
void tuning_count(struct tuning *tuning, const struct running_batch *running);

/* Before the next decisions: values that have changed come into force; when it is over, `comm` forgets it. */
void tuning_apply(struct comm *comm);

#endif
