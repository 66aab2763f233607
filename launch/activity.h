/* activity.h - says from a stack what the program of a rank does. No state; one thread. */
#ifndef HVD_LAUNCH_ACTIVITY_H
#define HVD_LAUNCH_ACTIVITY_H

#include "stack.h"

enum activity {
    ACTIVITY_UNKNOWN,
    ACTIVITY_DATA, /* in a data loader */
    ACTIVITY_DISK,
    ACTIVITY_FILE,
    ACTIVITY_OPEN,
    ACTIVITY_PIPE,
    ACTIVITY_CONNECTION,
    ACTIVITY_QUEUE,
    ACTIVITY_LOCK,
    ACTIVITY_PROCESS,
    ACTIVITY_SLEEP,
    ACTIVITY_COMPUTE,
    ACTIVITY_COUNT
};

/* What the program's thread does; ACTIVITY_UNKNOWN also without a stack. */
enum activity activity_of(const struct stack *stack);

/* Returns true if C code keeps Python's lock, so that no other thread of the program can run. */
bool activity_holds_lock(const struct stack *stack);

/* Adds what the program does, and where: "is in the data loader: data.py:43 in __getitem__:
 * open(path).read()", or, if `brief`, "is in the data loader data.py:43"; a C function if there is no frame
 * of Python. */
void activity_append(const struct stack *stack, bool brief, char *text, size_t capacity);

#endif
