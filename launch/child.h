/* child.h - starts a process that ends with this one. One thread. */
#ifndef HVD_LAUNCH_CHILD_H
#define HVD_LAUNCH_CHILD_H

#include "guard.h"
#include "output.h"

#define CHILD_FILES (1 + OUTPUTS)

struct child {
    char **words;
    char **environment;                 /* NULL: this process's */
    int files[CHILD_FILES], file_count; /* its descriptors from 0 on; -1: /dev/null */
    int end_signal;                     /* the signal that it gets when this process has ended */
    bool shares_session;                /* this process's; false: it leads one of its own */
};

/* Returns its number, which is also that of its group, or a negated errno when the command can't be started.
 */
pid_t child_start(const struct child *child, struct guard *guard);

#endif
