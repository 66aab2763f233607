/* test_kernels.c - the kernels of the engine, by the interpreter of PTX and compiled for the processor: all
 * bits are equal. What packs tensors by them: which copies and launches it makes, and their order.
 * HOROVOD_TEST_PTX names a file with other PTX of the same kernels. */
#include "device/cuda_copy.h"
#include "device/cuda_kernels.h"
#include "device/cuda_kernels_ptx.h"
#include "device/cuda_pack.h"
#include "device/memory.h"
#include "device/pinned.h"
#include "random.h"
#include "standin/gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static unsigned cpu_thread, cpu_threads, cpu_block;
#define KERNELS_ON_CPU
#define KERNEL   static
#define FUNCTION static inline
#define THREAD   cpu_thread
#define THREADS  cpu_threads
#define BLOCK    cpu_block
#include "device/cuda_kernels.cu"

enum { REFUSES = 1, WITHOUT_MEMORY, DEVICES };

static uint64_t seed = 1;

__attribute__((constructor)) static void configure(void)
{
    const char *given = getenv("HOROVOD_TEST_SEED");
    setenv("STANDIN_DEVICES", "3", true);
    setenv("STANDIN_DELAY_US", "20", true);
    if (given)
        seed = strtoull(given, NULL, 10);
}

static int use_first(void **state)
{
    (void)state;
    gpu_use(0);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = use_first};

static void *address_at(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static void fill_randomly(char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t number = random_next(&seed);
        memcpy(data + i, &number, bytes - i < sizeof number ? bytes - i : sizeof number);
    }
}

/* ---- memory that is on the device and on the host ----------------------------------------------------- */

struct twin {
    CUdeviceptr device;
    char *host;
    size_t bytes;
};

static struct twin make_twin(size_t bytes)
{
    struct twin twin = {gpu_allocate(bytes), gpu_pinned(bytes), bytes};
    assert_int_equal(((uintptr_t)twin.host | twin.device) % 64, 0);
    fill_randomly(twin.host, bytes);
    gpu_put(twin.device, twin.host, bytes, NULL);
    MUST(cuStreamSynchronize(NULL));
    return twin;
}

static void check_twin(const struct twin *twin, const char *what)
{
    char *back = gpu_pinned(twin->bytes);
    size_t at = 0;
    gpu_get(back, twin->device, twin->bytes, NULL);
    if (memcmp(back, twin->host, twin->bytes) != 0) {
        while (back[at] == twin->host[at])
            at++;
        fail_msg("%s: byte %zu of %zu differs", what, at, twin->bytes);
    }
    MUST(cuMemFreeHost(back));
}

static void drop_twin(struct twin *twin)
{
    MUST(cuMemFree_v2(twin->device));
    MUST(cuMemFreeHost(twin->host));
}

/* ---- the kernel --------------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    assert_non_null(file);
    assert_non_null(text);
    assert_in_range(fread(text, 1, (1 << 20) - 1, file), 1, (1 << 20) - 2);
    fclose(file);
    return text;
}

static CUfunction load_kernel(CUmodule *module)
{
    const char *path = getenv("HOROVOD_TEST_PTX");
    char *text = path ? read_file(path) : NULL;
    CUfunction function;
    MUST(cuModuleLoadData(module, text ? text : cuda_kernels_ptx));
    MUST(cuModuleGetFunction(&function, *module, "move_pieces"));
    free(text);
    return function;
}

/* Sizes around those of lanes and blocks, at every alignment; the pieces and what is between them lie in the
 * order of the table. Returns the number of blocks. */
