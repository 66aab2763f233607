/* errors.c - turns a status of the engine into a Python exception. Any Python thread calls these functions
 * with the GIL held. An exception that a signal handler has raised is kept. */
#include "bind/errors.h"

#include <stdbool.h>

static PyObject *internal_error;

static PyObject *exception_of(hvd_code code)
{
    switch (code) {
    case HVD_INVALID_ARGUMENT:
    case HVD_DUPLICATE_NAME:
    case HVD_UNSUPPORTED:
        return PyExc_ValueError;
    case HVD_OUT_OF_MEMORY:
        return PyExc_MemoryError;
    default:
        return internal_error;
    }
}

/* Takes ownership of the value. Returns false with an exception set on failure. */
static bool set_attribute(PyObject *error, const char *name, PyObject *value)
{
    bool set = value && PyObject_SetAttrString(error, name, value) == 0;
    Py_XDECREF(value);
    return set;
}

/* Sets a HorovodInternalError, with the fields of the status as attributes. */
static void raise_internal_error(const hvd_status *status)
{
    bool blamed = status->cause != HVD_CAUSE_NONE;
    PyObject *error = PyObject_CallFunction(internal_error, "s", status->text);
    PyObject *lost =
        blamed && status->lost_rank >= 0 ? PyLong_FromLong(status->lost_rank) : Py_BuildValue("");
    if (error && set_attribute(error, "lost_rank", lost) &&
        set_attribute(error, "code", PyUnicode_FromString(hvd_code_name(status->code) + 4)) && /* HVD_ */
        set_attribute(error, "cause", PyUnicode_FromString(hvd_cause_name(status->cause))) &&
        set_attribute(error, "host", PyUnicode_FromString(blamed ? status->host : "")))
        PyErr_SetObject(internal_error, error);
    else if (!error)
        Py_XDECREF(lost);
    Py_XDECREF(error);
}

PyObject *raise_status(const hvd_status *status)
{
    PyObject *type = exception_of(status->code);
    if (status->code == HVD_INTERRUPTED && !PyErr_Occurred()) /* otherwise a signal's handler has raised */
        PyErr_Format(internal_error, "hvd.shutdown() was called meanwhile: %s", status->text);
    else if (status->code != HVD_INTERRUPTED && type == internal_error)
        raise_internal_error(status);
    else if (status->code != HVD_INTERRUPTED)
        PyErr_SetString(type, status->text);
    return NULL;
}

int errors_init_module(void)
{
    PyObject *module = PyImport_ImportModule("horovod.common.exceptions");
    internal_error = module ? PyObject_GetAttrString(module, "HorovodInternalError") : NULL;
    Py_XDECREF(module);
    return internal_error ? 0 : -1;
}
