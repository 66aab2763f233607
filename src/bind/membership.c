/* membership.c - the Python type Membership: the state machine that decides which processes are the ranks of
 * a job, for starters that are written in Python. It has no lock: one thread at a time calls it, with the GIL
 * held. Times are seconds of any clock that never runs backwards. */
#include "bind/membership.h"

#include "membership/membership.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1e9 /* ns */

typedef struct {
    PyObject_HEAD struct membership *machine;
} Membership;

static struct membership *machine_of(PyObject *object)
{
    return ((Membership *)object)->machine;
}

static int64_t nanoseconds(double seconds)
{
    return seconds < INT64_MAX / SECOND ? (int64_t)(seconds * SECOND) : INT64_MAX;
}

/* Returns what `value` is called in the list; -1 with an exception set if it is not in it. */
static int find_name(const char *const names[], int count, const char *value, const char *what)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], value) == 0)
            return i;
    }
    PyErr_Format(PyExc_ValueError, "'%s' is no %s", value, what);
    return -1;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static PyObject *membership_create(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"start",    "min",    "max",     "prepare",     "settle",  "rejoin",
                            "silent",   "gather", "timeout", "restarts",    "restart", "drop_last",
                            "grow_now", "pause",  "seed",    "reset_limit", "spares",  NULL};
    struct membership_config config = {.reset_limit = -1};
    double prepare, settle, rejoin, silent, gather, timeout, least = 0, longest = 0;
    int restart = 0, drop_last = 0, grow_now = 0;
    unsigned long long seed = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iiiddddddi|$ppp(dd)Kii:Membership", names,
                                     &config.start, &config.min, &config.max, &prepare, &settle, &rejoin,
                                     &silent, &gather, &timeout, &config.restarts, &restart, &drop_last,
                                     &grow_now, &least, &longest, &seed, &config.reset_limit, &config.spares))
        return NULL;
    if (config.spares < 0 || config.spares > INT_MAX - config.max)
        return PyErr_Format(PyExc_ValueError, "%d spares beyond %d ranks are too many", config.spares,
                            config.max);
    config.prepare = nanoseconds(prepare);
    config.settle = nanoseconds(settle);
    config.rejoin = nanoseconds(rejoin);
    config.silent = nanoseconds(silent);
    config.gather = nanoseconds(gather);
    config.timeout = nanoseconds(timeout);
    config.restart = restart;
    config.drop_last = drop_last;
    config.grow_now = grow_now;
    config.pause[0] = nanoseconds(least);
    config.pause[1] = nanoseconds(longest);
    config.seed = seed;
    Membership *self = (Membership *)PyType_GenericAlloc(type, 0);
    if (!self)
        return NULL;
    self->machine = membership_new(&config);
    if (self->machine)
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return PyErr_NoMemory();
}

static void membership_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    membership_free(machine_of(object));
    PyObject_Free(object);
    Py_DECREF(type);
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

static PyObject *discovered(PyObject *object, PyObject *arguments)
{
    double now;
    PyObject *sequence;
    if (!PyArg_ParseTuple(arguments, "dO:discovered", &now, &sequence))
        return NULL;
    PyObject *list = PySequence_Tuple(sequence); /* keeps the names */
    Py_ssize_t count = list ? PyTuple_Size(list) : -1;
    struct membership_host *hosts = count < 0 ? NULL : calloc((size_t)count + 1, sizeof *hosts);
    bool read = hosts != NULL;
    for (Py_ssize_t i = 0; read && i < count; i++) {
        PyObject *item = PyTuple_GetItem(list, i);
        if (!PyTuple_Check(item))
            PyErr_Format(PyExc_TypeError, "a host is a tuple (name, slots), not %R", item);
        read = PyTuple_Check(item) &&
               PyArg_ParseTuple(item, "si;a host is a tuple (name, slots)", &hosts[i].name, &hosts[i].slots);
    }
    if (read)
        membership_discovered(machine_of(object), nanoseconds(now), hosts, (int)count);
    else if (list && !hosts)
        PyErr_NoMemory();
    free(hosts);
    Py_XDECREF(list);
    return read ? Py_BuildValue("") : NULL;
}

static PyObject *host_prepared(PyObject *object, PyObject *arguments)
{
    double now;
    int host, prepared = 1;
    if (!PyArg_ParseTuple(arguments, "di|p:host_prepared", &now, &host, &prepared))
        return NULL;
    (prepared ? membership_host_prepared : membership_host_failed)(machine_of(object), nanoseconds(now),
                                                                   host);
    Py_RETURN_NONE;
}

static PyObject *host_lost(PyObject *object, PyObject *arguments)
{
    double now;
    int host;
    if (!PyArg_ParseTuple(arguments, "di:host_lost", &now, &host))
        return NULL;
    membership_host_lost(machine_of(object), nanoseconds(now), host, false);
    Py_RETURN_NONE;
}

