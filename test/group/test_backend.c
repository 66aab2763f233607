/* test_backend.c - back ends that run whole collectives, as MPI and NCCL do: one whose threads finish later
 * and signal a descriptor, one that must be polled, one that fails, one that hangs until it is aborted. */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "engine/api.h"
#include "group.h"
#include "rendezvous/client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST = 4096, ELEMENTS = 3000 }; /* bytes that the row takes; elements that suffice */

/* What the library is to do in the next job. */
static struct {
    int failing_rank;  /* of the job: its second collective fails; -1, also of the next three: none */
    int refusing_rank; /* can't start any */
    int absent_rank;   /* has no such library */
    int unopened_rank; /* its open fails, of process sets other than 0 */
    bool hangs;        /* on the other ranks, the second collective */
    bool gathers;      /* the row also runs allgathers, if it need not exchange the numbers of rows */
    int delay;         /* us that each takes at least */
} wanted;

static atomic_int open_count, progress_calls, run_count;

/* A rank's device, which carries out one collective of any group after the other, in the order of their
 * starts: each occupies it until all members have come. Under boards_lock. */
static struct {
    size_t started, served;
} devices[8]; /* by rank of the job */
static pthread_cond_t device_is_free = PTHREAD_COND_INITIALIZER;

static void want_nothing(void)
{
    wanted.failing_rank = wanted.refusing_rank = wanted.absent_rank = wanted.unopened_rank = -1;
    wanted.hangs = wanted.gathers = false;
    wanted.delay = 0;
    progress_calls = run_count = 0;
    memset(devices, 0, sizeof devices);
}

/* ---- the library: sums of floats over the members of a group, in threads of its own ------------------- */

/* Where the members of one group meet, found by a token that they have exchanged. */
struct board {
    uint64_t token;
    int users, size, arrived;
    unsigned phase;
    pthread_cond_t changed;
    float sums[4 * ELEMENTS]; /* of a batch */
    struct board *next;
};

static struct board *boards;
static pthread_mutex_t boards_lock = PTHREAD_MUTEX_INITIALIZER;

static struct board *board_find(uint64_t token, int size)
{
    pthread_mutex_lock(&boards_lock);
    struct board *board = boards;
    while (board && board->token != token)
        board = board->next;
    if (!board) {
        board = calloc(1, sizeof *board);
        CHECK(board, "out of memory");
        board->token = token;
        board->size = size;
        board->next = boards;
        pthread_cond_init(&board->changed, NULL);
        boards = board;
    }
    CHECK(board->size == size, "two groups have met");
    board->users++;
    pthread_mutex_unlock(&boards_lock);
    return board;
}

static void board_leave(struct board *board)
{
    pthread_mutex_lock(&boards_lock);
    struct board **place = &boards;
    while (*place != board)
        place = &(*place)->next;
    if (!--board->users) {
        *place = board->next;
        pthread_cond_destroy(&board->changed);
        free(board);
    }
    pthread_mutex_unlock(&boards_lock);
}

/* One rank's end of a group. */
struct library {
    struct board *board;
    int rank;                      /* of the job */
    bool on_device;                /* its collectives occupy the rank's device */
    struct collective_queue todo;  /* this and the next three: under boards_lock */
    struct collective *current;    /* the thread's */
    struct collective_queue ended; /* with their status */
    bool stops;
    atomic_bool news; /* set after the descriptor was */
    int descriptor;   /* -1: has to be polled */
    int under_way;
    pthread_t thread;
};

/* Under the lock. False: this rank stops. */
static bool meet(struct library *library)
{
    struct board *board = library->board;
    unsigned phase = board->phase;
    if (++board->arrived == board->size) {
        board->arrived = 0;
        board->phase++;
        pthread_cond_broadcast(&board->changed);
    }
    while (board->phase == phase && !library->stops)
        pthread_cond_wait(&board->changed, &boards_lock);
    return !library->stops;
}

static float *floats_at(const struct vector *vector, size_t offset)
{
    int span = vector_find(vector, offset);
    return (float *)(vector->spans[span].data + (offset - vector->starts[span]));
}

