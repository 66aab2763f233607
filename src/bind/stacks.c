/* stacks.c - see stacks.h. Frames are read with the GIL held, or, if a thread keeps it, by faulthandler in a
 * signal handler of that thread. Only files, lines and names of functions are read, never values.
 *
 * The thread that reads is one of the engine, with all signals blocked, so it runs no Python code except the
 * program's audit hooks: it disables the garbage collector, and releases no object for the last time. Python
 * ends a thread that requests the GIL when the interpreter has ended, or crashes; so an exit handler
 * withdraws the source before. */
#include "bind/stacks.h"

#include "bind/python.h"
#include "horovod.h"

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of a deep stack the innermost and the outermost frames are written. */
enum { INNERMOST = 24, OUTERMOST = 12, THREADS = 16, DUMP_BYTES = 8192 };

static void (*dump)(int signal); /* faulthandler's handler */
static int dump_file = -1;
static bool withdrawn; /* the interpreter is about to end */

struct text {
    char *bytes;
    size_t length, capacity;
};

/* Adds a line if it fits as a whole. */
__attribute__((format(printf, 2, 3))) static void put_line(struct text *to, const char *format, ...)
{
    va_list arguments;
    size_t room = to->capacity - to->length;
    va_start(arguments, format);
    int length = vsnprintf(to->bytes + to->length, room, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= room)
        return;
    to->length += (size_t)length;
}

/* ---- frames, with the GIL held ------------------------------------------------------------------------- */

/* Copies a string without control characters, which separate fields and lines. */
static void copy_field(PyObject *string, char *field, size_t capacity)
{
    const char *text = string && PyUnicode_Check(string) ? PyUnicode_AsUTF8AndSize(string, NULL) : NULL;
    PyErr_Clear();
    snprintf(field, capacity, "%s", text ? text : "?");
    for (char *at = field; *at; at++)
        *at = (unsigned char)*at < ' ' || *at == '\x7f' ? '?' : *at;
    Py_XDECREF(string);
}

static void put_frame(struct text *to, PyFrameObject *frame)
{
    char file[512], function[128];
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    copy_field(PyObject_GetAttrString(code, "co_filename"), file, sizeof file);
    copy_field(PyObject_GetAttrString(code, "co_name"), function, sizeof function);
    Py_DECREF(code);
    put_line(to, "P\t%s\t%d\t%s\n", file, PyFrame_GetLineNumber(frame), function);
}

/* Returns the frame that has called this one, or NULL, and drops this one. */
static PyObject *caller_of(PyObject *frame)
{
    PyObject *caller = PyObject_GetAttrString(frame, "f_back");
    Py_DECREF(frame);
    if (caller != Py_None)
        return caller;
    Py_DECREF(caller);
    return NULL;
}

static void put_frames(struct text *to, PyObject *innermost)
{
    int depth = 0;
    for (PyObject *frame = Py_NewRef(innermost); frame; frame = caller_of(frame))
        depth++;
    PyObject *frame = Py_NewRef(innermost);
    for (int i = 0; frame; frame = caller_of(frame), i++) {
        if (i < INNERMOST || i >= depth - OUTERMOST)
            put_frame(to, (PyFrameObject *)frame);
    }
}

/* Reads an attribute of the object itself: a property would be Python code. */
static PyObject *own_attribute(PyObject *object, const char *name)
{
    PyObject *key = PyUnicode_FromString(name);
    PyObject *value = key ? PyObject_GenericGetAttr(object, key) : NULL;
    PyErr_Clear();
    Py_XDECREF(key);
    return value;
}

struct thread {
    unsigned long ident; /* Python's */
    int32_t id;          /* gettid's; 0: unknown */
    char name[64];
};

static struct thread opener; /* the one that calls hvd.init() */

/* A program that has not imported threading may have no other thread. */
static struct thread find_thread(PyObject *active, PyObject *ident)
{
    struct thread found = {.ident = PyLong_AsUnsignedLong(ident)};
    if (found.ident == opener.ident)
        found.id = opener.id;
    PyObject *thread = active && PyDict_Check(active) ? PyDict_GetItemWithError(active, ident) : NULL;
    PyErr_Clear();
    if (!thread)
        return found;
    PyObject *id = own_attribute(thread, "_native_id");
    if (id && PyLong_Check(id))
        found.id = (int32_t)PyLong_AsLong(id);
    PyErr_Clear();
    Py_XDECREF(id);
    copy_field(own_attribute(thread, "_name"), found.name, sizeof found.name);
    return found;
}

/* Writes the threads with this id, or, with -1, all that are none of these. Returns their number. */
static int put_threads(struct text *to, PyObject *frames, PyObject *active, int32_t id, const int32_t *these,
                       int32_t count)
{
    PyObject *ident, *frame;
    Py_ssize_t position = 0;
    int written = 0;
    while (PyDict_Next(frames, &position, &ident, &frame) && written < THREADS) {
        struct thread thread = find_thread(active, ident);
        bool wanted = thread.id == id;
        if (id == -1) {
            wanted = true;
            for (int32_t i = 0; i < count; i++)
                wanted = wanted && these[i] != thread.id;
        }
        if (!wanted)
            continue;
        written++;
        put_line(to, "T\t%d\t%s\n", (int)thread.id, thread.name);
        put_frames(to, frame);
    }
    return written;
}

