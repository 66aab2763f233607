/* stop.c - ends ranks: by themselves within a time limit, then by SIGTERM, then SIGKILL; and signals to the
 * launcher. All signals go to process groups. */
#include "stop.h"
#include "agents.h"
#include "say.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MILLISECONDS 10
#define REST_SECONDS      1.0 /* for what a rank leaves behind, and for its last output */
#define KILL_SECONDS      5.0 /* for SIGKILL to work; only the kernel can delay it */
#define SAME_INTERRUPT    0.2 /* `timeout` and make send SIGINT to the group and to the process */

static void watch(struct job *job)
{
    if (!uv_is_active((uv_handle_t *)&job->clock))
        uv_timer_start(&job->clock, stop_tick, TICK_MILLISECONDS, TICK_MILLISECONDS);
}

static void rank_signal(struct rank *rank, int signal)
{
    if (rank->gone)
        return;
    rank->signalled = true;
    if (rank->remote)
        remote_signal(rank, signal);
    else
        kill(-rank->pid, signal);
}

static void rank_step_to(struct rank *rank, enum rank_step step, double seconds)
{
    rank->step = step;
    rank->deadline = clock_after(seconds);
    if (step == STEP_TERM || step == STEP_KILL)
        rank_signal(rank, step == STEP_TERM ? SIGTERM : SIGKILL);
    watch(rank->job);
}

void stop_all(struct job *job, enum rank_step step)
{
    for (int i = 0; i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        if (!rank->gone && rank->step < step)
            rank_step_to(rank, step, step == STEP_KILL ? KILL_SECONDS : job->settings->grace_seconds);
    }
}

static void child_ended(struct job *job, pid_t pid, int status)
{
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int exit_code = signal ? 128 + signal : WEXITSTATUS(status);
    if (job->remotes) {
        remotes_child_ended(job, pid, exit_code, signal);
        return;
    }
    for (int i = 0; i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        if (rank->running && rank->pid == pid) {
            job->rank_ended(rank, exit_code, signal);
            return;
        }
    }
}

/* Some have no rank: background processes whose parents have ended. */
static void on_end_of_child(uv_signal_t *handle, int signal)
{
    int status;
    pid_t pid;
    (void)signal;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        child_ended(handle->data, pid, status);
}

/* Of a remote rank only the agent can know, which sends FRAME_GONE. */
static bool group_is_empty(const struct rank *rank)
{
    return !rank->remote && kill(-rank->pid, 0) != 0 && errno == ESRCH;
}

/* Its pid may mean another process from now on. */
static void rank_is_gone(struct rank *rank)
{
    rank->gone = true;
    if (!rank->remote)
        guard_remove(rank->job->guard, rank->pid);
}

void stop_rest(struct rank *rank)
{
    if (group_is_empty(rank))
        rank_is_gone(rank);
    /* A step that is further on keeps its own deadline; agents see to what is left on their hosts. */
    if (!rank->gone && !rank->remote && rank->step <= STEP_OWN)
        rank_step_to(rank, STEP_OWN, REST_SECONDS);
    watch(rank->job);
}

static void rank_tick(struct rank *rank)
{
    if (rank->gone || rank->step == STEP_NONE)
        return;
    if (!rank->running && group_is_empty(rank)) {
        rank_is_gone(rank);
        return;
    }
    if (clock_now() < rank->deadline)
        return;
    if (rank->step == STEP_OWN) {
        rank_step_to(rank, STEP_TERM, rank->job->settings->grace_seconds);
    } else if (rank->step == STEP_TERM) {
        rank_step_to(rank, STEP_KILL, KILL_SECONDS);
    } else {
        job_say(rank->job, "rank %d (pid %d) does not end, even after SIGKILL; giving up on it", rank->rank,
                rank->pid);
        rank_is_gone(rank);
    }
}

static bool all_gone(const struct job *job)
{
    for (int i = 0; i < job->count; i++) {
        if (!job->ranks[i].gone)
            return false;
    }
    return true;
}

static bool output_open_somewhere(const struct job *job)
{
    for (int i = 0; i < job->count; i++) {
        for (int j = 0; j < OUTPUTS; j++) {
            if (job->ranks[i].outputs[j].open)
                return true;
        }
    }
    return job->remotes && remotes_connected(job);
}