static bool sum_up(struct library *library, struct collective *collective)
{
    struct board *board = library->board;
    size_t count = collective->input.length / sizeof(float);
    CHECK(count <= 4 * ELEMENTS, "%zu elements", count);
    for (size_t i = 0; i < count; i++)
        board->sums[i] =
            *floats_at(&collective->input, i * sizeof(float)) + (board->arrived ? board->sums[i] : 0);
    if (!meet(library))
        return false;
    for (size_t i = 0; i < count; i++)
        *floats_at(&collective->output, i * sizeof(float)) = board->sums[i];
    return meet(library);
}

/* Puts the rows of each tensor where those of the lower ranks end. */
static bool gather(struct library *library, struct collective *collective)
{
    char *all = (char *)library->board->sums, *block = all;
    size_t taken = 0, length = collective->output.length;
    CHECK(collective->rows && length <= sizeof library->board->sums, "%zu bytes to gather", length);
    for (int tensor = 0; tensor < collective->tensors; tensor++) {
        for (int rank = 0; rank < collective->size; rank++) {
            size_t bytes =
                collective->rows[rank * collective->tensors + tensor] * collective->row_bytes[tensor];
            if (rank == collective->rank && bytes)
                memcpy(block, floats_at(&collective->input, taken), bytes);
            taken += rank == collective->rank ? bytes : 0;
            block += bytes;
        }
    }
    CHECK((size_t)(block - all) == length && taken == collective->input.length, "%zu bytes, not %zu",
          (size_t)(block - all), length);
    if (!meet(library))
        return false;
    for (int i = 0; i < collective->output.count; i++)
        memcpy(collective->output.spans[i].data, all + collective->output.starts[i],
               collective->output.spans[i].length);
    return meet(library);
}

static void wait_for_stop(struct library *library)
{
    while (!library->stops)
        pthread_cond_wait(&library->board->changed, &boards_lock);
}

/* Under the lock, which it releases meanwhile. False: this rank stops. */
static bool run(struct library *library, struct collective *collective, int number)
{
    status_ok(&collective->status);
    if (wanted.delay) {
        pthread_mutex_unlock(&boards_lock);
        usleep((useconds_t)wanted.delay);
        pthread_mutex_lock(&boards_lock);
    }
    if (number == 2 && wanted.failing_rank == library->rank) {
        status_set(&collective->status, HVD_SYSTEM, "the library on rank %d is out of credits",
                   library->rank);
        return true;
    }
    if (number == 2 && wanted.hangs)
        wait_for_stop(library);
    return !library->stops && (collective->operation == HVD_ALLGATHER ? gather(library, collective)
                                                                      : sum_up(library, collective));
}

/* Under the lock. False: this rank stops. */
static bool wait_for_device(struct library *library)
{
    while (library->on_device && !library->stops &&
           devices[library->rank].served != library->current->piece_bytes)
        pthread_cond_wait(&device_is_free, &boards_lock);
    return !library->stops;
}

static void *work(void *argument)
{
    struct library *library = argument;
    int number = 0;
    pthread_mutex_lock(&boards_lock);
    for (;;) {
        while (!library->stops && !library->todo.head)
            pthread_cond_wait(&library->board->changed, &boards_lock);
        if (library->stops)
            break;
        library->current = collective_queue_pop(&library->todo);
        if (!wait_for_device(library) || !run(library, library->current, ++number))
            break;
        devices[library->rank].served += library->on_device;
        pthread_cond_broadcast(&device_is_free);
        collective_queue_push(&library->ended, library->current);
        library->current = NULL;
        if (library->descriptor >= 0)
            platform_event_set(library->descriptor);
        atomic_store(&library->news, true);
    }
    pthread_mutex_unlock(&boards_lock);
    return NULL;
}

/* ---- the rows ----------------------------------------------------------------------------------------- */

/* As with a ncclUniqueId: the first member makes it. */
static hvd_code exchange_token(const struct backend_opening *opening, uint64_t *token, hvd_status *status)
{
    static atomic_ullong tokens;
    static const char key[] = "later.token";
    struct wire_writer value = {0};
    if (opening->rank == 0) {
        *token = atomic_fetch_add(&tokens, 1);
        return opening->rendezvous ? rendezvous_put(opening->rendezvous, key, token, sizeof *token, status)
                                   : HVD_OK;
    }
    hvd_code code = rendezvous_get(opening->rendezvous, key, opening->deadline, &value, status);
    if (!code)
        memcpy(token, value.bytes, sizeof *token);
    wire_writer_free(&value);
    return code;
}

