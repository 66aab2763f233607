/* test_native.c - the entry for native code, and the handler of XLA with a stand-in for XLA: many threads
 * call it while the lives of the job end. A process has one entry, so rank 0 of each job uses it. */
#include "group.h"

#include "native/dtype.h"
#include "native/entry.h"
#include "native/xla.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- a stand-in for XLA ------------------------------------------------------------------------------- */

struct xla_error {
    int code;
    char text[HVD_STATUS_TEXT];
};
struct xla_future {
    atomic_int state; /* 1: available, 2: failed */
    struct xla_error *error;
};

static struct xla_error *error_create(struct xla_error_args *args)
{
    struct xla_error *error = calloc(1, sizeof *error);
    error->code = args->code;
    strncpy(error->text, args->message, sizeof error->text - 1);
    return error;
}

static struct xla_error *future_create(struct xla_future_args *args)
{
    CHECK(args->head.struct_size == XLA_FUTURE_CREATE_SIZE, "%zu bytes", args->head.struct_size);
    args->future = calloc(1, sizeof *args->future);
    return NULL;
}

static struct xla_error *future_set_available(struct xla_future_args *args)
{
    atomic_store(&args->future->state, 1);
    return NULL;
}

static struct xla_error *future_set_error(struct xla_future_error_args *args)
{
    args->future->error = args->error;
    atomic_store(&args->future->state, 2);
    return NULL;
}

static const struct xla_api api = {.head.struct_size = sizeof api,
                                   .version = {.major = 0, .minor = 3},
                                   .error_create = error_create,
                                   .future_create = future_create,
                                   .future_set_available = future_set_available,
                                   .future_set_error = future_set_error};

enum { XLA_S32 = 4, XLA_F32 = 11 }; /* types of tensors */
enum { ATTRIBUTES = 10, ARRAYS_MOST = 4 };

/* One call: its operation, and arrays of one dimension. */
struct trial {
    const char *name;
    int64_t operation, reduction, root, set, grouped, generated, step;
    double prescale, postscale;
    int count;
    struct {
        int type;
        int64_t rows, result_rows;
        void *input, *output;
    } arrays[ARRAYS_MOST];
};

struct outcome {
    int code; /* absl's; 0: it went well */
    char text[HVD_STATUS_TEXT];
};

static void take_error(struct outcome *outcome, struct xla_error *error)
{
    outcome->code = error->code;
    memcpy(outcome->text, error->text, sizeof outcome->text);
    free(error);
}

