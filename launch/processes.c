/* processes.c - keeps the table of processes, and ends them: by themselves within a time limit, then by
 * SIGTERM, then by SIGKILL. One thread, the loop's. All signals go to process groups. */
#include "processes.h"
#include "discovery.h"
#include "faults.h"
#include "say.h"
#include "starter.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/status.h"
#include "net/socket.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MILLISECONDS 10
#define REST_SECONDS      1.0 /* for what a process leaves behind, and for its last output */
#define ENDED_ROWS        32  /* of processes that are gone; as many as a report names */
#define KILL_SECONDS      5.0 /* for SIGKILL to work; only the kernel can delay it */

/* ---- the end of processes ------------------------------------------------------------------------------ */

static void tick(uv_timer_t *clock);

static void watch(struct table *table)
{
    if (!uv_is_active((uv_handle_t *)&table->clock))
        uv_timer_start(&table->clock, tick, TICK_MILLISECONDS, TICK_MILLISECONDS);
}

void process_signal(struct process *process, int signal)
{
    if (process->gone)
        return;
    process->signalled = true;
    process->table->starter->signal(process, signal);
}

static void step_to(struct process *process, enum step step, double seconds)
{
    process->step = step;
    process->deadline = clock_after(seconds);
    if (step == STEP_TERM || step == STEP_KILL)
        process_signal(process, step == STEP_TERM ? SIGTERM : SIGKILL);
    watch(process->table);
}

void process_end(struct process *process, enum step step)
{
    if (!process->gone && process->step < step)
        step_to(process, step, step == STEP_KILL ? KILL_SECONDS : process->table->settings->grace_seconds);
}

void table_end(struct table *table, enum step step)
{
    for (int i = 0; i < table->count; i++)
        process_end(table->list[i], step);
}

void process_ended(struct process *process, int exit_code, int signal)
{
    process->running = false;
    process->ended = clock_now();
    process->signal = signal;
    process->exit_code = exit_code;
    process->failed = exit_code && !process->signalled;
}

static void forget(struct process *process, bool given_up)
{
    if (process->table->starter->gone(process, given_up))
        process->gone = true;
}

void process_end_rest(struct process *process)
{
    forget(process, false);
    /* A step that is further on keeps its own deadline. */
    if (!process->gone && process->step <= STEP_OWN)
        step_to(process, STEP_OWN, REST_SECONDS);
    watch(process->table);
}

static void process_tick(struct process *process)
{
    if (process->gone || process->step == STEP_NONE)
        return;
    if (!process->running)
        forget(process, false);
    if (process->gone || process->table->read_until < process->deadline)
        return;
    if (process->step == STEP_OWN) {
        step_to(process, STEP_TERM, process->table->settings->grace_seconds);
    } else if (process->step == STEP_TERM) {
        step_to(process, STEP_KILL, KILL_SECONDS);
    } else {
        say(process->table, "rank %d (pid %d) does not end, even after SIGKILL; giving up on it",
            process->place.rank, process->pid);
        forget(process, true);
    }
}

static bool all_gone(const struct table *table)
{
    for (int i = 0; i < table->count; i++) {
        if (!table->list[i]->gone)
            return false;
    }
    return true;
}

static void tick(uv_timer_t *clock)
{
    struct table *table = clock->data;
    bool waiting = false;
    for (int i = 0; i < table->count; i++) {
        process_tick(table->list[i]);
        waiting = waiting || (!table->list[i]->gone && table->list[i]->step != STEP_NONE);
    }
    /* Once all are gone the clock continues: table_finished waits for their output, with a deadline. */
    if (!waiting && !all_gone(table))
        uv_timer_stop(clock);
}

static bool output_open_somewhere(const struct table *table)
{
    for (int i = 0; i < table->count; i++) {
        for (int j = 0; j < OUTPUTS; j++) {
            if (table->list[i]->outputs[j].open)
                return true;
        }
    }
    return table->starter->connected && table->starter->connected(table);
}

/* Returns true if there is more output than a slow reader has taken. */
static bool output_waits(const struct table *table)
{
    bool waits = sink_full(table->out) || sink_full(table->err);
    for (int i = 0; i < table->count; i++) {
        for (int j = 0; j < OUTPUTS; j++)
            waits = waits || table->list[i]->outputs[j].paused;
    }
    return waits;
}

/* A process that left its rank's group may hold the output open forever. */
bool table_finished(struct table *table)
{
    if (!all_gone(table))
        return false;
    if (!output_open_somewhere(table))
        return true;
    if (!table->drained || output_waits(table) || (table->starter->sending && table->starter->sending(table)))
        table->drained = clock_after(REST_SECONDS);
    watch(table);
    return table->read_until >= table->drained;
}

/* ---- signals to this process -------------------------------------------------------------------------- */

