/* group.c - see group.h. */
#include "group.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct thread_arguments {
    struct member member;
    member_fn fn;
    const struct group_options *options;
    pthread_t thread;
    atomic_bool finished;
};

_Noreturn void group_fail(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: check failed: %s\n  ", file, line, condition);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

static void set(hvd_config *config, const char *key, const char *value)
{
    CHECK_OK(hvd_config_set(config, key, value, &check_status));
}

static void set_number(hvd_config *config, const char *key, int value)
{
    char number[16];
    snprintf(number, sizeof number, "%d", value);
    set(config, key, number);
}

hvd_context *join_job(const struct member *member, const char *job, int rank, int size)
{
    hvd_status status;
    hvd_context *context;
    hvd_config *config = hvd_config_create();
    CHECK(config, "out of memory");
    if (member->address) {
        set_number(config, "rank", rank);
        set_number(config, "size", size);
        set(config, "rendezvous", member->address);
        set(config, "secret", "test secret");
    } else {
        set(config, "cpu_operations", "mpi");
    }
    set(config, "job", job);
    set(config, "transport", member->transport);
    set(config, "host_id", member->host ? member->host : "");
    /* A rank that looks at silent peers now and then would hide a missing wake-up. */
    set(config, "stall_warning_seconds", "0");
    set(config, "timeout_seconds", "0");
    /* The test's own deadline reports which ranks hang; a slow machine does not make it fail. */
    set(config, "start_timeout_seconds", "3600");
    const char *const *setting = member->settings;
    for (; setting && setting[0]; setting += 2)
        set(config, setting[0], setting[1]);
    if (member->configure)
        member->configure(config, rank);
    hvd_code code = hvd_init(config, &context, &status);
    CHECK(code == HVD_OK, "rank %d of %s: %s", rank, job, status.text);
    hvd_config_free(config);
    return context;
}

static void *run_member(void *argument)
{
    struct thread_arguments *arguments = argument;
    struct member *member = &arguments->member;
    int lives = arguments->options->lives;
    do {
        member->context = join_job(member, "group", member->rank, member->size);
        arguments->fn(member);
        hvd_shutdown(member->context);
    } while (--lives > 0);
    atomic_store(&arguments->finished, true);
    return NULL;
}

static void join_all(struct thread_arguments *threads, int size, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(seconds > 0 ? seconds : 300);
    for (int rank = 0; rank < size; rank++) {
        if (pthread_timedjoin_np(threads[rank].thread, NULL, &until) == 0)
            continue;
        fprintf(stderr, "deadline of the test is over; unfinished ranks:");
        for (int other = 0; other < size; other++) {
            if (!atomic_load(&threads[other].finished))
                fprintf(stderr, " %d", other);
        }
        fprintf(stderr, " of %d over %s\n", size, threads[0].options->transport);
        abort();
    }
}

/* This process is one rank of a job that mpirun has started, and that is as large as the group. */
static void run_under_mpi(const struct group_options *options, member_fn fn, void *argument)
{
    struct member member = {.transport = options->transport,
                            .settings = options->settings,
                            .configure = options->configure,
                            .argument = argument};
    int lives = options->lives;
    do {
        member.context = join_job(&member, "group", 0, 0);
        hvd_placement placement = hvd_get_placement(member.context);
        member.rank = placement.rank;
        member.size = placement.size;
        fn(&member);
        hvd_shutdown(member.context);
    } while (--lives > 0);
}

void group_run(const struct group_options *options, int size, member_fn fn, void *argument)
{
    const char *processes = getenv("HOROVOD_TEST_MPI");
    if (processes) {
        if (size == atoi(processes))
            run_under_mpi(options, fn, argument);
        return;
    }
    hvd_rendezvous *rendezvous;
    char address[32];
    struct thread_arguments *threads = calloc((size_t)size, sizeof *threads);
    CHECK(threads, "out of memory");
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &rendezvous, &check_status));
    snprintf(address, sizeof address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    for (int rank = 0; rank < size; rank++) {
        threads[rank].member = (struct member){
            .rank = rank,
            .size = size,
            .transport = options->transport,
            .settings = options->settings,
            .configure = options->configure,
            .host = options->hosts ? options->hosts[rank] : NULL,
            .address = address,
            .argument = argument,
        };
        threads[rank].fn = fn;
        threads[rank].options = options;
        CHECK(pthread_create(&threads[rank].thread, NULL, run_member, &threads[rank]) == 0, "no thread");
    }
    join_all(threads, size, options->seconds);
    hvd_rendezvous_stop(rendezvous);
    free(threads);
}

