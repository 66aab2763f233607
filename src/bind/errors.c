/* errors.c - see errors.h. */
#include "errors.h"

static PyObject *internal_error;

int errors_init_module(void)
{
    PyObject *module = PyImport_ImportModule("horovod.common.exceptions");
    internal_error = module ? PyObject_GetAttrString(module, "HorovodInternalError") : NULL;
    Py_XDECREF(module);
    return internal_error ? 0 : -1;
}

PyObject *raise_status(const hvd_status *status)
{
    PyObject *type = internal_error;
    if (status->code == HVD_INVALID_ARGUMENT || status->code == HVD_DUPLICATE_NAME ||
        status->code == HVD_UNSUPPORTED)
        type = PyExc_ValueError;
    PyErr_SetString(type, status->text);
    return NULL;
}