static hvd_code open_library(const struct backend_opening *opening, void **state, hvd_status *status)
{
    uint64_t token = 0;
    int rank = opening->ranks[opening->rank];
    CHECK(opening->ranks[0] >= 0 && opening->deadline > clock_now(), "rank %d opens too late", rank);
    hvd_code code = exchange_token(opening, &token, status);
    if (code)
        return code;
    if (rank == wanted.absent_rank) {
        status_set(status, HVD_REFUSED, "libtest.so.1 was not found");
        return HVD_OK;
    }
    if (rank == wanted.unopened_rank && opening->set)
        return status_set(status, HVD_SYSTEM, "the library on rank %d has no more groups", rank);
    struct library *library = calloc(1, sizeof *library);
    CHECK(library, "out of memory");
    library->rank = rank;
    library->board = board_find(token, opening->size);
    library->descriptor = -1;
    *state = library;
    atomic_fetch_add(&open_count, 1);
    return HVD_OK;
}

static void start_thread(struct library *library)
{
    if (library)
        CHECK(pthread_create(&library->thread, NULL, work, library) == 0, "no thread");
}

static hvd_code open_later(const struct backend_opening *opening, void **state, int *descriptor,
                           hvd_status *status)
{
    hvd_code code = open_library(opening, state, status);
    struct library *library = *state;
    if (library)
        *descriptor = library->descriptor = platform_event_create();
    start_thread(library);
    return code;
}

static hvd_code open_on_device(const struct backend_opening *opening, void **state, int *descriptor,
                               hvd_status *status)
{
    hvd_code code = open_library(opening, state, status);
    struct library *library = *state;
    CHECK(library, "there is no such library");
    library->on_device = true;
    *descriptor = library->descriptor = platform_event_create();
    start_thread(library);
    return code;
}

static hvd_code open_polled(const struct backend_opening *opening, void **state, int *descriptor,
                            hvd_status *status)
{
    (void)descriptor;
    hvd_code code = open_library(opening, state, status);
    start_thread(*state);
    return code;
}

static bool supports(const void *state, const struct backend_query *query, struct choice *choice)
{
    CHECK(state && query->device_type == HVD_CPU, "a query without a process set or a device");
    choice->algorithm = 200; /* its own */
    if (query->operation == HVD_ALLGATHER)
        return wanted.gathers && !query->rows_unknown;
    return query->operation == HVD_ALLREDUCE && query->reduction == HVD_SUM &&
           query->types == 1U << HVD_FLOAT32 && query->bytes >= LEAST;
}

static hvd_code start(void *state, struct collective *collective, hvd_status *status)
{
    struct library *library = state;
    CHECK(collective->choice.algorithm == 200, "the choice has become %d", collective->choice.algorithm);
    if (wanted.refusing_rank == library->rank)
        return status_set(status, HVD_SYSTEM, "the library on rank %d refuses", library->rank);
    atomic_fetch_add(&run_count, 1);
    library->under_way++;
    pthread_mutex_lock(&boards_lock);
    if (library->on_device)
        collective->piece_bytes = devices[library->rank].started++;
    collective_queue_push(&library->todo, collective);
    pthread_cond_broadcast(&library->board->changed);
    pthread_mutex_unlock(&boards_lock);
    return HVD_OK;
}

static void report(struct library *library, struct collective_queue *queue, const hvd_status *cause)
{
    for (struct collective *collective; (collective = collective_queue_pop(queue));) {
        hvd_status status = cause ? *cause : collective->status;
        library->under_way--;
        collective->done(collective, &status);
    }
}

static enum backend_progress make_progress(void *state, bool *moved)
{
    struct library *library = state;
    atomic_fetch_add(&progress_calls, 1);
    if (atomic_exchange(&library->news, false)) {
        if (library->descriptor >= 0)
            platform_event_clear(library->descriptor);
        pthread_mutex_lock(&boards_lock);
        struct collective_queue ended = library->ended;
        library->ended.head = NULL;
        pthread_mutex_unlock(&boards_lock);
        *moved |= ended.head != NULL;
        report(library, &ended, NULL);
    }
    if (!library->under_way)
        return BACKEND_DONE;
    return library->descriptor >= 0 ? BACKEND_PENDING : BACKEND_POLL;
}

