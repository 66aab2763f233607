/* chronicle.c - see chronicle.h. */
#include "chronicle.h"
#include "status_json.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SECONDS 120
#define OFTEN         1000 /* milliseconds between two looks in the first seconds of a job, which interest most */
#define SELDOM        10000
#define POWERCAP      "/sys/class/powercap"

static void fill_rank(const struct survey *survey, const struct sight *sight, struct course_rank *rank)
{
    const struct page_summary *page = &sight->page;
    *rank = (struct course_rank){.rank = page->identity.rank,
                                 .host = survey_host_of(sight),
                                 .seen = sight->seen,
                                 .joined = page->state != PAGE_STARTED && page->state != PAGE_JOINING,
                                 .opened_at = page->state != PAGE_STARTED ? page->identity.opened_at : 0,
                                 .horovod_ns = page->all.wait_ns,
                                 .late_ns = (uint64_t)sight->late_ns,
                                 .engine_ns = sight->engine_ns,
                                 .bytes = page->all.bytes};
    if (page->thread_count)
        rank->horovod_ns += (uint64_t)(survey->taken - page->threads[0].since);
}

static void keep_status(struct chronicle *chronicle, const struct survey *survey)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    if (!file)
        return;
    status_json_write(survey, file);
    if (fclose(file)) {
        free(text);
        return;
    }
    if (chronicle->table->ending && !chronicle->before_end)
        chronicle->before_end = chronicle->status;
    else
        free(chronicle->status);
    chronicle->status = text;
}

/* `text`: its verdict, or NULL. */
static void add(struct chronicle *chronicle, const struct survey *survey, const char *text)
{
    int count = survey->count < chronicle->table->size ? survey->count : chronicle->table->size;
    for (int i = 0; i < count; i++)
        fill_rank(survey, &survey->ranks[i], &chronicle->ranks[i]);
    course_add(chronicle->course,
               &(struct course_look){.at = (double)(survey->taken - chronicle->started) / CLOCK_SECOND,
                                     .epoch = survey->epoch,
                                     .steps = survey->steps.count,
                                     .ranks = chronicle->ranks,
                                     .count = count,
                                     .exit = survey->verdict,
                                     .text = text,
                                     .joules = energy_read(&chronicle->energy, POWERCAP)});
}

static void on_look(const struct surveys *surveys, void *argument)
{
    struct chronicle *chronicle = argument;
    const struct survey *survey = surveys_largest(surveys);
    chronicle->asked = false;
    chronicle->looked_at = clock_now();
    if (survey) {
        /* Of a job that hangs, a look with stacks is worth more than a newer one without. */
        bool hangs = survey_late(survey) && !chronicle->table->ending;
        bool explained = hangs && chronicle->explained && !chronicle->with_stacks;
        add(chronicle, survey, explained || chronicle->table->ending ? NULL : survey->text);
        if (!explained)
            keep_status(chronicle, survey);
        chronicle->explained = explained || (hangs && chronicle->with_stacks);
        chronicle->hangs = hangs;
    }
    if (chronicle->looked)
        chronicle->looked(chronicle, chronicle->owner);
}

bool chronicle_look(struct chronicle *chronicle)
{
    if (chronicle->asked)
        return true;
    /* A stack costs its rank a moment, and only that of a job that hangs is worth it. */
    int64_t now = clock_now();
    chronicle->with_stacks = chronicle->hangs && now >= chronicle->stacks_at + SELDOM * CLOCK_SECOND / 1000;
    if (chronicle->with_stacks)
        chronicle->stacks_at = now;
    chronicle->asked =
        monitor_ask(chronicle->table->monitor, chronicle->with_stacks ? STACKS_LATE : STACKS_NONE, on_look,
                    chronicle, NULL) == HVD_OK;
    return chronicle->asked;
}

static void on_timer(uv_timer_t *timer)
{
    struct chronicle *chronicle = timer->data;
    bool early = clock_now() - chronicle->started < FIRST_SECONDS * CLOCK_SECOND;
    chronicle_look(chronicle);
    uv_timer_start(timer, on_timer, early ? OFTEN : SELDOM, 0);
}

hvd_code chronicle_open(struct chronicle *chronicle, struct table *table, hvd_status *status)
{
    table->chronicle = chronicle;
    chronicle->table = table;
    uv_timer_init(&table->loop, &chronicle->timer); /* chronicle_close closes it in any case */
    chronicle->timer.data = chronicle;
    chronicle->started = clock_now();
    chronicle->course = course_create(table->size);
    chronicle->ranks = calloc((size_t)table->size, sizeof *chronicle->ranks);
    if (!chronicle->course || !chronicle->ranks)
        return status_no_memory(status);
    energy_open(&chronicle->energy, POWERCAP);
    return uv_timer_start(&chronicle->timer, on_timer, OFTEN, 0) ? status_no_memory(status) : HVD_OK;
}

void chronicle_finish(struct chronicle *chronicle)
{
    uv_timer_stop(&chronicle->timer);
    while (chronicle->asked)
        uv_run(&chronicle->table->loop, UV_RUN_ONCE);
    chronicle->table->ending = true; /* what is seen now is no verdict on the job */
    chronicle_look(chronicle);
    while (chronicle->asked)
        uv_run(&chronicle->table->loop, UV_RUN_ONCE);
}

void chronicle_close(struct chronicle *chronicle)
{
    if (!chronicle->table)
        return;
    monitor_forget(chronicle->table->monitor, chronicle);
    uv_close((uv_handle_t *)&chronicle->timer, NULL);
    course_free(chronicle->course);
    free(chronicle->ranks);
    free(chronicle->status);
    free(chronicle->before_end);
}
