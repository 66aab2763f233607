/* nccl.c - the back end `nccl`: NVIDIA's NCCL runs allreduce, broadcast and reducescatter of tensors on GPUs,
 * where they are. What it does not support goes through the memory of the host, by the row `host`.
 *
 * The communicator is opened with the first collective, since only then the GPU of this rank is known, and a
 * job without GPUs must not open the library. It is one that does not block: a call returns before its work
 * is on the stream, and until NCCL says that it is, the next collective is not called. Several collectives
 * may be on the stream. An event is the end of each; NCCL is asked for errors before a result counts.
 *
 * After a failure all communicators of the job in this process are aborted together, before any collective
 * ends: NCCL frees a communicator only when nothing else occupies the GPU. What was running then ends with
 * the error, also in other process sets, since their sums are incomplete.
 *
 * Threads: as backend.h says. The list of a job's communicators is only used under its progress lock, but
 * `open` and `close` of several jobs in one process change it at once: `all_lock`. */
#include "backend/backend.h"

#include "backend/nccl_meet.h"
#include "base/status.h"
#include "base/types.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Those of a job in this process. Collectives of all of them are put on the stream one after the other, in
 * the order of start: two on different streams would run in any order, as soon as their tensors are there, so
 * that each could occupy the GPU of a rank while it waits for the other rank. */
struct job {
    const struct settings *settings; /* which job */
    int users;
    uint64_t started, launched; /* collectives; launched: on the stream */
};

struct flight {
    uint64_t number; /* of job->started */
    struct collective *collective;
    struct memory_event *fills; /* what the engine itself has written to tensors; NULL: not called */
    struct memory_event *end;   /* NULL: its work is not known to be on the stream */
    struct flight *next;
};

enum phase { FRESH, MEETING, USABLE, REFUSED };

