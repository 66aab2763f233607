/* status_text.c - see status_text.h. */
#include "status_text.h"
#include "slowness.h"
#include "units.h"
#include "verdict.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define JOB_SHOWN    8  /* digits of an id that horovodrun has drawn */
#define HOSTS_SHOWN  24 /* characters */
#define RANKS_SHOWN  64
#define TITLES_SHOWN 3
#define LINKS_SHOWN  4

static void put_duration(const char *before, int64_t from, int64_t to, FILE *file)
{
    char text[32] = "";
    append_duration(text, sizeof text, (double)(to - from) / CLOCK_SECOND);
    fprintf(file, "%s%s", before, text);
}

/* ---- the job ------------------------------------------------------------------------------------------- */

static void put_name(const struct job_view *job_view, FILE *file)
{
    size_t digits = strspn(job_view->id, "0123456789abcdef");
    int shown = digits == 32 && !job_view->id[digits] ? JOB_SHOWN : (int)strlen(job_view->id);
    fprintf(file, *job_view->name ? "job %s (%.*s)" : "job %s%.*s", job_view->name, shown, job_view->id);
}

/* Without the median the job has made one step. */
static void put_steps(const struct job_view *job_view, FILE *file)
{
    const struct page_steps *steps = &job_view->steps;
    double median = (double)steps->median / CLOCK_SECOND;
    fprintf(file, "  step %lld", (long long)steps->number);
    if (job_view_makes_steps(job_view))
        fprintf(file, median < 0.01 ? ", %.0f steps/s" : ", %.3g steps/s", 1 / median);
    else if (steps->last)
        put_duration(", none for ", steps->last, job_view->taken, file);
    if (steps->median)
        fprintf(file, median < 1 ? " (median step %.3g ms)" : " (median step %.3g s)",
                median < 1 ? 1000 * median : median);
}

static void put_job(const struct job_view *job_view, FILE *file)
{
    put_name(job_view, file);
    if (job_view->count < job_view->size)
        fprintf(file, "  %d of its %d ranks", job_view->count, job_view->size);
    else
        fprintf(file, "  %d rank%s", job_view->count, job_view->count == 1 ? "" : "s");
    if (job_view->host_count == 1)
        fprintf(file, " on host %s", job_view->hosts->name);
    else
        fprintf(file, " on %d hosts", job_view->host_count);
    if (job_view->epoch)
        fprintf(file, "  epoch %d", job_view->epoch);
    if (job_view->started)
        put_duration("  up ", job_view->started, job_view->taken, file);
    if (job_view->steps.count)
        put_steps(job_view, file);
    fputc('\n', file);
    int others = job_view->size - job_view->count;
    if (!job_view->whole && others > 0)
        fprintf(file,
                "unseen   %d rank%s: ended, or on other hosts; -H a,b,... asks all hosts that you name\n",
                others, others == 1 ? "" : "s");
}

static void put_waiting(const struct job_view *job_view, FILE *file)
{
    const struct page_waiting *first = job_view_late(job_view);
    char ranks[RANKS_SHOWN];
    int count = job_view->waitings.count;
    if (!first)
        return;
    fprintf(file, "waiting  %d request%s", count, count == 1 ? "" : "s");
    if (first->missing)
        fprintf(file, " for rank%s %s", first->missing == 1 ? "" : "s",
                (job_view_ranks(job_view, first->parts, PART_MISSING, ranks, sizeof ranks), ranks));
    for (int i = 0; i < count && i < TITLES_SHOWN; i++)
        fprintf(file, "%s%s", i ? ", " : ": ", job_view->waitings.list[i].request->title);
    put_duration(count > TITLES_SHOWN ? ", ... (" : " (", first->since, job_view->taken, file);
    fputs(")\n", file);
}

/* ---- the ranks ----------------------------------------------------------------------------------------- */

struct row {
    char state[PAGE_TITLE + 32];
    char ranks[RANKS_SHOWN], name[HOSTS_SHOWN]; /* name: of the host, or how many there are */
    const char *host;                           /* of the first rank */
    int count;
    bool late;
    double in_horovod;     /* sum of shares */
    double late_share;     /* the largest */
    double late_per_step;  /* the largest, in seconds */
    uint64_t memory_bytes; /* the largest */
};

static void add_to_row(const struct job_view *job_view, struct row *row, const struct rank_view *rank)
{
    double share = job_view_share_in_horovod(job_view, rank);
    if (!row->count++)
        row->host = job_view_host_of(rank);
    row->in_horovod += share;
    row->memory_bytes = rank->memory_bytes > row->memory_bytes ? rank->memory_bytes : row->memory_bytes;
    if (rank->late_share > row->late_share) {
        row->late_share = rank->late_share;
        row->late_per_step = slowness_per_step(job_view, rank);
    }
}

/* Equal ranks are one row, and those that find no other row share the last one. Returns the number of rows;
 * `of` has the row of each rank. */
