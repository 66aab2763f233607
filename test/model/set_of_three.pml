/* Two other ranks need an answer of this one in a process set, each at its own time; the set is suspended in
 * between. */
#define OPERATIONS  1
#define MESSAGES    12
#define SECOND_PEER 8
#define IN_SET      12
#include "drive.pml"
