/* arguments.h - the arguments of a METH_FASTCALL | METH_KEYWORDS function by the names of its parameters. */
#ifndef HVD_BIND_ARGUMENTS_H
#define HVD_BIND_ARGUMENTS_H

#include "bind/python.h"

enum { PARAMETERS_MOST = 8 };

/* Constant but for `interned`, which the first call fills. */
struct parameters {
    const char *function;
    int required, positional; /* the first ones must be given; the first ones may be given without a name */
    const char *names[PARAMETERS_MOST + 1]; /* NULL at the end */
    PyObject *interned[PARAMETERS_MOST];
};

/* Puts each argument, borrowed, where the name of its parameter stands, and NULL where there is none. Runs no
 * Python. 0, or -1 with a TypeError set. */
int arguments_sort(struct parameters *parameters, PyObject *const *arguments, Py_ssize_t count,
                   PyObject *keywords, PyObject *values[PARAMETERS_MOST]);

/* NULL: absent or None. */
static inline PyObject *argument_or_null(PyObject *value)
{
    return value == Py_None ? NULL : value;
}

#endif
