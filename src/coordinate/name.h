/* name.h - the names of a request: the users' text, "grouped_allreduce.grad", and the name on the wire,
 * ".grad", since ranks compare names without the operation (docs/coordination.md, "Names"). No state; any
 * thread. */
#ifndef HVD_COORDINATE_NAME_H
#define HVD_COORDINATE_NAME_H

#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the length of the prefix that users read before the name that they gave: "grouped_allreduce." */
size_t name_prefix_length(hvd_operation operation, bool grouped);

/* Writes the users' text of a name of `length` bytes, with a NUL. Returns the length of the text. */
size_t name_write(hvd_operation operation, bool grouped, const char *own, size_t length, char *text);

/* Writes the users' text of the unnamed request of this number, "grouped_allreduce.noname.3", which takes
 * less than REQUEST_NAME_LIMIT bytes. */
void name_write_counted(hvd_operation operation, bool grouped, uint64_t number, char *text);

/* Returns true if a name, without the operation, is one that name_write_counted makes. */
bool name_is_counted(const char *own);

enum name_origin {
    NAME_GIVEN,     /* by a user */
    NAME_GENERATED, /* by a binding, whose user gave none */
    NAME_COUNTED    /* by the engine */
};

/* Returns the name on the wire, which is the end of the users' text. */
const char *name_on_wire(hvd_operation operation, bool grouped, enum name_origin origin, const char *text);

/* Returns the name alone, "grad", from the name on the wire. */
const char *name_plain(hvd_operation operation, const char *on_wire);

/* Writes the users' text of a name on the wire. Returns `text`. */
char *name_text(hvd_operation operation, bool grouped, const char *on_wire, char *text, size_t capacity);

#endif
