/* test_standin_nccl.c - what the stand-in for NCCL does. The ranks are threads, each with a GPU of its
 * number, or processes. */
#include "standin/gpu.h"
#include "standin/nccl/standin_nccl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 20000 };

/* In every thread, unlike cmocka's. */
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, ncclGetLastError(NULL));              \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)
#define OK(call) CHECK((call) == 0)

struct world {
    int size, runs; /* collectives before */
    ncclUniqueId ids[2];
    pthread_barrier_t barrier;
    void (*body)(struct world *world, int rank);
};

struct rank {
    pthread_t thread;
    struct world *world;
    int rank;
};

static void *run_rank(void *argument)
{
    struct rank *rank = argument;
    gpu_use(rank->rank);
    rank->world->body(rank->world, rank->rank);
    return NULL;
}

static void on_ranks(int size, void (*body)(struct world *world, int rank))
{
    struct world world = {.size = size, .runs = standin_nccl_calls("collective"), .body = body};
    struct rank ranks[RANKS];
    gpu_use(0);
    for (int i = 0; i < 2; i++)
        OK(ncclGetUniqueId(&world.ids[i]));
    pthread_barrier_init(&world.barrier, NULL, (unsigned)size);
    for (int i = 0; i < size; i++) {
        ranks[i] = (struct rank){.world = &world, .rank = i};
        OK(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]));
    }
    for (int i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
    pthread_barrier_destroy(&world.barrier);
}

static int setup(void **state)
{
    (void)state;
    setenv("STANDIN_DEVICES", "4", true);
    setenv("STANDIN_DELAY_US", "100", false);
    return 0;
}

const struct test_hooks test_hooks = {.before_all = setup};

static void sleep_briefly(void)
{
    nanosleep(&(struct timespec){0, 200000}, NULL);
}

/* Waits until a call is done; a minute is the most. */
static ncclResult_t settle(ncclComm_t comm)
{
    ncclResult_t state = NCCL_IN_PROGRESS;
    for (int i = 0; i < 300000; i++) {
        OK(ncclCommGetAsyncError(comm, &state));
        if (state != NCCL_IN_PROGRESS)
            return state;
        sleep_briefly();
    }
    CHECK(!"it stays in progress");
}

static ncclComm_t begin_comm(int size, const ncclUniqueId *id, int rank, int blocking)
{
    ncclComm_t comm;
    ncclConfig_t config = {.size = sizeof config,
                           .magic = NCCL_CONFIG_MAGIC,
                           .version = NCCL_CONFIG_VERSION,
                           .blocking = blocking,
                           .cga_cluster_size = NCCL_UNDEFINED,
                           .least_blocks = NCCL_UNDEFINED,
                           .most_blocks = NCCL_UNDEFINED,
                           .shares_resources = NCCL_UNDEFINED};
    ncclResult_t result = ncclCommInitRankConfig(&comm, size, *id, rank, &config);
    CHECK(result == (blocking ? NCCL_OK : NCCL_IN_PROGRESS));
    return comm;
}

static ncclComm_t open_comm(int size, const ncclUniqueId *id, int rank)
{
    ncclComm_t comm = begin_comm(size, id, rank, rank % 2); /* both kinds */
    OK(settle(comm));
    return comm;
}

/* For a call of any kind of communicator. */
#define LAUNCH(comm, call)                                                                                   \
    do {                                                                                                     \
        ncclResult_t launched = (call);                                                                      \
        CHECK(launched == NCCL_OK || launched == NCCL_IN_PROGRESS);                                          \
        OK(settle(comm));                                                                                    \
    } while (0)

