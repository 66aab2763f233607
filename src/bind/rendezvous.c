/* rendezvous.c - a Rendezvous serves the store in which the ranks of a job meet, assigns their places, and
 * puts keys; a Watch returns keys as they are put. Any Python thread calls these functions with the GIL held;
 * calls that use the store release it. A Watch keeps its Rendezvous alive. One thread at a time may use each
 * of the two: `busy` refuses a second one. */
#include "bind/rendezvous.h"

#include "bind/blocking.h"
#include "bind/errors.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    PyObject_HEAD hvd_rendezvous *rendezvous; /* NULL if it is closed */
    Py_ssize_t watches;                       /* the number of open ones */
    bool busy;                                /* a call runs without the GIL */
} Rendezvous;

typedef struct {
    PyObject_HEAD Rendezvous *owner;
    hvd_watch *watch; /* NULL if it is closed */
    bool busy;
} Watch;

static PyTypeObject *rendezvous_type, *watch_type;

/* ---- Rendezvous ---------------------------------------------------------------------------------------- */

static PyObject *rendezvous_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"address", "secret", NULL};
    const char *address, *secret;
    hvd_rendezvous *started = NULL;
    hvd_status status;
    hvd_code code;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "zs:Rendezvous", names, &address, &secret))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = hvd_rendezvous_start(address, secret, &started, &status);
    Py_END_ALLOW_THREADS;
    if (code)
        return raise_status(&status);
    Rendezvous *self = (Rendezvous *)PyType_GenericAlloc(type, 0);
    if (self)
        self->rendezvous = started;
    else
        hvd_rendezvous_stop(started);
    return (PyObject *)self;
}

/* Returns the server and marks it busy, or returns NULL with an exception set. */
static hvd_rendezvous *rendezvous_begin(Rendezvous *self)
{
    if (self->rendezvous && !self->busy) {
        self->busy = true;
        return self->rendezvous;
    }
    PyErr_SetString(PyExc_ValueError, self->rendezvous ? "another thread uses this Rendezvous"
                                                       : "this Rendezvous has been closed");
    return NULL;
}

static PyObject *rendezvous_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    Rendezvous *self = (Rendezvous *)object;
    if (!self->rendezvous)
        Py_RETURN_NONE;
    if (self->watches)
        return PyErr_Format(PyExc_ValueError, "%zd watches of this Rendezvous are open: close them first",
                            self->watches);
    hvd_rendezvous *stopped = rendezvous_begin(self);
    if (!stopped)
        return NULL;
    self->rendezvous = NULL;
    Py_BEGIN_ALLOW_THREADS;
    hvd_rendezvous_stop(stopped);
    Py_END_ALLOW_THREADS;
    self->busy = false;
    Py_RETURN_NONE;
}

static void rendezvous_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    hvd_rendezvous_stop(((Rendezvous *)object)->rendezvous);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Reads a tuple (slot, rank, host), to which the texts belong. Returns false with an exception set on
 * failure. */
static bool read_assignment(PyObject *item, hvd_assignment *assignment)
{
    int rank;
    if (!PyTuple_Check(item)) {
        PyErr_Format(PyExc_TypeError, "a slot is a tuple (name, rank, host or None), not %R", item);
        return false;
    }
    if (!PyArg_ParseTuple(item, "siz;a slot is a tuple (name, rank, host or None)", &assignment->slot, &rank,
                          &assignment->host))
        return false;
    assignment->rank = rank;
    return true;
}

static PyObject *rendezvous_assign(PyObject *object, PyObject *arguments)
{
    const char *job;
    int epoch;
    PyObject *sequence;
    hvd_status status;
    hvd_code code = HVD_INVALID_ARGUMENT;
    if (!PyArg_ParseTuple(arguments, "siO:assign", &job, &epoch, &sequence))
        return NULL;
    PyObject *slots = PySequence_Tuple(sequence); /* keeps the texts to which the assignments point */
    Py_ssize_t count = slots ? PyTuple_Size(slots) : -1;
    hvd_assignment *assignments = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *assignments);
    bool read = assignments != NULL;
    for (Py_ssize_t i = 0; read && i < count; i++)
        read = read_assignment(PyTuple_GetItem(slots, i), &assignments[i]);
    if (slots && !assignments)
        PyErr_NoMemory();
    Rendezvous *self = (Rendezvous *)object;
    hvd_rendezvous *server = read ? rendezvous_begin(self) : NULL;
    if (server) {
        Py_BEGIN_ALLOW_THREADS;
        code = hvd_rendezvous_assign(server, job, epoch, assignments, (int32_t)count, &status);
        Py_END_ALLOW_THREADS;
        self->busy = false;
    }
    free(assignments);
    Py_XDECREF(slots);
    if (!server)
        return NULL;
    return code ? raise_status(&status) : Py_BuildValue("");
}

