/* One thread waits for its operation; another one tests its own repeatedly. */
#define OPERATIONS 2
#define FROM_PEER  3
#include "drive.pml"

active proctype waiter()
{
    LOCALS;
    hvd_run(0)
}

active proctype poller()
{
    LOCALS;
    hvd_submit(1);
    hvd_test(1)
}
