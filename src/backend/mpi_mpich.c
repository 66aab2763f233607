/* mpi_mpich.c - the binary interface that MPICH 3.1 and later, Intel MPI, MVAPICH and Cray MPICH share:
 * handles are numbers. Any thread, see mpi_calls.h. */
#include "backend/mpi_library.h"

typedef int MPI_Comm, MPI_Datatype, MPI_Op, MPI_Group, MPI_Errhandler, MPI_Request;

enum { THREAD_MULTIPLE = 3 };
#define IN_PLACE ((void *)-1)

#include "backend/mpi_calls.h"

static const char *find_constants(void *library, struct constants *found)
{
    (void)library;
    *found = (struct constants){
        .world = 0x44000000,
        .sum = 0x58000003,
        .errors_return = 0x54000001,
        .byte = 0x4c00010d,
        .types = {[MPI_INT8] = 0x4c000137,
                  [MPI_INT16] = 0x4c000238,
                  [MPI_INT32] = 0x4c000439,
                  [MPI_INT64] = 0x4c00083a,
                  [MPI_REAL32] = 0x4c00040a,
                  [MPI_REAL64] = 0x4c00080b,
                  [MPI_BYTES16] = 0x4c001041},
    };
    return NULL;
}

const struct mpi_abi mpi_mpich = MPI_ABI("MPICH");
