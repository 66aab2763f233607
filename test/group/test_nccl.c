/* test_nccl.c - tensors on GPUs by NCCL, on the stand-ins for NCCL and the driver: results of every type,
 * reduction and factor, order of streams, when NCCL is not used, and what happens when it fails. */
#include "device.h"
#include "device/cuda.h"
#include "standin/nccl/standin_nccl.h"
#include "standin/standin.h"
#include "values.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ELEMENTS = 3000, TENSORS = 3 };

static hvd_tensor make_tensor(int32_t device_id, hvd_dtype type, const int64_t *shape)
{
    hvd_tensor tensor = tensor_of(NULL, type, shape, 1);
    device_register();
    tensor.data = device_allocate(device_id, (size_t)*shape * hvd_dtype_size(type));
    tensor.device_type = HVD_CUDA;
    tensor.device_id = device_id;
    return tensor;
}

static void write_values(const struct member *member, const hvd_tensor *tensor, hvd_reduction reduction,
                         void *stream)
{
    static _Thread_local char values[ELEMENTS * 16];
    size_t count = (size_t)tensor->shape[0];
    put_values(tensor->dtype, reduction, member->rank, values, count);
    device_write_on(stream, tensor->data, values, count * hvd_dtype_size(tensor->dtype));
}

/* A sum of float32 of each rank's number from 1 on; returns its code. */
static hvd_code run_sum(struct member *member, const char *name, int32_t device_id, int set,
                        hvd_status *status)
{
    int64_t shape[] = {ELEMENTS};
    float values[ELEMENTS];
    hvd_tensor tensor = make_tensor(device_id, HVD_FLOAT32, shape);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.stream = device_stream(device_id);
    request.process_set = set;
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = (float)(member->rank + 1);
    device_write_on(request.stream, tensor.data, values, sizeof values);
    hvd_code code = hvd_run(member->context, &request, NULL, status);
    if (!code) {
        device_read(values, tensor.data, sizeof values);
        CHECK(values[0] == (float)sum_of(member) && values[ELEMENTS - 1] == values[0], "%s: the sum is %g",
              name, (double)values[0]);
    }
    device_release(tensor.data);
    return code;
}

static void check_sum(struct member *member, const char *name)
{
    CHECK_OK(run_sum(member, name, member->rank, 0, &check_status));
}

/* ---- processes: the first tests, as they fork before CUDA is used ------------------------------------- */

/* In memory that both processes share. */
struct board {
    atomic_bool start; /* `address`, of the rendezvous, is there */
    char address[32];
    atomic_int steps[2];
    atomic_bool failed;
    char text[HVD_STATUS_TEXT];
};

static struct board *board;

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Rank 0 writes the error that it gets when rank 1 is lost. */
_Noreturn static void run_rank(int rank, const char *timeout)
{
    struct member member = {.rank = rank, .size = 2, .transport = "shm", .address = board->address};
    member.settings = (const char *const[]){"timeout_seconds", timeout, NULL};
    hvd_status status;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!atomic_load(&board->start))
        pause_briefly();
    member.context = join_job(&member, "nccl", rank, 2);
    while (!run_sum(&member, "sum", rank, 0, &status))
        atomic_fetch_add(&board->steps[rank], 1);
    memcpy(board->text, status.text, sizeof status.text);
    atomic_store(&board->failed, true);
    _exit(3);
}

static void wait_until_warm(void)
{
    for (int i = 0; atomic_load(&board->steps[0]) < 5 || atomic_load(&board->steps[1]) < 5; i++) {
        CHECK(i < 60000 && !atomic_load(&board->failed), "the job does not start: %s", board->text);
        pause_briefly();
    }
}