static void await(struct xla_future *future, struct outcome *outcome)
{
    for (int i = 0; !atomic_load(&future->state); i++) {
        CHECK(i < 300000, "the future is not completed after a minute or more");
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    if (future->error)
        take_error(outcome, future->error);
    free(future);
}

static struct outcome call_handler(const struct trial *trial, const struct xla_api *runtime)
{
    enum { NAME = 2 };
    static const char *const names[ATTRIBUTES] = {"generated", "grouped",  "name",        "operation",
                                                  "postscale", "prescale", "process_set", "reduction",
                                                  "root",      "step"};
    const void *values[ATTRIBUTES] = {&trial->generated, &trial->grouped,  trial->name, &trial->operation,
                                      &trial->postscale, &trial->prescale, &trial->set, &trial->reduction,
                                      &trial->root,      &trial->step};
    struct xla_text texts[ATTRIBUTES], name = {trial->name, strlen(trial->name)}, *text_list[ATTRIBUTES];
    struct xla_scalar scalars[ATTRIBUTES];
    void *list[ATTRIBUTES];
    int kinds[ATTRIBUTES];
    for (int i = 0; i < ATTRIBUTES; i++) {
        texts[i] = (struct xla_text){names[i], strlen(names[i])};
        text_list[i] = &texts[i];
        scalars[i] = (struct xla_scalar){strstr(names[i], "scale") ? XLA_F64 : XLA_S64, (void *)values[i]};
        kinds[i] = i == NAME ? XLA_STRING : XLA_SCALAR;
        list[i] = i == NAME ? (void *)&name : (void *)&scalars[i];
    }
    struct xla_buffer inputs[ARRAYS_MOST], outputs[ARRAYS_MOST], *in[ARRAYS_MOST], *out[ARRAYS_MOST];
    int64_t rows[ARRAYS_MOST], result_rows[ARRAYS_MOST];
    for (int i = 0; i < trial->count; i++) {
        rows[i] = trial->arrays[i].rows;
        result_rows[i] = trial->arrays[i].result_rows;
        inputs[i] = (struct xla_buffer){
            .type = trial->arrays[i].type, .data = trial->arrays[i].input, .rank = 1, .dims = &rows[i]};
        outputs[i] = (struct xla_buffer){.type = trial->arrays[i].type,
                                         .data = trial->arrays[i].output,
                                         .rank = 1,
                                         .dims = &result_rows[i]};
        in[i] = &inputs[i];
        out[i] = &outputs[i];
    }
    struct xla_frame frame = {
        .api = runtime,
        .stage = XLA_EXECUTE,
        .inputs = {.count = trial->count, .buffers = in},
        .outputs = {.count = trial->count, .buffers = out},
        .attributes = {.count = ATTRIBUTES, .kinds = kinds, .names = text_list, .values = list}};
    struct outcome outcome = {0};
    struct xla_error *error = xla_handler(&frame);
    CHECK(!error || !frame.future, "an error and a future");
    if (error)
        take_error(&outcome, error);
    else
        await(frame.future, &outcome);
    return outcome;
}

static struct trial sum_of_floats(const char *name, float *input, float *output, int64_t elements)
{
    return (struct trial){.name = name,
                          .operation = HVD_ALLREDUCE,
                          .reduction = HVD_SUM,
                          .prescale = 1,
                          .postscale = 1,
                          .count = 1,
                          .arrays = {{XLA_F32, elements, elements, input, output}}};
}

/* ---- the handler -------------------------------------------------------------------------------------- */

TEST(test_answers_the_version_of_the_runtime)
{
    const int minors[] = {3, 1};
    const struct xla_api *runtimes[] = {&api, NULL};
    for (int i = 0; i < 2; i++) {
        struct xla_metadata metadata = {.traits = 7};
        struct xla_metadata_extension extension = {.extension = {.kind = XLA_METADATA_EXTENSION},
                                                   .metadata = &metadata};
        struct xla_frame frame = {.head.extensions = &extension.extension, .api = runtimes[i]};
        assert_null(xla_handler(&frame));
        assert_int_equal(metadata.version.minor, minors[i]);
        assert_int_equal(metadata.traits, 0);
    }
}

TEST(test_without_a_context)
{
    float one = 1, sum = 0;
    struct trial trial = sum_of_floats("x", &one, &sum, 1);
    struct outcome outcome = call_handler(&trial, &api);
    assert_int_equal(outcome.code, 3);
    check_text(outcome.text, "use hvd.init().");
}

TEST(test_refuses_a_runtime_without_futures)
{
    struct xla_api old = api;
    old.head.struct_size = 168;
    float one = 1, sum = 0;
    struct trial trial = sum_of_floats("x", &one, &sum, 1);
    struct outcome outcome = call_handler(&trial, &old);
    assert_int_equal(outcome.code, 12);
    check_text(outcome.text, "too old");
}

/* Rank 0 uses the handler, the others the engine: both meet. */
static void reduce_types_together(struct member *member)
{
    float floats[] = {1, 2, 3}, sums[3];
    int64_t integers[] = {10, 20}, totals[2];
    if (member->rank == 0) {
        entry_open(member->context);
        struct trial trial = sum_of_floats("mixed", floats, sums, 3);
        trial.grouped = 1;
        trial.count = 2;
        trial.arrays[1] = trial.arrays[0];
        trial.arrays[0].type = XLA_S64;
        trial.arrays[0].rows = trial.arrays[0].result_rows = 2;
        trial.arrays[0].input = integers;
        trial.arrays[0].output = totals;
        struct outcome outcome = call_handler(&trial, &api);
        CHECK(!outcome.code, "%s", outcome.text);
        CHECK(sums[2] == 3.0F * (float)member->size && totals[1] == 20 * member->size, "of %d ranks",
              member->size);
        CHECK(floats[2] == 3 && integers[1] == 20, "inputs have changed");
        entry_close();
    } else {
        int64_t lengths[] = {2, 3};
        hvd_tensor tensors[] = {tensor_of(integers, HVD_INT64, &lengths[0], 1),
                                tensor_of(floats, HVD_FLOAT32, &lengths[1], 1)};
        hvd_request request = request_of(HVD_ALLREDUCE, "mixed", tensors);
        request.reduction = HVD_SUM;
        request.count = 2;
        request.grouped = 1;
        request.outputs = tensors;
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    }
}
GROUP_TEST(test_types_together, reduce_types_together, 1, 3, .transport = "shm")

static void gather_rows(struct member *member)
{
    int32_t own = member->rank + 1, all[MOST_RANKS];
    int64_t rows = 1;
    if (member->rank == 0) {
        entry_open(member->context);
        for (int round = 0; round < 2; round++) { /* the second expects a row too many */
            struct trial trial = {.name = "rows",
                                  .operation = HVD_ALLGATHER,
                                  .count = 1,
                                  .arrays = {{XLA_S32, 1, member->size + round, &own, all}}};
            struct outcome outcome = call_handler(&trial, &api);
            CHECK(outcome.code == (round ? 9 : 0), "%s", outcome.text);
            for (int rank = 0; !round && rank < member->size; rank++)
                CHECK(all[rank] == rank + 1, "rank %d", rank);
        }
        entry_close();
        return;
    }
    for (int round = 0; round < 2; round++) {
        hvd_tensor tensor = tensor_of(&own, HVD_INT32, &rows, 1), result;
        hvd_request request = request_of(HVD_ALLGATHER, "rows", &tensor);
        CHECK_OK(hvd_run(member->context, &request, &result, &check_status));
        hvd_free(result.data);
    }
}
GROUP_TEST(test_gathers, gather_rows, 1, 3, .transport = "shm")

static void pass_a_barrier(struct member *member)
{
    float data[] = {5, 6};
    if (member->rank == 0) {
        entry_open(member->context);
        struct trial trial = sum_of_floats("here", data, data, 2);
        trial.operation = HVD_BARRIER;
        struct outcome outcome = call_handler(&trial, &api);
        CHECK(!outcome.code && data[1] == 6, "%s", outcome.text);
        entry_close();
    } else {
        hvd_request request = {.struct_size = sizeof request, .operation = HVD_BARRIER, .name = "here"};
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    }
}
GROUP_TEST(test_barrier, pass_a_barrier, 1, 3, .transport = "shm")

static void disagree(struct member *member)
{
    float data[] = {1, 2, 3}, sums[3];
    if (member->rank == 0) {
        entry_open(member->context);
        struct trial trial = sum_of_floats("shape", data, sums, 3);
        struct outcome outcome = call_handler(&trial, &api);
        CHECK(outcome.code == 9 && strstr(outcome.text, "shape"), "%d: %s", outcome.code, outcome.text);
        entry_close();
    } else {
        int64_t rows = 2;
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &rows, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "shape", &tensor);
        request.reduction = HVD_SUM;
        CHECK(hvd_run(member->context, &request, NULL, NULL) == HVD_MISMATCH, "no mismatch");
    }
    check_allreduce_works(member, "after");
}
GROUP_TEST(test_mismatch_is_a_failed_precondition, disagree, 2, 2, .transport = "shm")

