/* A process set is suspended; then another rank needs its answer, while a thread works in the world. */
#define OPERATIONS 1
#define FROM_PEER  1
#define MESSAGES   4
#define IN_SET     4
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    hvd_run(0)
}