/* The other rank's work on its GPU waits for rank 1, but it ends with an error that names it. */
static void lose_rank_1(int signal, const char *timeout, const char *words)
{
    hvd_rendezvous *rendezvous;
    pid_t processes[2];
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED, "no memory");
    for (int rank = 0; rank < 2; rank++) {
        processes[rank] = fork();
        CHECK(processes[rank] >= 0, "no process");
        if (processes[rank] == 0)
            run_rank(rank, timeout);
    }
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &rendezvous, &check_status));
    snprintf(board->address, sizeof board->address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    atomic_store(&board->start, true);
    wait_until_warm();
    kill(processes[1], signal);
    for (int i = 0; !atomic_load(&board->failed); i++) {
        CHECK(i < 100000, "rank 0 goes on waiting");
        pause_briefly();
    }
    for (int rank = 0; rank < 2; rank++) {
        kill(processes[rank], SIGKILL);
        waitpid(processes[rank], NULL, 0);
    }
    hvd_rendezvous_stop(rendezvous);
    CHECK(strstr(board->text, words), "the cause is another one: %s", board->text);
    munmap(board, sizeof *board);
}

TEST(test_killed_peer)
{
    lose_rank_1(SIGKILL, "60", "lost rank 1 (pid ");
}

TEST(test_stopped_peer)
{
    lose_rank_1(SIGSTOP, "4", "rank 1 (pid ");
}

/* ---- results ------------------------------------------------------------------------------------------ */

static const double factors[][2] = {{1, 1}, {0.5, 1}, {1, 3}, {0, 1}, {0.25, 8}, {1, 1.0 / 3}, {1e-30, 1e30}};

static bool has_factors(hvd_dtype type, hvd_reduction reduction, size_t which)
{
    /* Small floats overflow or vanish on their way, the host rounds after each step, and bool has none. */
    bool large = which == 6 && hvd_dtype_size(type) < 4;
    return which == 0 || (type != HVD_BOOL && !is_integer(type) && !large && reduction != HVD_PRODUCT);
}

/* One batch of tensors that are written late; the values are those of the tests of the host. */
static void run_one(struct member *member, hvd_operation operation, hvd_dtype type, hvd_reduction reduction,
                    size_t which)
{
    char name[96], values[ELEMENTS * 16];
    int64_t shapes[TENSORS][1] = {{ELEMENTS}, {1}, {700}};
    hvd_tensor inputs[TENSORS], outputs[TENSORS];
    bool scatters = operation == HVD_REDUCESCATTER;
    int64_t rows[TENSORS][1];
    snprintf(name, sizeof name, "%s %s %s %zu", hvd_operation_name(operation), hvd_dtype_name(type),
             reduction_name(reduction), which);
    for (int i = 0; i < TENSORS; i++) {
        int64_t size = member->size, all = shapes[i][0];
        rows[i][0] = scatters ? all / size + (member->rank < all % size) : all;
        inputs[i] = make_tensor(member->rank, type, shapes[i]);
        outputs[i] = make_tensor(member->rank, type, rows[i]);
        write_values(member, &inputs[i], reduction, device_stream(member->rank));
    }
    hvd_request request = request_of(operation, name, inputs);
    request.count = TENSORS;
    request.outputs = outputs;
    request.reduction = reduction;
    request.root = operation == HVD_BROADCAST ? member->size - 1 : 0;
    request.stream = device_stream(member->rank);
    if (which) {
        request.prescale = &factors[which][0];
        request.postscale = &factors[which][1];
    }
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    for (int i = 0; i < TENSORS; i++) {
        size_t all = (size_t)shapes[i][0], size = (size_t)member->size, rank = (size_t)member->rank;
        size_t first = scatters ? rank * (all / size) + (rank < all % size ? rank : all % size) : 0;
        size_t width = hvd_dtype_size(type), count = (size_t)rows[i][0];
        if (count)
            device_read(values, outputs[i].data, count * width);
        for (size_t k = 0; k < count; k++)
            check_value(type, values, k,
                        operation == HVD_BROADCAST ? value_at(type, reduction, request.root, first + k)
                                                   : expected_at(type, reduction, member->size, first + k) *
                                                         factors[which][0] * factors[which][1],
                        name);
        device_release(inputs[i].data);
        device_release(outputs[i].data);
    }
}

