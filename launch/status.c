/* status.c - see status.h: reads the pages of this host, and prints the jobs. One thread. */
#include "status.h"
#include "status_json.h"
#include "status_text.h"
#include "surveys.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLEAR_SCREEN "\033[H\033[2J"

static int64_t nanoseconds_since_1970(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * CLOCK_SECOND + now.tv_nsec;
}

static void pause_for(double seconds)
{
    const int64_t end = clock_after(seconds);
    const struct timespec at = {end / CLOCK_SECOND, end % CLOCK_SECOND};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* Looks at the pages of this host. */
static hvd_code look(struct surveys *surveys, hvd_status *status)
{
    struct host_pages *pages = host_pages_create();
    int count;
    if (!pages)
        return status_no_memory(status);
    host_pages_find(pages);
    host_pages_glance(pages);
    pause_for(PAGES_PAUSE_MILLISECONDS / 1000.0);
    host_pages_read(pages);
    struct sight *sights = host_pages_take(pages, &count);
    if (host_pages_of_others(pages))
        fprintf(stderr, "horovodrun: %s\n", host_pages_of_others(pages));
    host_pages_free(pages);
    const struct survey_origin origin = {.taken = clock_now(), .taken_at = nanoseconds_since_1970()};
    return surveys_make(sights, count, &origin, surveys, status);
}

/* Returns the worst verdict, or -1 if no job has such an id. */
static int print_all(const struct surveys *surveys, const struct options *options)
{
    const char *job = options->job;
    int worst = -1;
    for (int i = 0; i < surveys->count; i++) {
        const struct survey *survey = &surveys->list[i];
        if (job && strncmp(survey->id, job, strlen(job)) != 0)
            continue;
        if (options->json)
            status_json_write(survey, stdout);
        else if (worst >= 0)
            putchar('\n');
        if (!options->json)
            status_text_write(survey, stdout);
        worst = (int)survey->verdict > worst ? (int)survey->verdict : worst;
    }
    return worst;
}

static void print_time(void)
{
    char text[32] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts))
        strftime(text, sizeof text, "%H:%M:%S", &parts);
    printf("%s%s\n", isatty(STDOUT_FILENO) ? CLEAR_SCREEN : "", text);
}

static int print_once(const struct options *options)
{
    struct surveys surveys;
    hvd_status status;
    if (look(&surveys, &status)) {
        fprintf(stderr, "horovodrun: %s\n", status.text);
        return VERDICT_NO_JOB;
    }
    if (options->watch_seconds > 0 && !options->json)
        print_time();
    int worst = print_all(&surveys, options);
    surveys_free(&surveys);
    fflush(stdout);
    return worst;
}

int status_print(const struct options *options)
{
    const char *job = options->job;
    int worst = print_once(options), last = worst;
    while (options->watch_seconds > 0 && worst >= 0 && !ferror(stdout)) {
        last = worst;
        pause_for(options->watch_seconds);
        worst = print_once(options);
    }
    if (last >= 0 && worst < 0)
        fprintf(stderr, "horovodrun: no such job runs any longer\n");
    else if (last < 0)
        fprintf(stderr, "horovodrun: no job %s%sof this user runs on this host\n", job ? job : "",
                job ? " " : "");
    return last < 0 ? VERDICT_NO_JOB : last;
}
