/* A thread waits for an operation with a `done` function; another operation, of which it only asks, is flushed at a
 * time. */
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