static void stop_thread(struct library *library)
{
    pthread_mutex_lock(&boards_lock);
    bool stopped = library->stops;
    library->stops = true;
    pthread_cond_broadcast(&library->board->changed);
    pthread_cond_broadcast(&device_is_free);
    pthread_mutex_unlock(&boards_lock);
    if (!stopped)
        pthread_join(library->thread, NULL);
}

static void abort_all(void *state, const hvd_status *cause)
{
    struct library *library = state;
    stop_thread(library); /* nothing touches the tensors from here on */
    report(library, &library->ended, NULL);
    if (library->current)
        collective_queue_push(&library->ended, library->current);
    library->current = NULL;
    report(library, &library->ended, cause);
    report(library, &library->todo, cause);
}

static void close_library(void *state)
{
    struct library *library = state;
    CHECK(!library->under_way, "rank %d closes a library at work", library->rank);
    stop_thread(library);
    board_leave(library->board);
    if (library->descriptor >= 0)
        close(library->descriptor);
    free(library);
    atomic_fetch_sub(&open_count, 1);
}

/* The same library as one that blocks: any thread calls it. */
static atomic_int caller_runs;
static _Thread_local bool waits;

static hvd_code run_blocking(void *state, struct collective *collective, hvd_status *status)
{
    struct library *library = state;
    CHECK(!library->current, "two collectives of one group at once");
    atomic_fetch_add(&run_count, 1);
    atomic_fetch_add(&caller_runs, waits);
    pthread_mutex_lock(&boards_lock);
    library->current = collective;
    if (!run(library, collective, ++library->under_way))
        status_set(&collective->status, HVD_SYSTEM, "the library was killed");
    library->current = NULL;
    pthread_mutex_unlock(&boards_lock);
    return collective->status.code ? status_copy(status, &collective->status) : HVD_OK;
}

static void abort_blocking(void *state, const hvd_status *cause)
{
    (void)state, (void)cause;
}

static void kill_blocking(void *state)
{
    struct library *library = state;
    pthread_mutex_lock(&boards_lock);
    library->stops = true;
    pthread_cond_broadcast(&library->board->changed);
    pthread_mutex_unlock(&boards_lock);
}

static void close_blocking(void *state)
{
    struct library *library = state;
    board_leave(library->board);
    free(library);
    atomic_fetch_sub(&open_count, 1);
}

static hvd_code open_blocking(const struct backend_opening *opening, void **state, int *descriptor,
                              hvd_status *status)
{
    (void)descriptor;
    return open_library(opening, state, status);
}

#define ROWS(row_name, ...)                                                                                  \
    {                                                                                                        \
        .name = row_name, .close = close_library, .supports = supports, .start = start,                      \
        .progress = make_progress, .abort = abort_all, __VA_ARGS__                                           \
    }

static const struct backend later = ROWS("later", .open = open_later);
static const struct backend polled = ROWS("polled", .open = open_polled);
static const struct backend on_device = ROWS("on_device", .open = open_on_device, .one_order = true);

static const struct backend blocking = {.name = "blocking",
                                        .open = open_blocking,
                                        .close = close_blocking,
                                        .supports = supports,
                                        .run = run_blocking,
                                        .abort = abort_blocking,
                                        .kill = kill_blocking};

static void with_later(hvd_config *config, int rank)
{
    static const struct backend *const rows[] = {&later, &backend_host, NULL};
    (void)rank;
    config->backends = rows;
}

static void with_polled(hvd_config *config, int rank)
{
    static const struct backend *const rows[] = {&polled, &backend_host, NULL};
    (void)rank;
    config->backends = rows;
}

static void with_blocking(hvd_config *config, int rank)
{
    static const struct backend *const rows[] = {&blocking, &backend_host, NULL};
    (void)rank;
    config->backends = rows;
}

static void with_device(hvd_config *config, int rank)
{
    static const struct backend *const rows[] = {&on_device, &backend_host, NULL};
    (void)rank;
    config->backends = rows;
}

/* ---- what all ranks do -------------------------------------------------------------------------------- */

static void fill(float *data, int count, int value)
{
    for (int i = 0; i < count; i++)
        data[i] = (float)value;
}

static void check_all(const float *data, int count, int value)
{
    for (int i = 0; i < count; i++)
        CHECK(data[i] == (float)value, "element %d is %g, not %d", i, data[i], value);
}