static int make_rows(const struct job_view *job_view, struct row *rows, uint8_t *of)
{
    int made = 0;
    for (int i = 0; i < job_view->count; i++) {
        struct row row = {.late = slowness_holds_up(job_view, i)};
        int at = 0;
        verdict_state(&job_view->ranks[i], row.state, sizeof row.state);
        while (at < made && (rows[at].late != row.late || strcmp(rows[at].state, row.state) != 0))
            at++;
        if (at == UINT8_MAX)
            at--;
        if (at == made)
            rows[made++] = row;
        add_to_row(job_view, &rows[at], &job_view->ranks[i]);
        of[i] = (uint8_t)at;
    }
    return made;
}

/* Ranks may be dealt out to the hosts in turn. */
static bool has_ranks_of(const struct job_view *job_view, const char *host, const uint8_t *of, int at)
{
    for (int i = 0; i < job_view->count; i++) {
        if (of[i] == at && strcmp(job_view_host_of(&job_view->ranks[i]), host) == 0)
            return true;
    }
    return false;
}

static void name_row(const struct job_view *job_view, struct row *row, const uint8_t *of, int at)
{
    int hosts = 0;
    job_view_ranks(job_view, of, at, row->ranks, sizeof row->ranks);
    for (int i = 0; i < job_view->host_count; i++)
        hosts += has_ranks_of(job_view, job_view->hosts[i].name, of, at);
    if (hosts == 1)
        append_text(row->name, sizeof row->name, "%s", row->host);
    else
        append_text(row->name, sizeof row->name, "%d hosts", hosts);
}

/* The state comes last: it may be long. */
static void put_row(const struct row *row, int ranks_width, int host_width, FILE *file)
{
    fprintf(file, "%-*s  %-*s %9.0f %% %4.0f %% %7.0f ms %7.2f GB  %s%s\n", ranks_width, row->ranks,
            host_width, row->name, 100 * row->in_horovod / row->count, 100 * row->late_share,
            1000 * row->late_per_step, (double)row->memory_bytes / 1e9, row->state,
            row->late ? "   <- late" : "");
}

/* The rows of few ranks come first. */
static void put_table(const struct job_view *job_view, FILE *file)
{
    struct row *rows = calloc((size_t)job_view->count, sizeof *rows);
    uint8_t *of = calloc((size_t)job_view->count, 1);
    int made = rows && of ? make_rows(job_view, rows, of) : 0;
    int ranks_width = (int)strlen("rank"), host_width = (int)strlen("host");
    for (int i = 0; i < made; i++) {
        name_row(job_view, &rows[i], of, i);
        int ranks = (int)strlen(rows[i].ranks), name = (int)strlen(rows[i].name);
        ranks_width = ranks > ranks_width ? ranks : ranks_width;
        host_width = name > host_width ? name : host_width;
    }
    fprintf(file, "%-*s  %-*s  %s\n", ranks_width, "rank", host_width, "host",
            "in Horovod   late  late/step     memory  state");
    for (int shown = 0, members = 1; shown < made; members++) {
        for (int i = 0; i < made; i++) {
            if (rows[i].count != members)
                continue;
            put_row(&rows[i], ranks_width, host_width, file);
            shown++;
        }
    }
    free(rows);
    free(of);
}

/* ---- the links ----------------------------------------------------------------------------------------- */

static int compare_links(const void *one, const void *other)
{
    const struct job_view_link *a = one, *b = other;
    int order = (a->busy < b->busy) - (a->busy > b->busy);
    return order ? order : a->from != b->from ? a->from - b->from : a->to - b->to;
}

/* Those that are busy for longest. */
static void put_links(const struct job_view *job_view, FILE *file)
{
    double seconds = job_view_seconds(job_view);
    struct job_view_link *links =
        job_view->link_count ? calloc((size_t)job_view->link_count, sizeof *links) : NULL;
    if (!links || seconds <= 0) {
        free(links);
        return;
    }
    memcpy(links, job_view->links, (size_t)job_view->link_count * sizeof *links);
    qsort(links, (size_t)job_view->link_count, sizeof *links, compare_links);
    fputs("\nlinks  ", file);
    for (int i = 0; i < job_view->link_count && i < LINKS_SHOWN; i++) {
        double busy = (double)links[i].busy / CLOCK_SECOND;
        fprintf(file, "  %s->%s %.3g MB/s, busy for %.0f %%", job_view->hosts[links[i].from].name,
                job_view->hosts[links[i].to].name, busy > 0 ? (double)links[i].bytes / busy / 1e6 : 0,
                100 * busy / seconds);
    }
    fputs(job_view->link_count > LINKS_SHOWN ? " ...\n" : "\n", file);
    free(links);
}

void status_text_write(const struct job_view *job_view, FILE *file)
{
    fprintf(file, "%s\n\n", job_view->text);
    put_job(job_view, file);
    put_waiting(job_view, file);
    fputc('\n', file);
    put_table(job_view, file);
    put_links(job_view, file);
    for (int i = 0; i < job_view->count; i++) {
        char rank[32];
        snprintf(rank, sizeof rank, "%d", job_view->ranks[i].page.identity.rank);
        stack_write(job_view->ranks[i].stack, rank, file);
    }
}