static unsigned make_table(struct pack_table *table, int count, struct twin *tensors, struct twin *buffer)
{
    static const unsigned sizes[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 100, 255, 256, 600, 4096};
    const unsigned large[] = {PACK_BLOCK_BYTES - 1, PACK_BLOCK_BYTES, PACK_BLOCK_BYTES + 1,
                              2 * PACK_BLOCK_BYTES + 77};
    size_t data = 0, offset = 0;
    unsigned blocks = 0;
    for (int i = 0; i < count; i++) {
        unsigned bytes = i < 3 ? large[random_below(&seed, 4)] : sizes[random_below(&seed, 16)];
        unsigned step = 1U << random_below(&seed, 5); /* both ends are aligned to it */
        data = (data + (size_t)random_below(&seed, 40) + step - 1) / step * step;
        offset = (offset + (size_t)random_below(&seed, 40) + step - 1) / step * step;
        table->data[i] = (char *)data;
        table->offset[i] = (unsigned)offset;
        table->bytes[i] = bytes;
        table->first_block[i] = blocks;
        blocks += (bytes - 1) / PACK_BLOCK_BYTES + 1;
        data += bytes;
        offset += bytes;
    }
    table->count = (unsigned)count;
    *tensors = make_twin(data + 64);
    *buffer = make_twin(offset + 64);
    return blocks;
}

static void run_on_cpu(const struct pack_table *table, unsigned blocks, unsigned threads)
{
    cpu_threads = threads;
    for (cpu_block = 0; cpu_block < blocks; cpu_block++)
        for (cpu_thread = 0; cpu_thread < threads; cpu_thread++)
            move_pieces(*table);
}

static void run_table(CUfunction function, int count, unsigned threads, bool unpacks)
{
    static struct pack_table table, on_cpu;
    struct twin tensors, buffer;
    unsigned blocks = make_table(&table, count, &tensors, &buffer);
    table.unpacks = unpacks;
    on_cpu = table;
    for (int i = 0; i < count; i++) {
        table.data[i] = address_at(tensors.device + (uintptr_t)table.data[i]);
        on_cpu.data[i] = tensors.host + (uintptr_t)on_cpu.data[i];
    }
    table.buffer = address_at(buffer.device);
    on_cpu.buffer = buffer.host;
    void *parameters[] = {&table};
    MUST(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL));
    run_on_cpu(&on_cpu, blocks, threads);
    check_twin(&tensors, "tensors");
    check_twin(&buffer, "the buffer");
    drop_twin(&tensors);
    drop_twin(&buffer);
}

TEST(test_bits_are_those_of_the_processor)
{
    static const int counts[] = {1, 2, 3, 17, PACK_PIECES};
    CUmodule module;
    CUfunction function = load_kernel(&module);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        run_table(function, counts[i], 32U << random_below(&seed, 4), false);
        run_table(function, counts[i], 32U << random_below(&seed, 4), true);
    }
    MUST(cuModuleUnload(module));
}

/* ---- batches ------------------------------------------------------------------------------------------ */

enum { MOST_TENSORS = 700 };

/* Tensors, all somewhere in one allocation, and their places in host memory. */
struct batch {
    struct twin tensors; /* its host half is what they hold */
    char *staging;
    size_t staging_bytes;
    size_t places[MOST_TENSORS]; /* of tensors */
    struct memory_copy out[MOST_TENSORS], in[MOST_TENSORS];
    int count;
};

/* Tensors are aligned as far as all sizes are. `gap` is the chance, in percent, that a tensor does not follow
 * its neighbour in host memory. */
static void make_batch(struct batch *batch, const size_t *sizes, int count, int gap)
{
    size_t bytes = 64, host = 0, all = 64;
    size_t starts[MOST_TENSORS];
    for (int i = 0; i < count; i++)
        all |= sizes[i];
    for (int i = 0; i < count; i++) {
        bytes += (size_t)random_below(&seed, 50) * (all & -all);
        batch->places[i] = bytes;
        bytes += sizes[i];
        host += random_chance(&seed, gap) ? 1 + (size_t)random_below(&seed, 50) : 0;
        starts[i] = host;
        host += sizes[i];
    }
    batch->count = count;
    batch->tensors = make_twin(bytes + 64);
    batch->staging_bytes = host + 64;
    batch->staging = pinned_allocate(0, batch->staging_bytes);
    assert_non_null(batch->staging);
    for (int i = 0; i < count; i++) {
        void *tensor = address_at(batch->tensors.device + batch->places[i]), *at = batch->staging + starts[i];
        batch->out[i] = (struct memory_copy){at, tensor, sizes[i]};
        batch->in[i] = (struct memory_copy){tensor, at, sizes[i]};
    }
}