/* Long ones run there, short ones on the host, several of both at once; each in one call, too. */
static void sums(struct member *member)
{
    float *data = malloc(4 * ELEMENTS * sizeof *data);
    for (int round = 0; round < 20; round++) {
        hvd_handle *handles[4];
        for (int i = 0; i < 4; i++) {
            int count = i % 2 ? 10 : ELEMENTS;
            fill(data + i * ELEMENTS, count, member->rank + 1 + i);
            handles[i] = submit_sum(member, NULL, data + i * ELEMENTS, count, 0);
        }
        for (int i = 0; i < 4; i++) {
            finish(handles[i]);
            check_all(data + i * ELEMENTS, i % 2 ? 10 : ELEMENTS, sum_of(member) + i * member->size);
        }
        int64_t elements = ELEMENTS;
        fill(data, ELEMENTS, member->rank + 1);
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &elements, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "one", &tensor);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        check_all(data, ELEMENTS, sum_of(member));
    }
    free(data);
}

/* Nobody waits in the engine: the progress thread alone sees to the end. */
static void nobody_waits(struct member *member)
{
    float data[ELEMENTS];
    for (int round = 0; round < 10; round++) {
        fill(data, ELEMENTS, member->rank + 1);
        hvd_handle *handle = submit_sum(member, NULL, data, ELEMENTS, 0);
        hvd_status status;
        int64_t deadline = clock_after(60);
        while (hvd_test(handle, &status) == HVD_IN_PROGRESS) {
            CHECK(clock_now() < deadline, "round %d: the end of the collective was not seen", round);
            usleep(200);
        }
        finish(handle);
        check_all(data, ELEMENTS, sum_of(member));
    }
}

/* Operations on the same memory run one after the other, whatever back end takes them. */
static void one_memory(struct member *member)
{
    float data[ELEMENTS];
    for (int round = 0; round < 20; round++) {
        fill(data, ELEMENTS, member->rank + 1);
        hvd_handle *all = submit_sum(member, NULL, data, ELEMENTS, 0);
        hvd_handle *part = submit_sum(member, NULL, data, 10, 0);
        hvd_handle *again = submit_sum(member, NULL, data, ELEMENTS, 0);
        finish(again);
        finish(part);
        finish(all);
        int sum = sum_of(member);
        check_all(data, 10, sum * member->size * member->size);
        check_all(data + 10, ELEMENTS - 10, sum * member->size);
    }
}

/* Rows come with the decision, other ones in every second round, unless their list is long: then the row
 * does not get the operation. */
static void gathers(struct member *member)
{
    enum { TENSORS = 2500 };
    static int64_t shapes[8][TENSORS];
    float data[64];
    hvd_tensor inputs[TENSORS], outputs[TENSORS];
    fill(data, 64, member->rank);
    for (int round = 0; round < 12; round++) {
        int count = round % 3 == 2 ? TENSORS : 2, runs = run_count;
        for (int t = 0; t < count; t++) {
            shapes[member->rank][t] = (member->rank + t * (round / 6 + 1)) % 3;
            inputs[t] = tensor_of(data, HVD_FLOAT32, &shapes[member->rank][t], 1);
        }
        hvd_request request = request_of(HVD_ALLGATHER, count > 2 ? "many" : "two", inputs);
        request.count = count;
        CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
        for (int t = 0; t < count; t++) {
            const float *got = outputs[t].data;
            int rows = 0;
            for (int rank = 0; rank < member->size; rank++)
                for (int i = 0; i < (rank + t * (round / 6 + 1)) % 3; i++)
                    CHECK(got[rows++] == (float)rank, "round %d: tensor %d is wrong", round, t);
            CHECK(outputs[t].shape[0] == rows, "round %d: tensor %d has %d rows, not %d", round, t,
                  (int)outputs[t].shape[0], rows);
            hvd_free(outputs[t].data);
        }
        CHECK((run_count > runs) == (count == 2 || member->size == 1), "round %d: %d runs", round,
              run_count - runs);
        check_allreduce_works(member, "behind");
    }
}

