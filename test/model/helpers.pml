/* Two threads submit and help: one makes progress while the other returns at once, and both may give up before the
 * end. Blocking operations are left to the worker. */
#define OPERATIONS 2
#define FROM_PEER  1
#define BLOCKING   2
#define LIMITED
#include "drive.pml"

active proctype helps()
{
    LOCALS;
    push(0);
    hvd_help(0);
    hvd_test(0)
}

active proctype helps_beside()
{
    LOCALS;
    push(1);
    hvd_help(1);
    hvd_test(1)
}
