/* monitor.c - see monitor.h. */
#include "monitor.h"
#include "changes.h"
#include "say.h"
#include "starter.h"
#include "status_text.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define TICK_MILLISECONDS 50
#define VIEWS_OF_RANK     4       /* at most, of a host: a process may have had several pages */
#define VIEWS_OF_JOB      0x40000 /* of an attached job, whose size is not known at first */

/* ---- what a look has found ----------------------------------------------------------------------------- */

static bool is_current(const struct monitor *monitor, uint32_t number)
{
    return monitor->under_way && number == monitor->number;
}

static void keep(struct monitor *monitor, struct rank_view *view)
{
    if (monitor->count == monitor->capacity) {
        int capacity = monitor->capacity ? 2 * monitor->capacity : 64;
        struct rank_view *list = reallocarray(monitor->views, (size_t)capacity, sizeof *list);
        if (!list) {
            rank_view_free(view);
            return;
        }
        monitor->views = list;
        monitor->capacity = capacity;
    }
    monitor->views[monitor->count++] = *view;
}

void monitor_add(struct monitor *monitor, uint32_t number, int host, struct rank_view *view)
{
    const struct table *table = monitor->table;
    struct page_identity *identity = &view->page.identity;
    int most = table->attached ? VIEWS_OF_JOB : VIEWS_OF_RANK * table->count;
    /* A process that waits for its first epoch has a page of that epoch already. */
    bool early = !table->attached && identity->epoch > table->epoch;
    if (!is_current(monitor, number) || host >= monitor->host_count ||
        monitor->hosts[host] != MONITOR_REQUESTED || !table_has_job(table, identity->job) || early ||
        monitor->count >= most) {
        rank_view_free(view);
        return;
    }
    host_title(&table->hosts->list[host], identity->host, sizeof identity->host);
    for (int i = 0; i < table->count; i++) {
        struct process *process = table->list[i];
        if (process->place.host == host && process->pid && process->pid == view->page.child)
            process->seen = number;
    }
    keep(monitor, view);
}

static bool answers(const struct monitor *monitor, int host)
{
    return monitor->hosts[host] != MONITOR_REQUESTED && monitor->hosts[host] != MONITOR_UNREACHED;
}

/* Adds a view of a process of which there is none. */
static void stand_in(struct monitor *monitor, const struct process *process, bool host_answers)
{
    const struct table *table = monitor->table;
    const struct place *place = &process->place;
    struct rank_view view = {.seen = host_answers || process->gone};
    struct page_identity *identity = &view.page.identity;
    char outcome[64];
    *identity = (struct page_identity){.rank = place->rank,
                                       .size = table->size,
                                       .local_rank = place->local_rank,
                                       .local_size = place->local_size,
                                       .epoch = table->epoch};
    append_text(identity->job, sizeof identity->job, "%s", table->id);
    host_title(process_host(process), identity->host, sizeof identity->host);
    if (process->running) {
        view.process = process->pid;
    } else if (process->exit_code) {
        view.page.state = PAGE_FAILED;
        append_text(view.page.cause, sizeof view.page.cause, "it %s",
                    say_outcome(process->exit_code, process->signal, outcome, sizeof outcome));
    } else if (process->started) {
        view.page.state = PAGE_LEFT;
    }
    keep(monitor, &view);
}

const char *monitor_program(char *const *words, char *name, size_t capacity)
{
    const char *word = words[0] ? words[0] : "";
    for (int i = 0; words[i]; i++) {
        size_t length = strlen(words[i]);
        bool is_module = i && strcmp(words[i - 1], "-m") == 0;
        if (is_module || (length > 3 && strcmp(words[i] + length - 3, ".py") == 0)) {
            word = words[i];
            break;
        }
    }
    const char *last = strrchr(word, '/');
    name[0] = '\0';
    append_text(name, capacity, "%s", last ? last + 1 : word);
    char *end = strstr(name, ".py");
    if (end && end > name && !end[3])
        *end = '\0';
    return name;
}

/* Returns true if one of the first `count` views is of that rank. */
static bool has_view(const struct monitor *monitor, int count, const struct page_identity *known)
{
    for (int i = 0; i < count; i++) {
        const struct page_identity *each = &monitor->views[i].page.identity;
        if (each->rank == known->rank && strcmp(each->job, known->job) == 0)
            return true;
    }
    return false;
}

/* Adds views of the ranks that were seen on hosts that do not answer now, or have sent only some of their
 * ranks, and keeps which ranks are known for the next look. */
