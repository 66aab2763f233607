/* surveys.c - see surveys.h. */
#include "surveys.h"
#include "lateness.h"
#include "links.h"
#include "slowness.h"
#include "verdict.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* By job, then by epoch, the newest first, then by rank, the newest process of a rank first. */
static int compare(const void *one, const void *other)
{
    const struct page_identity *x = &((const struct sight *)one)->page.identity;
    const struct page_identity *y = &((const struct sight *)other)->page.identity;
    int order = strcmp(x->job, y->job);
    if (!order)
        order = (x->epoch < y->epoch) - (x->epoch > y->epoch);
    if (!order)
        order = (x->rank > y->rank) - (x->rank < y->rank);
    return order ? order : (x->opened < y->opened) - (x->opened > y->opened);
}

/* Returns the host of this name, which is added if it is new. */
static struct survey_host *find_host(struct survey *survey, const char *name)
{
    for (int i = survey->host_count - 1; i >= 0; i--) { /* mostly it is that of the rank before */
        if (strcmp(survey->hosts[i].name, name) == 0)
            return &survey->hosts[i];
    }
    struct survey_host *host = &survey->hosts[survey->host_count++];
    *host = (struct survey_host){.answers = true};
    append_text(host->name, sizeof host->name, "%s", name);
    return host;
}

static void add_hosts(struct survey *survey, const struct survey_origin *origin)
{
    for (int i = 0; i < survey->count; i++)
        find_host(survey, survey_host_of(&survey->ranks[i]))->ranks++;
    for (int i = 0; i < origin->host_count; i++) {
        const struct survey_host *known = &origin->hosts[i];
        for (int j = 0; j < survey->host_count; j++) {
            struct survey_host *host = &survey->hosts[j];
            if (strcmp(host->name, known->name) != 0)
                continue;
            host->answers = known->answers;
            host->silent = known->silent;
        }
    }
}

/* Adds up what one number says of the job. */
static void add_totals(struct survey *survey)
{
    int64_t first = 0;
    for (int i = 0; i < survey->count; i++) {
        const struct page_summary *page = &survey->ranks[i].page;
        survey->size = page->identity.size > survey->size ? page->identity.size : survey->size;
        if (page->steps.count > survey->steps.count)
            survey->steps = page->steps;
        survey->samples += page->steps.samples;
        survey->progress = page->progress > survey->progress ? page->progress : survey->progress;
        int64_t opened = page->identity.opened;
        if (opened && (!first || opened < first))
            first = opened;
    }
    if (!survey->started)
        survey->started = first;
}

static hvd_code find_waitings(struct survey *survey, hvd_status *status)
{
    struct page_summary *pages = calloc((unsigned)survey->count, sizeof *pages);
    if (!pages)
        return status_no_memory(status);
    for (int i = 0; i < survey->count; i++)
        pages[i] = survey->ranks[i].page;
    hvd_code code = page_waitings_find(pages, survey->count, &survey->waitings, status);
    free(pages);
    return code;
}

/* Moves the sights of the newest epoch, one for each rank, into the survey. */
static void move_ranks(struct survey *survey, struct sight *sights, int count)
{
    int epoch = sights->page.identity.epoch;
    for (int i = 0; i < count; i++) {
        const struct page_identity *each = &sights[i].page.identity;
        bool newest = !survey->count || survey->ranks[survey->count - 1].page.identity.rank != each->rank;
        if (each->epoch != epoch || !newest)
            continue;
        survey->ranks[survey->count++] = sights[i];
        sights[i] = (struct sight){0};
    }
}

/* Makes the survey of the sights of one job. */
static hvd_code make(struct survey *survey, struct sight *sights, int count,
                     const struct survey_origin *origin, hvd_status *status)
{
    const struct page_identity *first = &sights->page.identity;
    bool launched = origin->id && strncmp(first->job, origin->id, strlen(origin->id)) == 0;
    *survey = (struct survey){
        .epoch = first->epoch, .whole = launched, .taken = origin->taken, .taken_at = origin->taken_at};
    append_text(survey->id, sizeof survey->id, "%s", first->job);
    if (launched) {
        append_text(survey->name, sizeof survey->name, "%s", origin->name);
        survey->started = origin->started;
    }
    survey->ranks = calloc((size_t)count, sizeof *survey->ranks);
    survey->hosts = calloc((size_t)count, sizeof *survey->hosts);
    if (!survey->ranks || !survey->hosts)
        return status_no_memory(status);
    move_ranks(survey, sights, count);
    add_hosts(survey, origin);
    add_totals(survey);
    TRY(find_waitings(survey, status));
    TRY(survey_links_find(survey, status));
    lateness_find(survey->ranks, survey->count, survey->taken);
    if (slowness_limit(survey))
        lateness_excuse(survey->ranks, survey->count, survey->taken);
    survey->verdict = verdict_write(survey, survey->text, sizeof survey->text);
    return HVD_OK;
}

static bool same_job(const struct sight *one, const struct sight *other)
{
    return strcmp(one->page.identity.job, other->page.identity.job) == 0;
}

hvd_code surveys_make(struct sight *sights, int count, const struct survey_origin *origin,
                      struct surveys *surveys, hvd_status *status)
{
    hvd_code code = HVD_OK;
    *surveys = (struct surveys){0};
    if (count > 1)
        qsort(sights, (size_t)count, sizeof *sights, compare);
    int jobs = count > 0;
    for (int i = 1; i < count; i++)
        jobs += !same_job(&sights[i - 1], &sights[i]);
    if (jobs && !(surveys->list = calloc((size_t)jobs, sizeof *surveys->list)))
        code = status_no_memory(status);
    for (int first = 0, end; !code && first < count; first = end) {
        end = first + 1;
        while (end < count && same_job(&sights[first], &sights[end]))
            end++;
        code = make(&surveys->list[surveys->count++], &sights[first], end - first, origin, status);
    }
    for (int i = 0; i < count; i++)
        sight_free(&sights[i]);
    free(sights);
    if (code)
        surveys_free(surveys);
    return code;
}

const struct survey *surveys_largest(const struct surveys *surveys)
{
    const struct survey *found = surveys->count ? surveys->list : NULL;
    for (int i = 1; i < surveys->count; i++)
        found = surveys->list[i].count > found->count ? &surveys->list[i] : found;
    return found;
}

void surveys_free(struct surveys *surveys)
{
    for (int i = 0; i < surveys->count; i++) {
        struct survey *survey = &surveys->list[i];
        for (int j = 0; j < survey->count; j++)
            sight_free(&survey->ranks[j]);
        free(survey->ranks);
        free(survey->hosts);
        free(survey->links);
        page_waitings_free(&survey->waitings);
    }
    free(surveys->list);
    *surveys = (struct surveys){0};
}