/* Some children have no row: background processes whose parents have ended. */
static void on_end_of_child(uv_signal_t *handle, int ignored)
{
    struct table *table = handle->data;
    int status;
    pid_t pid;
    (void)ignored;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        int exit_code = signal ? 128 + signal : WEXITSTATUS(status);
        if (!table->discovery || !discovery_child_ended(table->discovery, pid, exit_code, signal))
            table->starter->child_ended(table, pid, exit_code, signal);
    }
}

static void on_signal(uv_signal_t *handle, int signal)
{
    struct table *table = handle->data;
    table->happened(table, &(struct event){.kind = EVENT_SIGNALLED, .signal = signal, .text = ""});
}

static void on_question(uv_signal_t *handle, int signal)
{
    struct table *table = handle->data;
    table->happened(table, &(struct event){.kind = EVENT_ASKED, .signal = signal});
}

static void end_if_parent_has_ended(struct table *table)
{
    if (!guard_parent_ended(table->guard))
        return;
    if (table->starter->close)
        table->starter->close(table);
    /* Reading /proc takes descriptors, and there may be none left. */
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        close(file);
    guard_kill_descendants(table->guard);
    _exit(128 + SIGKILL);
}

static void on_end_of_parent(uv_signal_t *handle, int signal)
{
    (void)signal;
    end_if_parent_has_ended(handle->data); /* otherwise somebody has resumed this process */
}

