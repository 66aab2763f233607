/* elastic.c - a computation that goes on when ranks are lost, and uses those that are added, from C alone.
 *
 *     horovodrun -np 4 --min-np 2 build/examples/c/elastic 1000      (then kill one of its processes)
 *
 * Each step adds up one number of every rank, and is taken by all ranks or by none. What has been added up so
 * far is the state: ranks that were added, or have missed the last step, get it from one that has it. Built
 * against an installed Horovod: cc elastic.c -lhorovod -o elastic */
#include <horovod.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define WAIT_SECONDS 3600.0

struct state {
    double step, sum;
};

/* This process in one epoch: the ranks that work together. */
struct job {
    hvd_epochs *epochs; /* NULL: without horovodrun */
    hvd_context *context;
    hvd_placement place;
    int epoch; /* -1: none yet */
};

static volatile sig_atomic_t told_to_leave;

/* SIGTERM: this process leaves once the others can go on. A second one ends it. */
static void on_sigterm(int number)
{
    told_to_leave = 1;
    signal(number, SIG_DFL);
}

static void check(hvd_code code, const hvd_status *status)
{
    if (code != HVD_OK) {
        fprintf(stderr, "%s: %s\n", hvd_code_name(code), status->text);
        exit(EXIT_FAILURE);
    }
}

/* hvd_init does not wait for a rank that is gone. */
static int is_lost(void *argument)
{
    const struct job *job = argument;
    return hvd_epoch_notice(job->epochs, job->epoch) & HVD_NOTICE_LOST;
}

/* ---- collectives ----------------------------------------------------------------------------------------
 */

static hvd_code reduce(const struct job *job, const char *name, hvd_reduction reduction, double *value,
                       hvd_status *status)
{
    hvd_tensor tensor = {.data = value, .ndim = 0, .dtype = HVD_FLOAT64, .device_type = HVD_CPU};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = HVD_ALLREDUCE,
                           .name = name,
                           .count = 1,
                           .inputs = &tensor,
                           .reduction = reduction};
    return hvd_run(job->context, &request, NULL, status);
}

/* Everybody gets the state of the rank that has come furthest: the last step may have ended on some ranks
 * only when another one was lost. */
static hvd_code agree(const struct job *job, struct state *state, hvd_status *status)
{
    double furthest = state->step, root;
    hvd_code code = reduce(job, "furthest", HVD_MAX, &furthest, status);
    if (code)
        return code;
    root = state->step == furthest ? job->place.rank : job->place.size;
    code = reduce(job, "root", HVD_MIN, &root, status);
    if (code)
        return code;
    int64_t shape[] = {2};
    hvd_tensor tensor = {
        .data = state, .shape = shape, .ndim = 1, .dtype = HVD_FLOAT64, .device_type = HVD_CPU};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = HVD_BROADCAST,
                           .name = "state",
                           .count = 1,
                           .inputs = &tensor,
                           .root = (int32_t)root};
    return hvd_run(job->context, &request, NULL, status);
}

/* ---- the work -------------------------------------------------------------------------------------------
 */

/* Works until all steps are done, an operation fails, or there is a reason to leave the epoch. */
static hvd_code work(const struct job *job, struct state *state, long steps, long milliseconds,
                     hvd_status *status)
{
    const struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    hvd_status ignored; /* without the starter this process ends anyway */
    hvd_code code = agree(job, state, status);
    while (!code && state->step < (double)steps) {
        double value = job->place.rank == 0; /* so that the sum does not depend on the number of ranks */
        /* All ranks leave after the same step: each of them sees a notice at its own time. */
        double notice = job->epochs ? hvd_epoch_notice(job->epochs, job->epoch) : 0;
        if (told_to_leave && job->epochs)
            hvd_epoch_leave(job->epochs, &ignored);
        nanosleep(&pause, NULL);
        code = reduce(job, "value", HVD_SUM, &value, status);
        if (!code)
            code = reduce(job, "notice", HVD_MAX, &notice, status);
        if (code)
            break;
        state->sum += value;
        state->step++;
        if (job->place.rank == 0)
            printf("step %.0f with %d ranks\n", state->step, job->place.size);
        if (notice != 0)
            return HVD_IN_PROGRESS;
    }
    return code;
}

/* Waits for the next epoch. */
static int next_epoch(const struct job *job, const struct state *state, int lost_rank)
{
    hvd_epoch next = {.struct_size = sizeof next};
    hvd_status status;
    const hvd_epoch_question question = {.struct_size = sizeof question,
                                         .after = job->epoch,
                                         .holds_state = state->step > 0,
                                         .lost_rank = lost_rank};
    hvd_code code = hvd_epoch_wait(job->epochs, &question, WAIT_SECONDS, &next, &status);
    if (code == HVD_REFUSED || code == HVD_SHUT_DOWN)
        exit(EXIT_SUCCESS); /* this process is not needed any more */
    check(code, &status);
    return next.number;
}

static hvd_code enter(struct job *job, hvd_status *status)
{
    char number[16];
    hvd_config *config = hvd_config_create();
    snprintf(number, sizeof number, "%d", job->epoch);
    hvd_code code = hvd_config_load_environment(config, status);
    if (!code && job->epochs)
        code = hvd_config_set(config, "epoch", number, status);
    if (job->epochs)
        hvd_config_set_interrupt(config, is_lost, job);
    if (!code)
        code = hvd_init(config, &job->context, status);
    hvd_config_free(config);
    return code;
}

/* Processes that are added while the job runs wait for their first epoch; the others are in epoch 0. */
static void join(struct job *job, const struct state *state)
{
    const char *elastic = getenv("HOROVOD_ELASTIC"), *epoch = getenv("HOROVOD_EPOCH");
    hvd_config *config = hvd_config_create();
    hvd_status status;
    if (elastic && *elastic == '1') {
        check(hvd_config_load_environment(config, &status), &status);
        check(hvd_epochs_open(config, &job->epochs, &status), &status);
        job->epoch = epoch && atoi(epoch) ? next_epoch(job, state, -1) : 0;
    }
    hvd_config_free(config);
}

int main(int argc, char **argv)
{
    long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 100;
    long milliseconds = argc > 2 ? strtol(argv[2], NULL, 10) : 10;
    if (argc > 3 || steps < 1 || milliseconds < 0) {
        fprintf(stderr, "usage: %s [steps] [milliseconds of a step]\n", argv[0]);
        return 2;
    }

    struct job job = {.epoch = -1};
    struct state state = {0, 0};
    hvd_status status = {0};
    if (getenv("HOROVOD_ELASTIC"))
        signal(SIGTERM, on_sigterm);
    join(&job, &state);
    while (state.step < (double)steps) {
        status.lost_rank = -1;
        hvd_code code = enter(&job, &status);
        if (!code) {
            job.place = hvd_get_placement(job.context);
            code = work(&job, &state, steps, milliseconds, &status);
            if (!code)
                break;
            hvd_shutdown(job.context);
        }
        if (!job.epochs)
            check(code, &status);
        job.epoch = next_epoch(&job, &state, code == HVD_IN_PROGRESS ? -1 : status.lost_rank);
    }

    if (job.epochs)
        check(hvd_epoch_done(job.epochs, &status), &status);
    printf("rank %d of %d: %.0f steps, sum %.0f\n", job.place.rank, job.place.size, state.step, state.sum);
    hvd_shutdown(job.context);
    hvd_epochs_close(job.epochs);
    return state.sum == (double)steps ? EXIT_SUCCESS : EXIT_FAILURE;
}