struct nccl {
    struct nccl_meeting meeting;
    struct job *job;
    CUstream stream; /* shared by those of the job on this GPU; NULL: not chosen */
    enum phase phase;
    struct flight *head, **tail; /* in the order of start */
    struct flight *next;         /* the first one that was not called; NULL: none */
    struct flight *called;       /* NCCL has not yet said that its work is on the stream; NULL: none */
    hvd_status failure;          /* HVD_OK: none */
    struct nccl *other;          /* in the list of all */
    struct nccl *of_job;         /* in a list of those of one job */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nccl *all;

/* This rank in the job. */
static int rank_of(const struct nccl *nccl)
{
    return nccl->meeting.ranks[nccl->meeting.rank];
}

static hvd_code failed(const struct nccl *nccl, ncclResult_t result, const char *what, hvd_status *status)
{
    return nccl_failed(nccl->meeting.library, nccl->meeting.comm, result, rank_of(nccl), what, status);
}

/* ---- which batches ------------------------------------------------------------------------------------ */

/* A factor as an element of the type. */
union factor {
    uint16_t half;
    float single;
    double wide;
};

/* Returns NCCL's number of the type; -1: it has none. */
static int type_of(hvd_dtype dtype)
{
    switch (dtype) {
    case HVD_UINT8:
        return NCCL_UINT8;
    case HVD_INT8:
        return NCCL_INT8;
    case HVD_INT32:
        return NCCL_INT32;
    case HVD_UINT32:
        return NCCL_UINT32;
    case HVD_INT64:
        return NCCL_INT64;
    case HVD_UINT64:
        return NCCL_UINT64;
    case HVD_FLOAT16:
        return NCCL_FLOAT16;
    case HVD_BFLOAT16:
        return NCCL_BFLOAT16;
    case HVD_FLOAT32:
        return NCCL_FLOAT32;
    case HVD_FLOAT64:
        return NCCL_FLOAT64;
    default:
        return -1;
    }
}

/* Returns false unless a small float has exactly this value: such a factor would be off by up to 0.4 %, for
 * all elements alike. `bias` is that of the exponent. */
static bool encode_half(double value, int fraction_bits, int bias, uint16_t *half)
{
    int exponent = 0;
    double fraction = ldexp(frexp(fabs(value), &exponent), fraction_bits + 1);
    exponent--;
    unsigned sign = signbit(value) ? 0x8000U : 0;
    *half = (uint16_t)sign;
    if (value == 0)
        return true;
    if (!isfinite(value) || fraction != floor(fraction) || exponent > bias || exponent < 1 - bias)
        return false;
    *half = (uint16_t)(sign | (unsigned)(exponent + bias) << fraction_bits |
                       ((unsigned)fraction & ((1U << fraction_bits) - 1)));
    return true;
}

/* Returns false if the type has no such value, or only a subnormal one. */
static bool encode_factor(hvd_dtype dtype, double value, union factor *factor)
{
    switch (dtype) {
    case HVD_FLOAT16:
        return encode_half(value, 10, 15, &factor->half);
    case HVD_BFLOAT16:
        return encode_half(value, 7, 127, &factor->half);
    case HVD_FLOAT32:
        factor->single = (float)value;
        return value == 0 || isnormal(factor->single);
    case HVD_FLOAT64:
        factor->wide = value;
        return value == 0 || isnormal(value);
    default:
        return false;
    }
}

/* How NCCL reduces elements of one type. */
struct reduction {
    int type;
    ncclRedOp_t op;
    bool scales; /* it is a sum of the elements times the factor, not `op` */
    union factor factor;
};

/* Returns false if it can't. NCCL multiplies before it adds, so one factor stands for all three. */
static bool plan_reduction(hvd_dtype dtype, hvd_reduction reduction, double prescale, double postscale,
                           int size, struct reduction *plan)
{
    bool sums = reduction == HVD_SUM || reduction == HVD_AVERAGE;
    double value = prescale * postscale / (reduction == HVD_AVERAGE ? size : 1);
    *plan = (struct reduction){.type = type_of(dtype),
                               .op = reduction == HVD_PRODUCT ? NCCL_PRODUCT
                                     : reduction == HVD_MIN   ? NCCL_MIN
                                     : reduction == HVD_MAX   ? NCCL_MAX
                                                              : NCCL_SUM,
                               .scales = prescale != 1 || postscale != 1 || reduction == HVD_AVERAGE};
    /* NCCL's minimum or maximum of a NaN and a number is the number. */
    bool loses_nan = (reduction == HVD_MIN || reduction == HVD_MAX) &&
                     dtype_table[dtype].family & (FAMILY_real | FAMILY_half);
    if (plan->type < 0 || reduction == HVD_ADASUM || loses_nan)
        return false;
    if (!plan->scales)
        return true;
    bool vanishes = value == 0 && prescale != 0 && postscale != 0;
    return sums && !vanishes && encode_factor(dtype, value, &plan->factor);
}

static bool nccl_supports(const void *state, const struct backend_query *query, struct choice *choice)
{
    const struct nccl *nccl = state;
    const struct settings *settings = nccl->meeting.settings;
    struct reduction plan;
    (void)choice;
    if (query->device_type != HVD_CUDA || nccl->phase == REFUSED ||
        strcasecmp(settings->gpu_operations, "host") == 0)
        return false;
    if (query->operation == HVD_BROADCAST)
        return true;
    if ((query->operation != HVD_ALLREDUCE && query->operation != HVD_REDUCESCATTER) ||
        settings->deterministic)
        return false;
    bool all_types = true;
    for (int type = 0; query->types >> type; type++)
        if (query->types >> type & 1)
            all_types &= plan_reduction((hvd_dtype)type, query->reduction, query->prescale, query->postscale,
                                        nccl->meeting.size, &plan);
    return all_types;
}

/* ---- open and prepare --------------------------------------------------------------------------------- */

/* Sets the job; false: out of memory. */
static bool join_list(struct nccl *nccl)
{
    const struct settings *settings = nccl->meeting.settings;
    struct job *job = NULL;
    pthread_mutex_lock(&all_lock);
    for (struct nccl *each = all; each && !job; each = each->other)
        job = each->job->settings == settings ? each->job : NULL;
    if (!job)
        job = calloc(1, sizeof *job);
    nccl->job = job;
    if (job) {
        job->settings = settings;
        job->users++;
        nccl->other = all;
        all = nccl;
    }
    pthread_mutex_unlock(&all_lock);
    return job;
}

static void leave_list(struct nccl *nccl)
{
    pthread_mutex_lock(&all_lock);
    struct nccl **at = &all;
    while (*at != nccl)
        at = &(*at)->other;
    *at = nccl->other;
    if (!--nccl->job->users)
        free(nccl->job);
    pthread_mutex_unlock(&all_lock);
}

/* Returns those of the same job. */
static struct nccl *list_job(const struct nccl *of)
{
    struct nccl *list = NULL;
    pthread_mutex_lock(&all_lock);
    for (struct nccl *each = all; each; each = each->other)
        if (each->job == of->job) {
            each->of_job = list;
            list = each;
        }
    pthread_mutex_unlock(&all_lock);
    return list;
}

static hvd_code nccl_open(const struct backend_opening *opening, void **state, int *descriptor,
                          hvd_status *status)
{
    (void)descriptor;
    if (opening->size == 1) {
        status_set(status, HVD_UNSUPPORTED, "its process set has one rank there");
        return HVD_OK;
    }
    struct nccl *nccl = calloc(1, sizeof *nccl);
    if (!nccl)
        return status_no_memory(status);
    nccl->meeting = (struct nccl_meeting){.settings = opening->settings,
                                          .generation = opening->generation,
                                          .set = opening->set,
                                          .rank = opening->rank,
                                          .size = opening->size,
                                          .ranks = opening->ranks};
    nccl->tail = &nccl->head;
    if (!join_list(nccl)) {
        free(nccl);
        return status_no_memory(status);
    }
    *state = nccl;
    return HVD_OK;
}

/* Another one of the job on the same GPU that has a stream; NULL: none. */
static struct nccl *find_neighbour(const struct nccl *nccl)
{
    struct nccl *each = list_job(nccl);
    while (each && (each == nccl || !each->stream || each->meeting.device_id != nccl->meeting.device_id))
        each = each->of_job;
    return each;
}

static hvd_code make_stream(struct nccl *nccl, hvd_status *status)
{
    int least = 0, greatest = 0;
    struct cuda_use use;
    TRY(cuda_enter(&use, nccl->meeting.device_id, status));
    CUresult result = use.cuda->stream_priorities(&least, &greatest);
    if (!result)
        result = use.cuda->stream_create(&nccl->stream, CUDA_STREAM_NON_BLOCKING, greatest);
    cuda_leave(&use);
    return cuda_check(use.cuda, result, "making a stream of the GPU", status);
}

static hvd_code start_meeting(struct nccl *nccl, int32_t device_id, hvd_status *status)
{
    nccl->meeting.device_id = device_id;
    const struct nccl *neighbour = find_neighbour(nccl);
    if (neighbour)
        nccl->stream = neighbour->stream;
    else
        TRY(make_stream(nccl, status));
    TRY(nccl_meet_start(&nccl->meeting, status));
    nccl->phase = MEETING;
    return HVD_OK;
}

/* All members have met. */
static hvd_code end_meeting(struct nccl *nccl, hvd_status *status)
{
    const struct nccl_meeting *meeting = &nccl->meeting;
    nccl_meet_join(&nccl->meeting);
    nccl->phase = meeting->status.code ? REFUSED : USABLE;
    if (!meeting->status.code && meeting->rank == 0)
        log_info(
            rank_of(nccl),
            "NCCL %d.%d.%d (%s) moves the tensors on GPUs of process set %d; the authors have tested this on "
            "stand-ins for NCCL and the driver, but on no GPU yet; HOROVOD_GPU_OPERATIONS=host does "
            "without NCCL",
            meeting->library->version_code / 10000, meeting->library->version_code / 100 % 100,
            meeting->library->version_code % 100, meeting->library->path, meeting->set);
    if (meeting->status.code != HVD_UNSUPPORTED)
        return status_copy(status, &meeting->status);
    if (strcasecmp(meeting->settings->gpu_operations, "nccl") == 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "HOROVOD_GPU_OPERATIONS=nccl, but process set %d can't use NCCL: %.700s",
                          meeting->set, meeting->status.text);
    if (meeting->rank == 0)
        log_info(rank_of(nccl),
                 "tensors on GPUs of process set %d travel through the memory of the host, without NCCL: %s",
                 meeting->set, meeting->status.text);
    return status_copy(status, &meeting->status);
}

static hvd_code nccl_prepare(void *state, const struct collective *collective, hvd_status *status)
{
    struct nccl *nccl = state;
    if (nccl->failure.code)
        return status_copy(status, &nccl->failure);
    if (nccl->phase == USABLE)
        return HVD_OK;
    if (nccl->phase == REFUSED)
        return status_copy(status, &nccl->meeting.status);
    if (nccl->phase == FRESH) {
        hvd_code code = start_meeting(nccl, collective->device_id, status);
        if (code)
            return code == HVD_UNSUPPORTED ? HVD_SYSTEM : code; /* it is not agreed */
    }
    return atomic_load(&nccl->meeting.done) ? end_meeting(nccl, status) : HVD_IN_PROGRESS;
}

/* ---- the end of a job --------------------------------------------------------------------------------- */

static void stop_meetings(struct nccl *list)
{
    for (struct nccl *each = list; each; each = each->of_job)
        atomic_store(&each->meeting.stops, true);
    for (struct nccl *each = list; each; each = each->of_job)
        if (each->phase == MEETING) {
            nccl_meet_join(&each->meeting);
            each->phase = REFUSED;
        }
}

/* Waits for work that touches tensors. */
static void drain(const struct nccl *nccl)
{
    struct cuda_use use;
    if (!nccl->stream || cuda_enter(&use, nccl->meeting.device_id, NULL))
        return;
    use.cuda->stream_synchronize(nccl->stream);
    cuda_leave(&use);
}

/* From here on nothing of NCCL touches tensors of this job in this process, and every collective of it that
 * has not ended yet will end with the cause. */
static void abort_job(struct nccl *nccl, const hvd_status *cause)
{
    const struct nccl_library *library = NULL;
    struct nccl *list = list_job(nccl);
    stop_meetings(list);
    for (struct nccl *each = list; each; each = each->of_job) {
        if (!each->failure.code)
            each->failure = *cause;
        if (!each->meeting.comm)
            continue;
        if (!library)
            each->meeting.library->group_start();
        library = each->meeting.library;
        library->abort(each->meeting.comm);
        each->meeting.comm = NULL;
    }
    if (library)
        library->group_end();
    for (struct nccl *each = list; each; each = each->of_job)
        drain(each);
}

/* ---- collectives -------------------------------------------------------------------------------------- */

static hvd_code check_place(const struct nccl *nccl, const struct collective *collective,
                            const struct span *span, hvd_status *status)
{
    int ordinal = nccl->meeting.device_id;
    if (!span->length || !span->data)
        return HVD_OK;
    const struct cuda *cuda = cuda_open(status);
    TRY(cuda_check(
        cuda,
        cuda->pointer_attribute(&ordinal, CUDA_POINTER_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)span->data),
        "finding the GPU of a tensor's memory", status));
    if (ordinal == nccl->meeting.device_id)
        return HVD_OK;
    return status_set(
        status, HVD_INVALID_ARGUMENT,
        "%s: rank %d has a tensor on GPU %d, but its first one was on GPU %d, where NCCL is open; use "
        "one GPU in each process, or set HOROVOD_GPU_OPERATIONS=host",
        hvd_operation_name(collective->operation), rank_of(nccl), ordinal, (int)nccl->meeting.device_id);
}

