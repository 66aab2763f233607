/* parts.h - a group whose tensors share memory runs as several requests, its parts, one after the other: each
 * writes only what no other tensor of the part reads or writes. All parts have the tensors of the whole
 * group, those of other parts without elements: so ranks that divide a group differently get the error of a
 * mismatch.
 *
 * The caller's handle is the whole group's. The coordinator sees the parts only. */
#ifndef HVD_ENGINE_PARTS_H
#define HVD_ENGINE_PARTS_H

#include "engine/handle.h"

/* Any thread: gives the group its parts where it needs some; `whole` was not queued yet. `size` as for
 * handle_create. */
hvd_code parts_create(struct hvd_handle *whole, int size, hvd_status *status);

/* Those that were not queued; fine where there are none. */
void parts_drop(struct hvd_handle *whole);

/* Under the progress lock, as the rest. Whether an earlier part is still to end well. */
bool parts_wait(const struct hvd_handle *part);

/* Why it can't run any more: an earlier part has failed. */
hvd_code parts_check(const struct hvd_handle *part, hvd_status *status);

/* Fine for what is no part. Releases the next part; the last one ends the group, as does a failure. */
void parts_ended(struct hvd_handle *part, const hvd_status *status);

/* Its name; that of the first one is the group's. */
void parts_name(struct hvd_handle *part);

#endif