static void *host_address(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* ---- processes ---------------------------------------------------------------------------------------- */

/* A rank's memory: an input, an output and a stream. */
struct place {
    CUdeviceptr from, to;
    CUstream stream;
};

static struct place make_place(void)
{
    return (struct place){gpu_allocate(COUNT * 8), gpu_allocate(RANKS * COUNT * 8),
                          gpu_stream(CUDA_STREAM_NON_BLOCKING)};
}

/* The child is forked before CUDA is used. */
static int reduce_in_process(const ncclUniqueId *id, int rank)
{
    int32_t value = rank + 1, sum;
    gpu_use(rank);
    struct place at = make_place();
    ncclComm_t comm = open_comm(2, id, rank);
    gpu_put(at.from, &value, sizeof value, at.stream);
    LAUNCH(comm, ncclAllReduce(host_address(at.from), host_address(at.to), 1, NCCL_INT32, NCCL_SUM, comm,
                               at.stream));
    gpu_get(&sum, at.to, sizeof sum, at.stream);
    OK(ncclCommDestroy(comm));
    return sum;
}

TEST(test_processes)
{
    int pipes[2], status;
    ncclUniqueId id;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(read(pipes[0], &id, sizeof id) == sizeof id ? reduce_in_process(&id, 1) : 99);
    OK(ncclGetUniqueId(&id));
    assert_int_equal(write(pipes[1], &id, sizeof id), sizeof id);
    assert_int_equal(reduce_in_process(&id, 0), 3);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    close(pipes[0]);
    close(pipes[1]);
}

/* ---- results ------------------------------------------------------------------------------------------ */

static void check_ints(const struct place *place, int count, int first, int step)
{
    static _Thread_local int32_t values[RANKS * COUNT];
    gpu_get(values, place->to, (size_t)count * 4, place->stream);
    for (int i = 0; i < count; i++)
        CHECK(values[i] == first + i * step);
}

static void operations(struct world *world, int rank)
{
    static _Thread_local int32_t ints[COUNT];
    ncclComm_t comm = open_comm(world->size, &world->ids[0], rank);
    struct place at = make_place();
    void *from = host_address(at.from), *to = host_address(at.to);
    for (int i = 0; i < COUNT; i++)
        ints[i] = 100000 * rank + i;
    gpu_put(at.from, ints, sizeof ints, at.stream);
    LAUNCH(comm, ncclAllReduce(from, to, COUNT, NCCL_INT32, NCCL_SUM, comm, at.stream));
    check_ints(&at, COUNT, 300000, 3);
    LAUNCH(comm, ncclAllReduce(from, to, COUNT, NCCL_INT32, NCCL_MAX, comm, at.stream));
    check_ints(&at, COUNT, 200000, 1);
    LAUNCH(comm, ncclAllReduce(from, to, COUNT, NCCL_INT32, NCCL_MIN, comm, at.stream));
    check_ints(&at, COUNT, 0, 1);
    LAUNCH(comm, ncclBroadcast(from, to, COUNT, NCCL_INT32, 1, comm, at.stream));
    check_ints(&at, COUNT, 100000, 1);
    LAUNCH(comm, ncclReduceScatter(from, to, COUNT / RANKS, NCCL_INT32, NCCL_SUM, comm, at.stream));
    check_ints(&at, COUNT / RANKS, 300000 + rank * (COUNT / RANKS) * 3, 3);
    if (rank == 1)
        gpu_put(at.to, ints, sizeof ints, at.stream);
    LAUNCH(comm, ncclReduce(from, to, COUNT, NCCL_INT32, NCCL_SUM, 2, comm, at.stream));
    if (rank == 1)
        check_ints(&at, COUNT, 100000, 1); /* only the root's is written */
    if (rank == 2)
        check_ints(&at, COUNT, 300000, 3);
    LAUNCH(comm, ncclAllGather(from, to, 10, NCCL_INT32, comm, at.stream));
    gpu_get(ints, at.to, 120, at.stream);
    for (int i = 0; i < 30; i++)
        CHECK(ints[i] == 100000 * (i / 10) + i % 10);
    MUST(cuStreamSynchronize(at.stream));
    OK(ncclCommDestroy(comm));
}

TEST(test_operations)
{
    on_ranks(RANKS, operations);
}

/* Every rank sends every rank a part, in one group, larger than one piece. */
static void messages(struct world *world, int rank)
{
    static _Thread_local int32_t ints[COUNT];
    enum { PART = COUNT / RANKS };
    ncclComm_t comm = open_comm(world->size, &world->ids[0], rank);
    struct place at = make_place();
    for (int i = 0; i < COUNT; i++)
        ints[i] = 100000 * rank + i;
    gpu_put(at.from, ints, sizeof ints, at.stream);
    OK(ncclGroupStart());
    for (unsigned peer = 0; peer < RANKS; peer++) {
        OK(ncclSend(host_address(at.from + peer * PART * 4), PART, NCCL_INT32, (int)peer, comm, at.stream));
        OK(ncclRecv(host_address(at.to + peer * PART * 4), PART, NCCL_INT32, (int)peer, comm, at.stream));
    }
    LAUNCH(comm, ncclGroupEnd());
    gpu_get(ints, at.to, sizeof ints, at.stream);
    for (int i = 0; i < RANKS * PART; i++)
        CHECK(ints[i] == 100000 * (i / PART) + rank * PART + i % PART);
    OK(ncclCommDestroy(comm));
}

TEST(test_messages)
{
    on_ranks(RANKS, messages);
}

/* Bits of rank + 2, so of 2, 3 and 4. */
static const struct {
    int type;
    size_t width;
    uint64_t values[RANKS], sum, product, half; /* half: of the sum of halves */
} types[] = {
    {NCCL_INT8, 1, {2, 3, 4}, 9, 24, 0},
    {NCCL_UINT8, 1, {2, 3, 4}, 9, 24, 0},
    {NCCL_INT32, 4, {2, 3, 4}, 9, 24, 0},
    {NCCL_UINT32, 4, {2, 3, 4}, 9, 24, 0},
    {NCCL_INT64, 8, {2, 3, 4}, 9, 24, 0},
    {NCCL_UINT64, 8, {2, 3, 4}, 9, 24, 0},
    {NCCL_FLOAT16, 2, {0x4000, 0x4200, 0x4400}, 0x4880, 0x4e00, 0x4480},
    {NCCL_FLOAT32, 4, {0x40000000, 0x40400000, 0x40800000}, 0x41100000, 0x41c00000, 0x40900000},
    {NCCL_FLOAT64,
     8,
     {1ULL << 62, 0x4008000000000000, 0x4010000000000000},
     0x4022000000000000,
     0x4038000000000000,
     0x4012000000000000},
    {NCCL_BFLOAT16, 2, {0x4000, 0x4040, 0x4080}, 0x4110, 0x41c0, 0x4090},
};

static uint64_t half_of(int type)
{
    double wide = 0.5;
    float narrow = 0.5F;
    uint64_t bits = type == NCCL_FLOAT16 ? 0x3800 : 0x3f00;
    if (type == NCCL_FLOAT64)
        memcpy(&bits, &wide, sizeof wide);
    if (type == NCCL_FLOAT32)
        memcpy(&bits, &narrow, sizeof narrow);
    return bits;
}

static void every_type(struct world *world, int rank)
{
    ncclComm_t comm = open_comm(world->size, &world->ids[0], rank);
    struct place at = make_place();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ncclRedOp_t halves = NCCL_SUM;
        uint64_t factor = half_of(types[i].type);
        const ncclRedOp_t ops[] = {NCCL_SUM, NCCL_PRODUCT, NCCL_MIN, NCCL_MAX};
        const uint64_t expected[] = {types[i].sum, types[i].product, types[i].values[0], types[i].values[2]};
        gpu_put(at.from, &types[i].values[rank], types[i].width, at.stream);
        for (int k = 0; k < 5; k++) {
            uint64_t result = 0;
            if (k == 4 && !types[i].half)
                continue;
            if (k == 4)
                OK(ncclRedOpCreatePreMulSum(&halves, &factor, types[i].type, NCCL_SCALAR_OF_HOST, comm));
            LAUNCH(comm, ncclAllReduce(host_address(at.from), host_address(at.to), 1, types[i].type,
                                       k == 4 ? halves : ops[k], comm, at.stream));
            gpu_get(&result, at.to, types[i].width, at.stream);
            CHECK(result == (k == 4 ? types[i].half : expected[k]));
            if (k == 4)
                OK(ncclRedOpDestroy(halves, comm));
        }
    }
    OK(ncclCommDestroy(comm));
}