static void results(struct member *member)
{
    uint64_t random = test_seed();
    int share = test_full() ? 1 : SANITIZED ? 40 : 8;
    for (int type = 0; dtype_known(type); type++) {
        run_one(member, HVD_BROADCAST, (hvd_dtype)type, HVD_SUM, 0);
        for (int reduction = HVD_AVERAGE; reduction <= HVD_PRODUCT; reduction++)
            for (size_t which = 0; which < sizeof factors / sizeof *factors; which++) {
                hvd_dtype of = (hvd_dtype)type;
                hvd_reduction by = (hvd_reduction)reduction;
                if (by == HVD_ADASUM ||
                    types_check_reduction(HVD_REDUCESCATTER, of, by, factors[which], NULL) ||
                    !has_factors(of, by, which) || random_below(&random, share))
                    continue;
                run_one(member, HVD_ALLREDUCE, of, by, which);
                run_one(member, HVD_REDUCESCATTER, of, by, which);
            }
    }
}

GROUP_TEST(test_results, results, 2, 4, .transport = "shm")

/* Each rank's calls of these functions. */
static void check_calls(struct member *member, const char *symbol, int calls)
{
    hvd_request barrier = {.struct_size = sizeof barrier, .operation = HVD_BARRIER};
    CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
    CHECK(standin_nccl_calls(symbol) == calls, "%s was called %d times, not %d", symbol,
          standin_nccl_calls(symbol), calls);
    CHECK_OK(hvd_run(member->context, &barrier, NULL, &check_status));
}

/* What NCCL runs, and what it leaves to the host: averages of integers, minimum and maximum of floats, types
 * that it does not have, and factors that the type does not have. */
static void choices(struct member *member)
{
    int reduces = standin_nccl_calls("ncclAllReduce"), broadcasts = standin_nccl_calls("ncclBroadcast");
    int scatters = standin_nccl_calls("ncclReduce");
    int all = TENSORS * member->size;
    check_calls(member, "ncclAllReduce", reduces);
    run_one(member, HVD_ALLREDUCE, HVD_FLOAT32, HVD_AVERAGE, 2);
    check_calls(member, "ncclAllReduce", reduces += all);
    run_one(member, HVD_ALLREDUCE, HVD_UINT32, HVD_MAX, 0);
    check_calls(member, "ncclAllReduce", reduces += all);
    run_one(member, HVD_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 1);
    check_calls(member, "ncclAllReduce", reduces += all);
    run_one(member, HVD_ALLREDUCE, HVD_FLOAT16, HVD_SUM, 5);
    run_one(member, HVD_ALLREDUCE, HVD_FLOAT32, HVD_MAX, 1);
    run_one(member, HVD_ALLREDUCE, HVD_BFLOAT16, HVD_MAX, 0); /* NCCL would lose a NaN */
    run_one(member, HVD_ALLREDUCE, HVD_INT32, HVD_AVERAGE, 0);
    run_one(member, HVD_ALLREDUCE, HVD_INT16, HVD_SUM, 0);
    run_one(member, HVD_ALLREDUCE, HVD_BOOL, HVD_SUM, 0);
    check_calls(member, "ncclAllReduce", reduces);
    run_one(member, HVD_BROADCAST, HVD_INT16, HVD_SUM, 0);
    check_calls(member, "ncclBroadcast", broadcasts + all);
    run_one(member, HVD_REDUCESCATTER, HVD_INT64, HVD_SUM, 0);
    check_calls(member, "ncclReduce", scatters + (member->size * 3 - (member->size - 1)) * member->size);
}

GROUP_TEST(test_choices, choices, 3, 3, .transport = "shm")

/* A reduction of 16-bit numbers, of which all ranks have this one but the last; returns the result. */
static uint16_t reduce_halves(struct member *member, hvd_reduction reduction, double prescale, uint16_t most,
                              uint16_t last)
{
    int64_t shape[] = {1};
    uint16_t value = member->rank == member->size - 1 ? last : most;
    hvd_tensor tensor = make_tensor(member->rank, HVD_FLOAT16, shape);
    hvd_request request = request_of(HVD_ALLREDUCE, "halves", &tensor);
    request.reduction = reduction;
    request.prescale = &prescale;
    request.stream = device_stream(member->rank);
    device_write_on(request.stream, tensor.data, &value, sizeof value);
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    device_read(&value, tensor.data, sizeof value);
    device_release(tensor.data);
    return value;
}

