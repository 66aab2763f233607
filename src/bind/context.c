/* context.c - opens and closes the default context of the process, and says which rank it is: hvd.init(),
 * hvd.shutdown(), hvd.is_initialized(), hvd.rank() and the like. Any Python thread calls these functions with
 * the GIL held. The pointer to the context changes only then; init and shutdown release the GIL while they
 * wait, so other threads may find it unset.
 */
#include "bind/context.h"

#include "bind/blocking.h"
#include "bind/epochs.h"
#include "bind/errors.h"
#include "bind/stacks.h"
#include "native/entry.h"

#include <pthread.h>
#include <stdlib.h>

static hvd_context *context;
static bool opening;               /* a thread is inside hvd_init, without the GIL */
static int epoch;                  /* of the last hvd_init */
static PyInterpreterState *opener; /* the interpreter that called hvd_init last; only it may shut down */
static hvd_placement planned; /* in the job that this process will join; its size is 0 if there is none */

static bool is_forked(void)
{
    return context && hvd_health(context, NULL) == HVD_FORKED;
}

/* A forked child keeps the context, because the worker of a data loader may ask for its rank. */
hvd_context *context_current(void)
{
    if (!context && planned.size)
        PyErr_SetString(PyExc_ValueError,
                        "this process joins the running job in hvd.elastic.run: collectives "
                        "are possible in the function that is passed to it, not before");
    else if (!context)
        PyErr_SetString(PyExc_ValueError, "Horovod has not been initialized; use hvd.init().");
    return context;
}

/* ---- placement ----------------------------------------------------------------------------------------- */

PyObject *context_plan(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    hvd_placement p = {.homogeneous = 1};
    if (!PyArg_ParseTuple(arguments, "iiiiii:plan", &p.rank, &p.size, &p.local_rank, &p.local_size,
                          &p.cross_rank, &p.cross_size))
        return NULL;
    planned = p;
    Py_RETURN_NONE;
}

static PyObject *tuple_of(hvd_placement p)
{
    return Py_BuildValue("(iiiiiii)", p.rank, p.size, p.local_rank, p.local_size, p.cross_rank, p.cross_size,
                         p.homogeneous);
}

PyObject *context_placement(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    if (!context && planned.size)
        return tuple_of(planned);
    const hvd_context *current = context_current();
    return current ? tuple_of(hvd_get_placement(current)) : NULL;
}

/* ---- life --------------------------------------------------------------------------------------------- */

static int put_settings(hvd_config *config, PyObject *settings)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    hvd_status status;
    while (PyDict_Next(settings, &position, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const char *text = name ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
        if (!text)
            return -1;
        if (hvd_config_set(config, name, text, &status)) {
            raise_status(&status);
            return -1;
        }
    }
    return 0;
}

static hvd_config *make_config(PyObject *settings)
{
    hvd_status status;
    hvd_config *config = hvd_config_create();
    if (!config)
        PyErr_NoMemory();
    else if (hvd_config_load_environment(config, &status))
        raise_status(&status);
    else if (!put_settings(config, settings))
        return config;
    hvd_config_free(config);
    return NULL;
}

/* The number in the settings, or in the environment. */
static int find_epoch(PyObject *settings)
{
    PyObject *value = PyDict_GetItemString(settings, "epoch");
    const char *text = value ? PyUnicode_AsUTF8AndSize(value, NULL) : getenv("HOROVOD_EPOCH");
    return text ? atoi(text) : 0;
}

/* A rank that is lost can't be waited for. */
static int interrupted(void *Py_UNUSED(unused))
{
    return epochs_lost(epoch) || blocking_interrupted(NULL);
}

/* Returns NULL with an exception set on failure. */
static hvd_context *open_context(hvd_config *config)
{
    hvd_context *opened = NULL;
    hvd_status status;
    hvd_config_set_interrupt(config, interrupted, NULL);
    stacks_provide();
    if (!blocking_begin()) {
        blocking_refuse();
        return NULL;
    }
    hvd_code code = hvd_init(config, &opened, &status);
    blocking_end();
    if (code == HVD_INTERRUPTED && epochs_lost(epoch))
        status.code = HVD_PEER_LOST;
    if (code)
        raise_status(&status);
    return code ? NULL : opened;
}

PyObject *context_init(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *settings, *comm = NULL;
    if (!PyArg_ParseTuple(arguments, "O!|O!", &PyDict_Type, &settings, &PyLong_Type, &comm))
        return NULL;
    if (context && !is_forked())
        Py_RETURN_NONE;
    if (opening) {
        PyErr_SetString(PyExc_ValueError, "another thread is calling hvd.init() just now");
        return NULL;
    }
    hvd_config *config = make_config(settings);
    if (!config)
        return NULL;
    if (comm)
        hvd_config_set_mpi_comm(config, PyLong_AsVoidPtr(comm));
    opening = true;
    epoch = find_epoch(settings);
    opener = PyInterpreterState_Get();
    hvd_context *opened = open_context(config);
    opening = false;
    hvd_config_free(config);
    if (!opened)
        return NULL;
    /* In a forked child the parent's context is forgotten, not freed: see hvd_shutdown. */
    context = opened;
    planned.size = 0;
    entry_open(opened);
    Py_RETURN_NONE;
}

PyObject *context_shutdown(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    if (opener != PyInterpreterState_Get())
        Py_RETURN_NONE;
    if (is_forked())
        context = NULL; /* the parent's is forgotten, not freed: see hvd_shutdown */
    if (context || opening)
        blocking_shut_down(&context);
    Py_RETURN_NONE;
}

PyObject *context_is_initialized(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    return PyBool_FromLong(context && !is_forked());
}

/* ---- module ------------------------------------------------------------------------------------------ */

/* The other threads exist only in the parent. */
static void in_forked_child(void)
{
    opening = false;
    blocking_forget_threads();
    entry_forget_threads();
    stacks_forget_file();
}

int context_init_module(void)
{
    if (pthread_atfork(NULL, NULL, in_forked_child) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}
