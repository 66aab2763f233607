/* test_mxnet.c - collectives on the engine of MXNet, with a stand-in for MXNet: it runs every operation in a
 * thread of its own, and deletes it as soon as its end is announced. Rank 0 of each job goes through it. */
#include "group.h"

#include "native/entry.h"
#include "native/mxnet.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- a stand-in for MXNet, whose functions mxnet_open finds in this program ---------------------------- */

enum { FLOAT32 = 0, INT64 = 6 }; /* its types */

struct chunk {
    atomic_int handles;
    bool broken; /* its memory can't be had */
};
struct array {
    struct chunk *chunk; /* first, as in MXNet */
    int type;
    int64_t rows;
    void *data;
};

struct runtime_error {
    const char *text, *unused;
};

/* Of the operation that was pushed last. */
static struct pushed {
    void (*run)(void *resources, void *on_complete, void *argument);
    void *argument;
    void (*free_argument)(void *);
    int written, priority;
    char name[32], error[HVD_STATUS_TEXT];
    atomic_bool over;
} pushed;

struct on_complete {
    void (*callback)(void *engine, void *argument, const struct runtime_error *error);
    void *engine, *argument;
};

static void complete(void *engine, void *argument, const struct runtime_error *error)
{
    struct pushed *operation = argument;
    CHECK(engine == &pushed, "another engine");
    if (error)
        strncpy(operation->error, error->text, sizeof operation->error - 1);
    operation->free_argument(operation->argument);
    atomic_store(&operation->over, true);
}

static void *run_pushed(void *argument)
{
    struct pushed *operation = argument;
    struct on_complete on_complete = {complete, &pushed, operation};
    operation->run(NULL, &on_complete, operation->argument);
    memset(&on_complete, 0xff, sizeof on_complete); /* it was there to be copied */
    return NULL;
}

#define AS(symbol) __asm__(symbol) __attribute__((used, visibility("default")))

int engine_push(void (*run)(void *, void *, void *), void *argument, void (*free_argument)(void *),
                const int *device, void **read, int read_count, void **written, int written_count,
                const int *property, int priority, const char *name, bool waits) AS("MXEnginePushAsyncND");
int engine_push(void (*run)(void *, void *, void *), void *argument, void (*free_argument)(void *),
                const int *device, void **read, int read_count, void **written, int written_count,
                const int *property, int priority, const char *name, bool waits)
{
    CHECK(device[0] == 1 && !read && !read_count && *property == 3 && !waits, "a wrong device or property");
    CHECK(written_count && written[0], "nothing is written");
    pushed = (struct pushed){.run = run,
                             .argument = argument,
                             .free_argument = free_argument,
                             .written = written_count,
                             .priority = priority};
    strncpy(pushed.name, name, sizeof pushed.name - 1);
    return 0;
}

int array_shape(struct array *array, int *ndim, const int64_t **extents) AS("MXNDArrayGetShapeEx64");
int array_shape(struct array *array, int *ndim, const int64_t **extents)
{
    *ndim = 1;
    *extents = &array->rows;
    return 0;
}

int array_type(struct array *array, int *type) AS("MXNDArrayGetDType");
int array_type(struct array *array, int *type)
{
    *type = array->type;
    return 0;
}

int array_data(struct array *array, void **data) AS("MXNDArrayGetData");
int array_data(struct array *array, void **data)
{
    *data = array->data;
    return array->chunk->broken ? -1 : 0;
}

int array_share(struct array *array, struct array **copy) AS("MXNDArrayDetach");
int array_share(struct array *array, struct array **copy)
{
    *copy = malloc(sizeof **copy);
    **copy = *array;
    atomic_fetch_add(&array->chunk->handles, 1);
    return 0;
}

int array_free(struct array *array) AS("MXNDArrayFree");
int array_free(struct array *array)
{
    atomic_fetch_sub(&array->chunk->handles, 1);
    free(array);
    return 0;
}

const char *last_error(void) AS("MXGetLastError");
const char *last_error(void)
{
    return "no memory";
}

void error_create(struct runtime_error *error, const char *text) AS("_ZNSt13runtime_errorC1EPKc");
void error_create(struct runtime_error *error, const char *text)
{
    error->text = strdup(text);
}

void error_destroy(struct runtime_error *error) AS("_ZNSt13runtime_errorD1Ev");
void error_destroy(struct runtime_error *error)
{
    free((void *)error->text);
}

/* ---- calls ----------------------------------------------------------------------------------------------
 */

static struct mxnet_call call_of(const char *name, void **inputs, void **outputs, int32_t count)
{
    return (struct mxnet_call){.operation = HVD_ALLREDUCE,
                               .reduction = HVD_SUM,
                               .priority = -2,
                               .prescale = 1,
                               .postscale = 1,
                               .name = name,
                               .count = count,
                               .grouped = count > 1,
                               .inputs = inputs,
                               .outputs = outputs};
}