/* Anew for each test and transport. */
static int draw_size(int smallest, int largest)
{
    static uint64_t draws;
    uint64_t state = test_seed() + draws++;
    return smallest + (int)random_below(&state, largest - smallest + 1);
}

#ifdef HVD_OPERATIONS_ON_CUDA
enum { SOME = true, ONCE = true };
#elif defined(HVD_ON_DEVICE)
enum { SOME = false, ONCE = SANITIZED };
#else
enum { SOME = false, ONCE = false };
#endif

void group_run_sizes(const struct group_options *options, int smallest, int largest, member_fn fn)
{
    static const char *const transports[] = {
#define TRANSPORT(name) #name,
#include "transport/transports.def"
#undef TRANSPORT
        NULL};
    const char *const named[] = {options->transport, NULL};
    struct group_options over = *options;
    bool all_sizes = getenv("HOROVOD_TEST_SIZES");
    if (SOME && !test_full() && draw_size(0, 2))
        skip();
    if (ONCE && !test_full() && (SOME || !all_sizes)) {
        int least = !SOME && smallest == 1 && largest > 1 ? 2 : smallest;
        if (!options->transport)
            over.transport = transports[draw_size(0, (int)(sizeof transports / sizeof *transports) - 2)];
        group_run(&over, draw_size(least, largest), fn, NULL);
        return;
    }
    int every = all_sizes ? largest : SANITIZED ? 1 : 5;
    for (const char *const *transport = named[0] ? named : transports; *transport; transport++) {
        over.transport = *transport;
        int size = smallest;
        for (; size <= every && size <= largest; size++)
            group_run(&over, size, fn, NULL);
        if (size <= largest)
            group_run(&over, draw_size(size, largest), fn, NULL);
    }
}

hvd_tensor tensor_of(void *data, hvd_dtype dtype, const int64_t *shape, int ndim)
{
    return (hvd_tensor){.data = data, .shape = shape, .ndim = ndim, .dtype = dtype, .device_type = HVD_CPU};
}

hvd_request request_of(hvd_operation operation, const char *name, const hvd_tensor *tensor)
{
    return (hvd_request){.struct_size = sizeof(hvd_request),
                         .operation = operation,
                         .name = name,
                         .count = tensor ? 1 : 0,
                         .inputs = tensor,
                         .reduction = HVD_SUM};
}

hvd_handle *submit_sum(struct member *member, const char *name, float *data, int64_t elements, int set)
{
    hvd_handle *handle;
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &elements, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.process_set = set;
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    return handle;
}

void finish(hvd_handle *handle)
{
    CHECK_OK(hvd_wait(handle, 60, &check_status));
    hvd_release(handle);
}

int sum_of(const struct member *member)
{
    return member->size * (member->size + 1) / 2;
}

void check_allreduce_works(struct member *member, const char *name)
{
    float value = (float)(member->rank + 1);
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(value == (float)sum_of(member), "rank %d: %s gave %g, not %d", member->rank, name, value,
          sum_of(member));
}

uint64_t test_seed(void)
{
    const char *seed = getenv("HOROVOD_TEST_SEED");
    return seed ? strtoull(seed, NULL, 10) : 1;
}

bool test_full(void)
{
    return getenv("HOROVOD_TEST_FULL");
}