/* Each set of neighbours opens its own; where they overlap both are under way at once. */
static void process_sets(struct member *member)
{
    int32_t ids[2], members[2][2] = {{0, 1}, {1, 2}};
    float data[2][ELEMENTS];
    for (int set = 0; set < 2; set++)
        CHECK_OK(hvd_process_set_add(member->context, members[set], 2, &ids[set], &check_status));
    for (int round = 0; round < 10; round++) {
        hvd_handle *handles[2] = {NULL, NULL};
        for (int i = 0; i < 2; i++) {
            int set = (round + i + member->rank) % 2; /* in no common order */
            if (member->rank < set || member->rank > set + 1)
                continue;
            fill(data[set], ELEMENTS, member->rank + 1);
            handles[set] = submit_sum(member, NULL, data[set], ELEMENTS, ids[set]);
        }
        for (int set = 0; set < 2; set++) {
            if (!handles[set])
                continue;
            finish(handles[set]);
            check_all(data[set], ELEMENTS, 2 * set + 3);
        }
    }
    for (int set = 0; set < 2; set++)
        CHECK_OK(hvd_process_set_remove(member->context, ids[set], &check_status));
    check_allreduce_works(member, "behind");
}

/* Sets that overlap in two ranks or more, each of them with all ranks; every rank starts in an order of its
 * own. At the end the sets go while the others work, or the job ends with them (`removes` false). */
static void overlapping_sets(struct member *member, bool removes)
{
    enum { SETS = 4 };
    int32_t ids[SETS] = {0}, members[SETS][4] = {{0, 1, 2, 3}, {0, 1, 2}, {1, 2, 3}, {0, 2, 3}};
    float data[SETS][ELEMENTS];
    uint64_t random = test_seed() + (uint64_t)member->rank;
    for (int set = 1; set < SETS; set++)
        CHECK_OK(hvd_process_set_add(member->context, members[set], 3, &ids[set], &check_status));
    for (int round = 0; round < 20; round++) {
        hvd_handle *handles[SETS] = {NULL};
        int first = random_below(&random, SETS), step = random_below(&random, 2) ? 1 : 3;
        for (int i = 0, set = first; i < SETS; i++, set = (set + step) % SETS) {
            if (set && member->rank == (set + 2) % 4) /* who is missing in it */
                continue;
            fill(data[set], ELEMENTS, member->rank + 1);
            handles[set] = submit_sum(member, NULL, data[set], ELEMENTS, ids[set]);
        }
        for (int set = 0; set < SETS; set++) {
            if (!handles[set])
                continue;
            finish(handles[set]);
            check_all(data[set], ELEMENTS, set ? 10 - (set + 2) % 4 - 1 : 10);
        }
    }
    for (int set = 1; removes && set < SETS; set++)
        CHECK_OK(hvd_process_set_remove(member->context, ids[set], &check_status));
}

static void sets_that_are_removed(struct member *member)
{
    overlapping_sets(member, true);
    check_allreduce_works(member, "behind");
}

static void sets_that_end_with_the_job(struct member *member)
{
    overlapping_sets(member, false);
}

/* The ranks leave while operations of all sets are in flight. Operations that have started on all ranks of a
 * set complete, although set 0 no longer gives turns; the others fail. */
static void leaving_early(struct member *member)
{
    enum { SETS = 3, EACH = 4 };
    int32_t ids[SETS], members[SETS][3] = {{0, 1, 2}, {1, 2, 3}, {0, 2, 3}};
    float data[SETS][EACH][ELEMENTS];
    hvd_handle *handles[SETS][EACH] = {{NULL}};
    for (int set = 0; set < SETS; set++)
        CHECK_OK(hvd_process_set_add(member->context, members[set], 3, &ids[set], &check_status));
    for (int i = 0; i < EACH; i++)
        for (int at = 0; at < SETS; at++) {
            int set = (at + member->rank) % SETS;
            hvd_status status;
            int64_t elements = ELEMENTS;
            hvd_tensor tensor = tensor_of(data[set][i], HVD_FLOAT32, &elements, 1);
            hvd_request request = request_of(HVD_ALLREDUCE, NULL, &tensor);
            request.process_set = ids[set];
            fill(data[set][i], ELEMENTS, 1);
            if (member->rank != (set + 3) % 4)
                hvd_submit(member->context, &request, &handles[set][i], &status); /* another may have left */
        }
    if (member->rank == 0)
        usleep((useconds_t)(test_seed() % 7 * 200));
    hvd_shutdown(member->context);
    member->context = NULL;
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < EACH; i++) {
            hvd_code code = handles[set][i] ? hvd_test(handles[set][i], NULL) : HVD_SHUT_DOWN;
            CHECK(code == HVD_OK || code == HVD_SHUT_DOWN, "%s", hvd_code_name(code));
            if (!code)
                check_all(data[set][i], ELEMENTS, 3);
            hvd_release(handles[set][i]);
        }
}

