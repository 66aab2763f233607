/* slowness.c - see slowness.h. */
#include "slowness.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdlib.h>

#define LATE_SHARE      0.1 /* of the time that the job runs */
#define STARVED_SHARE   0.5 /* of the rank's time */
#define CAUSE_SHARE     0.2 /* less of the lateness than that explains nothing */
#define STARVED_SOONEST CLOCK_SECOND
#define BUSY_SHARE      0.8 /* of the time, or of the waits of all ranks */
#define WAITING_SHARE   0.2 /* of the time: with less the job does not depend on its network */
#define LINK_SOONEST    2   /* seconds */
#define OTHERS_SHARE    0.7 /* of its time: links whose acknowledgements pass it are busy for longer as well */

enum { STATES = sizeof(struct sight_times) / sizeof(uint64_t) };

bool slowness_is_late(const struct sight *rank)
{
    return rank->late_share >= LATE_SHARE;
}

/* Returns 0 if the job has made no two steps. */
static double step_seconds(const struct survey *survey)
{
    return (double)survey->steps.median / CLOCK_SECOND;
}

double slowness_per_step(const struct survey *survey, const struct sight *rank)
{
    return rank->late_share * step_seconds(survey);
}

/* ---- processors ---------------------------------------------------------------------------------------- */

static double starved_share(const struct survey *survey, const struct sight *rank)
{
    int64_t age = survey->taken - rank->page.identity.opened;
    bool known = rank->process && rank->page.identity.opened && age >= STARVED_SOONEST;
    return known ? (double)rank->times.runnable / (double)age : 0;
}

/* Adds which host has how many threads for how few processors. */
static void append_load(const struct sight *rank, char *text, size_t capacity)
{
    if (rank->load.cores)
        append_text(text, capacity, ": host %s has %d runnable threads on %d core%s", survey_host_of(rank),
                    rank->load.runnable, rank->load.cores, rank->load.cores == 1 ? "" : "s");
}

static bool say_starved(const struct survey *survey, char *text, size_t capacity)
{
    const struct sight *worst = survey->ranks;
    for (int i = 1; i < survey->count; i++) {
        if (starved_share(survey, &survey->ranks[i]) > starved_share(survey, worst))
            worst = &survey->ranks[i];
    }
    if (!survey->count || starved_share(survey, worst) < STARVED_SHARE)
        return false;
    append_text(text, capacity, "rank %d waits for a processor for %.0f %% of the time",
                worst->page.identity.rank, 100 * starved_share(survey, worst));
    append_load(worst, text, capacity);
    return true;
}

/* ---- lateness ------------------------------------------------------------------------------------------ */

