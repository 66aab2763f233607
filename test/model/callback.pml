/* A thread waits for an operation with a `done` function; it only tests another operation, which is flushed at a
 * given time. */
#define OPERATIONS 2
#define TIMED      1
#define FROM_PEER  2
#define CALLS_BACK 2
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    push(0);
    hvd_run(1);
    hvd_test(0)
}