TEST(the_end_comes_from_another_thread)
{
    want_nothing();
    group_run_sizes(&(struct group_options){.configure = with_later}, 1, 4, sums);
    assert_true(run_count > 0);
    assert_int_equal(open_count, 0);
}

TEST(the_end_has_to_be_polled_for)
{
    want_nothing();
    group_run_sizes(&(struct group_options){.configure = with_polled}, 1, 4, sums);
    assert_true(run_count > 0);
    assert_int_equal(open_count, 0);
}

/* Two context switches for each collective are spared. */
static void the_caller_runs(struct member *member)
{
    float data[ELEMENTS];
    waits = true;
    for (int round = 0; round < 10; round++) {
        fill(data, ELEMENTS, member->rank + 1);
        int64_t elements = ELEMENTS;
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &elements, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, "one", &tensor);
        CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
        check_all(data, ELEMENTS, sum_of(member));
    }
    waits = false;
}

TEST(a_caller_that_waits_runs_what_blocks)
{
    want_nothing();
    caller_runs = 0;
    group_run_sizes(&(struct group_options){.configure = with_blocking}, 1, 3, the_caller_runs);
    assert_true(caller_runs > 0); /* not all: one that has waited long sleeps, and the worker has it */
    assert_int_equal(open_count, 0);
}

TEST(what_blocks_beside_other_work)
{
    want_nothing();
    group_run_sizes(&(struct group_options){.configure = with_blocking}, 1, 4, sums);
    group_run_sizes(&(struct group_options){.configure = with_blocking}, 1, 3, one_memory);
    group_run_sizes(&(struct group_options){.configure = with_blocking}, 1, 3, nobody_waits);
    group_run_sizes(&(struct group_options){.configure = with_blocking}, 3, 3, process_sets);
    assert_true(run_count > 0);
    assert_int_equal(open_count, 0);
}

TEST(the_progress_thread_sees_the_end)
{
    want_nothing();
    wanted.delay = 20000;
    group_run_sizes(&(struct group_options){.configure = with_later}, 1, 3, nobody_waits);
    /* 2 transports, 1 to 3 ranks, 10 rounds of 20 ms: a thread that polls makes more than a million. */
    assert_true(progress_calls < 2 * 6 * 10 * 1000);
    group_run_sizes(&(struct group_options){.configure = with_polled}, 1, 3, nobody_waits);
    assert_int_equal(open_count, 0);
}

TEST(back_ends_share_memory_in_order)
{
    want_nothing();
    group_run_sizes(&(struct group_options){.configure = with_later}, 2, 3, one_memory);
    group_run_sizes(&(struct group_options){.configure = with_polled, .transport = "shm"}, 2, 2, one_memory);
}

TEST(every_process_set_has_its_own)
{
    want_nothing();
    group_run_sizes(&(struct group_options){.configure = with_later}, 3, 3, process_sets);
    assert_int_equal(run_count, 2 * 10 * 4);
    assert_int_equal(open_count, 0);
}

TEST(rows_come_with_the_decision)
{
    want_nothing();
    wanted.gathers = true;
    group_run_sizes(&(struct group_options){.configure = with_later}, 1, 4, gathers);
    group_run_sizes(&(struct group_options){.configure = with_blocking}, 2, 3, gathers);
    assert_int_equal(open_count, 0);
}

/* A device that is occupied until all members have come: opposite orders on two ranks would never end. */
TEST(overlapping_sets_start_in_one_order)
{
    static const struct group_options options = {.configure = with_device};
    want_nothing();
    group_run_sizes(&options, 4, 4, sets_that_are_removed);
    int of_all_sets = run_count;
    assert_true(of_all_sets >= 2 * 20 * (4 + 3 * 3));
    want_nothing();
    group_run_sizes(&options, 4, 4, sets_that_end_with_the_job);
    want_nothing();
    group_run_sizes(&options, 3, 3, process_sets);
    assert_int_equal(open_count, 0);
}

