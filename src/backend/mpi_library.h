/* mpi_library.h - MPI without its headers: a library that is opened at run time. Each of the three binary
 * interfaces (Open MPI's; MPICH's, also used by Intel MPI; the standard one of MPI 5) has a table of these
 * functions, made from one source (mpi_calls.h). The symbols and the kind of interface are found in the
 * library that was opened.
 *
 * A process opens one library, since MPI can be initialised only once. Several threads may call the functions
 * at once: only MPI_THREAD_MULTIPLE is accepted. */
#ifndef HVD_BACKEND_MPI_LIBRARY_H
#define HVD_BACKEND_MPI_LIBRARY_H

#include "base/clock.h"
#include "base/settings.h"
#include "horovod.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef intptr_t mpi_handle; /* an MPI_Comm, MPI_Op or MPI_Request: a pointer or an int */

/* Computes inout[i] = in[i] op inout[i]; `type` is an MPI_Datatype *, which is not used. */
typedef void (*mpi_op_fn)(void *in, void *inout, int *count, void *type);

enum mpi_type { MPI_INT8, MPI_INT16, MPI_INT32, MPI_INT64, MPI_REAL32, MPI_REAL64, MPI_BYTES16, MPI_TYPES };

enum mpi_state { MPI_FRESH, MPI_RUNNING, MPI_OVER };

#define MPI_TEXT_LIMIT 8192 /* of errors and versions */

/* Functions that return int return an MPI error, 0 for none. */
struct mpi_abi {
    const char *name;
    /* Called first; returns NULL, or the symbol that the library lacks. */
    const char *(*load)(void *library);
    enum mpi_state (*state)(void);
    /* Initialises MPI if needed; *threads: several threads may call it at once. */
    int (*init)(bool *threads);
    int (*finalize)(void);
    void (*abort)(void);
    void (*error_text)(int error, char text[MPI_TEXT_LIMIT]);

    mpi_handle (*world)(void);
    mpi_handle (*comm_at)(const void *comm); /* the handle that a program's MPI_Comm holds */
    int (*comm_place)(mpi_handle comm, int *rank, int *size);
    /* Makes a communicator of these ranks of `parent`; only they call it. */
    int (*comm_create)(mpi_handle parent, const int *ranks, int size, int tag, mpi_handle *comm);
    int (*comm_free)(mpi_handle comm);
    int (*op_create)(mpi_op_fn run, mpi_handle *op);
    mpi_handle (*op_sum)(void);

    /* `in` is NULL: in place. */
    int (*allreduce)(mpi_handle comm, const void *in, void *out, int count, enum mpi_type type,
                     mpi_handle op);
    int (*reducescatter)(mpi_handle comm, const void *in, void *out, const int *counts, enum mpi_type type,
                         mpi_handle op);
    int (*broadcast)(mpi_handle comm, void *data, int bytes, int root);
    int (*allgather)(mpi_handle comm, const void *in, void *out, int bytes);
    int (*alltoall)(mpi_handle comm, const void *in, void *out, int bytes);
    /* Counts and offsets are in rows of `row_bytes` bytes. */
    int (*allgather_rows)(mpi_handle comm, const void *in, int rows, void *out, const int *counts,
                          const int *offsets, int row_bytes);
    int (*alltoall_rows)(mpi_handle comm, const void *in, const int *in_counts, const int *in_offsets,
                         void *out, const int *counts, const int *offsets, int row_bytes);
    int (*barrier)(mpi_handle comm);
    /* Returns at once; the barrier has finished when `test`, called repeatedly, reports it. */
    int (*barrier_begin)(mpi_handle comm, mpi_handle *request);
    int (*test)(mpi_handle *request, bool *done);
};

extern const struct mpi_abi mpi_openmpi, mpi_mpich, mpi_standard;

/* Returns true if HOROVOD_CPU_OPERATIONS is mpi. */
bool mpi_is_chosen(const struct settings *settings);

/* Opens the library that the process has loaded, or the one that has started it, and initialises it. Returns
 * the same table every time. MPI that was initialised here is finalised when the process exits, unless a rank
 * was lost.
 */
hvd_code mpi_open(const struct settings *settings, const struct mpi_abi **mpi, hvd_status *status);

/* Returns the communicator of the job's ranks: MPI_COMM_WORLD, or the one that mpi_set_base has made of the
 * program's own. */
mpi_handle mpi_base(const struct mpi_abi *mpi);
hvd_code mpi_set_base(const struct mpi_abi *mpi, mpi_handle of, mpi_handle *base, hvd_status *status);

/* Sets whether to skip MPI_Finalize at exit: after a failure it would wait forever for lost ranks. */
void mpi_skip_finalize(bool skips);

/* Returns HVD_OK, or HVD_SYSTEM with MPI's text of the error. */
hvd_code mpi_check(const struct mpi_abi *mpi, int error, int rank, const char *call, hvd_status *status);

#endif
