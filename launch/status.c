/* status.c - see status.h. Launchers on this host are asked about the jobs that they have started, on all
 * their hosts; of other jobs it reads the pages that are on this host. One thread. */
#include "status.h"
#include "job_views.h"
#include "status_client.h"
#include "status_json.h"
#include "status_text.h"
#include "status_trace.h"

#include "base/patience.h"
#include "base/status.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXIT_NO_TIMELINE 2
#define CLEAR_SCREEN     "\033[H\033[2J"

static void pause_for(double seconds)
{
    const int64_t end = clock_after(seconds);
    const struct timespec at = {end / CLOCK_SECOND, end % CLOCK_SECOND};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static enum stacks stacks_of(const struct options *options)
{
    const char *stacks = options->stacks ? options->stacks : "late";
    return strcmp(stacks, "all") == 0 ? STACKS_ALL : strcmp(stacks, "none") == 0 ? STACKS_NONE : STACKS_LATE;
}

static void take_stacks(struct host_pages *pages, const struct options *options)
{
    host_pages_request(pages, stacks_of(options), options->job);
    struct patience patience = patience_of(PAGES_ANSWER_MILLISECONDS * CLOCK_SECOND / 1000);
    bool last = false;
    while (!host_pages_answers(pages, last = patience_ends(&patience)) && !last)
        pause_for(PAGES_TICK_MILLISECONDS / 1000.0);
}

/* Looks at the pages of this host, except those of jobs that a launcher has reported. */
static hvd_code look_here(const struct options *options, const struct launchers *launchers,
                          struct job_views *job_views, hvd_status *status)
{
    struct host_pages *pages = host_pages_create();
    int count;
    if (!pages)
        return status_no_memory(status);
    host_pages_find(pages);
    host_pages_glance(pages);
    pause_for(PAGES_PAUSE_MILLISECONDS / 1000.0);
    host_pages_read(pages);
    for (int i = 0; i < launchers->count; i++) {
        if (!*launchers->list[i].why)
            host_pages_forget(pages, launchers->list[i].job);
    }
    take_stacks(pages, options);
    struct rank_view *views = host_pages_views(pages, &count);
    if (host_pages_of_others(pages))
        fprintf(stderr, "horovodrun: %s\n", host_pages_of_others(pages));
    host_pages_free(pages);
    const struct job_view_origin origin = {.taken = clock_now(), .taken_at = clock_since_1970()};
    return job_views_make(views, count, &origin, job_views, status);
}

/* Asks the launchers on this host, and says which of them do not answer. */
static void ask_launchers(const struct options *options, struct launchers *launchers,
                          struct job_views *job_views)
{
    launchers_ask(options->job, stacks_of(options), launchers, job_views);
    for (int i = 0; i < launchers->count; i++) {
        const struct launcher *launcher = &launchers->list[i];
        if (*launcher->why)
            fprintf(stderr,
                    "horovodrun: the launcher of job %.8s (pid %d) was asked in vain: %s; of its ranks only "
                    "those on this host can be shown, and with -H those on other ones\n",
                    launcher->job, launcher->process, launcher->why);
    }
}

struct printed {
    int count, worst;                /* jobs; -1: there was none */
    const struct job_view *job_view; /* the last one */
    bool asks;                       /* its launcher has reported it */
};

static void print(const struct job_views *job_views, const struct options *options, struct printed *printed)
{
    for (int i = 0; i < job_views->count; i++) {
        const struct job_view *job_view = &job_views->list[i];
        if (options->job && strncmp(job_view->id, options->job, strlen(options->job)) != 0)
            continue;
        if (options->json)
            status_json_write(job_view, stdout);
        else if (printed->count)
            putchar('\n');
        if (!options->json)
            status_text_write(job_view, stdout);
        printed->count++;
        printed->job_view = job_view;
        printed->asks = job_view->whole;
        printed->worst = (int)job_view->verdict > printed->worst ? (int)job_view->verdict : printed->worst;
    }
}

/* Writes the timeline of the only job, and says so. Returns the exit code. */
static int write_timeline(const struct options *options, const struct printed *printed)
{
    char text[PATH_MAX + 256];
    hvd_code code = HVD_INVALID_ARGUMENT;
    hvd_status status;
    if (printed->count > 1)
        fprintf(stderr,
                "horovodrun: %d jobs run, and a timeline is of one: name it, horovodrun --status %.8s "
                "--timeline %s\n",
                printed->count, printed->job_view->id, options->timeline);
    else if ((code =
                  status_trace_write(options, printed->job_view, printed->asks, text, sizeof text, &status)))
        fprintf(stderr, "horovodrun: %s\n", status.text);
    else
        fprintf(options->json ? stderr : stdout, "\n%s\n", text);
    return code ? EXIT_NO_TIMELINE : printed->worst;
}

static void print_time(const struct options *options)
{
    char text[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (options->watch_seconds <= 0 || options->json)
        return;
    if (localtime_r(&now, &parts))
        strftime(text, sizeof text, "%H:%M:%S", &parts);
    printf("%s%s\n", isatty(STDOUT_FILENO) ? CLEAR_SCREEN : "", text);
}

/* The answer to a look at the hosts that the user has given. */
struct answer {
    const struct options *options;
    struct printed *printed;
    bool there;
};

static void on_look(const struct job_views *job_views, void *argument)
{
    struct answer *answer = argument;
    print_time(answer->options);
    print(job_views, answer->options, answer->printed);
    answer->there = true;
}

static hvd_code look_there(const struct options *options, struct attached *hosts, struct printed *printed,
                           hvd_status *status)
{
    struct answer answer = {.options = options, .printed = printed};
    TRY(monitor_request(&hosts->monitor, stacks_of(options), on_look, &answer, status));
    while (!answer.there)
        attached_turn(hosts);
    return HVD_OK;
}

/* The pages of this host, and what launchers here have to say. */
static hvd_code look_at_this_host(const struct options *options, struct printed *printed, hvd_status *status)
{
    struct launchers launchers = {0};
    struct job_views whole = {0}, seen = {0};
    ask_launchers(options, &launchers, &whole);
    hvd_code code = look_here(options, &launchers, &seen, status);
    print_time(options);
    print(&whole, options, printed);
    print(&seen, options, printed);
    if (options->timeline && printed->count)
        printed->worst = write_timeline(options, printed);
    job_views_free(&whole);
    job_views_free(&seen);
    launchers_free(&launchers);
    return code;
}

/* Returns the exit code of a look that some hosts have not taken part in: ranks there may be in trouble. */
static int say_unasked(const struct printed *printed, int failed, int hosts)
{
    fprintf(stderr, "horovodrun: %d of %d hosts can't be asked, so %s\n", failed, hosts,
            printed->count ? "the verdict is without their ranks" : "nothing is known of jobs there");
    return printed->worst > VERDICT_BROKEN ? printed->worst : VERDICT_BROKEN;
}

/* Returns the worst verdict, or -1 if there is no such job. `more`: another look may show something. */
static int print_once(const struct options *options, struct attached *hosts, bool *more)
{
    struct printed printed = {.worst = -1};
    hvd_status status;
    if (hosts ? look_there(options, hosts, &printed, &status) : look_at_this_host(options, &printed, &status))
        fprintf(stderr, "horovodrun: %s\n", status.text);
    fflush(stdout);
    int failed = hosts ? attached_unreached(hosts) : 0;
    *more = printed.count && (!hosts || attached_has_hosts(hosts));
    return failed ? say_unasked(&printed, failed, hosts->table.hosts->count) : printed.worst;
}

/* Agents end if nothing arrives from this process for long. */
static void wait_for_next(const struct options *options, struct attached *hosts)
{
    int64_t next = clock_after(options->watch_seconds);
    if (!hosts)
        pause_for(options->watch_seconds);
    while (hosts && clock_now() < next)
        attached_turn(hosts);
}

int status_print(const struct options *options, struct attached *hosts)
{
    const char *job = options->job;
    bool more;
    int worst = print_once(options, hosts, &more), last = worst;
    while (options->watch_seconds > 0 && more && !ferror(stdout)) {
        last = worst;
        wait_for_next(options, hosts);
        if (hosts)
            attached_call_lost(hosts);
        worst = print_once(options, hosts, &more);
    }
    if (last >= 0 && worst < 0)
        fprintf(stderr, "horovodrun: no such job runs any longer\n");
    else if (last < 0)
        fprintf(stderr, "horovodrun: no job %s%sof this user runs on %s\n", job ? job : "", job ? " " : "",
                hosts ? "these hosts" : "this host");
    last = worst >= 0 ? worst : last;
    return last < 0 ? VERDICT_NO_JOB : last;
}
