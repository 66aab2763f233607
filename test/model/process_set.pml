/* A process set is handed over while a thread makes calls. */
#define OPERATIONS 1
#define FROM_PEER  1
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    hvd_run(0)
}

active proctype adder()
{
    LOCALS;
    hand_over();
    adopted
}
