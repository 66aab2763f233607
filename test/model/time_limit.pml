/* A wait with a time limit that ends before the operation. */
#define OPERATIONS 2
#define FROM_PEER  1
#define TIMED      2
#define LIMITED
#include "drive.pml"

active proctype gives_up()
{
    LOCALS;
    push(0);
    hvd_wait_limited(0);
    hvd_test(0)
}

active proctype polls()
{
    LOCALS;
    hvd_submit(1);
    hvd_test(1)
}
