/* tables.c - makes named tuples of the rows of the .def tables, with the words of their columns as texts.
 * Called with the GIL held; nothing changes after tables_init_module. */
#include "bind/tables.h"

static const struct row {
    hvd_operation operation;
    const char *name, *shape, *result;
    int results;
    const char *argument;
    uint32_t reductions;
    const char *absence;
} rows[] = {
#define OPERATION(name, text, shape, result, argument, reductions, batching, absence)                        \
    {HVD_##name, text, #shape, #result, RESULTS_##result, #argument, REDUCTIONS_##reductions, #absence},
#include "base/operations.def"
#undef OPERATION
};

static const struct reduction {
    hvd_reduction reduction;
    const char *name;
} reductions[] = {
#define REDUCTION(name, text, kernel, types) {HVD_##name, text},
#include "base/reductions.def"
#undef REDUCTION
};

enum { ROWS = sizeof rows / sizeof *rows, REDUCTIONS = sizeof reductions / sizeof *reductions };

static PyStructSequence_Field fields[] = {
    {"number", "hvd_operation in horovod.h"},
    {"name", NULL},
    {"shape", "the extents in which the tensors of all ranks must agree, by the words of operations.def"},
    {"result", "the kind of result for each tensor"},
    {"results", "how many tensors the engine makes for one of the caller's"},
    {"argument", "the argument that it needs in addition to tensors"},
    {"reductions", "the values of hvd_reduction that it supports, a tuple"},
    {"absence", "whether a rank that has joined may be left out"},
    {NULL, NULL},
};
static PyStructSequence_Desc description = {"horovod._core.Operation",
                                            "What a collective operation is: a row of operations.def.",
                                            fields, sizeof fields / sizeof *fields - 1};
static PyTypeObject *operation_type;

static PyObject *reductions_of(const struct row *row)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < REDUCTIONS; i++) {
        if (!(row->reductions >> reductions[i].reduction & 1))
            continue;
        PyObject *number = PyLong_FromLong(reductions[i].reduction);
        if (!number || PyList_Append(list, number))
            Py_CLEAR(list);
        Py_XDECREF(number);
    }
    PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

static PyObject *make_operation(const struct row *row)
{
    PyObject *values = Py_BuildValue("(isssisNs)", (int)row->operation, row->name, row->shape, row->result,
                                     row->results, row->argument, reductions_of(row), row->absence);
    PyObject *operation = values ? PyStructSequence_New(operation_type) : NULL;
    for (Py_ssize_t i = 0; operation && i < description.n_in_sequence; i++) {
        PyObject *value = PyTuple_GetItem(values, i);
        Py_INCREF(value);
        PyStructSequence_SetItem(operation, i, value);
    }
    Py_XDECREF(values);
    return operation;
}

/* Takes ownership of the value. Returns 0, or -1 with an exception set. */
static int put(PyObject *dict, const char *name, PyObject *value)
{
    int failed = !value || PyDict_SetItemString(dict, name, value);
    Py_XDECREF(value);
    return failed ? -1 : 0;
}

/* Returns the names of all element types, in the order of their numbers. */
static PyObject *list_dtypes(void)
{
    PyObject *list = PyList_New(0);
    for (int dtype = 0; list && dtype < 256; dtype++) {
        if (!hvd_dtype_size((hvd_dtype)dtype))
            continue;
        PyObject *name = PyUnicode_FromString(hvd_dtype_name((hvd_dtype)dtype));
        if (!name || PyList_Append(list, name))
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

int tables_init_module(PyObject *module)
{
    operation_type = PyStructSequence_NewType(&description);
    PyObject *operations = PyDict_New(), *numbers = PyDict_New();
    int failed = !operation_type || !operations || !numbers || PyModule_AddType(module, operation_type);
    for (int i = 0; !failed && i < ROWS; i++)
        failed = put(operations, rows[i].name, make_operation(&rows[i]));
    for (int i = 0; !failed && i < REDUCTIONS; i++)
        failed = put(numbers, reductions[i].name, PyLong_FromLong(reductions[i].reduction));
    PyObject *dtypes = list_dtypes();
    failed = failed || !dtypes || PyModule_AddObjectRef(module, "operations", operations) ||
             PyModule_AddObjectRef(module, "reductions", numbers) ||
             PyModule_AddObjectRef(module, "dtypes", dtypes);
    Py_XDECREF(dtypes);
    Py_XDECREF(operations);
    Py_XDECREF(numbers);
    return failed ? -1 : 0;
}

int tables_read_operation(PyObject *object, hvd_operation *operation, int *results)
{
    if (Py_TYPE(object) != operation_type) {
        PyErr_Format(PyExc_TypeError, "the operation must be one of _core.operations, not %R", object);
        return -1;
    }
    long number = PyLong_AsLong(PyStructSequence_GetItem(object, 0));
    int i = 0;
    while (rows[i].operation != (hvd_operation)number)
        i++;
    *operation = rows[i].operation;
    *results = rows[i].results;
    return 0;
}