/* Puts the work behind that which writes the tensors. */
static hvd_code wait_for_tensors(const struct nccl *nccl, const struct collective *collective,
                                 hvd_status *status)
{
    for (int i = 0; i < collective->input.count; i++)
        TRY(check_place(nccl, collective, &collective->input.spans[i], status));
    for (int i = 0; i < collective->output.count; i++)
        TRY(check_place(nccl, collective, &collective->output.spans[i], status));
    for (int i = 0; i < collective->ready_count; i++)
        TRY(memory_cuda.stream_wait(nccl->stream, collective->ready[i], status));
    return HVD_OK;
}

static ncclResult_t call_allreduce(const struct nccl *nccl, const struct collective *collective,
                                   const struct reduction *plan)
{
    const struct nccl_meeting *meeting = &nccl->meeting;
    size_t width = hvd_dtype_size(collective->dtype);
    ncclResult_t result = NCCL_OK;
    for (int i = 0; i < collective->input.count && !result; i++) {
        const struct span *from = &collective->input.spans[i], *to = &collective->output.spans[i];
        if (from->length)
            result = meeting->library->all_reduce(from->data, to->data, from->length / width, plan->type,
                                                  plan->op, meeting->comm, nccl->stream);
    }
    return result;
}

static ncclResult_t call_broadcast(const struct nccl *nccl, const struct collective *collective,
                                   const struct reduction *plan)
{
    const struct nccl_meeting *meeting = &nccl->meeting;
    ncclResult_t result = NCCL_OK;
    (void)plan;
    for (int i = 0; i < collective->output.count && !result; i++) {
        const struct span *to = &collective->output.spans[i];
        const struct span *from = collective->rank == collective->root ? &collective->input.spans[i] : to;
        if (to->length)
            result = meeting->library->broadcast(from->data, to->data, to->length, NCCL_UINT8,
                                                 collective->root, meeting->comm, nccl->stream);
    }
    return result;
}

