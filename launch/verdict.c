/* verdict.c - see verdict.h. The rules are asked in their order, and the first that fits writes the sentence:
 * what explains most comes first, so a stopped process before those that wait for it. */
#include "verdict.h"
#include "activity.h"
#include "slowness.h"
#include "wrong_numbers.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOW        (5 * CLOCK_SECOND)  /* an operation may move data for that long */
#define JOINING     (5 * CLOCK_SECOND)  /* ranks reach init one after the other */
#define RECENT      (10 * CLOCK_SECOND) /* a step may take that long */
#define RANKS_SHOWN 160                 /* characters of a list of ranks */

struct job {
    const struct job_view *job_view;
    char *text;
    size_t capacity;
};

static double seconds_since(const struct job *job, int64_t time)
{
    return (double)(job->job_view->taken - time) / CLOCK_SECOND;
}

/* ---- texts --------------------------------------------------------------------------------------------- */

/* Writes "rank 1" or "ranks 0-2, 5". */
static int name_ranks(const struct job *job, const uint8_t *chosen, int which, char text[RANKS_SHOWN + 8])
{
    char list[RANKS_SHOWN];
    int count = job_view_ranks(job->job_view, chosen, which, list, sizeof list);
    snprintf(text, RANKS_SHOWN + 8, "rank%s %s", count == 1 ? "" : "s", list);
    return count;
}

/* Without a stack, by the state of the process. */
static const char *program_state(char state)
{
    switch (state) {
    case 'R':
        return "runs its own program";
    case 'D':
        return "waits for a disk or a network file in its own program";
    case 'S':
        return "sleeps in its own program";
    default:
        return "is in its own program";
    }
}

static void write_program(const struct rank_view *rank, bool brief, char *text, size_t capacity)
{
    if (rank->stack && rank->stack->thread_count)
        activity_append(rank->stack, brief, text, capacity);
    else
        append_text(text, capacity, "%s", program_state(rank->system.state));
}

void verdict_state(const struct rank_view *rank, char *text, size_t capacity)
{
    static const char *const texts[] = {[RANK_VIEW_UNSEEN] = "is on a host that does not answer",
                                        [RANK_VIEW_STOPPED] = "is stopped",
                                        [RANK_VIEW_ENDED] = "has ended",
                                        [RANK_VIEW_FAILED] = "has failed",
                                        [RANK_VIEW_LEFT] = "has left the job",
                                        [RANK_VIEW_STARTED] = "has not joined yet",
                                        [RANK_VIEW_JOINING] = "waits in init",
                                        [RANK_VIEW_WAITS] = "waits in Horovod"};
    const struct page_request *request = rank_view_awaited(rank);
    enum rank_view_state state = rank_view_state(rank);
    text[0] = '\0';
    if (state == RANK_VIEW_WAITS && request)
        append_text(text, capacity, "waits in %s", request->title);
    else if (state == RANK_VIEW_PROGRAM)
        write_program(rank, true, text, capacity);
    else
        append_text(text, capacity, "%s", texts[state]);
}

/* ---- rules: each returns false if it does not fit ------------------------------------------------------ */

/* Adds what the others wait for because of this rank. */
static void add_waiting(const struct job *job, int rank)
{
    for (int i = 0; i < job->job_view->waitings.count; i++) {
        const struct page_waiting *waiting = &job->job_view->waitings.list[i];
        if (waiting->parts[rank] == PART_MISSING) {
            append_text(job->text, job->capacity, "; %d rank%s wait%s for it in %s", waiting->waits,
                        waiting->waits == 1 ? "" : "s", waiting->waits == 1 ? "s" : "",
                        waiting->request->title);
            return;
        }
    }
}

/* Names the hosts that have not answered, and what the others wait for meanwhile. */
static bool say_silent(const struct job *job)
{
    const struct job_view *job_view = job->job_view;
    const struct page_waiting *first = job_view_late(job_view);
    char ranks[RANKS_SHOWN + 8];
    bool silent = false;
    uint8_t *of_host = calloc((size_t)job_view->count, 1);
    for (int i = 0; of_host && i < job_view->host_count; i++) {
        const struct job_view_host *host = &job_view->hosts[i];
        if (host->answers)
            continue;
        for (int j = 0; j < job_view->count; j++)
            of_host[j] = strcmp(job_view_host_of(&job_view->ranks[j]), host->name) == 0;
        name_ranks(job, of_host, true, ranks);
        append_text(job->text, job->capacity, "%shost %s (%s) ", silent ? "; " : "", host->name, ranks);
        if (host->silent > 0)
            append_text(job->text, job->capacity, "does not answer for %.0f s", host->silent);
        else
            append_text(job->text, job->capacity, "is connected, but has not reported its ranks in time");
        silent = true;
    }
    if (silent && first)
        append_text(job->text, job->capacity, "; %d rank%s wait%s in %s", first->waits,
                    first->waits == 1 ? "" : "s", first->waits == 1 ? "s" : "", first->request->title);
    free(of_host);
    return silent;
}

