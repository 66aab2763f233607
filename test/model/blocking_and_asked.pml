/* A thread runs two operations whose library blocks; the second one ends only once this rank has answered another
 * rank, which comes to it after that: then somebody else has to answer, also where callers come again and again. */
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
