/* name.c - builds and parses the two forms of a request's name. No state; any thread. */
#include "coordinate/name.h"

#include "base/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GROUPED "grouped_"
#define COUNTED "noname."

size_t name_prefix_length(hvd_operation operation, bool grouped)
{
    return strlen(operation_name(operation)) + (grouped ? sizeof GROUPED : 1);
}

/* Written without printf, which took a third of a submission. */
size_t name_write(hvd_operation operation, bool grouped, const char *own, size_t length, char *text)
{
    char *end = stpcpy(text, grouped ? GROUPED : "");
    end = stpcpy(stpcpy(end, operation_name(operation)), ".");
    memcpy(end, own, length);
    end[length] = '\0';
    return (size_t)(end - text) + length;
}

void name_write_counted(hvd_operation operation, bool grouped, uint64_t number, char *text)
{
    char own[sizeof COUNTED + 20];
    int length = snprintf(own, sizeof own, COUNTED "%" PRIu64, number);
    name_write(operation, grouped, own, (size_t)length, text);
}

bool name_is_counted(const char *own)
{
    size_t prefix = sizeof COUNTED - 1;
    return strncmp(own, COUNTED, prefix) == 0 && !own[prefix + strspn(own + prefix, "0123456789")];
}

/* A name with the dot was given by a user; one without it was generated or counted. Requests without tensors
 * are counted by operation, so their names keep the operation. */
const char *name_on_wire(hvd_operation operation, bool grouped, enum name_origin origin, const char *text)
{
    if (origin == NAME_COUNTED && operation_table[operation].shape == SHAPE_no_tensors)
        return text;
    return text + name_prefix_length(operation, grouped) - (origin == NAME_GIVEN);
}

const char *name_plain(hvd_operation operation, const char *on_wire)
{
    size_t prefix = strlen(operation_name(operation));
    if (*on_wire == '.')
        return on_wire + 1;
    return strncmp(on_wire, operation_name(operation), prefix) == 0 && on_wire[prefix] == '.'
               ? on_wire + prefix + 1
               : on_wire;
}

char *name_text(hvd_operation operation, bool grouped, const char *on_wire, char *text, size_t capacity)
{
    snprintf(text, capacity, "%s%s.%s", grouped ? GROUPED : "", operation_name(operation),
             name_plain(operation, on_wire));
    return text;
}