static char *address_at(const struct vector *vector, size_t offset)
{
    int i = vector_find(vector, offset);
    return vector->spans[i].data + (offset - vector->starts[i]);
}

/* A rank's rows of a tensor are one span; ranks may have different numbers of rows. So each span is reduced
 * to its rank. */
static ncclResult_t call_reducescatter(const struct nccl *nccl, const struct collective *collective,
                                       const struct reduction *plan)
{
    const struct nccl_meeting *meeting = &nccl->meeting;
    size_t width = hvd_dtype_size(collective->dtype);
    int tensors = collective->input.count / collective->size;
    ncclResult_t result = NCCL_OK;
    for (int i = 0; i < collective->input.count && !result; i++) {
        const struct span *from = &collective->input.spans[i];
        int root = i / tensors;
        if (from->length)
            result = meeting->library->reduce(
                from->data,
                root == collective->rank ? address_at(&collective->output, collective->input.starts[i])
                                         : NULL,
                from->length / width, plan->type, plan->op, root, meeting->comm, nccl->stream);
    }
    return result;
}

static ncclResult_t (*const calls[])(const struct nccl *nccl, const struct collective *collective,
                                     const struct reduction *plan) = {
    [HVD_ALLREDUCE] = call_allreduce,
    [HVD_BROADCAST] = call_broadcast,
    [HVD_REDUCESCATTER] = call_reducescatter,
};

