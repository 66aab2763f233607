/* arguments.c - sorts the arguments of a call by the names of its parameters. Any Python thread calls these
 * functions with the GIL held, which protects the interned names. */
#include "bind/arguments.h"

#include <string.h>

/* Python's compiler interns keywords, and programs mostly give them in order, so a comparison of pointers
 * finds the next one at once. PyArg_ParseTupleAndKeywords would need half a microsecond. */

static int intern_all(struct parameters *parameters)
{
    for (int i = 0; parameters->names[i]; i++) {
        parameters->interned[i] = PyUnicode_InternFromString(parameters->names[i]);
        if (!parameters->interned[i])
            return -1;
    }
    return 0;
}

/* Returns the index of a parameter, or -1 if there is none of this name. The search starts at `first`. */
static int find_parameter(const struct parameters *parameters, PyObject *name, int first)
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

static int store_keyword(const struct parameters *parameters, PyObject *name, PyObject *value, int *next,
                         PyObject **values)
{
    int index = find_parameter(parameters, name, *next);
    if (index < 0 || values[index]) {
        PyErr_Format(PyExc_TypeError, "%s() %s '%U'", parameters->function,
                     index < 0 ? "has no parameter" : "got two values for", name);
        return -1;
    }
    values[index] = value;
    *next = index + 1;
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
        if (store_keyword(parameters, PyTuple_GetItem(keywords, i), arguments[count + i], &next, values))
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

int read_int32(PyObject *object, int32_t *value)
{
    int overflow;
    long number = PyLong_AsLongAndOverflow(object, &overflow);
    if (number == -1 && !overflow && PyErr_Occurred())
        return -1;
    if (overflow || number < INT32_MIN || number > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%S is neither a rank nor the id of a process set nor a reduction",
                     object);
        return -1;
    }
    *value = (int32_t)number;
    return 0;
}
