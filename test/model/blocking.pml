/* Two operations whose library blocks: one thread waits for the first, another one tests the second. */
#define OPERATIONS 2
#define BLOCKING   3
#include "drive.pml"

active proctype waits()
{
    LOCALS;
    hvd_run(0)
}

active proctype asks()
{
    LOCALS;
    hvd_submit(1);
    hvd_test(1)
}
