/* A thread waits for an operation with a `done` function, which submits the next one; another operation, which is
 * flushed at a given time, runs concurrently. */
#define OPERATIONS 3
#define TIMED      1
#define FROM_PEER  6
#define CALLS_BACK 2
#define CALLBACK   hvd_submit(2)
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    push(0);
    hvd_run(1);
    hvd_test(2);
    hvd_test(0)
}