static bool say_stopped(const struct job *job)
{
    for (int i = 0; i < job->job_view->count; i++) {
        if (rank_view_state(&job->job_view->ranks[i]) != RANK_VIEW_STOPPED)
            continue;
        append_text(job->text, job->capacity,
                    "rank %d (pid %d) is stopped, by SIGSTOP or a debugger; kill -CONT %d lets it go on",
                    job->job_view->ranks[i].page.identity.rank, job->job_view->ranks[i].process,
                    job->job_view->ranks[i].process);
        add_waiting(job, i);
        return true;
    }
    return false;
}

enum change { CHANGE_GONE = 1, CHANGE_WAITS, CHANGE_BUSY };

static enum change change_of(const struct rank_view *rank)
{
    enum rank_view_state state = rank_view_state(rank);
    if (!rank->process || state == RANK_VIEW_UNSEEN)
        return CHANGE_GONE;
    bool busy = state == RANK_VIEW_PROGRAM || state == RANK_VIEW_WAITS || state == RANK_VIEW_STARTED;
    return busy ? CHANGE_BUSY : CHANGE_WAITS;
}

/* Adds what ranks that are ready for the next epoch wait for. */
static void add_change_cause(const struct job *job, const uint8_t *changes, int ready)
{
    const struct job_view *job_view = job->job_view;
    char busy[RANKS_SHOWN + 8], does[JOB_VIEW_TEXT / 2] = "";
    int count = name_ranks(job, changes, CHANGE_BUSY, busy);
    for (int i = 0; i < job_view->count && count == 1; i++) {
        if (changes[i] == CHANGE_BUSY)
            verdict_state(&job_view->ranks[i], does, sizeof does);
    }
    if (count)
        append_text(job->text, job->capacity, "%s, which %s", busy, count == 1 ? does : "have not come back");
    else if (ready < job_view->least)
        append_text(job->text, job->capacity, "other processes: the job needs %d ranks", job_view->least);
    else
        append_text(job->text, job->capacity, "the next epoch");
}

/* Of an elastic job, whose ranks go on although some have ended. */
static bool say_changing(const struct job *job)
{
    const struct job_view *job_view = job->job_view;
    char gone[RANKS_SHOWN + 8], waits[RANKS_SHOWN + 8];
    uint8_t *changes = job_view->changing ? calloc((size_t)job_view->count, 1) : NULL;
    if (!changes)
        return false;
    for (int i = 0; i < job_view->count; i++)
        changes[i] = (uint8_t)change_of(&job_view->ranks[i]);
    int missing = name_ranks(job, changes, CHANGE_GONE, gone);
    int ready = name_ranks(job, changes, CHANGE_WAITS, waits);
    append_text(job->text, job->capacity, "the ranks have been changing for %.0f s",
                seconds_since(job, job_view->changing));
    if (missing)
        append_text(job->text, job->capacity, ": %s %s gone", gone, missing == 1 ? "is" : "are");
    if (ready) {
        append_text(job->text, job->capacity, "%s %s wait%s for ", missing ? ", and" : ":", waits,
                    ready == 1 ? "s" : "");
        add_change_cause(job, changes, ready);
    }
    free(changes);
    return true;
}

static bool say_ended(const struct job *job)
{
    for (int i = 0; i < job->job_view->count; i++) {
        const struct rank_view *rank = &job->job_view->ranks[i];
        if (rank_view_state(rank) != RANK_VIEW_ENDED || rank->page.state == PAGE_STARTED)
            continue;
        append_text(job->text, job->capacity, "the process of rank %d has ended without leaving the job",
                    rank->page.identity.rank);
        add_waiting(job, i);
        return true;
    }
    return false;
}

