/* Two threads wait, each for an operation of its own that is flushed at a given time: the one that makes progress
 * leaves the deadline to the progress thread. */
#define OPERATIONS 2
#define TIMED      3
#include "drive.pml"

active proctype first()
{
    LOCALS;
    hvd_run(0)
}

active proctype second()
{
    LOCALS;
    hvd_run(1)
}
