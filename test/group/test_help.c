/* test_help.c - threads that submit, help for a moment, and do not wait, as the kernels of frameworks:
 * nothing that they submit is left behind, whichever of them makes progress. */
#include "base/clock.h"
#include "group.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define SOON 60.0 /* s; no rank looks by itself, see join_job */

enum { THREADS = 3, EACH = 400, ALL = THREADS * EACH };

struct submitter {
    struct member *member;
    float *values; /* [EACH] */
    int first;
    atomic_int *ended;
};

static void count_end(void *argument, const hvd_status *status)
{
    CHECK(status->code == HVD_OK, "%s", status->text);
    atomic_fetch_add((atomic_int *)argument, 1);
}

/* In another order on each rank, with pauses in which everybody goes to sleep. */
static void *submit_and_help(void *argument)
{
    const struct submitter *submitter = argument;
    static const int64_t shape[] = {1};
    for (int turn = 0; turn < EACH; turn++) {
        int i = submitter->member->rank % 2 ? EACH - 1 - turn : turn;
        char name[16];
        snprintf(name, sizeof name, "%d", submitter->first + i);
        hvd_tensor tensor = tensor_of(&submitter->values[i], HVD_FLOAT32, shape, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
        hvd_handle *handle;
        request.waits = 1;
        request.done = count_end;
        request.done_argument = submitter->ended;
        CHECK_OK(hvd_submit(submitter->member->context, &request, &handle, &check_status));
        hvd_help(handle, 50e-6);
        hvd_release(handle);
        if (turn % 100 == 50)
            usleep(3000);
    }
    return NULL;
}

static void help_only(struct member *member)
{
    pthread_t threads[THREADS];
    struct submitter submitters[THREADS];
    float values[ALL];
    atomic_int ended = 0;
    for (int i = 0; i < ALL; i++)
        values[i] = 1;
    for (int i = 0; i < THREADS; i++) {
        submitters[i] = (struct submitter){member, values + (ptrdiff_t)i * EACH, i * EACH, &ended};
        CHECK(!pthread_create(&threads[i], NULL, submit_and_help, &submitters[i]), "no thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int64_t deadline = clock_after(SOON);
    while (atomic_load(&ended) < ALL) {
        CHECK(clock_now() < deadline, "%d of %d ended, and nobody makes progress", atomic_load(&ended), ALL);
        usleep(1000);
    }
    for (int i = 0; i < ALL; i++)
        CHECK(values[i] == (float)member->size, "sum %d is %g", i, (double)values[i]);
}

GROUP_TEST(test_help_only, help_only, 1, 3, EVERY_TRANSPORT)