static bool say_failed(const struct job *job)
{
    for (int i = 0; i < job->job_view->count; i++) {
        if (job->job_view->ranks[i].page.state != PAGE_FAILED)
            continue;
        append_text(job->text, job->capacity, "rank %d has failed: %s",
                    job->job_view->ranks[i].page.identity.rank, job->job_view->ranks[i].page.cause);
        return true;
    }
    return false;
}

/* A program may end without Horovod, unless others wait for it. */
static bool say_never_joins(const struct job *job)
{
    enum { JOINS = 1, ENDED };
    uint8_t *chosen = job->job_view->count > 0 ? calloc((size_t)job->job_view->count, 1) : NULL;
    char waits[RANKS_SHOWN + 8], ended[RANKS_SHOWN + 8];
    for (int i = 0; chosen && i < job->job_view->count; i++) {
        enum rank_view_state state = rank_view_state(&job->job_view->ranks[i]);
        chosen[i] = state == RANK_VIEW_JOINING ? JOINS : state == RANK_VIEW_ENDED ? ENDED : 0;
    }
    int waiting = chosen ? name_ranks(job, chosen, JOINS, waits) : 0;
    int gone = chosen ? name_ranks(job, chosen, ENDED, ended) : 0;
    if (waiting && gone)
        append_text(job->text, job->capacity, "%s wait%s in init for %s, which %s ended without calling it",
                    waits, waiting == 1 ? "s" : "", ended, gone == 1 ? "has" : "have");
    free(chosen);
    return waiting && gone;
}

/* Returns true if a rank has been in init for longer than a start needs, or it is not known for how long. */
static bool joins_for_long(const struct job *job)
{
    for (int i = 0; i < job->job_view->count; i++) {
        const struct page_summary *page = &job->job_view->ranks[i].page;
        if (page->state == PAGE_JOINING &&
            (!page->identity.opened || job->job_view->taken - page->identity.opened >= JOINING))
            return true;
    }
    return false;
}

static bool say_joining(const struct job *job)
{
    if (!joins_for_long(job))
        return false;
    uint8_t *states = job->job_view->count > 0 ? calloc((size_t)job->job_view->count, 1) : NULL;
    char waits[RANKS_SHOWN + 8], missing[RANKS_SHOWN + 8];
    for (int i = 0; states && i < job->job_view->count; i++)
        states[i] = (uint8_t)job->job_view->ranks[i].page.state;
    int waiting = states ? name_ranks(job, states, PAGE_JOINING, waits) : 0;
    int absent = states ? name_ranks(job, states, PAGE_STARTED, missing) : 0;
    if (waiting && absent)
        append_text(job->text, job->capacity, "%s wait%s in init for %s, which %s not got there", waits,
                    waiting == 1 ? "s" : "", missing, absent == 1 ? "has" : "have");
    else if (waiting && job->job_view->count < job->job_view->size)
        append_text(job->text, job->capacity,
                    "%s wait%s in init for ranks that have no page here (on another host, not started, or "
                    "ended)",
                    waits, waiting == 1 ? "s" : "");
    else if (waiting)
        append_text(job->text, job->capacity, "%s wait%s in init, which all ranks have reached", waits,
                    waiting == 1 ? "s" : "");
    free(states);
    return waiting > 0;
}

/* Returns true if all ranks that have submitted `one` lack `other`, and sleep in Horovod. */
static bool sleep_without(const struct job *job, const struct page_waiting *one,
                          const struct page_waiting *other)
{
    for (int rank = 0; rank < job->job_view->count; rank++) {
        if (one->parts[rank] == PART_WAITS &&
            (other->parts[rank] != PART_MISSING || !job->job_view->ranks[rank].page.thread_count))
            return false;
    }
    return true;
}

/* Adds where a rank has submitted this request. */
static void append_line(const struct job *job, const struct page_waiting *waiting)
{
    for (int rank = 0; rank < job->job_view->count; rank++) {
        const struct stack_frame *place = stack_place(job->job_view->ranks[rank].stack);
        if (waiting->parts[rank] != PART_WAITS || !place)
            continue;
        append_text(job->text, job->capacity, " (%s:%d)", stack_file_name(place->file), place->line);
        return;
    }
}

/* Returns true if a missing rank waits in a request that only missing ranks have submitted. A rank that has
 * submitted it and goes on with its program is just late. */
