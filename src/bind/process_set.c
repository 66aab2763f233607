/* process_set.c - see process_set.h. Adding and removing block until all ranks do the same; they run without
 * the GIL. */
#include "bind/process_set.h"

#include "bind/blocking.h"
#include "bind/errors.h"
#include "bind/module.h"
#include "bind/request.h"

#include <stdlib.h>

/* A list of int from ranks; takes the memory over. */
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

/* The context for a blocking call, which begins here; NULL with an exception set. The arguments have been
 * read by then: that runs Python, which may shut down. */
static hvd_context *begin(void)
{
    hvd_context *context = module_context();
    if (!context || blocking_begin())
        return context;
    blocking_refuse();
    return NULL;
}

PyObject *process_set_add(PyObject *Py_UNUSED(module), PyObject *sequence)
{
    int32_t id = 0, count = 0;
    hvd_status status;
    int32_t *ranks = module_context() ? read_ranks(sequence, &count) : NULL;
    hvd_context *context = ranks ? begin() : NULL;
    if (!context) {
        free(ranks);
        return NULL;
    }
    hvd_code code = hvd_process_set_add(context, ranks, count, &id, &status);
    blocking_end();
    free(ranks);
    return code ? raise_status(&status) : PyLong_FromLong(id);
}

PyObject *process_set_remove(PyObject *Py_UNUSED(module), PyObject *number)
{
    int32_t id;
    hvd_status status;
    if (!module_context() || read_int32(number, &id))
        return NULL;
    hvd_context *context = begin();
    if (!context)
        return NULL;
    hvd_code code = hvd_process_set_remove(context, id, &status);
    blocking_end();
    return code ? raise_status(&status) : Py_BuildValue("");
}

PyObject *process_set_ids(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_context *context = module_context();
    if (!context)
        return NULL;
    int32_t count = hvd_process_set_ids(context, NULL, 0);
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    if (!ids)
        return PyErr_NoMemory();
    /* Between the two calls sets may come and go: the GIL does not stop the engine. */
    int32_t now = hvd_process_set_ids(context, ids, count);
    return list_of(ids, now < count ? now : count);
}

PyObject *process_set_ranks(PyObject *Py_UNUSED(module), PyObject *number)
{
    int32_t id;
    if (!module_context() || read_int32(number, &id))
        return NULL;
    hvd_context *context = module_context(); /* reading the number ran Python, which may shut down */
    if (!context)
        return NULL;
    int32_t count = hvd_process_set_ranks(context, id, NULL, 0);
    int32_t *ranks = count < 0 ? NULL : malloc((size_t)count * sizeof *ranks);
    if (ranks) /* the set may go between the two calls, but its ranks never change */
        count = hvd_process_set_ranks(context, id, ranks, count);
    if (count >= 0)
        return ranks ? list_of(ranks, count) : PyErr_NoMemory();
    free(ranks);
    return PyErr_Format(PyExc_ValueError, "there is no process set %d: it was removed, or never added",
                        (int)id);
}
