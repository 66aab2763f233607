/* mpi.c - the back end `mpi`: batches run as collectives of an MPI library, chosen by
 * HOROVOD_CPU_OPERATIONS=mpi. It supports all operations of host memory except Adasum, which MPI does not
 * have, and reductions of the deterministic mode, which has its own order of additions.
 *
 * MPI's collectives block, so a worker of the engine runs them (worker.h). The non-blocking ones take twice
 * as long in Open MPI. Each process set has a communicator; several sets need MPI_THREAD_MULTIPLE, and may
 * run in different orders on different ranks.
 *
 * A collective of MPI can't be cancelled. It works on the tensors themselves, so a process that is in one
 * when the job fails must end, as any MPI program does. */
#include "backend/mpi_library.h"

#include "backend/backend.h"
#include "backend/mpi_operator.h"
#include "base/status.h"
#include "base/types.h"
#include "device/scaling.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Tensors below SMALL bytes are copied into a buffer of PACKED bytes, which one call moves; larger ones are
 * not copied. */
#define SMALL  ((size_t)1 << 20)
#define PACKED ((size_t)4 << 20)
#define MOST   ((size_t)1 << 30) /* bytes of one call: MPI counts by int */

#define TAGS 32768 /* every MPI has at least this many */

struct mpi {
    const struct mpi_abi *abi;
    mpi_handle comm;
    int rank;      /* of the job */
    bool is_exact; /* the deterministic mode, which excludes MPI's order of additions */
    char *packed;
    bool failed; /* the job has failed: other ranks may be gone */
};

/* ---- pieces of a vector ------------------------------------------------------------------------------- */

/* Returns how many bytes one call moves from `offset` on: part of a large span, or small spans to be packed.
 */
static size_t piece_length(const struct vector *vector, size_t offset)
{
    int span = vector_find(vector, offset);
    size_t length = vector->starts[span] + vector->spans[span].length - offset;
    if (length >= SMALL)
        return length < MOST ? length : MOST;
    while (++span < vector->count && vector->spans[span].length < SMALL &&
           length + vector->spans[span].length <= PACKED)
        length += vector->spans[span].length;
    return length;
}

/* Returns the address of the bytes; NULL if they are in several spans. */
static char *single_span(const struct vector *vector, size_t offset, size_t length)
{
    struct iovec part;
    vector_parts(vector, offset, length, &part, 1);
    return part.iov_len == length ? part.iov_base : NULL;
}

static void copy_piece(const struct vector *vector, size_t offset, size_t length, char *packed, bool pack)
{
    struct iovec part;
    for (size_t done = 0; done < length; done += part.iov_len) {
        vector_parts(vector, offset + done, length - done, &part, 1);
        memcpy(pack ? packed + done : part.iov_base, pack ? part.iov_base : packed + done, part.iov_len);
    }
}

static char *room_for_packing(struct mpi *mpi, hvd_status *status)
{
    if (!mpi->packed)
        mpi->packed = malloc(PACKED);
    if (!mpi->packed)
        status_no_memory(status);
    return mpi->packed;
}

/* ---- operations --------------------------------------------------------------------------------------- */

static hvd_code check(const struct mpi *mpi, int error, const char *call, hvd_status *status)
{
    return mpi_check(mpi->abi, error, mpi->rank, call, status);
}

static struct scaling scaling_of_collective(const struct collective *collective)
{
    return scaling_of(collective->dtype, collective->reduction, collective->prescale, collective->postscale,
                      collective->size);
}

static hvd_code run_allreduce(struct mpi *mpi, struct collective *collective, hvd_status *status)
{
    struct scaling scaling = scaling_of_collective(collective);
    bool scales = scaling_begins(&scaling);
    size_t width = hvd_dtype_size(collective->dtype), length;
    mpi_handle op;
    hvd_code code = check(mpi, mpi_operator_of(mpi->abi, collective->dtype, collective->reduction, &op),
                          "MPI_Op_create", status);
    for (size_t offset = 0; !code && offset < collective->input.length; offset += length) {
        length = piece_length(&collective->input, offset);
        char *from = single_span(&collective->input, offset, length);
        char *to = single_span(&collective->output, offset, length);
        bool packs = !from;
        if (packs) {
            from = to = room_for_packing(mpi, status);
            if (!to)
                return HVD_OUT_OF_MEMORY;
            copy_piece(&collective->input, offset, length, to, true);
        }
        if (scales)
            scaling_begin(&scaling, to, from, length / width);
        bool in_place = from == to || scales;
        code = check(mpi,
                     mpi->abi->allreduce(mpi->comm, in_place ? NULL : from, to, (int)(length / width),
                                         mpi_type_of(collective->dtype), op),
                     "MPI_Allreduce", status);
        if (scaling_ends(&scaling))
            scaling_end(&scaling, to, length / width);
        if (packs)
            copy_piece(&collective->output, offset, length, to, false);
    }
    return code;
}