static PyObject *active_threads(void)
{
    PyObject *modules = PySys_GetObject("modules");
    PyObject *threading =
        modules && PyDict_Check(modules) ? PyDict_GetItemString(modules, "threading") : NULL;
    PyObject *active = threading ? PyObject_GetAttrString(threading, "_active") : NULL;
    PyErr_Clear();
    return active;
}

/* ---- the source ---------------------------------------------------------------------------------------- */

static size_t write_frames(const int32_t *threads, int32_t count, char *bytes, size_t capacity)
{
    struct text text = {bytes, 0, capacity};
    PyGILState_STATE state = PyGILState_Ensure();
    int collects = PyGC_Disable();
    PyObject *read = PySys_GetObject("_current_frames");
    PyObject *frames = read ? PyObject_CallNoArgs(read) : NULL;
    PyObject *active = active_threads();
    if (frames && PyDict_Check(frames)) {
        for (int32_t i = 0; i < count; i++)
            put_threads(&text, frames, active, threads[i], NULL, 0);
        put_threads(&text, frames, active, -1, threads, count);
    }
    Py_XDECREF(active);
    Py_XDECREF(frames);
    PyErr_Clear();
    if (collects)
        PyGC_Enable();
    PyGILState_Release(state);
    return text.length;
}

static void mark_frames(int signal)
{
    if (ftruncate(dump_file, 0) == 0 && lseek(dump_file, 0, SEEK_SET) == 0)
        dump(signal);
}

/* Reads faulthandler's lines: `  File "train.py", line 12 in main`. */
static size_t read_marked(char *bytes, size_t capacity)
{
    static char lines[DUMP_BYTES];
    struct text text = {bytes, 0, capacity};
    ssize_t length = pread(dump_file, lines, sizeof lines - 1, 0);
    lines[length > 0 ? length : 0] = '\0';
    for (char *rest = lines, *line; (line = strsep(&rest, "\n"));) {
        char *file = strstr(line, "File \""), *number = file ? strstr(file, "\", line ") : NULL;
        char *function = number ? strstr(number, " in ") : NULL;
        if (!function)
            continue;
        *number = '\0';
        put_line(&text, "P\t%s\t%d\t%s\n", file + strlen("File \""), atoi(number + strlen("\", line ")),
                 function + strlen(" in "));
    }
    return text.length;
}

/* Lets faulthandler write into our file when its handler is called. The handler itself is the engine's. */
static void prepare_dump(void)
{
    struct sigaction before, after;
    if (sigaction(HVD_STACK_SIGNAL, NULL, &before) || (!dump && before.sa_handler != SIG_DFL))
        return;
    dump_file = memfd_create("horovod-stack", MFD_CLOEXEC);
    PyObject *module = PyImport_ImportModule("faulthandler");
    PyObject *done = module && dump_file >= 0
                         ? PyObject_CallMethod(module, "register", "iiii", HVD_STACK_SIGNAL, dump_file, 0, 0)
                         : NULL;
    if (done && !dump && sigaction(HVD_STACK_SIGNAL, &before, &after) == 0)
        dump = after.sa_handler;
    else if (!done && dump_file >= 0)
        close(dump_file);
    if (!done)
        dump_file = -1;
    Py_XDECREF(done);
    Py_XDECREF(module);
    PyErr_Clear();
}

void stacks_provide(void)
{
    hvd_stack_source source = {.struct_size = sizeof source, .write = write_frames};
    if (withdrawn)
        return;
    opener = (struct thread){.ident = PyThread_get_thread_ident(), .id = (int32_t)syscall(SYS_gettid)};
    if (dump_file < 0)
        prepare_dump();
    if (dump_file >= 0) {
        source.mark = mark_frames;
        source.marked = read_marked;
    }
    Py_BEGIN_ALLOW_THREADS;
    hvd_set_stack_source(&source, NULL); /* a failure leaves the former source, which is the same */
    Py_END_ALLOW_THREADS;
}

/* ---- module -------------------------------------------------------------------------------------------- */

static PyObject *withdraw(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused))
{
    withdrawn = true;
    Py_BEGIN_ALLOW_THREADS; /* a `write` that waits for the GIL ends first */
    hvd_set_stack_source(NULL, NULL);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef withdraw_definition = {"withdraw_stacks", withdraw, METH_NOARGS, NULL};

void stacks_forget_file(void)
{
    if (dump_file >= 0)
        close(dump_file);
    dump_file = -1;
}

int stacks_init_module(void)
{
    PyObject *module = PyImport_ImportModule("atexit");
    PyObject *function = module ? PyCFunction_NewEx(&withdraw_definition, NULL, NULL) : NULL;
    PyObject *done = function ? PyObject_CallMethod(module, "register", "O", function) : NULL;
    Py_XDECREF(module);
    Py_XDECREF(function);
    Py_XDECREF(done);
    return done ? 0 : -1;
}
