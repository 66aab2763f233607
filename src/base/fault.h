/* fault.h - why a rank failed, as bytes: in the abort messages between ranks, as the value of the key
 * "fault/<rank>" in the store, and in the frames from an agent to the launcher. No state; any thread.
 * Decoders check every bound. */
#ifndef HVD_BASE_FAULT_H
#define HVD_BASE_FAULT_H

#include "base/wire.h"
#include "horovod.h"

/* The keys of fault records in the store. */
#define FAULT_PREFIX "fault/"

/* A status whose code is an error: code, cause (u8 each), lost rank (u32), host, text. */
void cause_put(struct wire_writer *writer, const hvd_status *cause);
/* Returns false when the bytes are malformed, or the code is no error. */
bool cause_get(struct wire_reader *reader, hvd_status *cause);

/* A whole record: version, rank, status, exception and its place. */
void fault_put(struct wire_writer *writer, const hvd_fault *fault);
/* Returns false when the bytes are malformed, or of another version. */
bool fault_get(struct wire_reader *reader, hvd_fault *fault);

#endif