static hvd_code run_broadcast(struct mpi *mpi, struct collective *collective, hvd_status *status)
{
    const struct vector *vector =
        collective->rank == collective->root ? &collective->input : &collective->output;
    size_t length;
    hvd_code code = HVD_OK;
    for (size_t offset = 0; !code && offset < vector->length; offset += length) {
        length = piece_length(vector, offset);
        char *data = single_span(vector, offset, length);
        bool packs = !data;
        if (packs && !(data = room_for_packing(mpi, status)))
            return HVD_OUT_OF_MEMORY;
        if (packs && vector == &collective->input)
            copy_piece(vector, offset, length, data, true);
        code = check(mpi, mpi->abi->broadcast(mpi->comm, data, (int)length, collective->root), "MPI_Bcast",
                     status);
        if (packs || (vector == &collective->input && !vector_same(vector, &collective->output)))
            copy_piece(&collective->output, offset, length, data, false);
    }
    return code;
}

/* Fills in counts and offsets of rows in the order of ranks; returns false if MPI can't count them. */
static bool lay_out(const uint64_t *rows, size_t stride, int size, uint64_t row_bytes, int *counts,
                    int *offsets)
{
    uint64_t end = 0;
    for (int rank = 0; rank < size; rank++) {
        offsets[rank] = (int)end;
        counts[rank] = (int)rows[(size_t)rank * stride];
        if (rows[(size_t)rank * stride] > INT_MAX - end)
            return false;
        end += rows[(size_t)rank * stride];
    }
    return row_bytes <= INT_MAX;
}

static hvd_code refuse_rows(const struct mpi *mpi, const struct collective *collective, hvd_status *status)
{
    return status_set(status, HVD_UNSUPPORTED,
                      "rank %d: this %s has more than %d rows, or bytes in a row, which MPI can't count; "
                      "unset HOROVOD_CPU_OPERATIONS",
                      mpi->rank, hvd_operation_name(collective->operation), INT_MAX);
}

/* Returns true if the buffers overlap: MPI refuses that, and its in-place forms must be used by all ranks. */
static bool overlap(const char *a, size_t a_length, const char *b, size_t b_length)
{
    return a < b + b_length && b < a + a_length;
}

static char *allocate_copy(const struct mpi *mpi, size_t length, hvd_status *status)
{
    char *copy = malloc(length);
    if (!copy)
        status_set(status, HVD_OUT_OF_MEMORY, "rank %d is out of memory for a copy of %zu bytes", mpi->rank,
                   length);
    return copy;
}

static bool all_equal(const int *counts, int size)
{
    bool equal = true;
    for (int rank = 1; rank < size; rank++)
        equal &= counts[rank] == counts[0];
    return equal;
}

static hvd_code gather_tensor(const struct mpi *mpi, const struct collective *collective,
                              const uint64_t *rows, int tensor, int *counts, hvd_status *status)
{
    int *offsets = counts + collective->size;
    uint64_t row_bytes = collective->row_bytes[tensor];
    if (!lay_out(rows + tensor, (size_t)collective->tensors, collective->size, row_bytes, counts, offsets))
        return refuse_rows(mpi, collective, status);
    if (!row_bytes)
        return HVD_OK;
    const struct span *input = &collective->input.spans[tensor], *output = &collective->output.spans[tensor];
    char *copy = NULL;
    if (overlap(input->data, input->length, output->data, output->length)) {
        copy = allocate_copy(mpi, input->length, status);
        if (!copy)
            return HVD_OUT_OF_MEMORY;
        memcpy(copy, input->data, input->length);
    }
    const char *from = copy ? copy : input->data;
    /* MPICH takes up to twice as long for rows that may differ. */
    bool even = all_equal(counts, collective->size) && input->length <= INT_MAX;
    int error = even ? mpi->abi->allgather(mpi->comm, from, output->data, (int)input->length)
                     : mpi->abi->allgather_rows(mpi->comm, from, counts[collective->rank], output->data,
                                                counts, offsets, (int)row_bytes);
    free(copy);
    return check(mpi, error, even ? "MPI_Allgather" : "MPI_Allgatherv", status);
}