static bool is_run_by_nccl(hvd_operation operation)
{
    return (size_t)operation < sizeof calls / sizeof *calls && calls[operation];
}

/* In one launch, which all ranks make alike. */
static ncclResult_t call_group(const struct nccl *nccl, const struct collective *collective,
                               struct reduction *plan)
{
    const struct nccl_library *library = nccl->meeting.library;
    ncclComm_t comm = nccl->meeting.comm;
    ncclResult_t result =
        plan->scales ? library->scaled_sum(&plan->op, &plan->factor, plan->type, NCCL_SCALAR_OF_HOST, comm)
                     : NCCL_OK;
    if (result)
        return result;
    result = library->group_start();
    if (!result) {
        result = calls[collective->operation](nccl, collective, plan);
        ncclResult_t end = library->group_end();
        result = result ? result : end;
    }
    if (plan->scales)
        library->op_destroy(plan->op, comm);
    return result;
}

/* The engine fills the tensors of a joined rank on a stream of its own. */
static hvd_code wait_for_fills(const struct nccl *nccl, struct flight *flight, hvd_status *status)
{
    struct cuda_use use;
    TRY(cuda_enter(&use, nccl->meeting.device_id, status));
    hvd_code code = memory_cuda.event_record(use.device_id, use.stream, &flight->fills, status);
    cuda_leave(&use);
    return code ? code : memory_cuda.stream_wait(nccl->stream, flight->fills, status);
}

