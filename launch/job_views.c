/* job_views.c - see job_views.h. */
#include "job_views.h"
#include "lateness.h"
#include "links.h"
#include "slowness.h"
#include "verdict.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* By job, then by epoch, the newest first, then by rank, the newest process of a rank first, then those that
 * were seen. */
static int compare(const void *one, const void *other)
{
    const struct rank_view *a = one, *b = other;
    const struct page_identity *x = &a->page.identity, *y = &b->page.identity;
    int order = strcmp(x->job, y->job);
    if (!order)
        order = (x->epoch < y->epoch) - (x->epoch > y->epoch);
    if (!order)
        order = (x->rank > y->rank) - (x->rank < y->rank);
    if (!order)
        order = (x->opened < y->opened) - (x->opened > y->opened);
    return order ? order : b->seen - a->seen;
}

/* Returns the host of this name, which is added if it is new. */
static struct job_view_host *find_host(struct job_view *job_view, const char *name)
{
    for (int i = job_view->host_count - 1; i >= 0; i--) { /* mostly it is that of the rank before */
        if (strcmp(job_view->hosts[i].name, name) == 0)
            return &job_view->hosts[i];
    }
    struct job_view_host *host = &job_view->hosts[job_view->host_count++];
    *host = (struct job_view_host){.answers = true};
    append_text(host->name, sizeof host->name, "%s", name);
    return host;
}

static void add_hosts(struct job_view *job_view, const struct job_view_origin *origin)
{
    for (int i = 0; i < job_view->count; i++)
        find_host(job_view, job_view_host_of(&job_view->ranks[i]))->ranks++;
    for (int i = 0; i < origin->host_count; i++) {
        const struct job_view_host *known = &origin->hosts[i];
        for (int j = 0; j < job_view->host_count; j++) {
            struct job_view_host *host = &job_view->hosts[j];
            if (strcmp(host->name, known->name) != 0)
                continue;
            host->answers = known->answers;
            host->silent = known->silent;
        }
    }
}

/* Adds up what one number says of the job. */
static void add_totals(struct job_view *job_view)
{
    int64_t first = 0;
    for (int i = 0; i < job_view->count; i++) {
        const struct page_summary *page = &job_view->ranks[i].page;
        job_view->size = page->identity.size > job_view->size ? page->identity.size : job_view->size;
        if (page->steps.count > job_view->steps.count)
            job_view->steps = page->steps;
        job_view->samples += page->steps.samples;
        job_view->progress = page->progress > job_view->progress ? page->progress : job_view->progress;
        int64_t opened = page->identity.opened;
        if (opened && (!first || opened < first))
            first = opened;
    }
    if (!job_view->started)
        job_view->started = first;
}

static hvd_code find_waitings(struct job_view *job_view, hvd_status *status)
{
    struct page_summary *pages = calloc((unsigned)job_view->count, sizeof *pages);
    if (!pages)
        return status_no_memory(status);
    for (int i = 0; i < job_view->count; i++)
        pages[i] = job_view->ranks[i].page;
    hvd_code code = page_waitings_find(pages, job_view->count, &job_view->waitings, status);
    free(pages);
    return code;
}

/* Moves the views of the newest epoch, one for each rank, into the view of the job. */
static void move_ranks(struct job_view *job_view, struct rank_view *views, int count)
{
    int epoch = views->page.identity.epoch;
    for (int i = 0; i < count; i++) {
        const struct page_identity *each = &views[i].page.identity;
        bool newest =
            !job_view->count || job_view->ranks[job_view->count - 1].page.identity.rank != each->rank;
        if (each->epoch != epoch || !newest)
            continue;
        job_view->ranks[job_view->count++] = views[i];
        views[i] = (struct rank_view){0};
    }
}

/* Makes the view of one job from those of its ranks. */
static hvd_code make(struct job_view *job_view, struct rank_view *views, int count,
                     const struct job_view_origin *origin, hvd_status *status)
{
    const struct page_identity *first = &views->page.identity;
    bool launched = origin->id && strncmp(first->job, origin->id, strlen(origin->id)) == 0;
    *job_view = (struct job_view){
        .epoch = first->epoch, .whole = launched, .taken = origin->taken, .taken_at = origin->taken_at};
    append_text(job_view->id, sizeof job_view->id, "%s", first->job);
    if (launched) {
        append_text(job_view->name, sizeof job_view->name, "%s", origin->name);
        job_view->started = origin->started;
        job_view->least = origin->least;
        /* No rank has joined the epoch that has begun. */
        bool outdated = origin->epoch_began && job_view->epoch < origin->epoch;
        job_view->changing = outdated ? origin->epoch_began : origin->changing;
    }
    job_view->ranks = calloc((size_t)count, sizeof *job_view->ranks);
    job_view->hosts = calloc((size_t)count, sizeof *job_view->hosts);
    if (!job_view->ranks || !job_view->hosts)
        return status_no_memory(status);
    move_ranks(job_view, views, count);
    add_hosts(job_view, origin);
    add_totals(job_view);
    TRY(find_waitings(job_view, status));
    TRY(job_view_links_find(job_view, status));
    lateness_find(job_view->ranks, job_view->count, job_view->taken);
    if (slowness_limit(job_view))
        lateness_excuse(job_view->ranks, job_view->count, job_view->taken);
    job_view->verdict = verdict_write(job_view, job_view->text, sizeof job_view->text);
    return HVD_OK;
}

static bool same_job(const struct rank_view *one, const struct rank_view *other)
{
    return strcmp(one->page.identity.job, other->page.identity.job) == 0;
}

hvd_code job_views_make(struct rank_view *views, int count, const struct job_view_origin *origin,
                        struct job_views *job_views, hvd_status *status)
{
    hvd_code code = HVD_OK;
    *job_views = (struct job_views){0};
    if (count > 1)
        qsort(views, (size_t)count, sizeof *views, compare);
    int jobs = count > 0;
    for (int i = 1; i < count; i++)
        jobs += !same_job(&views[i - 1], &views[i]);
    if (jobs && !(job_views->list = calloc((size_t)jobs, sizeof *job_views->list)))
        code = status_no_memory(status);
    for (int first = 0, end; !code && first < count; first = end) {
        end = first + 1;
        while (end < count && same_job(&views[first], &views[end]))
            end++;
        code = make(&job_views->list[job_views->count++], &views[first], end - first, origin, status);
    }
    for (int i = 0; i < count; i++)
        rank_view_free(&views[i]);
    free(views);
    if (code)
        job_views_free(job_views);
    return code;
}

const struct job_view *job_views_largest(const struct job_views *job_views)
{
    const struct job_view *found = job_views->count ? job_views->list : NULL;
    for (int i = 1; i < job_views->count; i++)
        found = job_views->list[i].count > found->count ? &job_views->list[i] : found;
    return found;
}

void job_views_free(struct job_views *job_views)
{
    for (int i = 0; i < job_views->count; i++) {
        struct job_view *job_view = &job_views->list[i];
        for (int j = 0; j < job_view->count; j++)
            rank_view_free(&job_view->ranks[j]);
        free(job_view->ranks);
        free(job_view->hosts);
        free(job_view->links);
        page_waitings_free(&job_view->waitings);
    }
    free(job_views->list);
    *job_views = (struct job_views){0};
}
