/* errors.c - see errors.h. */
#include "bind/errors.h"

static PyObject *internal_error;

int errors_init_module(void)
{
    PyObject *module = PyImport_ImportModule("horovod.common.exceptions");
    internal_error = module ? PyObject_GetAttrString(module, "HorovodInternalError") : NULL;
    Py_XDECREF(module);
    return internal_error ? 0 : -1;
}

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

PyObject *raise_status(const hvd_status *status)
{
    if (status->code != HVD_INTERRUPTED)
        PyErr_SetString(exception_of(status->code), status->text);
    else if (!PyErr_Occurred()) /* else a signal's handler has raised */
        PyErr_Format(internal_error, "hvd.shutdown() was called meanwhile: %s", status->text);
    return NULL;
}
