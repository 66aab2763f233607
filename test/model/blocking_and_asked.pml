/* A thread runs two operations whose library blocks. The second one ends only after this rank has answered a request
 * that another rank sends later: then another thread must answer, even if callers call repeatedly. */
#define OPERATIONS 2
#define BLOCKING   3
#define MESSAGES   8
#define ENDS_AFTER (current == 2 -> MESSAGES : 0)
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    hvd_run(0);
    hvd_run(1)
}
