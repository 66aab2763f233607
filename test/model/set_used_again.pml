/* An operation of this rank resumes a process set, which a message of a peer may do at the same time. */
#define OPERATIONS  1
#define FROM_PEER   1
#define MESSAGES    4
#define IN_SET      5
#include "drive.pml"

active proctype caller()
{
    LOCALS;
    hvd_submit(0);
    hvd_test(0)
}