/* HVD_IN_PROGRESS: its work will be on the stream later. */
static hvd_code call(const struct nccl *nccl, struct flight *flight, hvd_status *status)
{
    const struct collective *collective = flight->collective;
    struct reduction plan = {0};
    bool reduces = operation_reduces(collective->operation);
    if (!is_run_by_nccl(collective->operation) ||
        (reduces && !plan_reduction(collective->dtype, collective->reduction, collective->agreed_prescale,
                                    collective->postscale, collective->size, &plan)))
        return status_set(status, HVD_REFUSED,
                          "rank %d can't run the %s that was decided by NCCL; do the ranks run different "
                          "versions?",
                          rank_of(nccl), hvd_operation_name(collective->operation));
    TRY(wait_for_tensors(nccl, collective, status));
    TRY(wait_for_fills(nccl, flight, status));
    ncclResult_t result = call_group(nccl, collective, &plan);
    if (result == NCCL_IN_PROGRESS)
        return HVD_IN_PROGRESS;
    return result ? failed(nccl, result, hvd_operation_name(collective->operation), status) : HVD_OK;
}

/* HVD_IN_PROGRESS: a launch goes on. */
static hvd_code ask_nccl(const struct nccl *nccl, hvd_status *status)
{
    ncclResult_t state = NCCL_OK;
    ncclResult_t result = nccl->meeting.library->async_error(nccl->meeting.comm, &state);
    if (result || (state && state != NCCL_IN_PROGRESS))
        return failed(nccl, result ? result : state, "NCCL", status);
    return state ? HVD_IN_PROGRESS : HVD_OK;
}

/* ---- progress ----------------------------------------------------------------------------------------- */

static hvd_code nccl_start(void *state, struct collective *collective, hvd_status *status)
{
    struct nccl *nccl = state;
    struct flight *flight = malloc(sizeof *flight);
    if (!flight)
        return status_no_memory(status);
    *flight = (struct flight){.number = nccl->job->started++, .collective = collective};
    *nccl->tail = flight;
    nccl->tail = &flight->next;
    if (!nccl->next)
        nccl->next = flight;
    return HVD_OK;
}

static void finish(struct nccl *nccl, const hvd_status *status)
{
    struct flight *first = nccl->head;
    nccl->head = first->next;
    if (!nccl->head)
        nccl->tail = &nccl->head;
    if (first->fills)
        memory_cuda.event_release(first->fills);
    if (first->end)
        memory_cuda.event_release(first->end);
    first->collective->done(first->collective, status);
    free(first);
}

static void finish_all(struct nccl *nccl, const hvd_status *status)
{
    nccl->called = nccl->next = NULL;
    while (nccl->head)
        finish(nccl, status);
}

