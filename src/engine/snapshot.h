/* snapshot.h - a snapshot of include/horovod.h. One thread at a time. */
#ifndef HVD_ENGINE_SNAPSHOT_H
#define HVD_ENGINE_SNAPSHOT_H

#include "base/thread.h"
#include "horovod.h"
#include "snapshot/copier.h"

#include <stdbool.h>

struct hvd_snapshot {
    struct host_copy *copy;
    struct copier copier;
    int share;                     /* of this rank; -1: it copies nothing */
    int shares;                    /* of all ranks that share the memory; 0: it can only be read */
    int *ranks;                    /* of the job, by share; NULL: this process is alone */
    int buffer;                    /* of the next version */
    struct publication_state last; /* saved since the last join; version PUBLICATION_NONE: none was */
    struct atfork_handler watch;
    bool forked; /* this is a child's copy, without the thread */
};

#endif