static PyObject *waits(PyObject *object, PyObject *arguments)
{
    double now;
    int slot, holds_state;
    struct membership_wait wait = {.lost_rank = -1};
    if (!PyArg_ParseTuple(arguments, "diip|i:waits", &now, &slot, &wait.after, &holds_state, &wait.lost_rank))
        return NULL;
    wait.holds_state = holds_state;
    membership_waits(machine_of(object), nanoseconds(now), slot, &wait);
    Py_RETURN_NONE;
}

static PyObject *done(PyObject *object, PyObject *arguments)
{
    double now;
    int slot;
    if (!PyArg_ParseTuple(arguments, "di:done", &now, &slot))
        return NULL;
    membership_done(machine_of(object), nanoseconds(now), slot);
    Py_RETURN_NONE;
}

static PyObject *leaves(PyObject *object, PyObject *arguments)
{
    double now;
    int slot;
    if (!PyArg_ParseTuple(arguments, "di:leaves", &now, &slot))
        return NULL;
    membership_leaves(machine_of(object), nanoseconds(now), slot);
    Py_RETURN_NONE;
}

/* Nothing of the process is left, either. */
static PyObject *ended(PyObject *object, PyObject *arguments)
{
    double now;
    int slot, exit_code, signal = 0;
    if (!PyArg_ParseTuple(arguments, "dii|i:ended", &now, &slot, &exit_code, &signal))
        return NULL;
    membership_ended(machine_of(object), nanoseconds(now), slot, exit_code, signal);
    membership_gone(machine_of(object), nanoseconds(now), slot);
    Py_RETURN_NONE;
}

static const char *const steps[] = {[MEMBERSHIP_KEEP] = "keep",
                                    [MEMBERSHIP_OWN] = "own",
                                    [MEMBERSHIP_TERM] = "term",
                                    [MEMBERSHIP_KILL] = "kill"};

static PyObject *stop(PyObject *object, PyObject *arguments)
{
    double now;
    int exit_code;
    const char *name;
    if (!PyArg_ParseTuple(arguments, "dis:stop", &now, &exit_code, &name))
        return NULL;
    int step = find_name(steps, sizeof steps / sizeof *steps, name, "step");
    if (step < 0)
        return NULL;
    membership_stop(machine_of(object), nanoseconds(now), exit_code, (enum membership_step)step);
    Py_RETURN_NONE;
}

static PyObject *tick(PyObject *object, PyObject *now)
{
    double seconds = PyFloat_AsDouble(now);
    if (PyErr_Occurred())
        return NULL;
    membership_tick(machine_of(object), nanoseconds(seconds));
    Py_RETURN_NONE;
}

/* ---- actions ------------------------------------------------------------------------------------------- */

static PyObject *next(PyObject *object, PyObject *Py_UNUSED(unused))
{
    static const char *const kinds[] = {
        [MEMBERSHIP_PREPARE] = "prepare", [MEMBERSHIP_RELEASE] = "release", [MEMBERSHIP_EPOCH] = "epoch",
        [MEMBERSHIP_START] = "start",     [MEMBERSHIP_END] = "end",         [MEMBERSHIP_NOTICE] = "notice",
        [MEMBERSHIP_SAY] = "say",         [MEMBERSHIP_FINISH] = "finish"};
    static const char *const whys[] = {[MEMBERSHIP_REMOVED] = "its place was taken away",
                                       [MEMBERSHIP_HOST_OUT] = "another process of its host has failed",
                                       [MEMBERSHIP_LEAVES] = "it was asked to leave",
                                       [MEMBERSHIP_HUNG] = "it did not come back when all others did",
                                       [MEMBERSHIP_CUT_OFF] = "its connections break again and again",
                                       [MEMBERSHIP_OVER] = "the job ends"};
    struct membership_action action;
    if (!membership_next(machine_of(object), &action))
        Py_RETURN_NONE;
    return Py_BuildValue("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:s,s:s}", "kind", kinds[action.kind], "host",
                         action.host, "seat", action.seat, "slot", action.slot, "rank", action.rank, "epoch",
                         action.epoch, "exit_code", action.exit_code, "change", action.change, "step",
                         steps[action.step], "text",
                         action.kind == MEMBERSHIP_END ? whys[action.why] : action.text);
}

/* ---- its state ---------------------------------------------------------------------------------------- */

