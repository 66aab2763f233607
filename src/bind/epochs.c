/* epochs.c - the connection of this process to the starter of its elastic job. Any Python thread calls these
 * functions with the GIL held; a wait releases it. The connection is made once and stays until the process
 * ends. */
#include "bind/epochs.h"

#include "bind/blocking.h"
#include "bind/errors.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(hvd_epochs *) epochs; /* NULL: not opened */

static bool is_elastic(void)
{
    const char *elastic = getenv("HOROVOD_ELASTIC"), *slot = getenv("HOROVOD_SLOT");
    return elastic && strcmp(elastic, "1") == 0 && slot && *slot;
}

/* Returns NULL with an exception set on failure. */
static hvd_epochs *open_epochs(hvd_config *config)
{
    hvd_epochs *opened = NULL;
    hvd_status status;
    hvd_config_set_interrupt(config, blocking_interrupted, NULL);
    if (!blocking_begin()) {
        blocking_refuse();
        return NULL;
    }
    hvd_code code = hvd_epochs_open(config, &opened, &status);
    blocking_end();
    if (code)
        raise_status(&status);
    return opened;
}

PyObject *epochs_open(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    hvd_status status;
    if (atomic_load(&epochs) || !is_elastic())
        return PyBool_FromLong(atomic_load(&epochs) != NULL);
    hvd_config *config = hvd_config_create();
    if (!config)
        return PyErr_NoMemory();
    hvd_epochs *opened = hvd_config_load_environment(config, &status) ? raise_status(&status),
               NULL                                                   : open_epochs(config);
    hvd_config_free(config);
    if (!opened)
        return NULL;
    hvd_epochs *none = NULL;
    if (!atomic_compare_exchange_strong(&epochs, &none, opened))
        hvd_epochs_close(opened); /* another thread was faster */
    Py_RETURN_TRUE;
}

/* Returns NULL with an exception set if there is no connection. */
static hvd_epochs *current(void)
{
    hvd_epochs *opened = atomic_load(&epochs);
    if (!opened)
        PyErr_SetString(PyExc_ValueError, "this process has no connection to the starter of an elastic job");
    return opened;
}

/* Waits in slices, between which Python runs the handlers of signals. */
static hvd_code wait_for_epoch(hvd_epochs *opened, const hvd_epoch_question *question, double seconds,
                               hvd_epoch *next, hvd_status *status)
{
    double end = blocking_now() + seconds, left = seconds;
    hvd_code code;
    do {
        double slice = left < BLOCKING_SIGNAL_SECONDS ? left : BLOCKING_SIGNAL_SECONDS;
        Py_BEGIN_ALLOW_THREADS;
        code = hvd_epoch_wait(opened, question, slice > 0 ? slice : 0, next, status);
        Py_END_ALLOW_THREADS;
        left = end - blocking_now();
    } while (code == HVD_TIMED_OUT && left > 0 && !PyErr_CheckSignals());
    return code;
}

PyObject *epochs_wait(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int after, holds_state = -1, lost_rank = -1;
    double seconds;
    hvd_epoch next = {.struct_size = sizeof next, .rank = -1};
    hvd_status status;
    if (!PyArg_ParseTuple(arguments, "id|pi:epoch_wait", &after, &seconds, &holds_state, &lost_rank))
        return NULL;
    hvd_epochs *opened = current();
    if (!opened)
        return NULL;
    const hvd_epoch_question question = {.struct_size = sizeof question,
                                         .after = after,
                                         .holds_state = holds_state < 0 ? after >= 0 : holds_state,
                                         .lost_rank = lost_rank};
    hvd_code code = wait_for_epoch(opened, &question, seconds, &next, &status);
    if (PyErr_Occurred())
        return NULL;
    if (code == HVD_TIMED_OUT)
        Py_RETURN_NONE;
    if (code && code != HVD_REFUSED && code != HVD_SHUT_DOWN)
        return raise_status(&status);
    return Py_BuildValue("{s:s,s:i,s:i,s:i,s:s}", "state",
                         code == HVD_REFUSED ? "out"
                         : code              ? "over"
                                             : "begins",
                         "epoch", (int)next.number, "rank", (int)next.rank, "size", (int)next.size, "reason",
                         code ? status.text : "");
}

PyObject *epochs_notice(PyObject *Py_UNUSED(module), PyObject *epoch)
{
    hvd_epochs *opened = atomic_load(&epochs);
    long number = PyLong_AsLong(epoch);
    if (PyErr_Occurred())
        return NULL;
    return PyLong_FromLong(opened ? hvd_epoch_notice(opened, (int32_t)number) : 0);
}

static PyObject *report(hvd_code (*function)(hvd_epochs *, hvd_status *))
{
    hvd_status status;
    hvd_code code;
    hvd_epochs *opened = current();
    if (!opened)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = function(opened, &status);
    Py_END_ALLOW_THREADS;
    return code ? raise_status(&status) : Py_BuildValue("");
}

PyObject *epochs_done(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return report(hvd_epoch_done);
}

PyObject *epochs_leave(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return report(hvd_epoch_leave);
}

bool epochs_lost(int epoch)
{
    hvd_epochs *opened = atomic_load(&epochs);
    return opened && (hvd_epoch_notice(opened, epoch) & HVD_NOTICE_LOST);
}