static hvd_code run_allgather(struct mpi *mpi, struct collective *collective, hvd_status *status)
{
    size_t tensors = (size_t)collective->tensors, size = (size_t)collective->size;
    uint64_t *exchanged = malloc(size * (tensors * sizeof *exchanged + 2 * sizeof(int)));
    if (!exchanged)
        return status_no_memory(status);
    hvd_code code = HVD_OK;
    if (!collective->rows) {
        code = check(mpi,
                     mpi->abi->allgather(mpi->comm, collective->own_rows, exchanged,
                                         (int)(tensors * sizeof *exchanged)),
                     "MPI_Allgather", status);
        if (!code)
            code = collective->gathered(collective, exchanged, status);
    }
    const uint64_t *rows = collective->rows ? collective->rows : exchanged;
    for (int tensor = 0; !code && tensor < collective->tensors; tensor++)
        code = gather_tensor(mpi, collective, rows, tensor, (int *)(exchanged + size * tensors), status);
    free(exchanged);
    return code;
}

struct part {
    uint64_t rows, is_even; /* is_even: the sender's parts for all ranks are equal */
};

/* Exchanges numbers of rows; returns an MPI error. *even: the parts of all ranks are equal; all ranks find
 * the same. parts: [2 size], scratch memory. */
static int exchange_rows(const struct mpi *mpi, const struct collective *collective, struct part *parts,
                         uint64_t *rows, bool *even)
{
    int size = collective->size;
    struct part *received = parts + size;
    bool own = true;
    for (int rank = 1; rank < size; rank++)
        own &= collective->own_rows[rank] == collective->own_rows[0];
    for (int rank = 0; rank < size; rank++)
        parts[rank] = (struct part){.rows = collective->own_rows[rank], .is_even = own};
    int error = mpi->abi->alltoall(mpi->comm, parts, received, sizeof *parts);
    *even = own;
    for (int rank = 0; !error && rank < size; rank++) {
        rows[rank] = received[rank].rows;
        *even &= received[rank].is_even && rows[rank] == rows[0];
    }
    return error;
}

/* counts: [4 size], scratch memory. */
static hvd_code move_parts(const struct mpi *mpi, const struct collective *collective, const uint64_t *rows,
                           bool even, int *counts, hvd_status *status)
{
    int size = collective->size, *offsets = counts + size;
    int *in_counts = offsets + size, *in_offsets = in_counts + size;
    const char *input = collective->input.spans[0].data;
    char *output = collective->output.spans[0].data;
    uint64_t row_bytes = collective->row_bytes[0];
    if (!lay_out(rows, 1, size, row_bytes, counts, offsets) ||
        !lay_out(collective->own_rows, 1, size, row_bytes, in_counts, in_offsets))
        return refuse_rows(mpi, collective, status);
    /* MPICH takes up to 1.6 times as long for parts that may differ. */
    if (even && rows[0] * row_bytes <= INT_MAX)
        return check(mpi, mpi->abi->alltoall(mpi->comm, input, output, (int)(rows[0] * row_bytes)),
                     "MPI_Alltoall", status);
    return check(mpi,
                 mpi->abi->alltoall_rows(mpi->comm, input, in_counts, in_offsets, output, counts, offsets,
                                         (int)row_bytes),
                 "MPI_Alltoallv", status);
}