/* Pushes the operation; runs it in another thread as MXNet does, and waits for its end. */
static const char *push_and_wait(const struct mxnet_call *call)
{
    pthread_t thread;
    CHECK(!mxnet_push(call), "not pushed");
    CHECK(!pthread_create(&thread, NULL, run_pushed, &pushed), "no thread");
    for (int i = 0; !atomic_load(&pushed.over); i++) {
        CHECK(i < 300000, "the operation is not over after a minute or more");
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    pthread_join(thread, NULL);
    return pushed.error;
}

/* Returns true if the call's error contains the words; "": if there is none. */
static bool ends_with(const struct mxnet_call *call, const char *words)
{
    const char *error = push_and_wait(call);
    return *words ? strstr(error, words) != NULL : !*error;
}

static void find_mxnet(void)
{
    void *program = dlopen(NULL, RTLD_NOW);
    CHECK_OK(mxnet_open(program, &check_status));
    dlclose(program);
}

TEST(test_a_library_that_is_not_mxnet)
{
    void *library = dlopen("libm.so.6", RTLD_NOW);
    hvd_status status;
    assert_non_null(library);
    assert_int_equal(mxnet_open(library, &status), HVD_UNSUPPORTED);
    check_text(status.text, "has no function MXEnginePushAsyncND; horovod.mxnet needs MXNet 1.9.1");
    dlclose(library);
}

TEST(test_without_a_context_and_skipped)
{
    struct chunk chunk = {0};
    float data[] = {1, 2};
    struct array array = {&chunk, FLOAT32, 2, data};
    void *arrays[] = {&array};
    struct mxnet_call call = call_of("x", arrays, NULL, 1);
    find_mxnet();
    check_text(push_and_wait(&call), "use hvd.init().");
    assert_int_equal(mxnet_push(&call), 0);
    assert_int_equal(atomic_load(&chunk.handles), 1);
    pushed.free_argument(pushed.argument); /* what should have made its input has failed */
    assert_int_equal(atomic_load(&chunk.handles), 0);
    chunk.broken = true;
    check_text(push_and_wait(&call), "MXNet: no memory");
    assert_int_equal(atomic_load(&chunk.handles), 0);
}

/* A group of views of one array, in place; then an array of another type, which stays as it is. */
static void reduce(struct member *member)
{
    float floats[] = {1, 2, 3, 4};
    int64_t integers[] = {10, 20}, totals[2];
    if (member->rank == 0) {
        struct chunk chunks[3] = {0};
        struct array first = {&chunks[0], FLOAT32, 2, floats}, second = {&chunks[0], FLOAT32, 2, floats + 2};
        struct array number = {&chunks[1], INT64, 2, integers}, total = {&chunks[2], INT64, 2, totals};
        void *views[] = {&first, &second}, *given[] = {&number}, *made[] = {&total};
        entry_open(member->context);
        find_mxnet();
        struct mxnet_call call = call_of("views", views, NULL, 2);
        CHECK(ends_with(&call, ""), "%s", pushed.error);
        CHECK(pushed.written == 1 && pushed.priority == -2 && !strcmp(pushed.name, "allreduce"),
              "%d arrays, priority %d, name %s", pushed.written, pushed.priority, pushed.name);
        CHECK(floats[0] == (float)member->size && floats[3] == 4 * (float)member->size, "a wrong sum");
        call = call_of("numbers", given, made, 1);
        CHECK(ends_with(&call, ""), "%s", pushed.error);
        CHECK(totals[1] == 20 * member->size && integers[1] == 20, "a wrong sum, or the input has changed");
        for (int i = 0; i < 3; i++)
            CHECK(!atomic_load(&chunks[i].handles), "array %d is still held", i);
        entry_close();
        return;
    }
    int64_t rows = 2;
    hvd_tensor views[] = {tensor_of(floats, HVD_FLOAT32, &rows, 1),
                          tensor_of(floats + 2, HVD_FLOAT32, &rows, 1)};
    hvd_request request = request_of(HVD_ALLREDUCE, "views", views);
    request.reduction = HVD_SUM;
    request.priority = -2;
    request.count = 2;
    request.grouped = 1;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    hvd_tensor number = tensor_of(integers, HVD_INT64, &rows, 1);
    request = request_of(HVD_ALLREDUCE, "numbers", &number);
    request.reduction = HVD_SUM;
    request.priority = -2;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
}
GROUP_TEST(test_sums, reduce, 1, 3, .transport = "shm")

static void disagree(struct member *member)
{
    float data[] = {1, 2, 3};
    if (member->rank == 0) {
        struct chunk chunk = {0};
        struct array array = {&chunk, FLOAT32, 3, data};
        void *arrays[] = {&array};
        struct mxnet_call call = call_of("shape", arrays, NULL, 1);
        entry_open(member->context);
        find_mxnet();
        CHECK(ends_with(&call, "the ranks disagree on the shape of tensor 0"), "%s", pushed.error);
        CHECK(!atomic_load(&chunk.handles), "the array is still held");
        entry_close();
    } else {
        int64_t rows = 2;
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &rows, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "shape", &tensor);
        request.reduction = HVD_SUM;
        request.priority = -2;
        CHECK(hvd_run(member->context, &request, NULL, NULL) == HVD_MISMATCH, "no mismatch");
    }
    check_allreduce_works(member, "after");
}
GROUP_TEST(test_mismatch_is_an_error_of_the_operation, disagree, 2, 2, .transport = "shm")