static hvd_code watch_signals(struct table *table, hvd_status *status)
{
    static const struct {
        int signal;
        uv_signal_cb come;
        bool may_be_ignored;
    } watched[TABLE_SIGNALS] = {{GUARD_PARENT_ENDED, on_end_of_parent, false},
                                {SIGCHLD, on_end_of_child, false},
                                {SIGQUIT, on_question, false},
                                {SIGINT, on_signal, true},
                                {SIGTERM, on_signal, true},
                                {SIGHUP, on_signal, true}};
    for (int i = 0; i < TABLE_SIGNALS; i++) {
        uv_signal_init(&table->loop, &table->signals[i]);
        table->signals[i].data = table;
        if (watched[i].may_be_ignored && !sigismember(&table->guard->signals, watched[i].signal))
            continue;
        bool is_event = watched[i].come == on_question || watched[i].come == on_signal;
        if (is_event && !table->happened)
            continue;
        int error = uv_signal_start(&table->signals[i], watched[i].come, watched[i].signal);
        if (error)
            return status_set_errno(status, -error, "can't watch for signals");
    }
    sigprocmask(SIG_UNBLOCK, &table->guard->signals, NULL);
    end_if_parent_has_ended(table); /* before the first signal was watched for */
    return HVD_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

static bool same_file(int a, int b)
{
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

hvd_code table_open(struct table *table, hvd_status *status)
{
    /* Handled as EPIPE and EFBIG. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sink_open(&table->sinks[0], &table->loop, STDOUT_FILENO);
    sink_open(&table->sinks[1], &table->loop, STDERR_FILENO);
    table->out = &table->sinks[0];
    table->err = same_file(STDOUT_FILENO, STDERR_FILENO) ? table->out : &table->sinks[1];
    uv_timer_init(&table->loop, &table->clock);
    table->clock.data = table;
    table->memory_kills = cgroup_memory_kills(CGROUP_LIST, CGROUP_MOUNT);
    return watch_signals(table, status);
}

void table_run(struct table *table)
{
    int64_t before = clock_now();
    uv_run(&table->loop, UV_RUN_ONCE);
    table->read_until = before;
}

bool table_has_job(const struct table *table, const char *job)
{
    const char *id = table->attached ? table->attached : table->id;
    size_t length = strlen(id);
    bool ends = !table->attached_whole || !job[length] || job[length] == '-';
    return strncmp(job, id, length) == 0 && ends;
}

struct process *table_find(const struct table *table, int slot)
{
    int first = 0, end = table->count;
    while (first < end) {
        int middle = first + (end - first) / 2;
        if (table->list[middle]->slot < slot)
            first = middle + 1;
        else
            end = middle;
    }
    return first < table->count && table->list[first]->slot == slot ? table->list[first] : NULL;
}

struct process *table_add(struct table *table, int slot, const struct place *place)
{
    struct sink *sinks[OUTPUTS] = {table->out, table->err, NULL};
    struct process **list = realloc(table->list, ((size_t)table->count + 1) * sizeof *list);
    if (!list)
        return NULL;
    table->list = list;
    struct process *process = calloc(1, sizeof *process);
    if (!process)
        return NULL;
    process->table = table;
    process->slot = slot;
    process->place = *place;
    process->epoch = table->epoch;
    process->size = table->size;
    process->gone = true; /* until it is started */
    process->page = -1;
    for (int i = 0; i < OUTPUTS; i++)
        process->outputs[i] = (struct output){
            .sink = sinks[i], .rank = slot, .index = i, .file = -1, .timestamp = table->options->timestamp};
    table->list[table->count++] = process;
    return process;
}

int table_count_running(const struct table *table)
{
    int count = 0;
    for (int i = 0; i < table->count; i++)
        count += table->list[i]->pid && !table->list[i]->gone;
    return count;
}

hvd_code table_serve(struct table *table, const struct addresses *addresses, hvd_status *status)
{
    char own[ADDRESSES_TEXT];
    addresses_to_listen(addresses, table->settings->ports, own);
    TRY(hvd_rendezvous_start(own, table->secret, &table->rendezvous, status));
    addresses_to_connect(addresses, table->settings->advertised_address,
                         hvd_rendezvous_port(table->rendezvous), table->rendezvous_address,
                         JOB_ADDRESS_LIMIT);
    return HVD_OK;
}

/* For --output-filename: FOLDER/rank.<slot>, which is the rank at the start, with as many digits for every
 * rank, and the two files in it. */
static hvd_code copy_to_folder(struct process *process, hvd_status *status)
{
    const char *folder = process->table->options->output;
    char path[PATH_MAX];
    int digits = snprintf(NULL, 0, "%d", process->table->size - 1);
    int length = snprintf(path, sizeof path, "%s/rank.%0*d", folder, digits, process->slot);
    if (length < 0 || (size_t)length + sizeof "/stdout" > sizeof path)
        return status_set(status, HVD_INVALID_ARGUMENT, "--output-filename: the path is too long");
    if ((mkdir(folder, 0777) && errno != EEXIST) || (mkdir(path, 0777) && errno != EEXIST))
        return status_set_errno(status, errno, "--output-filename: can't make the folder %s", path);
    for (int i = 0; i < OUTPUT_RESULT; i++) {
        snprintf(path + length, sizeof path - (size_t)length, "/%s", output_name(&process->outputs[i]));
        TRY(output_copy_to(&process->outputs[i], path, status));
    }
    return HVD_OK;
}

hvd_code process_copy_outputs(struct process *process, hvd_status *status)
{
    const struct options *options = process->table->options;
    char path[PATH_MAX];
    if (options->task) {
        snprintf(path, sizeof path, "%s/report.%d", options->task, process->slot);
        TRY(output_copy_to(&process->outputs[OUTPUT_RESULT], path, status));
    }
    return options->output ? copy_to_folder(process, status) : HVD_OK;
}

void process_close_outputs(struct process *process)
{
    for (int i = 0; i < OUTPUTS; i++)
        output_close(&process->outputs[i]);
}

static void process_free(struct process *process)
{
    for (int i = 0; i < OUTPUTS; i++)
        output_free(&process->outputs[i]);
    socket_close(&process->page);
    history_free(&process->history);
    free(process->fault);
    free(process);
}

static bool is_over(const struct process *process)
{
    bool open = false;
    for (int i = 0; i < OUTPUTS; i++)
        open = open || process->outputs[i].open || process->outputs[i].paused || process->outputs[i].closing;
    return process->gone && process->gone_reported && !open;
}

/* Returns the index of the row whose process has ended first, of those that are over; -1: they are few. */
static int find_oldest(const struct table *table)
{
    int oldest = -1, count = 0;
    for (int i = 0; i < table->count; i++) {
        if (!is_over(table->list[i]))
            continue;
        count++;
        if (oldest < 0 || table->list[i]->ended < table->list[oldest]->ended)
            oldest = i;
    }
    return count > ENDED_ROWS ? oldest : -1;
}

void table_release(struct table *table, void (*released)(struct process *process))
{
    int oldest;
    while (!table->ending && (oldest = find_oldest(table)) >= 0) {
        if (released)
            released(table->list[oldest]);
        process_free(table->list[oldest]);
        table->count--;
        memmove(table->list + oldest, table->list + oldest + 1,
                (size_t)(table->count - oldest) * sizeof *table->list);
    }
}

static void close_handle(uv_handle_t *handle, void *argument)
{
    (void)argument;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void table_close(struct table *table)
{
    if (table->starter->close)
        table->starter->close(table);
    guard_kill_descendants(table->guard);
    faults_close(table);
    /* Handles are memory of the table: the loop has to let go of all of them first. */
    uv_walk(&table->loop, close_handle, NULL);
    uv_run(&table->loop, UV_RUN_DEFAULT);
    uv_loop_close(&table->loop);
    for (int i = 0; i < table->count; i++)
        process_free(table->list[i]);
    free(table->list);
    sink_free(&table->sinks[0]);
    sink_free(&table->sinks[1]);
    socket_close(&table->function);
    hvd_rendezvous_stop(table->rendezvous);
    if (table->starter->free)
        table->starter->free(table);
}
