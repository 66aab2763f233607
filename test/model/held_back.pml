/* One thread waits for an operation. Another operation, on the same memory, is held back until the first one ends,
 * and is only tested. */
#define OPERATIONS 2
#define FROM_PEER  1
#define HELD_BACK  2
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    hvd_submit(0);
    hvd_submit(1);
    hvd_test(1)
}

active proctype waits()
{
    LOCALS;
    hvd_wait(0)
}