static void nan_and_infinity(struct member *member)
{
    enum { ONE = 0x3c00, INFINITE = 0x7c00, SOME_NAN = 0x7e00 };
    CHECK(reduce_halves(member, HVD_MAX, 1, ONE, SOME_NAN) == SOME_NAN, "the maximum has lost the NaN");
    CHECK(reduce_halves(member, HVD_MIN, 1, SOME_NAN, ONE) == SOME_NAN, "the minimum has lost the NaN");
    CHECK(reduce_halves(member, HVD_SUM, INFINITY, ONE, ONE) == INFINITE, "a finite sum");
}

GROUP_TEST(test_nan_and_infinity, nan_and_infinity, 2, 3, .transport = "shm")

/* ---- order -------------------------------------------------------------------------------------------- */

/* The streams that write the tensors are held back until NCCL has been called on all ranks. */
static void held_streams(struct member *member)
{
    int64_t shape[] = {ELEMENTS};
    void *stream = device_stream(member->rank);
    hvd_tensor tensor = make_tensor(member->rank, HVD_FLOAT32, shape);
    hvd_handle *handle;
    check_sum(member, "before");
    for (int turn = 0; turn < 20; turn++) {
        char values[ELEMENTS * sizeof(float)];
        int calls = standin_nccl_calls("ncclAllReduce") + member->size;
        check_calls(member, "ncclAllReduce", calls - member->size);
        device_hold(stream);
        write_values(member, &tensor, HVD_SUM, stream);
        hvd_request request = request_of(HVD_ALLREDUCE, "held", &tensor);
        request.stream = stream;
        CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
        while (standin_nccl_calls("ncclAllReduce") < calls)
            CHECK(hvd_wait(handle, 0.0002, NULL) == HVD_IN_PROGRESS, "it is done without its input");
        for (int i = 0; i < 5; i++)
            CHECK(hvd_wait(handle, 0.0002, NULL) == HVD_IN_PROGRESS, "it is done without its input");
        device_go_on(stream);
        finish(handle);
        device_read(values, tensor.data, sizeof values);
        for (size_t i = 0; i < ELEMENTS; i++)
            check_value(HVD_FLOAT32, values, i, expected_at(HVD_FLOAT32, HVD_SUM, member->size, i), "held");
    }
    device_release(tensor.data);
}

GROUP_TEST(test_held_streams, held_streams, 2, 2, .transport = "shm")

/* Every rank submits to two overlapping process sets in an order of its own, and kernels exclude each other:
 * NCCL is called in one order all the same. */
static void two_sets(struct member *member)
{
    int32_t ranks[] = {0, 1, 2}, set;
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensors[2] = {make_tensor(member->rank, HVD_FLOAT32, shape),
                             make_tensor(member->rank, HVD_FLOAT32, shape)};
    CHECK_OK(hvd_process_set_add(member->context, ranks, member->size, &set, &check_status));
    for (int turn = 0; turn < 20; turn++) {
        hvd_handle *handles[2];
        for (int i = 0; i < 2; i++) {
            int which = (i + member->rank + turn) % 2;
            write_values(member, &tensors[which], HVD_SUM, device_stream(member->rank));
            hvd_request request = request_of(HVD_ALLREDUCE, "set", &tensors[which]);
            request.stream = device_stream(member->rank);
            request.process_set = which ? set : 0;
            CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
        }
        for (int i = 0; i < 2; i++)
            finish(handles[i]);
    }
    for (int i = 0; i < 2; i++)
        device_release(tensors[i].data);
    CHECK_OK(hvd_process_set_remove(member->context, set, &check_status));
}

TEST(test_two_sets)
{
    standin_nccl_one_at_a_time(true);
    group_run(&(struct group_options){.transport = "shm"}, 3, two_sets, NULL);
    standin_nccl_one_at_a_time(false);
}

static void one_sum(struct member *member)
{
    check_sum(member, "sum");
}

