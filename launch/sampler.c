/* sampler.c - see sampler.h. */
#include "sampler.h"
#include "status_json.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SECONDS 120
#define OFTEN         1000 /* milliseconds between two looks in the first seconds of a job, which interest most */
#define SELDOM        10000
#define IDLE_SECONDS  60 /* after the last request; also between two reads of the counters of energy then */
#define POWERCAP      "/sys/class/powercap"

static void fill_rank(const struct job_view *job_view, const struct rank_view *view, struct course_rank *rank)
{
    const struct page_summary *page = &view->page;
    *rank = (struct course_rank){.rank = page->identity.rank,
                                 .process = page->identity.process,
                                 .born = page->identity.process_start,
                                 .host = job_view_host_of(view),
                                 .seen = view->seen,
                                 .joined = page->state != PAGE_STARTED && page->state != PAGE_JOINING,
                                 .opened_at = page->state != PAGE_STARTED ? page->identity.opened_at : 0,
                                 .horovod_ns = page->all.wait_ns,
                                 .late_ns = (uint64_t)view->late_ns,
                                 .engine_ns = view->engine_ns,
                                 .bytes = page->all.bytes};
    if (page->thread_count)
        rank->horovod_ns += (uint64_t)(job_view->taken - page->threads[0].since);
}

static void keep_status(struct sampler *sampler, const struct job_view *job_view)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    if (!file)
        return;
    status_json_write(job_view, file);
    if (fclose(file)) {
        free(text);
        return;
    }
    if (sampler->table->ending && !sampler->before_end)
        sampler->before_end = sampler->status;
    else
        free(sampler->status);
    sampler->status = text;
}

/* `text`: its verdict, or NULL. */
static void add(struct sampler *sampler, const struct job_view *job_view, const char *text)
{
    int count = job_view->count < sampler->size ? job_view->count : sampler->size;
    for (int i = 0; i < count; i++)
        fill_rank(job_view, &job_view->ranks[i], &sampler->ranks[i]);
    course_add(sampler->course,
               &(struct course_look){.at = (double)(job_view->taken - sampler->started) / CLOCK_SECOND,
                                     .epoch = job_view->epoch,
                                     .steps = job_view->steps.count,
                                     .ranks = sampler->ranks,
                                     .count = count,
                                     .exit = job_view->verdict,
                                     .text = text,
                                     .joules = energy_read(&sampler->energy, POWERCAP)});
}

static void on_look(const struct job_views *job_views, void *argument)
{
    struct sampler *sampler = argument;
    const struct job_view *job_view = job_views_largest(job_views);
    sampler->looking = false;
    sampler->looked_at = clock_now();
    if (job_view) {
        /* Of a job that hangs, a look with stacks is worth more than a newer one without. */
        bool hangs = job_view_late(job_view) && !sampler->table->ending;
        bool explained = hangs && sampler->explained && !sampler->with_stacks;
        add(sampler, job_view, explained || sampler->table->ending ? NULL : job_view->text);
        if (!explained)
            keep_status(sampler, job_view);
        sampler->explained = explained || (hangs && sampler->with_stacks);
        sampler->hangs = hangs;
    }
    if (sampler->looked)
        sampler->looked(sampler, sampler->owner);
}

void sampler_begin_epoch(struct sampler *sampler, int epoch, const struct membership_rank *ranks, int size)
{
    struct course_member *members = calloc((size_t)size, sizeof *members);
    for (int rank = 0; members && rank < size; rank++) {
        members[rank].slot = ranks[rank].slot;
        members[rank].newcomer = ranks[rank].newcomer;
        host_title(&sampler->table->hosts->list[ranks[rank].host], members[rank].host, sizeof members->host);
    }
    if (members)
        course_begin(sampler->course, epoch, members, size);
    free(members);
}

bool sampler_look(struct sampler *sampler)
{
    if (sampler->looking)
        return true;
    /* A stack costs its rank a moment, and only that of a job that hangs is worth it. */
    int64_t now = clock_now();
    sampler->with_stacks = sampler->hangs && now >= sampler->stacks_at + SELDOM * CLOCK_SECOND / 1000;
    if (sampler->with_stacks)
        sampler->stacks_at = now;
    sampler->looking =
        monitor_request(sampler->table->monitor, sampler->with_stacks ? STACKS_LATE : STACKS_NONE, on_look,
                        sampler, NULL) == HVD_OK;
    return sampler->looking;
}

/* The counters of energy are short: they are read while nobody looks, too. */
static void on_timer(uv_timer_t *timer)
{
    struct sampler *sampler = timer->data;
    int64_t now = clock_now();
    bool early = now - sampler->started < FIRST_SECONDS * CLOCK_SECOND;
    sampler->paused =
        !sampler->table->options->report && now - sampler->requested_at >= IDLE_SECONDS * CLOCK_SECOND;
    if (sampler->paused)
        energy_read(&sampler->energy, POWERCAP);
    else
        sampler_look(sampler);
    uv_timer_start(timer, on_timer, sampler->paused ? IDLE_SECONDS * 1000 : early ? OFTEN : SELDOM, 0);
}

void sampler_renew(struct sampler *sampler)
{
    if (!sampler)
        return;
    sampler->requested_at = clock_now();
    if (sampler->paused)
        uv_timer_start(&sampler->timer, on_timer, 0, 0);
}

hvd_code sampler_open(struct sampler *sampler, struct table *table, hvd_status *status)
{
    table->sampler = sampler;
    sampler->table = table;
    uv_timer_init(&table->loop, &sampler->timer); /* sampler_close closes it in any case */
    sampler->timer.data = sampler;
    sampler->started = sampler->requested_at = clock_now();
    sampler->size = table->most;
    sampler->course = course_create(table->most);
    sampler->ranks = calloc((size_t)table->most, sizeof *sampler->ranks);
    if (!sampler->course || !sampler->ranks)
        return status_no_memory(status);
    if (!table->attached) /* otherwise what the job has used before is not known */
        energy_open(&sampler->energy, POWERCAP);
    return uv_timer_start(&sampler->timer, on_timer, OFTEN, 0) ? status_no_memory(status) : HVD_OK;
}

void sampler_finish(struct sampler *sampler)
{
    uv_timer_stop(&sampler->timer);
    while (sampler->looking)
        uv_run(&sampler->table->loop, UV_RUN_ONCE);
    sampler->table->ending = true; /* what is seen now is no verdict on the job */
    sampler_look(sampler);
    while (sampler->looking)
        uv_run(&sampler->table->loop, UV_RUN_ONCE);
}

void sampler_close(struct sampler *sampler)
{
    if (!sampler->table)
        return;
    monitor_forget(sampler->table->monitor, sampler);
    uv_close((uv_handle_t *)&sampler->timer, NULL);
    course_free(sampler->course);
    free(sampler->ranks);
    free(sampler->status);
    free(sampler->before_end);
}