/* Calls those that wait, each when the one before, of any process set, is on the stream. */
static hvd_code launch(struct nccl *nccl, bool *moved, hvd_status *status)
{
    hvd_code code = ask_nccl(nccl, status);
    while (!code && (nccl->called || (nccl->next && nccl->next->number == nccl->job->launched))) {
        if (!nccl->called) {
            nccl->called = nccl->next;
            nccl->next = nccl->next->next;
            code = call(nccl, nccl->called, status);
        }
        if (!code) {
            code =
                memory_cuda.event_record(nccl->meeting.device_id, nccl->stream, &nccl->called->end, status);
            nccl->called = NULL;
            nccl->job->launched++;
            *moved = true;
        }
    }
    return code == HVD_IN_PROGRESS ? HVD_OK : code;
}

/* Ends those whose results are there. */
static hvd_code land(struct nccl *nccl, bool *moved, hvd_status *status)
{
    hvd_status fine = {.code = HVD_OK};
    while (nccl->head && nccl->head->end) {
        hvd_code code = memory_cuda.event_query(nccl->head->end, status);
        if (code == HVD_IN_PROGRESS)
            return HVD_OK;
        if (!code)
            code = ask_nccl(nccl, status); /* after a failure the work ends as well */
        if (code && code != HVD_IN_PROGRESS)
            return code;
        *moved = true;
        finish(nccl, &fine);
    }
    return HVD_OK;
}

static enum backend_progress nccl_progress(void *state, bool *moved)
{
    struct nccl *nccl = state;
    hvd_status status = nccl->failure;
    struct cuda_use use;
    if (!status.code && nccl->head && !cuda_enter(&use, nccl->meeting.device_id, &status)) {
        hvd_code code = launch(nccl, moved, &status);
        if (!code)
            code = land(nccl, moved, &status);
        status.code = code;
        cuda_leave(&use);
    }
    if (status.code) {
        *moved = true;
        abort_job(nccl, &status);
        finish_all(nccl, &status);
    }
    return nccl->head ? BACKEND_POLL : BACKEND_DONE;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

static void nccl_abort(void *state, const hvd_status *cause)
{
    struct nccl *nccl = state;
    if (cause->code != HVD_SHUT_DOWN || nccl->head || nccl->phase == MEETING)
        abort_job(nccl, cause);
    finish_all(nccl, cause);
}

#define FINALIZE_LIMIT (10 * CLOCK_SECOND) /* a peer may still need what this rank's NCCL has to send */

static void close_comm(const struct nccl_meeting *meeting)
{
    const struct nccl_library *library = meeting->library;
    ncclResult_t state = library->finalize(meeting->comm);
    int64_t end = clock_now() + FINALIZE_LIMIT;
    while (state == NCCL_IN_PROGRESS && clock_now() < end) {
        nanosleep(&(struct timespec){0, 50000}, NULL);
        if (library->async_error(meeting->comm, &state))
            break;
    }
    if (state)
        library->abort(meeting->comm);
    else
        library->destroy(meeting->comm);
}

static void nccl_close(void *state)
{
    struct nccl *nccl = state;
    struct cuda_use use;
    if (nccl->phase == MEETING) {
        nccl->of_job = NULL;
        stop_meetings(nccl);
    }
    if (nccl->stream && !cuda_enter(&use, nccl->meeting.device_id, NULL)) {
        if (nccl->meeting.comm)
            close_comm(&nccl->meeting);
        if (!find_neighbour(nccl))
            use.cuda->stream_destroy(nccl->stream);
        cuda_leave(&use);
    }
    leave_list(nccl);
    free(nccl);
}

const struct backend backend_nccl = {
    .name = "nccl",
    .one_order = true,
    .open = nccl_open,
    .close = nccl_close,
    .supports = nccl_supports,
    .prepare = nccl_prepare,
    .start = nccl_start,
    .progress = nccl_progress,
    .abort = nccl_abort,
};
