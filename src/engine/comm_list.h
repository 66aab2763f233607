/* comm_list.h - adds and removes process sets as the ranks have decided (hvd_process_set_add and _remove are
 * in api.c). Under the progress lock. */
#ifndef HVD_ENGINE_COMM_LIST_H
#define HVD_ENGINE_COMM_LIST_H

#include "horovod.h"

struct comm;

/* Returns the communicator of a process set; NULL: there is none. */
struct comm *comm_list_find(const struct hvd_context *context, int id);

/* Carries out a decided request to add or remove a set: all ranks do so at the same place of their order. */
void comm_list_decided(struct hvd_context *context, struct hvd_handle *handle);

/* Adds communicators that user threads have opened to the list. */
void comm_list_adopt(struct hvd_context *context);

/* Takes removed sets that have closed off the list. */
void comm_list_reap(struct hvd_context *context);

/* Closes all communicators, at the end of the context. */
void comm_list_close(struct hvd_context *context);

#endif