TEST(no_turn_is_needed_to_leave)
{
    for (int turn = 0; turn < 10; turn++) {
        want_nothing();
        group_run(&(struct group_options){.configure = with_device, .transport = "shm"}, 4, leaving_early,
                  NULL);
    }
    assert_int_equal(open_count, 0);
}

/* ---- faults ------------------------------------------------------------------------------------------- */

/* The second collective fails: its end, and that of everything else, is this text on all ranks. */
static void failing(struct member *member)
{
    const char *text = member->argument;
    float data[ELEMENTS] = {0};
    hvd_status status;
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < 3; i++) {
        int64_t elements = ELEMENTS;
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, &elements, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, NULL, &tensor);
        hvd_handle *handle = NULL;
        code = hvd_submit(member->context, &request, &handle, &status);
        if (!code)
            code = hvd_wait(handle, 60, &status);
        CHECK(code != HVD_IN_PROGRESS, "collective %d does not end", i);
        hvd_release(handle);
    }
    CHECK(code && strstr(status.text, text), "%s: %s", hvd_code_name(code), status.text);
    int64_t deadline = clock_after(60);
    while (!hvd_health(member->context, &status)) /* the rest of the turn in which the handle ended */
        CHECK(clock_now() < deadline, "the context has not failed");
    CHECK(strstr(status.text, text), "%s", status.text);
}

static void check_failure(void (*configure)(hvd_config *config, int rank), const char *text)
{
    static const char *const transports[] = {"shm", "tcp"};
    for (int i = 0; i < 2; i++)
        for (int size = 2; size <= 3; size++)
            group_run(&(struct group_options){.configure = configure, .transport = transports[i]}, size,
                      failing, (void *)text);
    assert_int_equal(open_count, 0);
}

/* The other ranks are in the midst of it, and have to be aborted. */
TEST(a_failure_ends_the_others)
{
    want_nothing();
    wanted.failing_rank = 1;
    check_failure(with_later, "the library on rank 1 is out of credits");
    check_failure(with_polled, "the library on rank 1 is out of credits");
}

/* Whichever thread is in it, it has to be killed. */
TEST(a_failure_ends_what_blocks)
{
    want_nothing();
    wanted.failing_rank = 1;
    group_run(&(struct group_options){.configure = with_blocking, .transport = "shm"}, 2, failing,
              "the library on rank 1 is out of credits");
    assert_int_equal(open_count, 0);
}

TEST(a_refusal_ends_the_others)
{
    want_nothing();
    wanted.refusing_rank = 1;
    check_failure(with_later, "the library on rank 1 refuses");
}

/* Without a library that would notice that its peers are gone. */
TEST(a_hang_ends_with_the_job)
{
    want_nothing();
    wanted.failing_rank = 0;
    wanted.hangs = true;
    wanted.delay = 20000;
    check_failure(with_later, "the library on rank 0 is out of credits");
    check_failure(with_polled, "the library on rank 0 is out of credits");
}

TEST(a_rank_that_lacks_it_says_so)
{
    want_nothing();
    wanted.absent_rank = 1;
    check_failure(with_later,
                  "rank 1 can't run the allreduce of process set 0 by back end later, which rank 0 "
                  "has chosen: libtest.so.1 was not found");
}

/* Nobody can use it then, and nothing fails. */
TEST(a_root_that_lacks_it_chooses_another)
{
    want_nothing();
    wanted.absent_rank = 0;
    group_run_sizes(&(struct group_options){.configure = with_later}, 1, 3, sums);
    assert_int_equal(run_count, 0);
}

static void unopened(struct member *member)
{
    int32_t id, all[] = {0, 1, 2};
    hvd_status status;
    hvd_code code = hvd_process_set_add(member->context, all, member->size, &id, &status);
    const char *text = member->rank == wanted.unopened_rank
                           ? "the library on rank 1 has no more groups"
                           : "process set 1 can't be used: rank 1 could not connect";
    CHECK(code == HVD_SYSTEM && strstr(status.text, text), "%s: %s", hvd_code_name(code), status.text);
    check_allreduce_works(member, "the others go on");
}

TEST(a_set_that_cannot_be_opened)
{
    want_nothing();
    wanted.unopened_rank = 1;
    group_run_sizes(&(struct group_options){.configure = with_later}, 2, 3, unopened);
    assert_int_equal(open_count, 0);
}
