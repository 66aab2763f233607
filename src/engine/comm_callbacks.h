/* comm_callbacks.h - the functions that the coordinator and the back ends of a process set call. They run
 * under the progress lock. */
#ifndef HVD_ENGINE_COMM_CALLBACKS_H
#define HVD_ENGINE_COMM_CALLBACKS_H

#include "engine/comm.h"

/* For the coordinator: they send its messages, start what it decides, and finish what it refuses. */
struct coordinator_output comm_output(struct comm *comm);

/* For back ends of which all collectives need one order. */
struct turn_source comm_turns(struct comm *comm);

#endif
