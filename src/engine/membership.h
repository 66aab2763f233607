/* membership.h - process sets come and go, as the decided requests of all ranks say (hvd_process_set_add and
 * _remove are in api.c). Under the progress lock. */
#ifndef HVD_ENGINE_MEMBERSHIP_H
#define HVD_ENGINE_MEMBERSHIP_H

#include "horovod.h"

struct comm;

/* The communicator of a process set; NULL: there is none. */
struct comm *membership_find(const struct hvd_context *context, int id);

/* The batch of a request to add or remove a set: all ranks carry it out at the same place of their order. */
void membership_decided(struct hvd_context *context, struct hvd_handle *handle);

/* Communicators that user threads have opened join the list. */
void membership_adopt(struct hvd_context *context);

/* Removed sets that have closed leave the list. */
void membership_reap(struct hvd_context *context);

/* All communicators, at the end of the context. */
void membership_close(struct hvd_context *context);

#endif