static void drop_batch(struct batch *batch)
{
    pinned_release(batch->staging);
    drop_twin(&batch->tensors);
}

static void copy_and_wait(const struct memory_copy *copies, int count)
{
    struct memory_event *copied;
    ASSERT_OK(memory_cuda.copy(copies, count, &copied, &check_status));
    memory_cuda.event_release(copied);
}

static void check_staging(const struct batch *batch)
{
    for (int i = 0; i < batch->count; i++)
        if (memcmp(batch->out[i].to, batch->tensors.host + batch->places[i], batch->out[i].length) != 0)
            fail_msg("tensor %d of %d, %zu bytes, is wrong on the host", i, batch->count,
                     batch->out[i].length);
}

/* Changes the values in staging memory and in the host half of the tensors. */
static void change_staging(struct batch *batch)
{
    fill_randomly(batch->staging, batch->staging_bytes);
    for (int i = 0; i < batch->count; i++)
        memcpy(batch->tensors.host + batch->places[i], batch->in[i].from, batch->in[i].length);
}

static void check_one_way(const struct memory_copy *copies, int count, int launches, int transfers)
{
    int launched = standin_calls("cuLaunchKernel"), copied = standin_calls("cuMemcpyAsync");
    copy_and_wait(copies, count);
    assert_int_equal(standin_calls("cuLaunchKernel") - launched, launches);
    assert_int_equal(standin_calls("cuMemcpyAsync") - copied, transfers);
}

/* Checks a batch both ways, and that each makes so many launches and copies. */
static void check_calls(const size_t *sizes, int count, int launches, int transfers)
{
    struct batch batch;
    make_batch(&batch, sizes, count, 0);
    check_one_way(batch.out, count, launches, transfers);
    check_staging(&batch);
    change_staging(&batch);
    check_one_way(batch.in, count, launches, transfers);
    check_twin(&batch.tensors, "tensors");
    drop_batch(&batch);
}

static void check_batch(struct batch *batch)
{
    memset(batch->staging, 0x33, batch->staging_bytes);
    copy_and_wait(batch->out, batch->count);
    check_staging(batch);
    change_staging(batch);
    copy_and_wait(batch->in, batch->count);
    check_twin(&batch->tensors, "tensors");
}

TEST(test_small_tensors_are_one_launch_and_one_copy)
{
    size_t sizes[MOST_TENSORS];
    for (int i = 0; i < MOST_TENSORS; i++)
        sizes[i] = 4 * (1 + (size_t)random_below(&seed, 300));
    check_calls(sizes, 161, 1, 1); /* as many as ResNet-50 has */
    check_calls(sizes, PACK_PIECES + 1, 2, 1);
    check_calls(sizes, 2 * PACK_PIECES + 1, 3, 1);
    check_calls(sizes, 3, 1, 1);
    check_calls(sizes, 2, 0, 2); /* packing would save nothing */
    check_calls(sizes, 1, 0, 1);
    sizes[3] = CUDA_COPY_PACKED + 4; /* its neighbours travel around it */
    check_calls(sizes, 8, 1, 3);
    sizes[1] = sizes[4] = sizes[6] = sizes[3];
    check_calls(sizes, 7, 0, 7);
}

/* Three MiB do not fit into the buffer. */
TEST(test_a_batch_that_is_larger_than_the_buffer)
{
    enum { COUNT = (CUDA_COPY_BUFFER >> 20) + 3 };
    size_t sizes[COUNT];
    for (int i = 0; i < COUNT; i++)
        sizes[i] = CUDA_COPY_PACKED;
    check_calls(sizes, COUNT, 2, 2);
}

TEST(test_random_batches)
{
    for (int turn = 0; turn < 60; turn++) {
        struct batch batch;
        size_t sizes[MOST_TENSORS];
        int count = 1 + (int)random_below(&seed, turn % 10 ? 12 : 250);
        size_t unit = (size_t)1 << random_below(&seed, 5);
        for (int i = 0; i < count; i++)
            sizes[i] = random_chance(&seed, 3) ? CUDA_COPY_PACKED + unit
                                               : unit * (1 + (size_t)random_below(&seed, 200));
        make_batch(&batch, sizes, count, turn % 3 ? 0 : 20);
        check_batch(&batch);
        drop_batch(&batch);
    }
}