static bool say_branches(const struct job *job, const struct page_waiting *first)
{
    char one[RANKS_SHOWN + 8], other[RANKS_SHOWN + 8];
    for (int i = 0; i < job->job_view->waitings.count; i++) {
        const struct page_waiting *second = &job->job_view->waitings.list[i];
        if (second == first || second->request->process_set != first->request->process_set ||
            !sleep_without(job, second, first) || !sleep_without(job, first, second))
            continue;
        const struct page_waiting *most = second->waits > first->waits ? second : first;
        const struct page_waiting *few = most == first ? second : first;
        name_ranks(job, most->parts, PART_WAITS, one);
        name_ranks(job, few->parts, PART_WAITS, other);
        append_text(job->text, job->capacity, "%s wait%s in %s", one, most->waits == 1 ? "s" : "",
                    most->request->title);
        append_line(job, most);
        append_text(job->text, job->capacity, ", but %s in %s", other, few->request->title);
        append_line(job, few);
        append_text(job->text, job->capacity, ": the programs took different branches");
        return true;
    }
    return false;
}

/* Names the late ranks, and says what the first of them does of which a stack is known. */
static void say_missing(const struct job *job, const struct page_waiting *first)
{
    const struct job_view *job_view = job->job_view;
    char waits[RANKS_SHOWN + 8], missing[RANKS_SHOWN + 8], does[JOB_VIEW_TEXT / 2] = "";
    int late = -1;
    for (int i = 0; i < job_view->count; i++) {
        if (first->parts[i] == PART_MISSING &&
            (late < 0 || (job_view->ranks[i].stack && !job_view->ranks[late].stack)))
            late = i;
    }
    const struct rank_view *rank = &job_view->ranks[late];
    name_ranks(job, first->parts, PART_WAITS, waits);
    name_ranks(job, first->parts, PART_MISSING, missing);
    if (rank_view_state(rank) == RANK_VIEW_PROGRAM)
        write_program(rank, false, does, sizeof does);
    else
        verdict_state(rank, does, sizeof does);
    if (first->missing > 1)
        append_text(job->text, job->capacity, "%s are late, and ", missing);
    append_text(job->text, job->capacity, "rank %d ", rank->page.identity.rank);
    if (job_view->host_count > 1)
        append_text(job->text, job->capacity, "(host %s) ", job_view_host_of(rank));
    append_text(job->text, job->capacity, "%s; %s wait%s for %s in %s, for %.0f s", does, waits,
                first->waits == 1 ? "s" : "", first->missing > 1 ? "them" : "it", first->request->title,
                seconds_since(job, first->since));
}

/* All ranks have submitted the request: the network is the cause, or the load of a host. */
static void say_uncoordinated(const struct job *job, const struct page_waiting *first)
{
    const struct rank_view *overloaded = NULL;
    for (int i = 0; i < job->job_view->count && !overloaded; i++) {
        if (slowness_is_overloaded(&job->job_view->ranks[i]))
            overloaded = &job->job_view->ranks[i];
    }
    append_text(job->text, job->capacity,
                "all ranks have submitted %s, but do not learn of each other for %.0f s: a network is slow%s",
                first->request->title, seconds_since(job, first->since),
                overloaded ? ", or a rank gets no processor" : "");
    if (overloaded)
        slowness_append_load(overloaded, job->text, job->capacity);
}

static bool say_late(const struct job *job)
{
    const struct page_waiting *first = job_view_late(job->job_view);
    char waits[RANKS_SHOWN + 8];
    if (!first)
        return false;
    name_ranks(job, first->parts, PART_WAITS, waits);
    if (first->missing) {
        if (!say_branches(job, first))
            say_missing(job, first);
    } else if (first->hidden) {
        append_text(job->text, job->capacity,
                    "%s wait%s for ranks that can't be seen here (on another host, ended, or with a full "
                    "page) in %s, for %.0f s",
                    waits, first->waits == 1 ? "s" : "", first->request->title,
                    seconds_since(job, first->since));
    } else {
        say_uncoordinated(job, first);
    }
    return true;
}

static bool say_slow(const struct job *job)
{
    for (int i = 0; i < job->job_view->count; i++) {
        const struct page_summary *page = &job->job_view->ranks[i].page;
        for (int j = 0; j < page->request_count; j++) {
            const struct page_request *request = &page->requests[j];
            if (!request->decided || job->job_view->taken - request->decided < SLOW)
                continue;
            append_text(job->text, job->capacity,
                        "%s moves its data for %.0f s, and has not ended on rank %d", request->title,
                        seconds_since(job, request->decided), page->identity.rank);
            return true;
        }
    }
    return false;
}