static void stand_in_for_known(struct monitor *monitor, const struct job_view_host *hosts)
{
    const int seen = monitor->count;
    for (int i = 0; i < monitor->known_count; i++) {
        for (int j = 0; j < monitor->host_count; j++) {
            const struct page_identity *known = &monitor->known[i];
            if (!hosts[j].answers && strcmp(hosts[j].name, known->host) == 0 &&
                table_has_job(monitor->table, known->job) && !has_view(monitor, seen, known))
                keep(monitor, &(struct rank_view){.page.identity = *known});
        }
    }
    struct page_identity *known =
        reallocarray(monitor->known, (size_t)monitor->count + 1, sizeof *monitor->known);
    if (!known)
        return;
    monitor->known = known;
    monitor->known_count = monitor->count;
    for (int i = 0; i < monitor->count; i++)
        known[i] = monitor->views[i].page.identity;
}

/* Fills in what the launcher has recorded. */
static void describe(const struct monitor *monitor, struct job_view_origin *origin,
                     struct job_view_host *hosts)
{
    const struct table *table = monitor->table;
    origin->taken = clock_now();
    origin->taken_at = clock_since_1970();
    origin->hosts = hosts;
    if (table->changes) {
        origin->changing = table->changes->since;
        origin->least = (int)table->options->min_num_proc;
        origin->epoch = table->epoch;
        origin->epoch_began = table->changes->began;
    }
    for (int i = 0; i < monitor->host_count; i++) {
        struct job_view_host *host = &hosts[origin->host_count++];
        *host = (struct job_view_host){.answers = answers(monitor, i)};
        host_title(&table->hosts->list[i], host->name, sizeof host->name);
        if (host->answers || !table->starter->silent)
            continue;
        host->silent = table->starter->silent(table, i);
        if (host->silent < (double)(origin->taken - monitor->began) / CLOCK_SECOND)
            host->silent = 0; /* it has sent something else meanwhile */
    }
    for (int i = 0; i < table->count; i++) {
        int64_t started = table->list[i]->started;
        if (started && (!origin->started || started < origin->started))
            origin->started = started;
    }
}

static void make_job_views(struct monitor *monitor, struct job_views *job_views)
{
    struct table *table = monitor->table;
    char name[64];
    struct job_view_origin origin = {
        .id = table->attached ? NULL : table->id,
        .name = table->attached ? NULL : monitor_program(table->options->command, name, sizeof name)};
    struct job_view_host *hosts = calloc((size_t)table->hosts->count, sizeof *hosts);
    hvd_status status;
    hvd_code code = hosts ? HVD_OK : status_no_memory(&status);
    if (!code) {
        describe(monitor, &origin, hosts);
        for (int i = 0; i < table->count; i++) {
            const struct process *process = table->list[i];
            if (process->slot < monitor->end && process->seen != monitor->number && !process->apart)
                stand_in(monitor, process, hosts[process->place.host].answers);
        }
        if (table->attached)
            stand_in_for_known(monitor, hosts);
        code = job_views_make(monitor->views, monitor->count, &origin, job_views, &status);
        monitor->views = NULL;
        monitor->count = monitor->capacity = 0;
    }
    if (code)
        say(table, "can't find out what the job does: %s", status.text);
    free(hosts);
}

/* ---- a look -------------------------------------------------------------------------------------------- */

static void drop(struct monitor *monitor)
{
    for (int i = 0; i < monitor->count; i++)
        rank_view_free(&monitor->views[i]);
    free(monitor->views);
    free(monitor->hosts);
    monitor->views = NULL;
    monitor->hosts = NULL;
    monitor->count = monitor->capacity = 0;
}

static void start(struct monitor *monitor);

/* Moves the clients to which this look is an answer. Returns their number. */
static int take_served(struct monitor *monitor, struct monitor_client served[MONITOR_CLIENTS])
{
    int count = 0, kept = 0;
    for (int i = 0; i < monitor->client_count; i++) {
        if (monitor->clients[i].stacks <= monitor->stacks)
            served[count++] = monitor->clients[i];
        else
            monitor->clients[kept++] = monitor->clients[i];
    }
    monitor->client_count = kept;
    return count;
}

/* Returns true if an answer is missing. */
static bool waits_for_answers(const struct monitor *monitor)
{
    for (int i = 0; i < monitor->host_count; i++) {
        if (monitor->hosts[i] == MONITOR_REQUESTED)
            return true;
    }
    return false;
}

/* The clients of this look may request the next one. */
static void finish(struct monitor *monitor)
{
    struct job_views job_views = {0};
    struct monitor_client served[MONITOR_CLIENTS];
    int count = take_served(monitor, served);
    uv_timer_stop(&monitor->timer);
    monitor->complete = monitor->hosts && !waits_for_answers(monitor);
    if (monitor->hosts)
        make_job_views(monitor, &job_views);
    monitor->under_way = false;
    drop(monitor);
    if (monitor->client_count)
        start(monitor);
    for (int i = 0; i < count; i++)
        served[i].done(&job_views, served[i].argument);
    job_views_free(&job_views);
}

