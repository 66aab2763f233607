/* slowness.c - see slowness.h. */
#include "slowness.h"
#include "lateness.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>

#define STARVED_SHARE   0.5 /* of the rank's time */
#define CAUSE_SHARE     0.2 /* less of the lateness than that explains nothing */
#define STARVED_SOONEST CLOCK_SECOND
#define BUSY_SHARE      0.8 /* of the time, or of the waits of all ranks */
#define WAITING_SHARE   0.2 /* of the time: with less the job does not depend on its network */
#define LINK_SOONEST    2   /* seconds */
#define LINK_LEAST      1e5 /* bytes per second while it is busy: fewer wait for delayed acknowledgements */
#define OTHERS_SHARE    0.7 /* of its time: links whose acknowledgements pass it are busy for longer as well */

enum { STATES = sizeof(struct rank_view_times) / sizeof(uint64_t) };

bool slowness_is_late(const struct rank_view *rank)
{
    return lateness_counts(rank->late_share, (double)rank->late_ns / CLOCK_SECOND);
}

bool slowness_holds_up(const struct job_view *job_view, int index)
{
    const struct page_waiting *waiting = job_view_late(job_view);
    return (waiting && waiting->parts[index] == PART_MISSING) || slowness_is_late(&job_view->ranks[index]);
}

/* Returns 0 if the job has made no two steps. */
static double step_seconds(const struct job_view *job_view)
{
    return (double)job_view->steps.median / CLOCK_SECOND;
}

double slowness_per_step(const struct job_view *job_view, const struct rank_view *rank)
{
    return rank->late_share * step_seconds(job_view);
}

/* ---- processors ---------------------------------------------------------------------------------------- */

bool slowness_is_overloaded(const struct rank_view *rank)
{
    return !rank->load.cores || rank->load.runnable > rank->load.cores;
}

static double starved_share(const struct job_view *job_view, const struct rank_view *rank)
{
    int64_t age = job_view->taken - rank->page.identity.opened;
    bool known =
        rank->process && rank->page.identity.opened && age >= STARVED_SOONEST && slowness_is_overloaded(rank);
    return known ? (double)rank->times.runnable / (double)age : 0;
}

void slowness_append_load(const struct rank_view *rank, char *text, size_t capacity)
{
    if (rank->load.cores)
        append_text(text, capacity, ": host %s has %d runnable threads on %d core%s", job_view_host_of(rank),
                    rank->load.runnable, rank->load.cores, rank->load.cores == 1 ? "" : "s");
}

static bool say_starved(const struct job_view *job_view, char *text, size_t capacity)
{
    const struct rank_view *worst = job_view->ranks;
    for (int i = 1; i < job_view->count; i++) {
        if (starved_share(job_view, &job_view->ranks[i]) > starved_share(job_view, worst))
            worst = &job_view->ranks[i];
    }
    if (!job_view->count || starved_share(job_view, worst) < STARVED_SHARE)
        return false;
    append_text(text, capacity, "rank %d waits for a processor for %.0f %% of the time",
                worst->page.identity.rank, 100 * starved_share(job_view, worst));
    slowness_append_load(worst, text, capacity);
    return true;
}

/* ---- lateness ------------------------------------------------------------------------------------------ */

static uint64_t time_of(const struct rank_view *rank, int state)
{
    const uint64_t times[STATES] = {rank->times.running, rank->times.runnable, rank->times.blocked};
    return times[state];
}

/* Returns by how much the rank was longer in this state than the median of the other ranks: all ranks spend
 * time in their programs, and a late rank spends more. */
static double excess(const struct job_view *job_view, const struct rank_view *late, int state)
{
    int64_t *times = calloc((size_t)job_view->count, sizeof *times);
    size_t count = 0;
    if (!times)
        return 0;
    for (int i = 0; i < job_view->count; i++) {
        const struct rank_view *rank = &job_view->ranks[i];
        if (rank != late && rank->process)
            times[count++] = (int64_t)time_of(rank, state);
    }
    if (count)
        qsort(times, count, sizeof *times, clock_compare);
    int64_t own = (int64_t)time_of(late, state), median = count ? times[count / 2] : 0;
    free(times);
    return own > median ? (double)(own - median) : 0;
}

/* Adds what the rank does while the others wait for it. */
static void append_cause(const struct job_view *job_view, const struct rank_view *late, char *text,
                         size_t capacity)
{
    static const char *const does[STATES] = {"it computes", "it waits for a processor",
                                             "it is blocked (it reads, sleeps or waits for a lock)"};
    double sum = 0, most = 0;
    int cause = 0;
    for (int state = 0; state < STATES; state++) {
        double each = excess(job_view, late, state);
        sum += each;
        cause = each > most ? state : cause;
        most = each > most ? each : most;
    }
    if (sum < CAUSE_SHARE * (double)late->late_ns || !late->process ||
        (cause == 1 && !slowness_is_overloaded(late)))
        return;
    append_text(text, capacity, "; %s for %.0f %% of that", does[cause], 100 * most / sum);
    if (cause == 1)
        slowness_append_load(late, text, capacity);
}

