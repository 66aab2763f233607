/* arguments.c - see arguments.h. The compiler interns keywords, and programs give them mostly in order: a
 * comparison of pointers finds the next one at once. PyArg_ParseTupleAndKeywords takes half a microsecond. */
#include "bind/arguments.h"

#include <string.h>

static int intern_all(struct parameters *parameters)
{
    for (int i = 0; parameters->names[i]; i++) {
        parameters->interned[i] = PyUnicode_InternFromString(parameters->names[i]);
        if (!parameters->interned[i])
            return -1;
    }
    return 0;
}

/* The place of a parameter, looked for from `first` on; -1: there is none. */
static int find(const struct parameters *parameters, PyObject *name, int first)
{
    for (int i = first; parameters->names[i]; i++) {
        if (parameters->interned[i] == name)
            return i;
    }
    for (int i = 0; parameters->names[i]; i++) {
        if (PyUnicode_CompareWithASCIIString(name, parameters->names[i]) == 0)
            return i;
    }
    return -1;
}

static int take_keyword(const struct parameters *parameters, PyObject *name, PyObject *value, int *next,
                        PyObject **values)
{
    int place = find(parameters, name, *next);
    if (place < 0 || values[place]) {
        PyErr_Format(PyExc_TypeError, "%s() %s '%U'", parameters->function,
                     place < 0 ? "has no parameter" : "got two values for", name);
        return -1;
    }
    values[place] = value;
    *next = place + 1;
    return 0;
}

int arguments_sort(struct parameters *parameters, PyObject *const *arguments, Py_ssize_t count,
                   PyObject *keywords, PyObject *values[PARAMETERS_MOST])
{
    memset(values, 0, PARAMETERS_MOST * sizeof(PyObject *));
    if (count > parameters->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d arguments without a name at most, not %zd",
                     parameters->function, parameters->positional, count);
        return -1;
    }
    if (count)
        memcpy(values, arguments, (size_t)count * sizeof(PyObject *));
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    int next = (int)count;
    if (named && !parameters->interned[0] && intern_all(parameters))
        return -1;
    for (Py_ssize_t i = 0; i < named; i++) {
        if (take_keyword(parameters, PyTuple_GetItem(keywords, i), arguments[count + i], &next, values))
            return -1;
    }
    for (int i = 0; i < parameters->required; i++) {
        if (!values[i]) {
            PyErr_Format(PyExc_TypeError, "%s() needs '%s'", parameters->function, parameters->names[i]);
            return -1;
        }
    }
    return 0;
}