static hvd_code run_alltoall(struct mpi *mpi, struct collective *collective, hvd_status *status)
{
    size_t size = (size_t)collective->size;
    bool even = collective->rows_even;
    struct part *parts = calloc(size, 2 * sizeof *parts + sizeof(uint64_t) + 4 * sizeof(int));
    if (!parts)
        return status_no_memory(status);
    uint64_t *exchanged = (uint64_t *)(parts + 2 * size);
    const uint64_t *rows = collective->rows ? collective->rows : exchanged;
    hvd_code code = HVD_OK;
    if (!collective->rows) {
        code = check(mpi, exchange_rows(mpi, collective, parts, exchanged, &even), "MPI_Alltoall", status);
        if (!code)
            code = collective->gathered(collective, rows, status);
    }
    if (!code && collective->row_bytes[0])
        code = move_parts(mpi, collective, rows, even, (int *)(exchanged + size), status);
    free(parts);
    return code;
}

/* Returns the address at `offset`; NULL if the vector ends there. */
static char *address_at(const struct vector *vector, size_t offset)
{
    return offset < vector->length ? single_span(vector, offset, 1) : NULL;
}

/* Reduces and scatters one tensor: its rows for rank 0, 1, ... are contiguous, although a block has the rows
 * of all tensors. */
static hvd_code scatter_tensor(struct mpi *mpi, struct collective *collective, int tensor, int *counts,
                               mpi_handle op, hvd_status *status)
{
    const struct vector *input = &collective->input;
    struct scaling scaling = scaling_of_collective(collective);
    size_t width = hvd_dtype_size(collective->dtype), elements = 0;
    int tensors = input->count / collective->size;
    char *data = NULL, *copy = NULL;
    for (int rank = 0; rank < collective->size; rank++) {
        const struct span *span = &input->spans[rank * tensors + tensor];
        if (span->length / width > INT_MAX)
            return refuse_rows(mpi, collective, status);
        counts[rank] = (int)(span->length / width);
        elements += (size_t)counts[rank];
        data = data ? data : span->data;
    }
    if (!elements)
        return HVD_OK;
    size_t own = (size_t)counts[collective->rank];
    char *result = address_at(&collective->output, input->starts[collective->rank * tensors + tensor]);
    bool scales = scaling_begins(&scaling);
    bool in_place = result && overlap(data, elements * width, result, own * width);
    if (scales || in_place) {
        copy = allocate_copy(mpi, elements * width, status);
        if (!copy)
            return HVD_OUT_OF_MEMORY;
        if (scales)
            scaling_begin(&scaling, copy, data, elements);
        else
            memcpy(copy, data, elements * width);
    }
    int error = mpi->abi->reducescatter(mpi->comm, copy ? copy : data, result, counts,
                                        mpi_type_of(collective->dtype), op);
    if (scaling_ends(&scaling))
        scaling_end(&scaling, result, own);
    free(copy);
    return check(mpi, error, "MPI_Reduce_scatter", status);
}

static hvd_code run_reducescatter(struct mpi *mpi, struct collective *collective, hvd_status *status)
{
    mpi_handle op;
    TRY(check(mpi, mpi_operator_of(mpi->abi, collective->dtype, collective->reduction, &op), "MPI_Op_create",
              status));
    int *counts = malloc((size_t)collective->size * sizeof *counts);
    if (!counts)
        return status_no_memory(status);
    hvd_code code = HVD_OK;
    for (int tensor = 0; !code && tensor < collective->input.count / collective->size; tensor++)
        code = scatter_tensor(mpi, collective, tensor, counts, op, status);
    free(counts);
    return code;
}

static hvd_code run_barrier(struct mpi *mpi, struct collective *collective, hvd_status *status)
{
    (void)collective;
    return check(mpi, mpi->abi->barrier(mpi->comm), "MPI_Barrier", status);
}

static hvd_code (*const runs[])(struct mpi *mpi, struct collective *collective, hvd_status *status) = {
    [HVD_ALLREDUCE] = run_allreduce, [HVD_ALLGATHER] = run_allgather,         [HVD_BROADCAST] = run_broadcast,
    [HVD_ALLTOALL] = run_alltoall,   [HVD_REDUCESCATTER] = run_reducescatter, [HVD_BARRIER] = run_barrier};

static bool is_run_by_mpi(hvd_operation operation)
{
    return (size_t)operation < sizeof runs / sizeof *runs && runs[operation];
}

/* ---- the row ------------------------------------------------------------------------------------------ */