TEST(test_every_type)
{
    on_ranks(RANKS, every_type);
}

/* ---- order -------------------------------------------------------------------------------------------- */

/* The input is written by a stream that is held back. Without an event the collective reads garbage, with one
 * it waits. */
static void events(struct world *world, int rank)
{
    ncclComm_t comm = open_comm(world->size, &world->ids[0], rank);
    struct place at = make_place();
    CUstream caller = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    CUevent written = gpu_event();
    for (int waits = 0; waits < 2; waits++) {
        int32_t value = rank + 1, result;
        standin_hold(caller);
        gpu_put(at.from, &value, sizeof value, caller);
        MUST(cuEventRecord(written, caller));
        if (waits)
            MUST(cuStreamWaitEvent(at.stream, written, 0));
        LAUNCH(comm, ncclAllReduce(host_address(at.from), host_address(at.to), 1, NCCL_INT32, NCCL_SUM, comm,
                                   at.stream));
        if (!waits) {
            gpu_get(&result, at.to, sizeof result, at.stream);
            CHECK(result != 6);
        }
        CHECK((cuStreamQuery(at.stream) == CUDA_NOT_READY) == waits);
        standin_release(caller);
        gpu_get(&result, at.to, sizeof result, at.stream);
        CHECK((result == 6) == waits);
        MUST(cuStreamSynchronize(caller));
    }
    MUST(cuEventDestroy_v2(written));
    OK(ncclCommDestroy(comm));
}