static void on_timer(uv_timer_t *timer)
{
    struct monitor *monitor = timer->data;
    if (patience_ends(&monitor->patience))
        finish(monitor);
}

void monitor_host_done(struct monitor *monitor, uint32_t number, int host)
{
    if (!is_current(monitor, number) || host >= monitor->host_count ||
        monitor->hosts[host] != MONITOR_REQUESTED)
        return;
    monitor->hosts[host] = MONITOR_ANSWERED;
    if (!waits_for_answers(monitor))
        finish(monitor);
}

static void on_look(struct look *look, struct rank_view *views, int count)
{
    struct monitor *monitor = look->table->monitor;
    for (int i = 0; i < count; i++)
        monitor_add(monitor, monitor->number, 0, &views[i]);
    free(views);
    monitor_host_done(monitor, monitor->number, 0);
}

static void request_host(struct monitor *monitor, int host)
{
    const struct table *table = monitor->table;
    monitor->hosts[host] = MONITOR_REQUESTED;
    if (!table->starter->look && look_start(&monitor->look, monitor->stacks, NULL))
        monitor->hosts[host] = MONITOR_ANSWERED;
    else if (table->starter->look && !table->starter->look(table, host, monitor->number, monitor->stacks))
        monitor->hosts[host] = MONITOR_UNREACHED;
}

/* Requests views from the hosts on which processes of the job are left; of an attached job from all. */
static void request_hosts(struct monitor *monitor)
{
    struct table *table = monitor->table;
    for (int i = 0; i < table->count; i++) {
        const struct process *process = table->list[i];
        bool requested = monitor->hosts[process->place.host] != MONITOR_NOT_REQUESTED;
        if (!requested && !(table->starter->look && process->gone))
            request_host(monitor, process->place.host);
    }
    for (int i = 0; table->attached && i < table->hosts->count; i++)
        request_host(monitor, i);
}

static void start(struct monitor *monitor)
{
    const struct table *table = monitor->table;
    monitor->under_way = true;
    monitor->began = clock_now();
    monitor->number++;
    monitor->stacks = STACKS_NONE;
    for (int i = 0; i < monitor->client_count; i++) {
        if (monitor->clients[i].stacks > monitor->stacks)
            monitor->stacks = monitor->clients[i].stacks;
    }
    monitor->hosts = calloc((size_t)table->hosts->count + 1, sizeof *monitor->hosts);
    monitor->end = table->count ? table->list[table->count - 1]->slot + 1 : 0;
    monitor->host_count = table->hosts->count;
    if (monitor->hosts)
        request_hosts(monitor);
    bool waits = monitor->hosts && waits_for_answers(monitor);
    double most = monitor->stacks == STACKS_NONE ? MONITOR_SECONDS : MONITOR_STACK_SECONDS;
    monitor->patience = patience_of(waits ? (int64_t)(most * CLOCK_SECOND) : 0);
    uv_timer_start(&monitor->timer, on_timer, waits ? TICK_MILLISECONDS : 0, TICK_MILLISECONDS);
}

/* ---- clients ------------------------------------------------------------------------------------------- */

void monitor_init(struct monitor *monitor, struct table *table)
{
    *monitor = (struct monitor){.table = table};
    look_init(&monitor->look, table, on_look);
    uv_timer_init(&table->loop, &monitor->timer);
    monitor->timer.data = monitor;
    table->monitor = monitor;
}

void monitor_free(struct monitor *monitor)
{
    look_free(&monitor->look);
    drop(monitor);
    free(monitor->known);
}

hvd_code monitor_request(struct monitor *monitor, enum stacks stacks, monitor_done_fn *done, void *argument,
                         hvd_status *status)
{
    if (monitor->client_count == MONITOR_CLIENTS)
        return status_set(status, HVD_REFUSED, "%d other requests wait for a look at the job",
                          MONITOR_CLIENTS);
    monitor->clients[monitor->client_count++] = (struct monitor_client){stacks, done, argument};
    if (!monitor->under_way)
        start(monitor);
    return HVD_OK;
}

void monitor_forget(struct monitor *monitor, const void *argument)
{
    int kept = 0;
    for (int i = 0; i < monitor->client_count; i++) {
        if (monitor->clients[i].argument != argument)
            monitor->clients[kept++] = monitor->clients[i];
    }
    monitor->client_count = kept;
}

void monitor_print(const struct job_views *job_views, void *argument)
{
    struct table *table = argument;
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    for (int i = 0; file && i < job_views->count; i++) {
        fputs(i ? "\n" : "", file);
        status_text_write(&job_views->list[i], file);
    }
    if (file)
        fclose(file);
    if (!job_views->count)
        say(table, "no rank was started yet");
    sink_put(table->err, text, length);
    sink_flush(table->err);
    free(text);
}
