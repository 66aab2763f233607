/* interruption.c - see interruption.h. */
#include "bind/interruption.h"

#include "bind/python.h"

/* Between allow and end: what the thread needs to take the GIL again. */
static _Thread_local PyThreadState *aside;

void interruption_allow(void)
{
    aside = PyEval_SaveThread();
}

void interruption_end(void)
{
    PyEval_RestoreThread(aside);
}

int interruption_asked(void *unused)
{
    (void)unused;
    interruption_end();
    int raised = PyErr_CheckSignals();
    interruption_allow();
    return raised;
}
