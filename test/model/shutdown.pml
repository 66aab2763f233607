/* A rank leaves with an operation in flight for which no thread waits: it ends with an error. */
#define OPERATIONS 2
#define FROM_PEER  1
#define SHUTDOWN
#include "drive.pml"

active proctype user()
{
    LOCALS;
    hvd_run(0);
    hvd_submit(1);
    hvd_shutdown();
    hvd_test(1)
}