TEST(test_events)
{
    on_ranks(RANKS, events);
}

/* It occupies the stream until all ranks have come. */
static void a_late_rank(struct world *world, int rank)
{
    ncclComm_t comm = open_comm(world->size, &world->ids[0], rank);
    struct place at = make_place();
    MUST(cuMemsetD32Async(at.from, 1, 4, at.stream));
    if (rank == 1)
        pthread_barrier_wait(&world->barrier);
    LAUNCH(comm, ncclAllReduce(host_address(at.from), host_address(at.to), 4, NCCL_INT32, NCCL_SUM, comm,
                               at.stream));
    for (int i = 0; i < 20 && rank == 0; i++) {
        CHECK(cuStreamQuery(at.stream) == CUDA_NOT_READY);
        sleep_briefly();
    }
    if (rank == 0)
        pthread_barrier_wait(&world->barrier);
    check_ints(&at, 4, 2, 0);
    OK(ncclCommDestroy(comm));
}

TEST(test_a_late_rank)
{
    on_ranks(2, a_late_rank);
}

/* A communicator that does not block refuses calls until the one before is done. */
static void in_progress(struct world *world, int rank)
{
    ncclComm_t comm = NULL;
    struct place at = make_place();
    void *memory = host_address(at.from);
    if (rank == 0) {
        comm = begin_comm(2, &world->ids[0], 0, 0);
        CHECK(ncclAllReduce(memory, memory, 1, NCCL_INT32, NCCL_SUM, comm, at.stream) ==
              NCCL_INVALID_ARGUMENT);
        CHECK(strstr(ncclGetLastError(NULL), "before the previous operation returned ncclSuccess"));
    }
    pthread_barrier_wait(&world->barrier);
    if (rank == 1)
        comm = begin_comm(2, &world->ids[0], 1, 0);
    OK(settle(comm));
    CHECK(ncclAllReduce(memory, memory, 1, NCCL_INT32, NCCL_SUM, comm, at.stream) == NCCL_IN_PROGRESS);
    OK(settle(comm));
    MUST(cuStreamSynchronize(at.stream));
    CHECK(ncclCommFinalize(comm) == NCCL_IN_PROGRESS);
    OK(settle(comm));
    OK(ncclCommDestroy(comm));
}

TEST(test_in_progress)
{
    on_ranks(2, in_progress);
}

/* ---- errors ------------------------------------------------------------------------------------------- */

static void one_gpu(struct world *world, int rank)
{
    CUcontext context;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    ncclComm_t comm = begin_comm(world->size, &world->ids[0], rank, 0);
    CHECK(settle(comm) == NCCL_INVALID_USAGE);
    CHECK(strstr(ncclGetLastError(comm), "Duplicate GPU detected"));
    OK(ncclCommAbort(comm));
}

static void different_calls(struct world *world, int rank)
{
    ncclComm_t comm = open_comm(world->size, &world->ids[0], rank);
    struct place at = make_place();
    ncclAllReduce(host_address(at.from), host_address(at.to), rank ? 4 : 5, NCCL_INT32, NCCL_SUM, comm,
                  at.stream);
    for (int i = 0; i < 300000 && settle(comm) == NCCL_OK; i++)
        sleep_briefly();
    CHECK(settle(comm) == NCCL_INVALID_USAGE);
    CHECK(strstr(ncclGetLastError(comm), "call different collectives"));
    OK(ncclCommAbort(comm));
}

/* The peer never comes. */
static void a_dead_peer(struct world *world, int rank)
{
    ncclComm_t comm = open_comm(world->size, &world->ids[0], rank);
    struct place at = make_place();
    if (rank == 0) {
        LAUNCH(comm, ncclAllReduce(host_address(at.from), host_address(at.to), 4, NCCL_INT32, NCCL_SUM, comm,
                                   at.stream));
        for (int i = 0; i < 20; i++) {
            CHECK(cuStreamQuery(at.stream) == CUDA_NOT_READY);
            sleep_briefly();
        }
    }
    OK(ncclCommAbort(comm));
    MUST(cuStreamSynchronize(at.stream));
}

