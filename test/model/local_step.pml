/* One thread waits for one operation, and only tests another one, which has a step of this rank alone. */
#define OPERATIONS 2
#define FROM_PEER  3
#define LOCAL_STEP 2
#include "drive.pml"

active proctype waits()
{
    LOCALS;
    push(1);
    hvd_run(0);
    hvd_test(1)
}