static PyObject *rendezvous_put(PyObject *object, PyObject *arguments)
{
    Rendezvous *self = (Rendezvous *)object;
    const char *job, *key, *value;
    Py_ssize_t length;
    int epoch;
    hvd_status status;
    hvd_code code;
    if (!PyArg_ParseTuple(arguments, "sisy#:put", &job, &epoch, &key, &value, &length))
        return NULL;
    hvd_rendezvous *server = rendezvous_begin(self);
    if (!server)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = hvd_rendezvous_put(server, job, epoch, key, value, (size_t)length, &status);
    Py_END_ALLOW_THREADS;
    self->busy = false;
    return code ? raise_status(&status) : Py_BuildValue("");
}

/* Reads the kind of news; returns false with an exception set if it is none. */
static bool read_kind(const char *text, hvd_news_kind *kind)
{
    static const char *const kinds[] = {
        [HVD_NEWS_EPOCH] = "epoch", [HVD_NEWS_OUT] = "out", [HVD_NEWS_OVER] = "over"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        *kind = (hvd_news_kind)i;
        if (strcmp(kinds[i], text) == 0)
            return true;
    }
    PyErr_Format(PyExc_ValueError, "news are 'epoch', 'out' or 'over', not '%s'", text);
    return false;
}

static PyObject *rendezvous_send_news(PyObject *object, PyObject *arguments)
{
    Rendezvous *self = (Rendezvous *)object;
    const char *job, *kind;
    int epoch = 0, rank = -1, size = 0, notice = 0;
    hvd_news news = {.struct_size = sizeof news};
    hvd_status status;
    hvd_code code;
    if (!PyArg_ParseTuple(arguments, "sss|iiiis:send_news", &job, &news.slot, &kind, &epoch, &rank, &size,
                          &notice, &news.reason) ||
        !read_kind(kind, &news.kind))
        return NULL;
    news.epoch = epoch;
    news.rank = rank;
    news.size = size;
    news.notice = notice;
    hvd_rendezvous *server = rendezvous_begin(self);
    if (!server)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = hvd_rendezvous_send_news(server, job, &news, &status);
    Py_END_ALLOW_THREADS;
    self->busy = false;
    return code ? raise_status(&status) : Py_BuildValue("");
}

/* Watches keys that start with `prefix`; NULL: reports of slots. */
static PyObject *make_watch(Rendezvous *self, const char *job, int epoch, const char *prefix)
{
    hvd_status status;
    hvd_code code;
    hvd_watch *opened = NULL;
    hvd_rendezvous *server = rendezvous_begin(self);
    if (!server)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    code = prefix ? hvd_watch_open(server, job, epoch, prefix, &opened, &status)
                  : hvd_rendezvous_watch_slots(server, job, &opened, &status);
    Py_END_ALLOW_THREADS;
    self->busy = false;
    if (code)
        return raise_status(&status);
    Watch *watch = (Watch *)PyType_GenericAlloc(watch_type, 0);
    if (!watch) {
        hvd_watch_close(opened);
        return NULL;
    }
    Py_INCREF((PyObject *)self);
    watch->owner = self;
    watch->watch = opened;
    self->watches++;
    return (PyObject *)watch;
}

static PyObject *rendezvous_watch(PyObject *object, PyObject *arguments)
{
    const char *job, *prefix = "";
    int epoch;
    if (!PyArg_ParseTuple(arguments, "si|s:watch", &job, &epoch, &prefix))
        return NULL;
    return make_watch((Rendezvous *)object, job, epoch, prefix);
}

static PyObject *rendezvous_watch_slots(PyObject *object, PyObject *arguments)
{
    const char *job;
    if (!PyArg_ParseTuple(arguments, "s:watch_slots", &job))
        return NULL;
    return make_watch((Rendezvous *)object, job, 0, NULL);
}

static PyObject *rendezvous_port(PyObject *object, void *Py_UNUSED(closure))
{
    Rendezvous *self = (Rendezvous *)object;
    return self->rendezvous ? PyLong_FromLong(hvd_rendezvous_port(self->rendezvous)) : Py_BuildValue("");
}

/* ---- Watch --------------------------------------------------------------------------------------------- */

static void watch_end(Watch *self)
{
    if (self->watch)
        self->owner->watches--;
    hvd_watch_close(self->watch);
    self->watch = NULL;
}

static PyObject *watch_close(PyObject *object, PyObject *Py_UNUSED(unused))
{
    if (((Watch *)object)->busy) {
        PyErr_SetString(PyExc_ValueError, "another thread waits on this Watch");
        return NULL;
    }
    watch_end((Watch *)object);
    Py_RETURN_NONE;
}

static void watch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    watch_end((Watch *)object);
    Py_XDECREF((PyObject *)((Watch *)object)->owner);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Waits in slices, between which Python runs the handlers of signals. */
static hvd_code wait_for_entry(Watch *self, double seconds, hvd_entry *entry, hvd_status *status)
{
    double end = blocking_now() + seconds, left = seconds;
    hvd_code code;
    do {
        double slice = left < BLOCKING_SIGNAL_SECONDS ? left : BLOCKING_SIGNAL_SECONDS;
        Py_BEGIN_ALLOW_THREADS;
        code = hvd_watch_next(self->watch, slice > 0 ? slice : 0, entry, status);
        Py_END_ALLOW_THREADS;
        left = end - blocking_now();
    } while (code == HVD_TIMED_OUT && left > 0 && !PyErr_CheckSignals());
    return code;
}