TEST(test_many_lives)
{
    int opened = standin_nccl_calls("ncclCommInitRankConfig"), aborted = standin_nccl_calls("ncclCommAbort");
    int lives = test_full() ? 1000 : SANITIZED ? 5 : 20;
    int before = count_entries("/proc/self/fd");
    group_run(&(struct group_options){.transport = "shm", .lives = lives, .seconds = 600}, 2, one_sum, NULL);
    assert_int_equal(standin_nccl_calls("ncclCommInitRankConfig"), opened + 2 * lives);
    assert_int_equal(standin_nccl_calls("ncclCommDestroy"), opened + 2 * lives - aborted);
    assert_int_equal(standin_nccl_calls("ncclCommAbort"), aborted);
    assert_true(count_entries("/proc/self/fd") <= before + 2);
}

/* ---- when it is not used ------------------------------------------------------------------------------ */

static void configure_host_on_1(hvd_config *config, int rank)
{
    CHECK_OK(hvd_config_set(config, "gpu_operations", rank == 1 ? "host" : "", &check_status));
}

static void configure_required(hvd_config *config, int rank)
{
    CHECK_OK(hvd_config_set(config, "gpu_operations", rank == 1 ? "host" : "NCCL", &check_status));
}

/* Both kinds of tensors, so that those that were decided for NCCL stay in order with those of the host. */
static void by_host(struct member *member)
{
    int opened = standin_nccl_calls("ncclCommInitRankConfig");
    hvd_handle *handles[2];
    int64_t shape[] = {ELEMENTS};
    float values[ELEMENTS] = {1};
    for (int turn = 0; turn < 5; turn++) {
        hvd_tensor tensor = make_tensor(member->rank, HVD_FLOAT32, shape);
        write_values(member, &tensor, HVD_SUM, device_stream(member->rank));
        hvd_request request = request_of(HVD_ALLREDUCE, "gpu", &tensor);
        request.stream = device_stream(member->rank);
        CHECK_OK(hvd_submit(member->context, &request, &handles[0], &check_status));
        handles[1] = submit_sum(member, "cpu", values, ELEMENTS, 0);
        for (int i = 0; i < 2; i++)
            finish(handles[i]);
        device_release(tensor.data);
        check_sum(member, "sum");
    }
    check_calls(member, "ncclCommInitRankConfig", opened);
}

/* All ranks on one GPU. */
static void one_gpu(struct member *member)
{
    int opened = standin_nccl_calls("ncclCommInitRankConfig");
    CHECK_OK(run_sum(member, "one GPU", 3, 0, &check_status));
    CHECK_OK(run_sum(member, "again", 3, 0, &check_status));
    check_calls(member, "ncclCommInitRankConfig", opened);
}

static void required(struct member *member)
{
    hvd_status status;
    hvd_code code = run_sum(member, "required", member->rank, 0, &status);
    CHECK(code && strstr(status.text, "HOROVOD_GPU_OPERATIONS=nccl, but process set 0 can't use NCCL: rank 1 "
                                      "can't use it: its HOROVOD_GPU_OPERATIONS is host"),
          "%s", status.text);
}

static void another_gpu(struct member *member)
{
    hvd_status status;
    check_sum(member, "first");
    hvd_code code = run_sum(member, "other", member->rank + 2, 0, &status);
    CHECK(code && strstr(status.text, "where NCCL is open"), "%s", status.text);
}

TEST(test_not_used)
{
    group_run(&(struct group_options){.transport = "shm", SETTINGS("gpu_operations", "host")}, 2, by_host,
              NULL);
    group_run(&(struct group_options){.transport = "shm", .configure = configure_host_on_1}, 3, by_host,
              NULL);
    group_run(&(struct group_options){.transport = "shm", SETTINGS("deterministic", "1")}, 2, by_host, NULL);
    group_run(&(struct group_options){.transport = "shm"}, 2, one_gpu, NULL);
    group_run(&(struct group_options){.transport = "shm", .configure = configure_required}, 2, required,
              NULL);
    group_run(&(struct group_options){.transport = "shm"}, 2, another_gpu, NULL);
}