/* ---- the entry ---------------------------------------------------------------------------------------- */

enum { THREADS = 3 };

struct shared {
    atomic_bool stop;
    atomic_int calls, refused;
};

struct submitter {
    struct shared *shared;
    int number;
};

static void *submit_until_stopped(void *argument)
{
    const struct submitter *submitter = argument;
    char name[] = "0";
    name[0] = (char)('0' + submitter->number);
    while (!atomic_load(&submitter->shared->stop)) {
        float one = 1, sum = 0;
        struct trial trial = sum_of_floats(name, &one, &sum, 1);
        struct outcome outcome = call_handler(&trial, &api);
        CHECK(outcome.code == 0 || outcome.code == 3 || outcome.code == 10, "%d: %s", outcome.code,
              outcome.text);
        CHECK(outcome.code || sum == 1, "%g", (double)sum);
        atomic_fetch_add(outcome.code ? &submitter->shared->refused : &submitter->shared->calls, 1);
    }
    return NULL;
}

/* Kernels run while contexts are created and closed; none uses a context that has been freed. */
TEST(test_lives_beside_threads_that_submit)
{
    struct shared shared = {0};
    struct submitter submitters[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){&shared, i};
        assert_int_equal(pthread_create(&threads[i], NULL, submit_until_stopped, &submitters[i]), 0);
    }
    const char *text = getenv("HOROVOD_TEST_LIVES");
    int lives = text ? atoi(text) : 30;
    for (int life = 0; life < lives; life++) {
        hvd_context *context;
        ASSERT_OK(hvd_init(NULL, &context, &check_status));
        int before = atomic_load(&shared.calls);
        entry_open(context);
        for (int i = 0; atomic_load(&shared.calls) < before + 5; i++) {
            assert_true(i < 300000); /* a minute or more */
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        }
        entry_close();
        hvd_shutdown(context);
    }
    atomic_store(&shared.stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void *close_entry(void *argument)
{
    entry_close();
    atomic_store((atomic_bool *)argument, true);
    return NULL;
}

TEST(test_close_waits_for_holders)
{
    hvd_context *context;
    hvd_status status;
    atomic_bool closed = false;
    pthread_t thread;
    ASSERT_OK(hvd_init(NULL, &context, &check_status));
    entry_open(context);
    assert_ptr_equal(entry_acquire(&status), context);
    assert_ptr_equal(entry_acquire(&status), context);
    assert_int_equal(pthread_create(&thread, NULL, close_entry, &closed), 0);
    for (int i = 0; entry_acquire(&status); i++) { /* until it has begun */
        entry_release();
        assert_true(i < 300000);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    entry_release();
    assert_false(atomic_load(&closed));
    entry_release();
    pthread_join(thread, NULL);
    assert_true(atomic_load(&closed));
    hvd_shutdown(context);
}

TEST(test_a_callback_does_not_wait)
{
    assert_true(entry_may_help());
    entry_callback_begin();
    assert_false(entry_may_help());
    entry_help(NULL);
    entry_callback_end();
    assert_true(entry_may_help());
}

TEST(test_types_by_the_numbers_of_frameworks)
{
#define DTYPE(name, text, storage, compute, family, format, letters, dlpack, xla, tensorflow, mxnet)         \
    assert_true(xla < 0 || dtype_of(FRAMEWORK_XLA, xla) == HVD_##name);                                      \
    assert_true(tensorflow < 0 || dtype_of(FRAMEWORK_TENSORFLOW, tensorflow) == HVD_##name);                 \
    assert_true(mxnet < 0 || dtype_of(FRAMEWORK_MXNET, mxnet) == HVD_##name);
#include "base/dtypes.def"
#undef DTYPE
    for (enum framework i = 0; i < FRAMEWORKS; i++) {
        assert_int_equal(hvd_dtype_size(dtype_of(i, -1)), 0);
        assert_int_equal(hvd_dtype_size(dtype_of(i, 1000)), 0);
    }
}