static int compare_times(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static uint64_t time_of(const struct sight *rank, int state)
{
    const uint64_t times[STATES] = {rank->times.running, rank->times.runnable, rank->times.blocked};
    return times[state];
}

/* Returns by how much the rank was longer in this state than the median of the other ranks: all ranks spend
 * time in their programs, and a late rank spends more. */
static double excess(const struct survey *survey, const struct sight *late, int state)
{
    uint64_t *times = calloc((size_t)survey->count, sizeof *times);
    size_t count = 0;
    if (!times)
        return 0;
    for (int i = 0; i < survey->count; i++) {
        const struct sight *rank = &survey->ranks[i];
        if (rank != late && rank->process)
            times[count++] = time_of(rank, state);
    }
    if (count)
        qsort(times, count, sizeof *times, compare_times);
    uint64_t own = time_of(late, state), median = count ? times[count / 2] : 0;
    free(times);
    return own > median ? (double)(own - median) : 0;
}

/* Adds what the rank does while the others wait for it. */
static void append_cause(const struct survey *survey, const struct sight *late, char *text, size_t capacity)
{
    static const char *const does[STATES] = {"it computes", "it waits for a processor",
                                             "it is blocked (it reads, sleeps or waits for a lock)"};
    double sum = 0, most = 0;
    int cause = 0;
    for (int state = 0; state < STATES; state++) {
        double each = excess(survey, late, state);
        sum += each;
        cause = each > most ? state : cause;
        most = each > most ? each : most;
    }
    if (sum < CAUSE_SHARE * (double)late->late_ns || !late->process)
        return;
    append_text(text, capacity, "; %s for %.0f %% of that", does[cause], 100 * most / sum);
    if (cause == 1)
        append_load(late, text, capacity);
}

static bool say_late(const struct survey *survey, char *text, size_t capacity)
{
    const struct sight *worst = survey->ranks;
    double step = 1000 * step_seconds(survey);
    int others = 0;
    for (int i = 1; i < survey->count; i++)
        worst = survey->ranks[i].late_share > worst->late_share ? &survey->ranks[i] : worst;
    if (!survey->count || !slowness_is_late(worst))
        return false;
    append_text(text, capacity, "rank %d ", worst->page.identity.rank);
    if (survey->host_count > 1)
        append_text(text, capacity, "(host %s) ", survey_host_of(worst));
    if (step > 0)
        append_text(text, capacity, "costs %.*f ms of each %.*f ms step", step < 10, worst->late_share * step,
                    step < 10, step);
    else
        append_text(text, capacity, "costs %.0f %% of the time", 100 * worst->late_share);
    append_cause(survey, worst, text, capacity);
    for (int i = 0; i < survey->count; i++)
        others += &survey->ranks[i] != worst && slowness_is_late(&survey->ranks[i]);
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
static double waiting_share(const struct survey *survey)
{
    double least = 1;
    for (int i = 0; i < survey->count; i++) {
        double share = survey->ranks[i].seen ? survey_share_in_horovod(survey, &survey->ranks[i]) : 1;
        least = share < least ? share : least;
    }
    return least;
}

/* Returns true if no link out of another host was busy for nearly as long. */
static bool stands_out(const struct survey *survey, const struct survey_link *link)
{
    bool others = false;
    for (int i = 0; i < survey->link_count; i++) {
        const struct survey_link *other = &survey->links[i];
        if (other->from == link->from)
            continue;
        others = true;
        if ((double)other->busy > OTHERS_SHARE * (double)link->busy)
            return false;
    }
    return others;
}

const struct survey_link *slowness_limit(const struct survey *survey)
{
    const struct survey_link *worst = survey->links;
    double age = survey_seconds(survey), waits = waiting_share(survey);
    for (int i = 1; i < survey->link_count; i++)
        worst = survey->links[i].busy > worst->busy ? &survey->links[i] : worst;
    if (!survey->link_count || age < LINK_SOONEST || 2 * worst->receiver_limited > worst->busy)
        return NULL;
    double busy = seconds_of(worst->busy) / age;
    bool limits = busy >= BUSY_SHARE || (waits >= WAITING_SHARE && busy >= BUSY_SHARE * waits);
    return limits && stands_out(survey, worst) ? worst : NULL;
}

/* Adds how busy the links out of other hosts are. */
static void append_others(const struct survey *survey, const struct survey_link *limit, char *text,
                          size_t capacity)
{
    double age = survey_seconds(survey), least = 1, most = 0;
    int count = 0;
    for (int i = 0; i < survey->link_count; i++) {
        double busy = seconds_of(survey->links[i].busy) / age;
        if (survey->links[i].from == limit->from)
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

static bool say_limit(const struct survey *survey, char *text, size_t capacity)
{
    const struct survey_link *limit = slowness_limit(survey);
    if (!limit)
        return false;
    double busy = seconds_of(limit->busy);
    append_text(
        text, capacity,
        "the network from host %s to host %s is the limit: %.3g MB/s while it is busy, %.0f %% of the time",
        survey->hosts[limit->from].name, survey->hosts[limit->to].name, (double)limit->bytes / busy / 1e6,
        100 * busy / survey_seconds(survey));
    append_others(survey, limit, text, capacity);
    return true;
}

bool slowness_write(const struct survey *survey, char *text, size_t capacity)
{
    return say_starved(survey, text, capacity) || say_late(survey, text, capacity) ||
           say_limit(survey, text, capacity);
}
