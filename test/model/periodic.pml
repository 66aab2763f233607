/* A thread calls repeatedly, so the progress thread polls periodically; then another rank needs an answer. */
#define OPERATIONS 2
#define FROM_PEER  3
#define MESSAGES   8
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    hvd_run(0);
    hvd_run(1);
    answered
}