static void mpi_close(void *state)
{
    struct mpi *mpi = state;
    if (!mpi->failed)
        mpi->abi->comm_free(mpi->comm);
    free(mpi->packed);
    free(mpi);
}

/* Returns MPI's number of a rank. HOROVOD_RANKS, if it makes a job of some ranks, lists MPI's numbers;
 * otherwise they are equal. */
static int rank_in_mpi(const struct settings *settings, int rank)
{
    const char *list = settings->ranks;
    if (!*list)
        return rank;
    while (rank--)
        list = strchr(list, ',') + 1;
    return atoi(list);
}

static hvd_code check_place(const struct backend_opening *opening, const struct mpi_abi *abi,
                            hvd_status *status)
{
    int rank, size, own = opening->ranks[opening->rank];
    TRY(mpi_check(abi, abi->comm_place(mpi_base(abi), &rank, &size), own, "MPI_Comm_rank", status));
    bool all = !*opening->settings->ranks;
    if (rank == rank_in_mpi(opening->settings, own) && (!all || size == opening->settings->size))
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "rank %d of %lld is rank %d of %d to %s: HOROVOD_RANK and HOROVOD_SIZE are not MPI's; "
                      "start the processes with `horovodrun --mpi -np N ...` or with mpirun",
                      own, (long long)opening->settings->size, rank, size, abi->name);
}

static hvd_code create_comm(const struct backend_opening *opening, struct mpi *mpi, hvd_status *status)
{
    int *ranks = malloc((size_t)opening->size * sizeof *ranks);
    if (!ranks)
        return status_no_memory(status);
    for (int i = 0; i < opening->size; i++)
        ranks[i] = rank_in_mpi(opening->settings, opening->ranks[i]);
    int error =
        mpi->abi->comm_create(mpi_base(mpi->abi), ranks, opening->size, opening->set % TAGS, &mpi->comm);
    free(ranks);
    return mpi_check(mpi->abi, error, mpi->rank, "MPI_Comm_create_group", status);
}

static hvd_code mpi_open_set(const struct backend_opening *opening, void **state, int *descriptor,
                             hvd_status *status)
{
    const struct mpi_abi *abi;
    (void)descriptor;
    if (!mpi_is_chosen(opening->settings) || opening->size == 1) {
        status_set(status, HVD_UNSUPPORTED, "HOROVOD_CPU_OPERATIONS is not mpi there");
        return HVD_OK;
    }
    TRY(mpi_open(opening->settings, &abi, status));
    TRY(check_place(opening, abi, status));
    struct mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi)
        return status_no_memory(status);
    *mpi = (struct mpi){
        .abi = abi, .rank = opening->ranks[opening->rank], .is_exact = opening->settings->deterministic};
    hvd_code code = create_comm(opening, mpi, status);
    if (code)
        free(mpi);
    else
        *state = mpi;
    return code;
}

static bool mpi_supports(const void *state, const struct backend_query *query, struct choice *choice)
{
    const struct mpi *mpi = state;
    bool reduces = operation_reduces(query->operation);
    (void)choice;
    return query->device_type == HVD_CPU && is_run_by_mpi(query->operation) &&
           !(reduces && (mpi->is_exact || query->reduction == HVD_ADASUM));
}

static hvd_code mpi_run(void *state, struct collective *collective, hvd_status *status)
{
    struct mpi *mpi = state;
    if (!is_run_by_mpi(collective->operation))
        return status_set(status, HVD_REFUSED,
                          "rank %d can't run the %s that was decided by MPI; do the ranks run different "
                          "versions?",
                          mpi->rank, hvd_operation_name(collective->operation));
    return runs[collective->operation](mpi, collective, status);
}

static void mpi_abort(void *state, const hvd_status *cause)
{
    struct mpi *mpi = state;
    mpi->failed = cause->code != HVD_SHUT_DOWN;
    if (mpi->failed)
        mpi_skip_finalize(true);
}

static void mpi_kill(void *state)
{
    ((struct mpi *)state)->abi->abort();
}

const struct backend backend_mpi = {
    .name = "mpi",
    .open = mpi_open_set,
    .close = mpi_close,
    .supports = mpi_supports,
    .run = mpi_run,
    .abort = mpi_abort,
    .kill = mpi_kill,
};