/* ---- order -------------------------------------------------------------------------------------------- */

enum { GATED = 40 };

/* The engine's stream is held until all other streams of the test had their chance. */
TEST(test_kernel_and_copy_are_in_order)
{
    size_t sizes[GATED];
    struct cuda_use use;
    for (int i = 0; i < GATED; i++)
        sizes[i] = 4 + (size_t)random_below(&seed, 500);
    for (int turn = 0; turn < 6; turn++) {
        struct batch batch;
        struct memory_event *copied;
        make_batch(&batch, sizes, GATED, 0);
        memset(batch.staging, 0x33, batch.staging_bytes);
        if (turn % 2)
            change_staging(&batch);
        ASSERT_OK(cuda_enter(&use, 0, &check_status));
        standin_hold(use.stream);
        ASSERT_OK(memory_cuda.copy(turn % 2 ? batch.in : batch.out, GATED, &copied, &check_status));
        MUST(cuStreamSynchronize(NULL));
        assert_int_equal(memory_cuda.event_query(copied, NULL), HVD_IN_PROGRESS);
        standin_release(use.stream);
        memory_cuda.event_release(copied);
        cuda_leave(&use);
        if (turn % 2)
            check_twin(&batch.tensors, "tensors");
        else
            check_staging(&batch);
        drop_batch(&batch);
    }
}

/* Batches that are started before the one ahead of them is done use the same buffer. */
TEST(test_batches_behind_each_other)
{
    enum { BATCHES = 8 };
    static struct batch batches[BATCHES];
    struct memory_event *copied[BATCHES];
    struct cuda_use use;
    size_t sizes[GATED];
    for (int i = 0; i < GATED; i++)
        sizes[i] = 4 + (size_t)random_below(&seed, 500);
    for (int i = 0; i < BATCHES; i++) {
        make_batch(&batches[i], sizes, GATED, 0);
        if (i % 2)
            change_staging(&batches[i]);
    }
    ASSERT_OK(cuda_enter(&use, 0, &check_status));
    standin_hold(use.stream);
    for (int i = 0; i < BATCHES; i++)
        ASSERT_OK(memory_cuda.copy(i % 2 ? batches[i].in : batches[i].out, GATED, &copied[i], &check_status));
    standin_release(use.stream);
    cuda_leave(&use);
    for (int i = 0; i < BATCHES; i++) {
        memory_cuda.event_release(copied[i]);
        if (i % 2)
            check_twin(&batches[i].tensors, "tensors");
        else
            check_staging(&batches[i]);
        drop_batch(&batches[i]);
    }
}

static void *copy_once(void *argument)
{
    const struct batch *batch = argument;
    gpu_use(0);
    copy_and_wait(batch->out, batch->count);
    return NULL;
}

/* Waits until a function of the driver was called so often; returns false after the time. */
static bool wait_for_calls(const char *symbol, int calls, int milliseconds)
{
    for (int i = 0; i < milliseconds && standin_calls(symbol) < calls; i++)
        usleep(1000);
    return standin_calls(symbol) >= calls;
}

/* A copy to memory that is not page-locked returns when it is done. So a thread that copies there is between
 * the copies of its batch while the stream is held; another thread must not use the buffer before the last
 * one. */
