/* mpi_calls.h - the functions of struct mpi_abi, compiled once for each binary interface. Any thread, once
 * `load` has filled in the tables. The including file has declared the types MPI_Comm, MPI_Datatype, MPI_Op,
 * MPI_Group, MPI_Errhandler and MPI_Request, THREAD_MULTIPLE and IN_PLACE; it defines find_constants() and
 * the table, MPI_ABI(name). */
#include "backend/mpi_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* All functions of MPI that are used: FUNCTION(name, parameters). */
#define FUNCTIONS(FUNCTION)                                                                                  \
    FUNCTION(Initialized, (int *flag))                                                                       \
    FUNCTION(Finalized, (int *flag))                                                                         \
    FUNCTION(Init_thread, (int *argc, char ***argv, int required, int *provided))                            \
    FUNCTION(Query_thread, (int *provided))                                                                  \
    FUNCTION(Finalize, (void))                                                                               \
    FUNCTION(Abort, (MPI_Comm comm, int code))                                                               \
    FUNCTION(Error_string, (int error, char *text, int *length))                                             \
    FUNCTION(Comm_rank, (MPI_Comm comm, int *rank))                                                          \
    FUNCTION(Comm_size, (MPI_Comm comm, int *size))                                                          \
    FUNCTION(Comm_group, (MPI_Comm comm, MPI_Group * group))                                                 \
    FUNCTION(Group_incl, (MPI_Group group, int count, const int *ranks, MPI_Group *part))                    \
    FUNCTION(Group_free, (MPI_Group * group))                                                                \
    FUNCTION(Comm_create_group, (MPI_Comm parent, MPI_Group group, int tag, MPI_Comm *comm))                 \
    FUNCTION(Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler))                                   \
    FUNCTION(Comm_free, (MPI_Comm * comm))                                                                   \
    FUNCTION(Op_create, (mpi_op_fn run, int commutes, MPI_Op *op))                                           \
    FUNCTION(Type_contiguous, (int count, MPI_Datatype of, MPI_Datatype *type))                              \
    FUNCTION(Type_commit, (MPI_Datatype * type))                                                             \
    FUNCTION(Type_free, (MPI_Datatype * type))                                                               \
    FUNCTION(Allreduce, (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)) \
    FUNCTION(Reduce_scatter,                                                                                 \
             (const void *in, void *out, const int *counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm))    \
    FUNCTION(Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm))                     \
    FUNCTION(Allgather, (const void *in, int in_count, MPI_Datatype in_type, void *out, int count,           \
                         MPI_Datatype type, MPI_Comm comm))                                                  \
    FUNCTION(Allgatherv, (const void *in, int in_count, MPI_Datatype in_type, void *out, const int *counts,  \
                          const int *offsets, MPI_Datatype type, MPI_Comm comm))                             \
    FUNCTION(Alltoall, (const void *in, int in_count, MPI_Datatype in_type, void *out, int count,            \
                        MPI_Datatype type, MPI_Comm comm))                                                   \
    FUNCTION(Alltoallv,                                                                                      \
             (const void *in, const int *in_counts, const int *in_offsets, MPI_Datatype in_type, void *out,  \
              const int *counts, const int *offsets, MPI_Datatype type, MPI_Comm comm))                      \
    FUNCTION(Barrier, (MPI_Comm comm))                                                                       \
    FUNCTION(Ibarrier, (MPI_Comm comm, MPI_Request * request))                                               \
    FUNCTION(Test, (MPI_Request * request, int *done, void *status))

static struct {
#define FUNCTION(name, parameters) int(*name) parameters;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
} calls;

static struct constants {
    MPI_Comm world;
    MPI_Op sum;
    MPI_Errhandler errors_return;
    MPI_Datatype byte, types[MPI_TYPES];
} constants;

/* Defined by the including file; returns NULL, or the symbol that is missing. */
static const char *find_constants(void *library, struct constants *found);

static const char *load(void *library)
{
    static const char *const names[] = {
#define FUNCTION(name, parameters) "MPI_" #name,
        FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = dlsym(library, names[i]);
        if (!symbol)
            return names[i];
        memcpy((char *)&calls + i * sizeof symbol, &symbol, sizeof symbol);
    }
    return find_constants(library, &constants);
}

/* ---- life --------------------------------------------------------------------------------------------- */

static enum mpi_state state(void)
{
    int running = 0, over = 0;
    calls.Initialized(&running);
    calls.Finalized(&over);
    return over ? MPI_OVER : running ? MPI_RUNNING : MPI_FRESH;
}

static int init(bool *threads)
{
    int level = 0;
    int error = state() == MPI_RUNNING ? calls.Query_thread(&level)
                                       : calls.Init_thread(NULL, NULL, THREAD_MULTIPLE, &level);
    *threads = level >= THREAD_MULTIPLE;
    return error;
}

static int finalize(void)
{
    return calls.Finalize();
}

static void abort_job(void)
{
    calls.Abort(constants.world, 1);
}

static void error_text(int error, char text[MPI_TEXT_LIMIT])
{
    int length;
    *text = '\0';
    calls.Error_string(error, text, &length);
}

/* ---- communicators and reductions --------------------------------------------------------------------- */

static mpi_handle world(void)
{
    return (mpi_handle)constants.world;
}