TEST(test_an_unknown_value)
{
    hvd_status status;
    hvd_context *context;
    hvd_config *config = hvd_config_create();
    ASSERT_OK(hvd_config_set(config, "gpu_operations", "MPI", &check_status));
    assert_int_equal(hvd_init(config, &context, &status), HVD_INVALID_ARGUMENT);
    check_text(status.text,
               "HOROVOD_GPU_OPERATIONS=MPI: it is 'nccl', 'host' for the memory of the host, or empty");
    hvd_config_free(config);
}

/* ---- failures ----------------------------------------------------------------------------------------- */

struct failure {
    const char *symbol, *words;
};

static void check_failure(hvd_code code, const hvd_status *status, const char *words)
{
    CHECK(code && strstr(status->text, words) && strstr(status->text, "unhandled system error") &&
              strstr(status->text, "a test has ordered a failure"),
          "%s: %s", hvd_code_name(code), status->text);
}

static void barrier(struct member *member)
{
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_BARRIER};
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
}

/* On one rank; all get the error. */
static void a_failure(struct member *member)
{
    const struct failure *failure = member->argument;
    hvd_status status;
    barrier(member);
    if (member->rank == 0)
        standin_nccl_fail(failure->symbol, 1, NCCL_SYSTEM_ERROR);
    barrier(member);
    hvd_code code = run_sum(member, "fails", member->rank, 0, &status);
    check_failure(code, &status, failure->words);
}

TEST(test_failures)
{
    struct failure failures[] = {
        {"ncclCommInitRankConfig", "ncclCommInitRankConfig failed: "},
        {"ncclCommGetAsyncError", "the set-up of NCCL failed: "},
        {"ncclAllReduce", "allreduce failed: "},
        {"ncclGroupEnd", "allreduce failed: "},
        {"collective", "NCCL failed: "},
    };
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        group_run(&(struct group_options){.transport = "shm"}, 2, a_failure, &failures[i]);
}

/* A collective of another set occupies the GPU of rank 1 when one of the job fails. It is freed with the
 * others, and ends with the error, although its work ends. */
static void another_set(struct member *member)
{
    int32_t ranks[] = {0, 1}, set;
    int64_t shape[] = {ELEMENTS};
    void *streams[] = {device_stream(member->rank), device_side_stream(member->rank)};
    hvd_tensor tensors[2];
    hvd_handle *handles[2];
    hvd_status status;
    CHECK_OK(hvd_process_set_add(member->context, ranks, 2, &set, &check_status));
    CHECK_OK(run_sum(member, "of the set", member->rank, set, &check_status));
    check_sum(member, "before");
    barrier(member);
    int runs = standin_nccl_calls("collective"), aborted = standin_nccl_calls("ncclCommAbort");
    barrier(member);
    if (member->rank == 0)
        device_hold(streams[0]);
    for (int i = 0; i < 2; i++) {
        tensors[i] = make_tensor(member->rank, HVD_FLOAT32, shape);
        hvd_request request = request_of(HVD_ALLREDUCE, "sum", &tensors[i]);
        request.stream = streams[i];
        request.process_set = i ? 0 : set;
        write_values(member, &tensors[i], HVD_SUM, streams[i]);
        CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
        while (i == 0 && standin_nccl_calls("collective") == runs)
            CHECK(hvd_wait(handles[0], 0.001, NULL) == HVD_IN_PROGRESS, "it does not wait");
    }
    barrier(member);
    if (member->rank == 0)
        standin_nccl_fail("ncclCommGetAsyncError", 1, NCCL_SYSTEM_ERROR);
    /* The abort waits for the stream that is held, so this thread must not make progress. */
    while (standin_nccl_calls("ncclCommAbort") == aborted)
        pause_briefly();
    device_go_on(streams[0]);
    for (int i = 0; i < 2; i++) {
        hvd_code code = hvd_wait(handles[i], 60, &status);
        check_failure(code, &status, "NCCL failed: ");
        hvd_release(handles[i]);
        device_release(tensors[i].data);
    }
}

TEST(test_failure_beside_another_set)
{
    group_run(&(struct group_options){.transport = "shm"}, 2, another_set, NULL);
}
