/* mpi_standard.c - the binary interface of the MPI 5 standard, libmpi_abi.so: handles are pointers, and the
 * predefined ones have small numbers as addresses. Any thread, see mpi_calls.h. */
#include "backend/mpi_library.h"

typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef struct MPI_ABI_Op *MPI_Op;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef struct MPI_ABI_Request *MPI_Request;

enum { THREAD_MULTIPLE = 4096 };
#define IN_PLACE ((void *)1)

#include "backend/mpi_calls.h"

static const char *find_constants(void *library, struct constants *found)
{
    (void)library;
    *found = (struct constants){
        .world = (MPI_Comm)0x101,
        .sum = (MPI_Op)0x21,
        .errors_return = (MPI_Errhandler)0x143,
        .byte = (MPI_Datatype)0x247,
        .types = {[MPI_INT8] = (MPI_Datatype)0x240,
                  [MPI_INT16] = (MPI_Datatype)0x248,
                  [MPI_INT32] = (MPI_Datatype)0x250,
                  [MPI_INT64] = (MPI_Datatype)0x258,
                  [MPI_REAL32] = (MPI_Datatype)0x210,
                  [MPI_REAL64] = (MPI_Datatype)0x214,
                  [MPI_BYTES16] = (MPI_Datatype)0x216},
    };
    return NULL;
}

const struct mpi_abi mpi_standard = MPI_ABI("the standard ABI of MPI");