static PyObject *watch_next(PyObject *object, PyObject *argument)
{
    Watch *self = (Watch *)object;
    hvd_entry entry = {.struct_size = sizeof entry};
    hvd_status status;
    double seconds = PyFloat_AsDouble(argument);
    if (PyErr_Occurred())
        return NULL;
    if (!self->watch || self->busy) {
        PyErr_SetString(PyExc_ValueError,
                        self->watch ? "another thread waits on this Watch" : "this Watch has been closed");
        return NULL;
    }
    self->busy = true;
    hvd_code code = wait_for_entry(self, seconds, &entry, &status);
    self->busy = false;
    if (PyErr_Occurred())
        return NULL;
    if (code == HVD_TIMED_OUT)
        Py_RETURN_NONE;
    return code ? raise_status(&status)
                : Py_BuildValue("(sy#)", entry.key, (const char *)entry.value, (Py_ssize_t)entry.length);
}

/* ---- the types ----------------------------------------------------------------------------------------- */

static PyObject *enter(PyObject *object, PyObject *Py_UNUSED(unused))
{
    Py_INCREF(object);
    return object;
}

static PyObject *rendezvous_exit(PyObject *object, PyObject *Py_UNUSED(arguments))
{
    return rendezvous_close(object, NULL);
}

static PyObject *watch_exit(PyObject *object, PyObject *Py_UNUSED(arguments))
{
    return watch_close(object, NULL);
}

static PyMethodDef rendezvous_methods[] = {
    {"assign", rendezvous_assign, METH_VARARGS,
     "assign($self, job, epoch, slots, /)\n--\n\n"
     "Begin an epoch of a job: `slots` has a tuple (name, rank or -1, host or None) for each process."},
    {"put", rendezvous_put, METH_VARARGS,
     "put($self, job, epoch, key, value, /)\n--\n\n"
     "Put a key that stays until a newer epoch begins."},
    {"watch", rendezvous_watch, METH_VARARGS,
     "watch($self, job, epoch, prefix='', /)\n--\n\n"
     "A Watch for the keys of an epoch that begin with `prefix`: \"fault/\" for those of faults."},
    {"send_news", rendezvous_send_news, METH_VARARGS,
     "send_news($self, job, slot, kind, epoch=0, rank=-1, size=0, notice=0, reason='', /)\n--\n\n"
     "Send a slot of an elastic job the news that an epoch has begun ('epoch'; once more with a notice: that "
     "it is to "
     "leave it), that it is out of the job ('out'), or that the job is over ('over')."},
    {"watch_slots", rendezvous_watch_slots, METH_VARARGS,
     "watch_slots($self, job, /)\n--\n\n"
     "A Watch for the reports of the slots of an elastic job: b\"entered\", b\"ready\", b\"waits ...\", "
     "b\"done\", or "
     "b\"\" "
     "once the connection of the slot has ended."},
    {"close", rendezvous_close, METH_NOARGS,
     "close($self, /)\n--\n\n"
     "End all connections: ranks that have not met yet fail."},
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", rendezvous_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef rendezvous_fields[] = {
    {"port", rendezvous_port, NULL, "where it listens; None once it is closed", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef watch_methods[] = {
    {"next", watch_next, METH_O,
     "next($self, seconds, /)\n--\n\n"
     "(key, value) of the next put; None if there is none within this time."},
    {"close", watch_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", watch_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int rendezvous_init_module(PyObject *module)
{
    PyType_Slot rendezvous_slots[] = {
        {Py_tp_doc,
         "Rendezvous(address, secret)\n--\n\n"
         "The store in which the ranks of jobs meet, served until it is closed. `address` is as of "
         "hvd_rendezvous_start in horovod.h; None: all interfaces, at a free port."},
        {Py_tp_new, SLOT(rendezvous_new)},
        {Py_tp_dealloc, SLOT(rendezvous_dealloc)},
        {Py_tp_methods, rendezvous_methods},
        {Py_tp_getset, rendezvous_fields},
        {0, NULL}};
    PyType_Slot watch_slots[] = {
        {Py_tp_dealloc, SLOT(watch_dealloc)}, {Py_tp_methods, watch_methods}, {0, NULL}};
    PyType_Spec rendezvous_spec = {"horovod._core.Rendezvous", sizeof(Rendezvous), 0, Py_TPFLAGS_DEFAULT,
                                   rendezvous_slots};
    PyType_Spec watch_spec = {"horovod._core.Watch", sizeof(Watch), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, watch_slots};
    rendezvous_type = (PyTypeObject *)PyType_FromSpec(&rendezvous_spec);
    watch_type = rendezvous_type ? (PyTypeObject *)PyType_FromSpec(&watch_spec) : NULL;
    return watch_type && !PyModule_AddType(module, rendezvous_type) ? PyModule_AddType(module, watch_type)
                                                                    : -1;
}