/* Returns the operations per second of the rank that has ended most since the look before. */
static double operations_per_second(const struct job_view *job_view)
{
    double rate = 0;
    for (int i = 0; i < job_view->count; i++) {
        const struct rank_view *rank = &job_view->ranks[i];
        uint64_t all = rank->page.all.succeeded + rank->page.all.failed, before = rank->ended_before;
        if (all > before && rank->seconds > 0) /* the counters of a new epoch start at 0 */
            rate =
                (double)(all - before) / rank->seconds > rate ? (double)(all - before) / rank->seconds : rate;
    }
    return rate;
}

/* Adds what the first rank does of which a stack is known. */
static void add_program(const struct job *job)
{
    for (int i = 0; i < job->job_view->count; i++) {
        const struct rank_view *rank = &job->job_view->ranks[i];
        if (rank_view_state(rank) != RANK_VIEW_PROGRAM || !rank->stack)
            continue;
        append_text(job->text, job->capacity, "; rank %d ", rank->page.identity.rank);
        write_program(rank, false, job->text, job->capacity);
        return;
    }
}

/* Says how fast the job is, and that no rank holds it up, which rank 0 knows. */
static void say_rate(const struct job *job, double rate)
{
    const struct job_view *job_view = job->job_view;
    const struct page_steps *steps = &job_view->steps;
    double median = (double)steps->median / CLOCK_SECOND, late = 0;
    for (int i = 0; i < job_view->count; i++)
        late = job_view->ranks[i].late_share > late ? job_view->ranks[i].late_share : late;
    if (job_view_makes_steps(job_view))
        append_text(job->text, job->capacity, "healthy: step %lld, %.3g steps/s (%.3g ms)",
                    (long long)steps->number, 1 / median, 1000 * median);
    else
        append_text(job->text, job->capacity, "healthy: %.0f operations/s", rate);
    if (job_view->ranks->page.reporter_count && job_view->ranks->page.identity.rank == 0)
        append_text(job->text, job->capacity, ", no rank is late by more than %d %%", (int)(100 * late) + 1);
    else
        append_text(job->text, job->capacity, ", and no rank waits for long");
}

static void say_progress(const struct job *job)
{
    int64_t progress = job->job_view->progress;
    double rate = operations_per_second(job->job_view);
    if (rate > 0)
        say_rate(job, rate);
    else if (progress && job->job_view->taken - progress < RECENT)
        append_text(job->text, job->capacity, "healthy: the last operation ended %.1f s ago",
                    seconds_since(job, progress));
    else if (progress)
        append_text(job->text, job->capacity,
                    "nothing is under way, and the last operation ended %.0f s ago: every rank is in its own "
                    "program",
                    seconds_since(job, progress));
    else if (job->job_view->started)
        append_text(job->text, job->capacity, "no rank has used Horovod yet (started %.0f s ago)",
                    seconds_since(job, job->job_view->started));
    else
        append_text(job->text, job->capacity, "no rank has used Horovod yet");
    if (rate <= 0 && (!progress || job->job_view->taken - progress >= RECENT))
        add_program(job);
}

enum verdict verdict_write(const struct job_view *job_view, char *text, size_t capacity)
{
    const struct job job = {job_view, text, capacity};
    text[0] = '\0';
    if (say_silent(&job) || say_stopped(&job))
        return VERDICT_BROKEN;
    if (say_changing(&job))
        return VERDICT_LATE;
    if (say_ended(&job) || say_failed(&job) || say_never_joins(&job))
        return VERDICT_BROKEN;
    /* Until an operation of all ranks has ended, they start, and nothing can be said of their speed. */
    bool late = say_joining(&job) || say_late(&job) || say_slow(&job) ||
                (job_view->progress && slowness_write(job_view, text, capacity));
    char wrong[JOB_VIEW_TEXT] = "";
    if (wrong_numbers_write(job_view, wrong, sizeof wrong)) {
        append_text(text, capacity, "%s%s", late ? "; " : "", wrong);
        return VERDICT_BROKEN;
    }
    if (late)
        return VERDICT_LATE;
    say_progress(&job);
    return VERDICT_HEALTHY;
}
