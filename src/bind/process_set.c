/* process_set.c - adds, opens, removes and lists process sets. Any Python thread calls these functions with
 * the GIL held; adding, opening and removing block without it until the other ranks do the same. They read
 * their arguments before they use the context, because reading runs Python code, which may shut Horovod down.
 */
#include "bind/process_set.h"

#include "bind/arguments.h"
#include "bind/blocking.h"
#include "bind/context.h"
#include "bind/errors.h"

#include <stdlib.h>

/* Returns a list of int, or NULL with an exception set. Takes ownership of the values. */
static PyObject *list_of(int32_t *values, int32_t count)
{
    PyObject *list = PyList_New(count);
    for (int32_t i = 0; list && i < count; i++) {
        PyObject *value = PyLong_FromLong(values[i]);
        if (!value || PyList_SetItem(list, i, value))
            Py_CLEAR(list);
    }
    free(values);
    return list;
}

static int32_t *read_ranks(PyObject *sequence, int32_t *count)
{
    Py_ssize_t length = PySequence_Size(sequence);
    int32_t *ranks = length < 0 ? NULL : malloc(((size_t)length + 1) * sizeof *ranks);
    if (!ranks)
        return length < 0 ? NULL : (int32_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        int failed = !item || read_int32(item, &ranks[i]);
        Py_XDECREF(item);
        if (failed) {
            free(ranks);
            return NULL;
        }
    }
    *count = (int32_t)length;
    return ranks;
}

/* Begins a blocking call, which blocking_end ends. Returns the context, or NULL with an exception set. The
 * caller has read its arguments before, because that runs Python code, which may shut Horovod down. */
static hvd_context *begin(void)
{
    hvd_context *current = context_current();
    if (!current || blocking_begin())
        return current;
    blocking_refuse();
    return NULL;
}

/* Reads the ranks of a set and begins a blocking call, which ends with blocking_end and free(*ranks). Returns
 * the context, or NULL with an exception set. */
static hvd_context *begin_with_ranks(PyObject *sequence, int32_t **ranks, int32_t *count)
{
    *ranks = context_current() ? read_ranks(sequence, count) : NULL;
    hvd_context *current = *ranks ? begin() : NULL;
    if (!current)
        free(*ranks);
    return current;
}

PyObject *process_set_add(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int32_t id = 0, least = 1, count = 0, *ranks;
    PyObject *sequence;
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "O|i:process_set_add", &sequence, &least))
        return NULL;
    hvd_context *current = begin_with_ranks(sequence, &ranks, &count);
    if (!current)
        return NULL;
    hvd_code code = hvd_process_set_add_from(current, least, ranks, count, &id, &status);
    blocking_end();
    free(ranks);
    return code ? raise_status(&status) : PyLong_FromLong(id);
}

PyObject *process_set_open(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int32_t id, count = 0, *ranks;
    PyObject *sequence;
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "iO:process_set_open", &id, &sequence))
        return NULL;
    hvd_context *current = begin_with_ranks(sequence, &ranks, &count);
    if (!current)
        return NULL;
    hvd_code code = hvd_process_set_open(current, id, ranks, count, &status);
    blocking_end();
    free(ranks);
    return code ? raise_status(&status) : Py_BuildValue("");
}

PyObject *process_set_remove(PyObject *Py_UNUSED(module), PyObject *number)
{
    int32_t id;
    hvd_status status;
    if (!context_current() || read_int32(number, &id))
        return NULL;
    hvd_context *current = begin();
    if (!current)
        return NULL;
    hvd_code code = hvd_process_set_remove(current, id, &status);
    blocking_end();
    return code ? raise_status(&status) : Py_BuildValue("");
}

PyObject *process_set_ids(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_context *current = context_current();
    if (!current)
        return NULL;
    int32_t count = hvd_process_set_ids(current, NULL, 0);
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    if (!ids)
        return PyErr_NoMemory();
    /* Between the two calls sets may be added and removed, because the GIL does not stop the engine. */
    int32_t now = hvd_process_set_ids(current, ids, count);
    return list_of(ids, now < count ? now : count);
}

PyObject *process_set_ranks(PyObject *Py_UNUSED(module), PyObject *number)
{
    int32_t id;
    if (!context_current() || read_int32(number, &id))
        return NULL;
    hvd_context *current =
        context_current(); /* reading the number ran Python code, which may have shut down */
    if (!current)
        return NULL;
    int32_t count = hvd_process_set_ranks(current, id, NULL, 0);
    int32_t *ranks = count < 0 ? NULL : malloc((size_t)count * sizeof *ranks);
    if (ranks) /* the set may be removed between the two calls, but its ranks never change */
        count = hvd_process_set_ranks(current, id, ranks, count);
    if (count >= 0)
        return ranks ? list_of(ranks, count) : PyErr_NoMemory();
    free(ranks);
    return PyErr_Format(PyExc_ValueError, "there is no process set %d: it was removed, or never added",
                        (int)id);
}
