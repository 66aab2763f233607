/* mpi_openmpi.c - the binary interface of Open MPI 3 and later: handles are pointers to objects of the
 * library, whose names start with ompi_mpi_. Any thread, see mpi_calls.h. */
#include "backend/mpi_library.h"

#include <dlfcn.h>

typedef struct ompi_communicator_t *MPI_Comm;
typedef struct ompi_datatype_t *MPI_Datatype;
typedef struct ompi_op_t *MPI_Op;
typedef struct ompi_group_t *MPI_Group;
typedef struct ompi_errhandler_t *MPI_Errhandler;
typedef struct ompi_request_t *MPI_Request;

enum { THREAD_MULTIPLE = 3 };
#define IN_PLACE ((void *)1)

#include "backend/mpi_calls.h"

/* A program that is linked with the library may have its own copies of these objects (copy relocations): the
 * library uses the first of the global scope, whatever its own memory has. */
static const char *find_constants(void *library, struct constants *found)
{
    (void)library; /* opened with RTLD_GLOBAL */
    static const char *const types[MPI_TYPES] = {
        [MPI_INT8] = "ompi_mpi_int8_t",
        [MPI_INT16] = "ompi_mpi_int16_t",
        [MPI_INT32] = "ompi_mpi_int32_t",
        [MPI_INT64] = "ompi_mpi_int64_t",
        [MPI_REAL32] = "ompi_mpi_float",
        [MPI_REAL64] = "ompi_mpi_double",
        [MPI_BYTES16] = "ompi_mpi_c_double_complex",
    };
    found->world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
    found->sum = dlsym(RTLD_DEFAULT, "ompi_mpi_op_sum");
    found->errors_return = dlsym(RTLD_DEFAULT, "ompi_mpi_errors_return");
    found->byte = dlsym(RTLD_DEFAULT, "ompi_mpi_byte");
    for (int i = 0; i < MPI_TYPES; i++)
        if (!(found->types[i] = dlsym(RTLD_DEFAULT, types[i])))
            return types[i];
    bool complete = found->world && found->sum && found->errors_return && found->byte;
    return complete ? NULL : "ompi_mpi_comm_world, op_sum, errors_return or byte";
}

const struct mpi_abi mpi_openmpi = MPI_ABI("Open MPI");
