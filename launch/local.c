/* local.c - the starter of processes as children of this process: their environment and files, and what it
 * means when the command can't be started. The launcher uses it for jobs of one host, an agent for its ranks.
 * One thread, the loop's. */
#include "child.h"
#include "environment.h"
#include "rlimits.h"
#include "say.h"
#include "starter.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/platform_cores.h"
#include "base/status.h"
#include "net/socket.h"
#include "watch/page.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define OLD_PAGES 16 /* of processes that have ended, when another one is started */

static hvd_code local_open(struct table *table, hvd_status *status)
{
    const char *interfaces = table->settings->network_interface;
    struct addresses addresses;
    if (*interfaces)
        TRY(addresses_find(interfaces, "", &addresses, status));
    TRY(rlimits_check(table, table->size, true, status));
    TRY(table_serve(table, &addresses_of_loopback, status));
    table->happened(table, &(struct event){.kind = EVENT_PREPARED});
    return HVD_OK;
}

static hvd_code local_assign(struct table *table, const struct epoch *epoch, hvd_status *status)
{
    TRY(hvd_rendezvous_assign(table->rendezvous, epoch->job, epoch->number, epoch->assignments, epoch->count,
                              status));
    table->happened(table, &(struct event){.kind = EVENT_ASSIGNED});
    return HVD_OK;
}

/* ---- start -------------------------------------------------------------------------------------------- */

static int output_count(const struct table *table)
{
    return table->function >= 0 ? OUTPUTS : OUTPUT_RESULT;
}

static hvd_code explain(struct process *process, int error, hvd_status *status)
{
    const char *command = process->table->options->command[0];
    int rank = process->place.rank;
    process->exit_code = error == UV_ENOENT ? 127 : 126;
    if (error == UV_ENOENT)
        return status_set(
            status, HVD_SYSTEM,
            strchr(command, '/') && access(command, F_OK) == 0
                ? "can't start rank %d: '%s' needs an interpreter that is not there; see its first line"
                : "can't start rank %d: '%s' was not found; is it on the PATH?",
            rank, command);
    if (error == UV_EMFILE)
        return status_set(status, HVD_SYSTEM, "can't start rank %d: too many open files; raise `ulimit -n`",
                          rank);
    if (error == UV_EAGAIN)
        return status_set(status, HVD_SYSTEM,
                          "can't start rank %d: Resource temporarily unavailable: too many processes and "
                          "threads; raise `ulimit -u` or the container's limit",
                          rank);
    return status_set_errno(status, -error, "can't start rank %d: '%s'", rank, command);
}

/* Linux shares each core among sessions first (sched_autogroup). While other programs want the same core, a
 * rank that waits can yield it only to a peer of its own session. Ranks that have a core each get more of it
 * in a session of their own. */
static pid_t spawn(const struct process *process, char **environment, const int ends[CHILD_FILES])
{
    const struct table *table = process->table;
    double processors = platform_processors();
    struct child child = {.words = table->options->command,
                          .environment = environment,
                          .file_count = 1 + output_count(table),
                          .end_signal = SIGKILL,
                          .shares_session = processors > 0 && process->place.local_size > processors};
    memcpy(child.files, ends, sizeof child.files);
    /* Only rank 0 inherits stdin; the others read /dev/null. */
    if (table->function >= 0)
        child.files[0] = table->function;
    else if (process->place.rank == 0)
        child.files[0] = table->input;
    return child_start(&child, table->guard);
}

/* Closes the pages of processes that ended first, except the newest few: a job whose processes are replaced
 * again and again must not fill the memory. */
static void close_old_pages(const struct table *table)
{
    for (;;) {
        struct process *oldest = NULL;
        int count = 0;
        for (int i = 0; i < table->count; i++) {
            struct process *process = table->list[i];
            if (process->page < 0 || !process->gone)
                continue;
            count++;
            if (!oldest || process->ended < oldest->ended)
                oldest = process;
        }
        if (count <= OLD_PAGES)
            return;
        socket_close(&oldest->page);
    }
}

/* What the rank writes into its page can be read while this process runs, however the rank ends. */
static void make_page(struct process *process)
{
    const struct table *table = process->table;
    struct page_identity identity = {.rank = process->place.rank,
                                     .size = process->size,
                                     .local_rank = process->place.local_rank,
                                     .local_size = process->place.local_size,
                                     .epoch = process->epoch};
    append_text(identity.job, sizeof identity.job, "%s", table->id);
    gethostname(identity.host, sizeof identity.host - 1);
    append_text(identity.version, sizeof identity.version, "%s", hvd_version());
    close_old_pages(table);
    /* Without one the rank makes a page of its own. */
    if (rlimits_allow_page(table, process->place.local_size))
        process->page = page_create(&identity);
}

static hvd_code start_process(struct process *process, int ends[CHILD_FILES], struct environment *environment,
                              hvd_status *status)
{
    struct table *table = process->table;
    make_page(process);
    TRY(environment_of_rank(environment, process, status));
    TRY(process_copy_outputs(process, status));
    for (int i = 0; i < output_count(table); i++)
        TRY(output_open(&process->outputs[i], &table->loop, &ends[1 + i], status));
    pid_t pid = spawn(process, environment->entries, ends);
    if (pid < 0)
        return explain(process, pid, status);
    process->pid = pid;
    process->running = true;
    process->gone = false;
    process->started = clock_now();
    if (process->page >= 0)
        page_set_child(process->page, pid);
    say_process_start(process, environment->entries);
    return HVD_OK;
}

static hvd_code local_start(struct process *process, hvd_status *status)
{
    int ends[CHILD_FILES] = {-1, -1, -1, -1};
    struct environment environment = {0};
    hvd_code code = start_process(process, ends, &environment, status);
    /* The process has its own ends. If ours stayed open, its output would never end. */
    for (int i = 0; i < CHILD_FILES; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    environment_free(&environment);
    return code;
}

/* ---- end ---------------------------------------------------------------------------------------------- */

static void local_signal(const struct process *process, int signal)
{
    kill(-process->pid, signal);
}

static bool local_gone(const struct process *process, bool given_up)
{
    bool gone = given_up || (kill(-process->pid, 0) != 0 && errno == ESRCH);
    if (gone) /* from now on its number may mean another process */
        guard_remove(process->table->guard, process->pid);
    return gone;
}

/* The kernel counts a kill before the process ends. */
static enum killer find_killer(struct table *table)
{
    int64_t kills = cgroup_memory_kills(CGROUP_LIST, CGROUP_MOUNT);
    if (kills < 0 || table->memory_kills < 0)
        return KILLER_UNKNOWN;
    if (kills <= table->memory_kills)
        return KILLER_OTHER;
    table->memory_kills++;
    return KILLER_KERNEL;
}

static void local_child_ended(struct table *table, pid_t pid, int exit_code, int signal)
{
    for (int i = 0; i < table->count; i++) {
        struct process *process = table->list[i];
        if (!process->running || process->pid != pid)
            continue;
        process_ended(process, exit_code, signal);
        if (signal == SIGKILL)
            process->killer = find_killer(table);
        table->happened(
            table, &(struct event){
                       .kind = EVENT_ENDED, .process = process, .exit_code = exit_code, .signal = signal});
        process_end_rest(process);
        return;
    }
}

const struct starter_ops local_starter = {.open = local_open,
                                          .assign = local_assign,
                                          .start = local_start,
                                          .signal = local_signal,
                                          .gone = local_gone,
                                          .child_ended = local_child_ended};