static bool say_late(const struct job_view *job_view, char *text, size_t capacity)
{
    const struct rank_view *worst = job_view->ranks;
    double step = 1000 * step_seconds(job_view);
    int others = 0;
    for (int i = 1; i < job_view->count; i++)
        worst = job_view->ranks[i].late_share > worst->late_share ? &job_view->ranks[i] : worst;
    if (!job_view->count || !slowness_is_late(worst))
        return false;
    append_text(text, capacity, "rank %d ", worst->page.identity.rank);
    if (job_view->host_count > 1)
        append_text(text, capacity, "(host %s) ", job_view_host_of(worst));
    if (step > 0)
        append_text(text, capacity, "costs %.*f ms of each %.*f ms step", step < 10, worst->late_share * step,
                    step < 10, step);
    else
        append_text(text, capacity, "costs %.0f %% of the time", 100 * worst->late_share);
    append_cause(job_view, worst, text, capacity);
    for (int i = 0; i < job_view->count; i++)
        others += &job_view->ranks[i] != worst && slowness_is_late(&job_view->ranks[i]);
    if (others)
        append_text(text, capacity, "; %d other rank%s late as well", others, others == 1 ? " is" : "s are");
    return true;
}

/* ---- links --------------------------------------------------------------------------------------------- */

static double seconds_of(uint64_t nanoseconds)
{
    return (double)nanoseconds / CLOCK_SECOND;
}

/* Returns the share of the time in which all ranks were in Horovod, at most. */
static double waiting_share(const struct job_view *job_view)
{
    double least = 1;
    for (int i = 0; i < job_view->count; i++) {
        double share = job_view->ranks[i].seen ? job_view_share_in_horovod(job_view, &job_view->ranks[i]) : 1;
        least = share < least ? share : least;
    }
    return least;
}

/* Returns true if no link out of another host was busy for nearly as long. */
static bool stands_out(const struct job_view *job_view, const struct job_view_link *link)
{
    bool others = false;
    for (int i = 0; i < job_view->link_count; i++) {
        const struct job_view_link *other = &job_view->links[i];
        if (other->from == link->from)
            continue;
        others = true;
        if ((double)other->busy > OTHERS_SHARE * (double)link->busy)
            return false;
    }
    return others;
}

const struct job_view_link *slowness_limit(const struct job_view *job_view)
{
    const struct job_view_link *worst = job_view->links;
    double age = job_view_seconds(job_view), waits = waiting_share(job_view);
    for (int i = 1; i < job_view->link_count; i++)
        worst = job_view->links[i].busy > worst->busy ? &job_view->links[i] : worst;
    if (!job_view->link_count || age < LINK_SOONEST || 2 * worst->receiver_limited > worst->busy)
        return NULL;
    if ((double)worst->bytes < LINK_LEAST * seconds_of(worst->busy))
        return NULL;
    double busy = seconds_of(worst->busy) / age;
    bool limits = busy >= BUSY_SHARE || (waits >= WAITING_SHARE && busy >= BUSY_SHARE * waits);
    return limits && stands_out(job_view, worst) ? worst : NULL;
}

/* Adds how busy the links out of other hosts are. */
static void append_others(const struct job_view *job_view, const struct job_view_link *limit, char *text,
                          size_t capacity)
{
    double age = job_view_seconds(job_view), least = 1, most = 0;
    int count = 0;
    for (int i = 0; i < job_view->link_count; i++) {
        double busy = seconds_of(job_view->links[i].busy) / age;
        if (job_view->links[i].from == limit->from)
            continue;
        count++;
        least = busy < least ? busy : least;
        most = busy > most ? busy : most;
    }
    if (count == 1)
        append_text(text, capacity, "; the other link is busy for %.0f %%", 100 * most);
    else
        append_text(text, capacity, "; the other links are busy for %.0f to %.0f %%", 100 * least,
                    100 * most);
}

static bool say_limit(const struct job_view *job_view, char *text, size_t capacity)
{
    const struct job_view_link *limit = slowness_limit(job_view);
    if (!limit)
        return false;
    double busy = seconds_of(limit->busy);
    append_text(
        text, capacity,
        "the network from host %s to host %s is the limit: %.3g MB/s while it is busy, %.0f %% of the time",
        job_view->hosts[limit->from].name, job_view->hosts[limit->to].name, (double)limit->bytes / busy / 1e6,
        100 * busy / job_view_seconds(job_view));
    append_others(job_view, limit, text, capacity);
    return true;
}

bool slowness_write(const struct job_view *job_view, char *text, size_t capacity)
{
    return say_starved(job_view, text, capacity) || say_late(job_view, text, capacity) ||
           say_limit(job_view, text, capacity);
}