static mpi_handle comm_at(const void *comm)
{
    MPI_Comm value;
    memcpy(&value, comm, sizeof value);
    return (mpi_handle)value;
}

static int comm_place(mpi_handle comm, int *rank, int *size)
{
    int error = calls.Comm_rank((MPI_Comm)comm, rank);
    return error ? error : calls.Comm_size((MPI_Comm)comm, size);
}

static int comm_create(mpi_handle parent, const int *ranks, int size, int tag, mpi_handle *comm)
{
    MPI_Group all, members;
    MPI_Comm created;
    int error = calls.Comm_group((MPI_Comm)parent, &all);
    if (error)
        return error;
    error = calls.Group_incl(all, size, ranks, &members);
    if (!error) {
        error = calls.Comm_create_group((MPI_Comm)parent, members, tag, &created);
        calls.Group_free(&members);
    }
    calls.Group_free(&all);
    if (!error)
        error = calls.Comm_set_errhandler(created, constants.errors_return);
    if (!error)
        *comm = (mpi_handle)created;
    return error;
}

static int comm_free(mpi_handle comm)
{
    MPI_Comm freed = (MPI_Comm)comm;
    return calls.Comm_free(&freed);
}

static int op_create(mpi_op_fn run, mpi_handle *op)
{
    MPI_Op created;
    int error = calls.Op_create(run, 1, &created);
    if (!error)
        *op = (mpi_handle)created;
    return error;
}

static mpi_handle op_sum(void)
{
    return (mpi_handle)constants.sum;
}

/* ---- collectives -------------------------------------------------------------------------------------- */

static int allreduce(mpi_handle comm, const void *in, void *out, int count, enum mpi_type type, mpi_handle op)
{
    return calls.Allreduce(in ? in : IN_PLACE, out, count, constants.types[type], (MPI_Op)op, (MPI_Comm)comm);
}

static int reducescatter(mpi_handle comm, const void *in, void *out, const int *counts, enum mpi_type type,
                         mpi_handle op)
{
    return calls.Reduce_scatter(in, out, counts, constants.types[type], (MPI_Op)op, (MPI_Comm)comm);
}

static int broadcast(mpi_handle comm, void *data, int bytes, int root)
{
    return calls.Bcast(data, bytes, constants.byte, root, (MPI_Comm)comm);
}

static int allgather(mpi_handle comm, const void *in, void *out, int bytes)
{
    return calls.Allgather(in, bytes, constants.byte, out, bytes, constants.byte, (MPI_Comm)comm);
}

static int alltoall(mpi_handle comm, const void *in, void *out, int bytes)
{
    return calls.Alltoall(in, bytes, constants.byte, out, bytes, constants.byte, (MPI_Comm)comm);
}

static int row_type(int bytes, MPI_Datatype *type)
{
    int error = calls.Type_contiguous(bytes, constants.byte, type);
    return error ? error : calls.Type_commit(type);
}

static int allgather_rows(mpi_handle comm, const void *in, int rows, void *out, const int *counts,
                          const int *offsets, int row_bytes)
{
    MPI_Datatype row;
    int error = row_type(row_bytes, &row);
    if (error)
        return error;
    error = calls.Allgatherv(in, rows, row, out, counts, offsets, row, (MPI_Comm)comm);
    calls.Type_free(&row);
    return error;
}

static int alltoall_rows(mpi_handle comm, const void *in, const int *in_counts, const int *in_offsets,
                         void *out, const int *counts, const int *offsets, int row_bytes)
{
    MPI_Datatype row;
    int error = row_type(row_bytes, &row);
    if (error)
        return error;
    error = calls.Alltoallv(in, in_counts, in_offsets, row, out, counts, offsets, row, (MPI_Comm)comm);
    calls.Type_free(&row);
    return error;
}

static int barrier(mpi_handle comm)
{
    return calls.Barrier((MPI_Comm)comm);
}

static int barrier_begin(mpi_handle comm, mpi_handle *request)
{
    MPI_Request begun;
    int error = calls.Ibarrier((MPI_Comm)comm, &begun);
    if (!error)
        *request = (mpi_handle)begun;
    return error;
}

static int test(mpi_handle *request, bool *done)
{
    MPI_Request tested = (MPI_Request)*request;
    max_align_t status[8]; /* room for any MPI_Status, at most 32 bytes */
    int completed = 0;
    int error = calls.Test(&tested, &completed, status);
    *request = (mpi_handle)tested;
    *done = completed;
    return error;
}

#define MPI_ABI(text)                                                                                        \
    {                                                                                                        \
        .name = text, .load = load, .state = state, .init = init, .finalize = finalize, .abort = abort_job,  \
        .error_text = error_text, .world = world, .comm_at = comm_at, .comm_place = comm_place,              \
        .comm_create = comm_create, .comm_free = comm_free, .op_create = op_create, .op_sum = op_sum,        \
        .allreduce = allreduce, .reducescatter = reducescatter, .broadcast = broadcast,                      \
        .allgather = allgather, .alltoall = alltoall, .allgather_rows = allgather_rows,                      \
        .alltoall_rows = alltoall_rows, .barrier = barrier, .barrier_begin = barrier_begin, .test = test,    \
    }