TEST(test_threads_share_a_buffer)
{
    static struct batch batches[2];
    pthread_t threads[2];
    struct cuda_use use;
    size_t sizes[GATED];
    for (int i = 0; i < GATED; i++)
        sizes[i] = 4 + (size_t)random_below(&seed, 50);
    for (int i = 0; i < 2; i++)
        make_batch(&batches[i], sizes, GATED, 50);
    char *pageable = malloc(batches[0].staging_bytes);
    for (int i = 0; i < GATED; i++)
        batches[0].out[i].to = pageable + ((char *)batches[0].out[i].to - batches[0].staging);
    ASSERT_OK(cuda_enter(&use, 0, &check_status));
    standin_hold(use.stream);
    int launched = standin_calls("cuLaunchKernel"), copied = standin_calls("cuMemcpyAsync");
    assert_int_equal(pthread_create(&threads[0], NULL, copy_once, &batches[0]), 0);
    assert_true(wait_for_calls("cuMemcpyAsync", copied + 1, 60000));
    assert_int_equal(pthread_create(&threads[1], NULL, copy_once, &batches[1]), 0);
    wait_for_calls("cuLaunchKernel", launched + 2, 50); /* a chance to be wrong */
    standin_release(use.stream);
    cuda_leave(&use);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        check_staging(&batches[i]);
        drop_batch(&batches[i]);
    }
    free(pageable);
}

/* ---- what is kept, and what fails --------------------------------------------------------------------- */

TEST(test_the_buffer_is_given_back)
{
    const size_t sizes[] = {100, 200, 300};
    size_t with, without, all;
    check_calls(sizes, 3, 1, 1);
    MUST(cuMemGetInfo_v2(&with, &all));
    memory_cuda.trim();
    MUST(cuMemGetInfo_v2(&without, &all));
    assert_int_equal(without - with, CUDA_COPY_BUFFER);
    assert_int_equal(pinned_kept(), 0);
    check_calls(sizes, 3, 1, 1);
}

TEST(test_errors_of_a_launch)
{
    struct memory_event *copied;
    const size_t sizes[] = {100, 200, 300};
    struct batch batch;
    make_batch(&batch, sizes, 3, 0);
    standin_fail("cuLaunchKernel", 1, CUDA_UNKNOWN);
    ASSERT_FAILS(memory_cuda.copy(batch.out, 3, &copied, &check_status), HVD_SYSTEM,
                 "copying tensors of the GPU failed: unknown error (CUDA_ERROR_UNKNOWN, 999)");
    check_batch(&batch);
    drop_batch(&batch);
}

/* The same batch three times; in the first one a call of the driver fails. Returns what was logged. */
static void copy_logged(int device, const char *symbol, CUresult failure, char *log, size_t capacity)
{
    const size_t sizes[] = {100, 200, 300};
    int launched = standin_calls("cuLaunchKernel");
    FILE *file = tmpfile();
    struct batch batch;
    assert_non_null(file);
    gpu_use(device);
    make_batch(&batch, sizes, 3, 0);
    standin_fail(symbol, 1, failure);
    for (int turn = 0; turn < 3; turn++) {
        struct memory_event *copied;
        hvd_status status;
        int own = dup(STDERR_FILENO);
        dup2(fileno(file), STDERR_FILENO);
        hvd_code code = memory_cuda.copy(batch.out, 3, &copied, &status);
        dup2(own, STDERR_FILENO);
        close(own);
        if (code)
            fail_msg("%s", status.text);
        memory_cuda.event_release(copied);
        check_staging(&batch);
        check_batch(&batch);
    }
    drop_batch(&batch);
    assert_int_equal(standin_calls("cuLaunchKernel"), launched);
    rewind(file);
    log[fread(log, 1, capacity - 1, file)] = '\0';
    fclose(file);
}

TEST(test_a_driver_that_refuses_the_kernels)
{
    char log[1000];
    copy_logged(REFUSES, "cuModuleLoadData", CUDA_INVALID_PTX, log, sizeof log);
    check_text(log, "GPU 1: loading the engine's kernels failed: a PTX JIT compilation failed "
                    "(CUDA_ERROR_INVALID_PTX, 218); tensors are copied one by one, which is slower");
    assert_ptr_equal(strchr(log, '\n'), log + strlen(log) - 1);
}

TEST(test_no_memory_for_the_buffer)
{
    char log[1000];
    copy_logged(WITHOUT_MEMORY, "cuMemAlloc_v2", CUDA_OUT_OF_MEMORY, log, sizeof log);
    check_text(log, "GPU 2: allocating a buffer for small tensors failed: ");
    check_text(log, "; tensors are copied one by one, which is slower");
    assert_ptr_equal(strchr(log, '\n'), log + strlen(log) - 1);
}
