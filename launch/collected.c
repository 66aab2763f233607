/* collected.c - see collected.h. */
#include "collected.h"
#include "clocks.h"
#include "say.h"
#include "starter.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_OF_RANK 16 /* requests, which show what a rank did last */

int collected_share(int most, int size)
{
    int share = most / size > LEAST_OF_RANK ? most / size : LEAST_OF_RANK;
    return share < PAGE_RECORDS ? share : PAGE_RECORDS;
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

static bool reserve(struct collected *collected, int capacity)
{
    size_t room = (size_t)capacity;
    struct traced_rank *ranks = reallocarray(collected->ranks, room, sizeof *ranks);
    collected->ranks = ranks ? ranks : collected->ranks;
    struct history *histories = reallocarray(collected->histories, room, sizeof *histories);
    collected->histories = histories ? histories : collected->histories;
    char(*hosts)[COLLECTED_HOST] = reallocarray(collected->hosts, room, sizeof *hosts);
    collected->hosts = hosts ? hosts : collected->hosts;
    if (!ranks || !histories || !hosts)
        return false;
    collected->capacity = capacity;
    return true;
}

/* Returns the new rank, or NULL if memory is out. Its host and history are set once all are there. */
static struct traced_rank *add_rank(struct collected *collected, int rank, const char *host)
{
    if (collected->count == collected->capacity &&
        !reserve(collected, collected->capacity ? 2 * collected->capacity : 64))
        return NULL;
    int at = collected->count++;
    collected->histories[at] = (struct history){0};
    collected->hosts[at][0] = '\0';
    append_text(collected->hosts[at], COLLECTED_HOST, "%s", host);
    collected->ranks[at] = (struct traced_rank){.rank = rank};
    return &collected->ranks[at];
}

/* Sets what add_rank has left open. The arrays no longer move. */
static void point(struct collected *collected)
{
    for (int i = 0; i < collected->count; i++) {
        struct traced_rank *rank = &collected->ranks[i];
        if (!rank->host)
            rank->host = collected->hosts[i];
        if (!rank->history)
            rank->history = &collected->histories[i];
    }
}

void collected_free(struct collected *collected)
{
    for (int i = 0; i < collected->count; i++)
        history_free(&collected->histories[i]);
    free(collected->histories);
    free(collected->hosts);
    free(collected->ranks);
    *collected = (struct collected){0};
}

struct rank_trace collected_trace(struct collected *collected, const char *job)
{
    point(collected);
    return (struct rank_trace){.job = job,
                               .ranks = collected->ranks,
                               .count = collected->count,
                               .now = clock_now(),
                               .now_at = clock_since_1970()};
}

/* ---- in the launcher ----------------------------------------------------------------------------------- */

static void take_process(struct collected *collected, const struct process *process,
                         const struct history_window *window, struct page_copies *copies)
{
    char host[COLLECTED_HOST] = "";
    hvd_status status; /* a page without records is left out */
    host_title(process_host(process), host, sizeof host);
    struct traced_rank *rank = add_rank(collected, process->place.rank, host);
    if (!rank)
        return;
    if (process->page >= 0)
        history_read(process->page, copies, window, clock_now(), &collected->histories[collected->count - 1],
                     &status);
    else
        rank->history = &process->history;
    if (process->running || !process->exit_code)
        return;
    rank->ended = process->ended;
    say_outcome(process->exit_code, process->signal, rank->end, sizeof rank->end);
}

/* Finds out by how much the clocks of the ranks' hosts are ahead. Without memory they stay as they are. */
static void align(struct collected *collected, const struct table *table)
{
    struct clock_rank *clocks = calloc((size_t)collected->count + 1, sizeof *clocks);
    int64_t *ahead = calloc((size_t)table->hosts->count + 1, sizeof *ahead);
    hvd_status status;
    for (int i = 0; clocks && ahead && i < collected->count; i++) {
        int host = table->starter->clock(table->list[i], &collected->ranks[i].ahead);
        clocks[i] = (struct clock_rank){.host = host, .history = collected->ranks[i].history};
        ahead[host] = collected->ranks[i].ahead;
    }
    if (clocks && ahead &&
        clocks_correct(clocks, collected->count, ahead, table->hosts->count, &status) == HVD_OK) {
        for (int i = 0; i < collected->count; i++)
            collected->ranks[i].ahead = ahead[clocks[i].host];
    }
    free(clocks);
    free(ahead);
}

void collected_take(struct collected *collected, const struct table *table,
                    const struct history_window *window)
{
    struct page_copies *copies = page_copies_create();
    *collected = (struct collected){0};
    if (copies && reserve(collected, table->count + 1)) {
        for (int i = 0; i < table->count; i++)
            take_process(collected, table->list[i], window, copies);
        point(collected);
        if (table->starter->clock)
            align(collected, table);
    }
    page_copies_free(copies);
}

/* ---- pages of this host -------------------------------------------------------------------------------- */

struct search {
    struct collected *collected;
    const struct job_view *job_view;
    const struct history_window *window;
    struct page_copies *copies;
    bool *found; /* by index in the view of the job */
};

/* Returns the index of the rank in the view of the job, or -1. */
static int find_rank(const struct job_view *job_view, const struct page_identity *identity)
{
    for (int i = 0; i < job_view->count; i++) {
        const struct page_identity *known = &job_view->ranks[i].page.identity;
        if (known->rank == identity->rank && known->epoch == identity->epoch &&
            known->process == identity->process && known->opened == identity->opened &&
            strncmp(known->job, identity->job, sizeof known->job) == 0)
            return i;
    }
    return -1;
}

static void visit(int fd, void *argument)
{
    struct search *search = argument;
    const struct page *page;
    hvd_status status; /* what is no page of the job is left out */
    if (page_copy(fd, search->copies, &page, &status))
        return;
    int at = find_rank(search->job_view, &page->head.identity);
    if (at < 0 || search->found[at])
        return;
    search->found[at] = true;
    const struct rank_view *view = &search->job_view->ranks[at];
    if (add_rank(search->collected, view->page.identity.rank, job_view_host_of(view)))
        history_of_page(page, search->window, clock_now(),
                        &search->collected->histories[search->collected->count - 1], &status);
}

static int compare_ranks(const void *one, const void *other)
{
    return ((const struct traced_rank *)one)->rank - ((const struct traced_rank *)other)->rank;
}

hvd_code collected_take_here(struct collected *collected, const struct job_view *job_view,
                             const struct history_window *window, hvd_status *status)
{
    struct host_pages *pages = host_pages_create();
    struct search search = {.collected = collected,
                            .job_view = job_view,
                            .window = window,
                            .copies = page_copies_create(),
                            .found = calloc((size_t)job_view->count + 1, sizeof(bool))};
    bool possible = pages && search.copies && search.found;
    *collected = (struct collected){0};
    if (possible) {
        host_pages_find(pages);
        host_pages_visit(pages, visit, &search);
        point(collected);
        qsort(collected->ranks, (size_t)collected->count, sizeof *collected->ranks, compare_ranks);
    }
    free(search.found);
    page_copies_free(search.copies);
    host_pages_free(pages);
    return possible ? HVD_OK : status_no_memory(status);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

void collected_send(const struct collected *collected, struct frames *to)
{
    struct wire_writer *out = &to->stream.out;
    for (int i = 0; i < collected->count; i++) {
        const struct traced_rank *rank = &collected->ranks[i];
        size_t begin = frame_begin(to, FRAME_TRACED);
        wire_put_u32(out, (uint32_t)rank->rank);
        wire_put_string(out, rank->host);
        wire_put_u64(out, (uint64_t)rank->ahead);
        wire_put_u64(out, (uint64_t)rank->ended);
        wire_put_string(out, rank->end);
        frame_end(to, begin);
        for (int first = 0; first < rank->history->count;) {
            begin = frame_begin(to, FRAME_RECORDS);
            first = history_put(rank->history, first, FRAME_RECORDS_LIMIT, out);
            frame_end(to, begin);
        }
    }
}

static bool is_valid(int64_t time)
{
    return time >= -INT64_MAX / 4 && time <= INT64_MAX / 4;
}

static bool is_printable(const char *text)
{
    for (; *text; text++) {
        if (*text < ' ' || *text > '~')
            return false;
    }
    return true;
}

bool collected_get_rank(struct collected *collected, struct wire_reader *body)
{
    char host[COLLECTED_HOST] = "", end[sizeof collected->ranks->end] = "";
    int number = (int)wire_get_u32(body);
    wire_get_string(body, host, sizeof host);
    int64_t ahead = (int64_t)wire_get_u64(body), ended = (int64_t)wire_get_u64(body);
    wire_get_string(body, end, sizeof end);
    if (!wire_done(body) || number < 0 || number > (int)setting_by_key("size")->maximum || !is_valid(ahead) ||
        !is_valid(ended) || ended < 0 || !is_printable(host) || !is_printable(end))
        return false;
    struct traced_rank *rank = add_rank(collected, number, host);
    if (!rank)
        return false;
    rank->ahead = ahead;
    rank->ended = ended;
    append_text(rank->end, sizeof rank->end, "%s", end);
    return true;
}

bool collected_get_records(struct collected *collected, struct wire_reader *body)
{
    return collected->count && history_get(&collected->histories[collected->count - 1], body);
}
