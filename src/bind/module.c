/* module.c - horovod._core: the engine's public interface for Python, one default context a process.
 *
 * The context is opened and closed with the GIL held except while the engine waits for other ranks; `context`
 * changes with the GIL held only. */
#include "errors.h"
#include "horovod.h"
#include "operation.h"
#include "python.h"
#include "result.h"
#include "tensor.h"

static hvd_context *context;

static int require_context(void)
{
    if (context)
        return 0;
    PyErr_SetString(PyExc_ValueError, "Horovod is not initialised; call hvd.init() first");
    return -1;
}

static int set_all(hvd_config *config, PyObject *settings, hvd_status *status)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(settings, &position, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const char *text = name ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
        if (!text)
            return -1;
        if (hvd_config_set(config, name, text, status)) {
            raise_status(status);
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(init_doc, "init(settings: dict[str, str]) -> None\n\n"
                       "Joins the job that the environment describes; settings win over the environment.");

static PyObject *core_init(PyObject *module, PyObject *settings)
{
    (void)module;
    hvd_status status;
    hvd_code code;
    hvd_context *opened = NULL;
    if (context)
        Py_RETURN_NONE;
    hvd_config *config = hvd_config_create();
    if (!config)
        return PyErr_NoMemory();
    if (hvd_config_load_environment(config, &status)) {
        hvd_config_free(config);
        return raise_status(&status);
    }
    if (set_all(config, settings, &status)) {
        hvd_config_free(config);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    code = hvd_init(config, &opened, &status);
    Py_END_ALLOW_THREADS;
    hvd_config_free(config);
    if (code)
        return raise_status(&status);
    context = opened;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(shutdown_doc,
             "shutdown() -> None\n\nLeaves the job; fine when it was left before, and in a forked child.");

static PyObject *core_shutdown(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    hvd_context *closing = context;
    context = NULL;
    if (closing && hvd_health(closing, NULL) != HVD_FORKED) {
        Py_BEGIN_ALLOW_THREADS;
        hvd_shutdown(closing);
        Py_END_ALLOW_THREADS;
        operation_sweep(1);
    }
    Py_RETURN_NONE;
}

static PyObject *core_is_initialized(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(context != NULL);
}

PyDoc_STRVAR(placement_doc, "placement() -> (rank, size, local_rank, local_size, cross_rank, cross_size)");

static PyObject *core_placement(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (require_context())
        return NULL;
    hvd_placement p = hvd_get_placement(context);
    return Py_BuildValue("(iiiiii)", p.rank, p.size, p.local_rank, p.local_size, p.cross_rank, p.cross_size);
}

static PyObject *core_submit(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    return require_context() ? NULL : operation_submit(context, arguments, count);
}

static PyObject *core_run(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    return require_context() ? NULL : operation_run(context, arguments, count);
}

PyDoc_STRVAR(version_doc, "version() -> str");

static PyObject *core_version(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(hvd_version());
}

static PyMethodDef methods[] = {
    {"init", core_init, METH_O, init_doc},
    {"shutdown", core_shutdown, METH_NOARGS, shutdown_doc},
    {"is_initialized", core_is_initialized, METH_NOARGS, NULL},
    {"placement", core_placement, METH_NOARGS, placement_doc},
    {"submit", (PyCFunction)(void (*)(void))core_submit, METH_FASTCALL, NULL},
    {"run", (PyCFunction)(void (*)(void))core_run, METH_FASTCALL, NULL},
    {"version", core_version, METH_NOARGS, version_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "horovod._core", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if (tensor_init_module() || errors_init_module() || result_init_module(module) ||
        operation_init_module(module)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
