/* epochs.h - functions of the module for a process of an elastic job: epoch_open, epoch_wait, epoch_notice,
 * epoch_leave and epoch_done. */
#ifndef HVD_BIND_EPOCHS_H
#define HVD_BIND_EPOCHS_H

#include "bind/python.h"

#include "horovod.h"

#include <stdbool.h>

PyObject *epochs_open(PyObject *module, PyObject *unused);
PyObject *epochs_wait(PyObject *module, PyObject *arguments);
PyObject *epochs_notice(PyObject *module, PyObject *epoch);
PyObject *epochs_leave(PyObject *module, PyObject *unused);
PyObject *epochs_done(PyObject *module, PyObject *unused);

/* Returns true if the starter has said that this epoch has lost a member. Any thread, also without the GIL.
 */
bool epochs_lost(int epoch);

#endif