static PyObject *list_of(const struct membership_rank *ranks, int size)
{
    PyObject *list = PyList_New(0);
    for (int rank = 0; list && rank < size; rank++) {
        PyObject *item =
            Py_BuildValue("(iii)", (int)ranks[rank].slot, (int)ranks[rank].host, (int)ranks[rank].seat);
        if (!item || PyList_Append(list, item)) {
            Py_DECREF(list);
            list = NULL;
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *get_ranks(PyObject *object, PyObject *Py_UNUSED(unused))
{
    int epoch, size;
    const struct membership_rank *ranks = membership_ranks(machine_of(object), &epoch, &size);
    return list_of(ranks, size);
}

static PyObject *get_planned(PyObject *object, PyObject *Py_UNUSED(unused))
{
    int size;
    const struct membership_rank *ranks = membership_planned(machine_of(object), &size);
    return list_of(ranks, size);
}

static PyObject *is_out(PyObject *object, PyObject *arguments)
{
    double now;
    int host;
    if (!PyArg_ParseTuple(arguments, "di:is_out", &now, &host))
        return NULL;
    if (host < 0 || host >= membership_hosts(machine_of(object)))
        return PyErr_Format(PyExc_IndexError, "there is no host %d", host);
    return PyBool_FromLong(membership_host_is_out(machine_of(object), nanoseconds(now), host));
}

static PyObject *get_hosts(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *list = PyList_New(0);
    for (int host = 0; list && host < membership_hosts(machine_of(object)); host++) {
        PyObject *name = PyUnicode_FromString(membership_host_name(machine_of(object), host));
        if (!name || PyList_Append(list, name)) {
            Py_DECREF(list);
            list = NULL;
        }
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *get_epoch(PyObject *object, void *Py_UNUSED(closure))
{
    int epoch, size;
    membership_ranks(machine_of(object), &epoch, &size);
    return PyLong_FromLong(epoch);
}

static PyObject *get_deadline(PyObject *object, void *Py_UNUSED(closure))
{
    int64_t deadline = membership_deadline(machine_of(object));
    return PyFloat_FromDouble(deadline == INT64_MAX ? INFINITY : (double)deadline / SECOND);
}

static PyMethodDef membership_methods[] = {
    {"discovered", discovered, METH_VARARGS,
     "discovered($self, now, hosts, /)\n--\n\n"
     "All hosts that there are now: a tuple (name, slots) for each."},
    {"host_prepared", host_prepared, METH_VARARGS,
     "host_prepared($self, now, host, prepared=True, /)\n--\n\n"
     "The answer of 'prepare'."},
    {"host_lost", host_lost, METH_VARARGS,
     "host_lost($self, now, host, /)\n--\n\n"
     "The processes of the host are gone; it is left out."},
    {"waits", waits, METH_VARARGS,
     "waits($self, now, slot, after, holds_state, lost_rank=-1, /)\n--\n\n"
     "The process asks for an epoch after this one (-1: it is ready)."},
    {"done", done, METH_VARARGS,
     "done($self, now, slot, /)\n--\n\n"
     "The function of the process has returned."},
    {"leaves", leaves, METH_VARARGS,
     "leaves($self, now, slot, /)\n--\n\n"
     "The process was asked to leave, which it does once the others can go on."},
    {"ended", ended, METH_VARARGS,
     "ended($self, now, slot, exit_code, signal=0, /)\n--\n\n"
     "The process has ended, and its seat is free."},
    {"stop", stop, METH_VARARGS,
     "stop($self, now, exit_code, step, /)\n--\n\n"
     "The job is to end: all processes go on ('keep'), may end by themselves ('own'), or get SIGTERM "
     "('term') "
     "or SIGKILL ('kill')."},
    {"tick", tick, METH_O,
     "tick($self, now, /)\n--\n\n"
     "It is time, see `deadline`."},
    {"next", next, METH_NOARGS,
     "next($self, /)\n--\n\n"
     "The next action as a dict (struct membership_action in membership.h); None: there is none. Call it "
     "after "
     "each input until it returns None, and carry the actions out in their order."},
    {"ranks", get_ranks, METH_NOARGS,
     "ranks($self, /)\n--\n\n"
     "A tuple (slot, host, seat) for each rank of the epoch."},
    {"planned", get_planned, METH_NOARGS,
     "planned($self, /)\n--\n\n"
     "The same of the next epoch, if all processes that were started become ready."},
    {"is_out", is_out, METH_VARARGS,
     "is_out($self, now, host, /)\n--\n\n"
     "Whether the host is not used because a process failed there, or because it was lost."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef membership_fields[] = {
    {"hosts", get_hosts, NULL, "names of all hosts that were ever known, by number", NULL},
    {"epoch", get_epoch, NULL, "the running epoch; -1: none has begun", NULL},
    {"deadline", get_deadline, NULL, "when to call tick, if no other input comes first", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

int membership_init_module(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_doc,
         "Membership(start, min, max, settle, rejoin, silent, gather, timeout, restarts, *, restart=False, "
         "drop_last=False, grow_now=False, pause=(0, 0), seed=0, reset_limit=-1)\n--\n\n"
         "Decides which processes are the ranks of a job, epoch by epoch (membership.h); times are seconds."},
        {Py_tp_new, SLOT(membership_create)},
        {Py_tp_dealloc, SLOT(membership_dealloc)},
        {Py_tp_methods, membership_methods},
        {Py_tp_getset, membership_fields},
        {0, NULL}};
    PyType_Spec spec = {"horovod._core.Membership", sizeof(Membership), 0, Py_TPFLAGS_DEFAULT, slots};
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
    return type ? PyModule_AddType(module, type) : -1;
}
