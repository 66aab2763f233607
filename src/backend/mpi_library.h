/* mpi_library.h - MPI without its headers: a library that is opened at run time. The three binary interfaces
 * that there are (Open MPI's; MPICH's, which is Intel MPI's, too; the standard one of MPI 5) each have a
 * table of these functions, made from one source (mpi_calls.h). Symbols are looked up in the library that was
 * opened, and the library itself says which interface it has.
 *
 * One library a process, since MPI can be initialised once in its life. The functions may be called
 * by several threads at once: nothing but MPI_THREAD_MULTIPLE is accepted. */
#ifndef HVD_BACKEND_MPI_LIBRARY_H
#define HVD_BACKEND_MPI_LIBRARY_H

#include "base/clock.h"
#include "base/settings.h"
#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef intptr_t mpi_handle; /* an MPI_Comm, MPI_Op or MPI_Request: a pointer or an int */

/* inout[i] = in[i] op inout[i]; `type`: an MPI_Datatype *, not needed */
typedef void (*mpi_op_fn)(void *in, void *inout, int *count, void *type);

enum mpi_type { MPI_INT8, MPI_INT16, MPI_INT32, MPI_INT64, MPI_REAL32, MPI_REAL64, MPI_BYTES16, MPI_TYPES };

enum mpi_state { MPI_FRESH, MPI_RUNNING, MPI_OVER };

#define MPI_TEXT_LIMIT 8192 /* of errors and versions */

/* What returns int returns an MPI error, 0 for none. */
struct mpi_abi {
    const char *name;
    /* NULL, or the symbol that the library lacks; first. */
    const char *(*load)(void *library);
    enum mpi_state (*state)(void);
    /* Initialises MPI if it isn't yet; *threads: whether several may call it at once. */
    int (*init)(bool *threads);
    int (*finalize)(void);
    void (*abort)(void);
    void (*error_text)(int error, char text[MPI_TEXT_LIMIT]);

    mpi_handle (*world)(void);
    mpi_handle (*comm_at)(const void *comm); /* the handle that a program's MPI_Comm holds */
    int (*comm_place)(mpi_handle comm, int *rank, int *size);
    /* Of these ranks of `parent`; called by them only. */
    int (*comm_create)(mpi_handle parent, const int *ranks, int size, int tag, mpi_handle *comm);
    int (*comm_free)(mpi_handle comm);
    int (*op_create)(mpi_op_fn run, mpi_handle *op);
    mpi_handle (*op_sum)(void);

    /* `in` NULL: in place */
    int (*allreduce)(mpi_handle comm, const void *in, void *out, int count, enum mpi_type type,
                     mpi_handle op);
    int (*reducescatter)(mpi_handle comm, const void *in, void *out, const int *counts, enum mpi_type type,
                         mpi_handle op);
    int (*broadcast)(mpi_handle comm, void *data, int bytes, int root);
    int (*allgather)(mpi_handle comm, const void *in, void *out, int bytes);
    int (*alltoall)(mpi_handle comm, const void *in, void *out, int bytes);
    /* Counts and offsets in rows of so many bytes. */
    int (*allgather_rows)(mpi_handle comm, const void *in, int rows, void *out, const int *counts,
                          const int *offsets, int row_bytes);
    int (*alltoall_rows)(mpi_handle comm, const void *in, const int *in_counts, const int *in_offsets,
                         void *out, const int *counts, const int *offsets, int row_bytes);
    int (*barrier)(mpi_handle comm);
    /* Returns at once; it is over when `test`, called again and again, says so. */
    int (*barrier_begin)(mpi_handle comm, mpi_handle *request);
    int (*test)(mpi_handle *request, bool *done);
};

extern const struct mpi_abi mpi_openmpi, mpi_mpich, mpi_standard;

/* Whether HOROVOD_CPU_OPERATIONS is mpi. */
bool mpi_is_chosen(const struct settings *settings);

/* Opens the library that the process holds already, or the one that has started it, and initialises it. The
 * same table every time. Initialised here MPI is finalised when the process exits, unless a rank was lost. */
hvd_code mpi_open(const struct settings *settings, const struct mpi_abi **mpi, hvd_status *status);

/* The communicator whose ranks are the job's: MPI_COMM_WORLD, or what mpi_set_base has made of the program's
 * own. */
mpi_handle mpi_base(const struct mpi_abi *mpi);
hvd_code mpi_set_base(const struct mpi_abi *mpi, mpi_handle of, mpi_handle *base, hvd_status *status);

/* Whether the job has failed: MPI_Finalize would wait for what never comes. */
void mpi_skip_finalize(bool skips);

/* HVD_OK, or its error with what MPI says about it. */
hvd_code mpi_check(const struct mpi_abi *mpi, int error, int rank, const char *call, hvd_status *status);

#endif
