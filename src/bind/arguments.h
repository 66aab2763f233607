/* arguments.h - reads the arguments of the module's functions that have METH_FASTCALL | METH_KEYWORDS. Any
 * Python thread calls these functions with the GIL held. */
#ifndef HVD_BIND_ARGUMENTS_H
#define HVD_BIND_ARGUMENTS_H

#include "bind/python.h"

#include <stdint.h>

enum { PARAMETERS_MOST = 9 };

/* The parameters of a function. All members are constant except for `interned`, which the first call fills.
 */
struct parameters {
    const char *function;
    int required;                           /* a call must give this many, the first ones */
    int positional;                         /* a call may give this many without a name, the first ones */
    const char *names[PARAMETERS_MOST + 1]; /* with a NULL at the end */
    PyObject *interned[PARAMETERS_MOST];
};

/* Sets values[i] to the argument for parameter i, a borrowed reference, or to NULL if the call does not give
 * it. Runs no Python code. Returns 0, or -1 with a TypeError set. */
int arguments_sort(struct parameters *parameters, PyObject *const *arguments, Py_ssize_t count,
                   PyObject *keywords, PyObject *values[PARAMETERS_MOST]);

/* Returns NULL for an argument that is absent or None. */
static inline PyObject *argument_or_null(PyObject *value)
{
    return value == Py_None ? NULL : value;
}

/* Reads a rank, the id of a process set, a reduction or a priority, which may run Python code. Returns 0, or
 * -1 with an exception set. */
int read_int32(PyObject *object, int32_t *value);

#endif