/* There is more, and a slow reader. */
static bool output_waits(const struct job *job)
{
    bool waits = sink_full(job->out) || sink_full(job->err);
    for (int i = 0; i < job->count; i++) {
        for (int j = 0; j < OUTPUTS; j++)
            waits = waits || job->ranks[i].outputs[j].paused;
    }
    return waits;
}

void stop_tick(uv_timer_t *clock)
{
    struct job *job = clock->data;
    bool waiting = false;
    for (int i = 0; i < job->count; i++) {
        rank_tick(&job->ranks[i]);
        waiting = waiting || (!job->ranks[i].gone && job->ranks[i].step != STEP_NONE);
    }
    /* Once all are gone it goes on ticking: stop_finished waits for their output, with a deadline. */
    if (!waiting && !all_gone(job))
        uv_timer_stop(clock);
}

/* A process that left its rank's group may hold the output open for ever. */
bool stop_finished(struct job *job)
{
    if (job->abandoned)
        return true;
    if (!all_gone(job) || (job->remotes && remotes_pending(job)))
        return false;
    if (!output_open_somewhere(job))
        return true;
    if (!job->drained || output_waits(job) || (job->remotes && remotes_sending(job)))
        job->drained = clock_after(REST_SECONDS);
    watch(job);
    return clock_now() >= job->drained;
}

static void on_interrupt(struct job *job)
{
    /* The first one has been dealt with in on_signal; the second, if it is meant as one, kills. */
    if (job->interrupts++ == 0) {
        job->interrupted = clock_now();
    } else if (clock_now() > job->interrupted + (int64_t)(SAME_INTERRUPT * CLOCK_SECOND)) {
        stop_all(job, STEP_KILL);
        job->abandoned = !sink_idle(job->out) || !sink_idle(job->err); /* no reader */
    }
}

void stop_by_signal(struct job *job, const char *where, int signal)
{
    bool first = !(signal == SIGINT && job->interrupts > 0);
    if (first) {
        job_say(job, "%sgot %s; ending the job", where, signal_name(signal));
        /* As the terminal would have done, were the ranks in its session. SIGTERM they get by their step. */
        for (int i = 0; i < job->count && signal != SIGTERM; i++)
            rank_signal(&job->ranks[i], signal);
        job_decide(job, 128 + signal);
        stop_all(job, signal == SIGTERM ? STEP_TERM : STEP_OWN);
    }
    if (signal == SIGINT)
        on_interrupt(job);
}

static void on_signal(uv_signal_t *handle, int signal)
{
    struct job *job = handle->data;
    job->signal_came(job, signal);
}

static void end_if_parent_has_ended(struct job *job)
{
    if (!guard_parent_ended(job->guard))
        return;
    if (job->remotes)
        remotes_close(job);
    /* Reading /proc takes descriptors, and there may be none left. */
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        close(file);
    guard_kill_descendants(job->guard);
    _exit(128 + SIGKILL);
}

static void on_end_of_parent(uv_signal_t *handle, int signal)
{
    (void)signal;
    end_if_parent_has_ended(handle->data); /* otherwise somebody has resumed this process */
}

hvd_code stop_watch_signals(struct job *job, hvd_status *status)
{
    static const struct {
        int signal;
        uv_signal_cb come;
        bool may_be_ignored;
    } watched[JOB_SIGNALS] = {{GUARD_PARENT_ENDED, on_end_of_parent, false},
                              {SIGCHLD, on_end_of_child, false},
                              {SIGINT, on_signal, true},
                              {SIGTERM, on_signal, true},
                              {SIGHUP, on_signal, true}};
    for (int i = 0; i < JOB_SIGNALS; i++) {
        uv_signal_init(&job->loop, &job->signals[i]);
        job->signals[i].data = job;
        if (watched[i].may_be_ignored && !sigismember(&job->guard->signals, watched[i].signal))
            continue;
        int error = uv_signal_start(&job->signals[i], watched[i].come, watched[i].signal);
        if (error)
            return status_set_errno(status, -error, "can't watch for signals");
    }
    sigprocmask(SIG_UNBLOCK, &job->guard->signals, NULL);
    end_if_parent_has_ended(job); /* before the first signal was watched for */
    return HVD_OK;
}
