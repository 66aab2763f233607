/* Two `done` functions, one of an operation that the thread only tests, while a process set is handed over. Runs for
 * minutes. */
#define OPERATIONS 2
#define FROM_PEER  3
#define LOCAL_STEP 3
#define CALLS_BACK 3
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    push(0);
    hvd_run(1);
    hvd_test(0)
}

active proctype adder()
{
    LOCALS;
    hand_over();
    adopted
}
