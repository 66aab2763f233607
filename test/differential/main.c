/* main.c - the differential test: compares random programs of collective operations on the real engine with a
 * plain reference.
 *
 *   differential --operations 30000 --seed 7      jobs of seed 7, until this many operations have run
 *   differential --seed 7 --job 12                one of them again
 *   differential --seed 7 --job 12 --steps 3,8    only these of its steps
 *
 * Ranks are threads of this program, or, with HOROVOD_TEST_MPI=n under `mpirun -np n`, processes whose data
 * MPI moves. Each job runs in a process of its own, so that this one survives a failure and finds out which
 * of the steps are needed for it. */
#include "differential/job.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RETRIES = 2 };

struct options {
    struct wishes wishes;
    long operations;
    bool one_job;
    const char *steps; /* numbers, separated by commas; NULL: all */
};

static const char usage[] =
    "differential [--operations N] [--seed S] [--ranks N] [--transport NAME] [--job J [--steps A,B,...]]\n";

/* ---- one job --------------------------------------------------------------------------------------------
 */

/* In a process of its own; true when nothing differed. */
static bool passes(struct job *job, bool silent)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        if (silent && !freopen("/dev/null", "w", stderr))
            _exit(2);
        job_run(job);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool fails_again(struct job *job)
{
    for (int i = 0; i < RETRIES; i++)
        if (!passes(job, true))
            return true;
    return false;
}

/* Leaves out as many steps as it can, halves first, then quarters, ..., such that the job still fails. */
static void shrink(struct job *job)
{
    bool before[JOB_STEPS];
    for (int length = (job->step_count + 1) / 2; length; length /= 2)
        for (int from = 0; from < job->step_count; from += length) {
            bool any = false;
            memcpy(before, job->chosen, sizeof before);
            for (int i = from; i < from + length && i < job->step_count; i++) {
                any = any || job->chosen[i];
                job->chosen[i] = false;
            }
            if (any && !fails_again(job))
                memcpy(job->chosen, before, sizeof before);
        }
}

static void print_repetition(const struct job *job)
{
    const struct wishes *wishes = &job->wishes;
    const char *separator = " --steps ";
    fprintf(stderr, "again: differential --seed %llu --job %d", (unsigned long long)wishes->seed,
            wishes->job);
    if (wishes->ranks)
        fprintf(stderr, " --ranks %d", wishes->ranks);
    if (wishes->transport)
        fprintf(stderr, " --transport %s", wishes->transport);
    for (int i = 0; i < job->step_count; i++)
        if (job->chosen[i]) {
            fprintf(stderr, "%s%d", separator, i);
            separator = ",";
        }
    fprintf(stderr, "\n");
}

static bool run(struct job *job)
{
    if (job->wishes.mpi) { /* which starts no processes of a process */
        job_run(job);
        return true;
    }
    if (passes(job, false))
        return true;
    fprintf(stderr, "looking for the steps that it takes ...\n");
    if (!fails_again(job)) {
        fprintf(stderr, "it does not fail each time: the whole job is repeated by\n");
        print_repetition(job);
        return false;
    }
    shrink(job);
    passes(job, false);
    print_repetition(job);
    return false;
}

/* ---- all of them ----------------------------------------------------------------------------------------
 */

static void choose_steps(struct job *job, const char *steps)
{
    memset(job->chosen, 0, sizeof job->chosen);
    for (char *end; *steps; steps = *end ? end + 1 : end) {
        long number = strtol(steps, &end, 10);
        CHECK(end != steps && number >= 0 && number < JOB_STEPS, "--steps: %s", steps);
        job->chosen[number] = true;
    }
}

static long run_job(const struct options *options, int number, bool *failed)
{
    static struct job job; /* large */
    struct wishes wishes = options->wishes;
    wishes.job = number;
    job_draw(&job, &wishes);
    if (options->steps)
        choose_steps(&job, options->steps);
    *failed = !run(&job);
    long steps = job.step_count;
    job_free(&job);
    return steps;
}

static struct options parse(int count, char **words)
{
    static const struct option known[] = {{"operations", required_argument, NULL, 'o'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"ranks", required_argument, NULL, 'r'},
                                          {"transport", required_argument, NULL, 't'},
                                          {"job", required_argument, NULL, 'j'},
                                          {"steps", required_argument, NULL, 'p'},
                                          {0}};
    const char *processes = getenv("HOROVOD_TEST_MPI");
    long most = processes ? 4000 : 30000, sample = SANITIZED ? 100 : processes ? 150 : 1500;
    struct options options = {.operations = test_full() && !SANITIZED ? most : sample};
    options.wishes =
        (struct wishes){.seed = test_seed(), .mpi = processes, .ranks = processes ? atoi(processes) : 0};
    for (int letter; (letter = getopt_long(count, words, "", known, NULL)) != -1;) {
        if (letter == 'o')
            options.operations = atol(optarg);
        else if (letter == 's')
            options.wishes.seed = strtoull(optarg, NULL, 10);
        else if (letter == 'r')
            options.wishes.ranks = atoi(optarg);
        else if (letter == 't')
            options.wishes.transport = optarg;
        else if (letter == 'j')
            options.wishes.job = atoi(optarg), options.one_job = true;
        else if (letter == 'p')
            options.steps = optarg;
        else
            exit((fputs(usage, stderr), 2));
    }
    if (options.wishes.ranks < 0 || options.wishes.ranks > RANKS)
        exit((fprintf(stderr, "--ranks: 1 to %d\n", RANKS), 2));
    return options;
}

int main(int count, char **words)
{
    struct options options = parse(count, words);
    struct timespec begin, now;
    long operations = 0;
    int job = options.wishes.job;
    bool failed = false;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        operations += run_job(&options, job++, &failed);
    } while (!failed && !options.one_job && operations < options.operations);
    clock_gettime(CLOCK_MONOTONIC, &now);
    printf("%s: %ld operations in %d jobs of seed %llu, %.1f s\n", failed ? "FAILED" : "passed", operations,
           job - options.wishes.job, (unsigned long long)options.wishes.seed,
           (double)(now.tv_sec - begin.tv_sec) + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec));
    return failed;
}