static void ordered_failures(struct world *world, int rank)
{
    ncclComm_t comm = open_comm(world->size, &world->ids[0], rank);
    struct place at = make_place();
    void *memory = host_address(at.from);
    int calls = standin_nccl_calls("ncclBroadcast");
    standin_nccl_fail("ncclBroadcast", 2, NCCL_INTERNAL_ERROR);
    LAUNCH(comm, ncclBroadcast(memory, memory, 4, NCCL_INT32, 0, comm, at.stream));
    CHECK(ncclBroadcast(memory, memory, 4, NCCL_INT32, 0, comm, at.stream) == NCCL_INTERNAL_ERROR);
    CHECK(standin_nccl_calls("ncclBroadcast") == calls + 2);
    standin_nccl_fail("collective", 1, NCCL_SYSTEM_ERROR);
    calls = standin_nccl_calls("collective");
    ncclBroadcast(memory, memory, 4, NCCL_INT32, 0, comm, at.stream);
    while (standin_nccl_calls("collective") == calls)
        sleep_briefly();
    MUST(cuStreamSynchronize(at.stream));
    CHECK(settle(comm) == NCCL_SYSTEM_ERROR);
    OK(ncclCommAbort(comm));
}

TEST(test_errors)
{
    on_ranks(2, one_gpu);
    on_ranks(2, different_calls);
    on_ranks(2, a_dead_peer);
    on_ranks(1, ordered_failures);
}

/* ---- two communicators -------------------------------------------------------------------------------- */

struct abort_of {
    ncclComm_t comm;
    atomic_bool done;
};

static void *abort_one(void *argument)
{
    struct abort_of *one = argument;
    OK(ncclCommAbort(one->comm));
    atomic_store(&one->done, true);
    return NULL;
}

/* The second ones start when the first of both ranks run. */
static void launch_in_orders(struct world *world, int rank, ncclComm_t comms[2], CUstream streams[2])
{
    for (int i = 0; i < 2; i++) {
        comms[i] = open_comm(world->size, &world->ids[i], rank);
        streams[i] = gpu_stream(CUDA_STREAM_NON_BLOCKING);
    }
    for (int i = 0; i < 2; i++) {
        int k = rank ? 1 - i : i;
        struct place at = make_place();
        LAUNCH(comms[k], ncclAllReduce(host_address(at.from), host_address(at.to), 4, NCCL_INT32, NCCL_SUM,
                                       comms[k], streams[k]));
        while (standin_nccl_calls("collective") < world->runs + 2)
            sleep_briefly();
    }
}

static void opposite_orders(struct world *world, int rank)
{
    ncclComm_t comms[2];
    CUstream streams[2];
    launch_in_orders(world, rank, comms, streams);
    for (int i = 0; i < 2; i++) {
        MUST(cuStreamSynchronize(streams[i]));
        OK(ncclCommDestroy(comms[i]));
    }
}

/* Rank 0 aborts one, which does not return before the other one is aborted as well; rank 1 aborts both in a
 * group. */
static void a_deadlock(struct world *world, int rank)
{
    ncclComm_t comms[2];
    CUstream streams[2];
    pthread_t thread;
    launch_in_orders(world, rank, comms, streams);
    for (int i = 0; i < 20; i++) {
        CHECK(cuStreamQuery(streams[0]) && cuStreamQuery(streams[1]));
        sleep_briefly();
    }
    pthread_barrier_wait(&world->barrier);
    if (rank == 0) {
        struct abort_of second = {.comm = comms[1]}; /* the one that does not run yet */
        OK(pthread_create(&thread, NULL, abort_one, &second));
        for (int i = 0; i < 20; i++) {
            CHECK(!atomic_load(&second.done));
            sleep_briefly();
        }
        OK(ncclCommAbort(comms[0]));
        pthread_join(thread, NULL);
    } else {
        OK(ncclGroupStart());
        for (int i = 0; i < 2; i++)
            OK(ncclCommAbort(comms[i]));
        OK(ncclGroupEnd());
    }
    for (int i = 0; i < 2; i++)
        MUST(cuStreamSynchronize(streams[i]));
}

TEST(test_two_communicators)
{
    on_ranks(2, opposite_orders);
    standin_nccl_one_at_a_time(true);
    on_ranks(2, a_deadlock);
    standin_nccl_one_at_a_time(false);
}
