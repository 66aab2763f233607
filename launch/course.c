/* course.c - see course.h. A point of the curve holds sums since the start, so that the mean between any
 * two points is exact, also after points between them were removed. */
#include "course.h"
#include "json.h"
#include "lateness.h"
#include "units.h"

#include "base/status.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct point {
    double at;
    double steps;
    double present, horovod; /* seconds of all ranks: in the job, and of these asleep in Horovod */
    double late;             /* the share of the rank that was late most, since the point before */
    int late_rank;
    bool gap; /* nobody has looked since the point before */
};

struct verdict {
    double at, until;
    int exit;
    char *text;
};

/* Counts that follow from what several ranks show, such as lateness, fall when one of them is not seen: so
 * the highest one counts, until the rank calls hvd_init again and all of them begin at 0. */
struct total {
    int rank; /* its number; of one that has left, the last one */
    int process;
    uint64_t born;
    char host[64];
    double at;         /* when it was seen last */
    int64_t opened_at; /* as in struct course_rank; 0: it was not in the job yet */
    uint64_t horovod_ns, late_ns, bytes, engine_ns; /* the highest since then */
    double late, share; /* seconds in all, and the share since it was seen before */
    int last_epoch;     /* of one that no look has seen: its last one */
};

/* A rank of the running epoch that no look has seen yet. */
struct newcomer {
    int slot, rank;
    char host[64];
};

struct course {
    struct point points[COURSE_POINTS]; /* the first one is the start */
    int point_count;
    double interval; /* the least between two points */
    struct verdict verdicts[COURSE_VERDICTS];
    int verdict_count;
    struct total *ranks; /* [rank_count] by rank. Of elastic jobs a rank becomes another process */
    int rank_count;
    struct total left[COURSE_LEFT]; /* processes that are no rank any longer */
    int left_count;
    struct newcomer *newcomers; /* [newcomer_count] */
    int newcomer_count;
    int begun;         /* the epoch of these */
    double at, before; /* of the last look, and of the one before it */
    double joules;
    int epoch;
    uint64_t most_steps; /* of that epoch */
    double steps;
    double present, starting, horovod, engine; /* seconds of all ranks */
    double late;                               /* seconds of the job */
    double lost;                               /* seconds of all ranks, by lateness of another one */
    double bytes;
};

struct course *course_create(int ranks)
{
    struct course *course = calloc(1, sizeof *course);
    if (!course)
        return NULL;
    course->rank_count = ranks;
    course->joules = -1;
    course->interval = 1;
    course->point_count = 1;
    course->ranks = calloc((size_t)ranks, sizeof *course->ranks);
    if (course->ranks)
        return course;
    free(course);
    return NULL;
}

void course_free(struct course *course)
{
    for (int i = 0; course && i < course->verdict_count; i++)
        free(course->verdicts[i].text);
    if (course) {
        free(course->ranks);
        free(course->newcomers);
    }
    free(course);
}

/* ---- ranks that leave ---------------------------------------------------------------------------------- */

static bool is_of(const struct total *total, const struct course_rank *rank)
{
    return total->process == rank->process && total->born == rank->born &&
           strncmp(total->host, rank->host, sizeof total->host - 1) == 0;
}

static void keep_left(struct course *course, const struct total *total)
{
    struct total *place = &course->left[course->left_count];
    if (course->left_count < COURSE_LEFT) {
        course->left_count++;
    } else {
        place = course->left;
        for (int i = 1; i < COURSE_LEFT; i++)
            place = course->left[i].late < place->late ? &course->left[i] : place;
        if (total->late <= place->late)
            return;
    }
    *place = *total;
}

static const struct course_member *find_member(const struct course_member *members, int count, int slot)
{
    for (int i = 0; i < count; i++) {
        if (members[i].slot == slot)
            return &members[i];
    }
    return NULL;
}

/* Those that are in the next epoch keep waiting for a look, with the number that they have there. */
static void renumber_newcomers(struct course *course, const struct course_member *members, int count)
{
    int kept = 0;
    for (int i = 0; i < course->newcomer_count; i++) {
        struct newcomer newcomer = course->newcomers[i];
        const struct course_member *member = find_member(members, count, newcomer.slot);
        if (member) {
            newcomer.rank = (int)(member - members);
            course->newcomers[kept++] = newcomer;
            continue;
        }
        struct total total = {.rank = newcomer.rank, .at = course->at, .last_epoch = course->begun};
        memcpy(total.host, newcomer.host, sizeof total.host);
        keep_left(course, &total);
    }
    course->newcomer_count = kept;
}

void course_begin(struct course *course, int epoch, const struct course_member *members, int count)
{
    renumber_newcomers(course, members, count);
    course->begun = epoch;
    struct newcomer *newcomers =
        reallocarray(course->newcomers, (size_t)course->newcomer_count + (size_t)count, sizeof *newcomers);
    if (!newcomers)
        return;
    course->newcomers = newcomers;
    for (int i = 0; i < count && i < course->rank_count; i++) {
        struct newcomer *newcomer = &newcomers[course->newcomer_count];
        if (!members[i].newcomer)
            continue;
        *newcomer = (struct newcomer){members[i].slot, i, ""};
        memcpy(newcomer->host, members[i].host, sizeof newcomer->host);
        course->newcomer_count++;
    }
}

static void forget_newcomer(struct course *course, int rank)
{
    for (int i = 0; i < course->newcomer_count; i++) {
        if (course->newcomers[i].rank != rank)
            continue;
        course->newcomers[i] = course->newcomers[--course->newcomer_count];
        return;
    }
}

/* ---- looks --------------------------------------------------------------------------------------------- */

/* Returns by how much a count has exceeded its highest value. */
static double grow(uint64_t *highest, uint64_t now)
{
    double more = now > *highest ? (double)(now - *highest) : 0;
    *highest = now > *highest ? now : *highest;
    return more;
}

/* Returns true if it is this rank that has left. A look that was under way when the epoch ended is the first
 * one at some ranks. */
static bool is_left(const struct total *left, const struct course_rank *rank, int epoch)
{
    return is_of(left, rank) || (!left->process && left->last_epoch == epoch && left->rank == rank->rank);
}

/* Another process has the number of the rank now: it is new, or had another number in the epoch before. */
static void exchange(struct course *course, const struct course_rank *rank, int epoch)
{
    struct total *total = &course->ranks[rank->rank];
    if (total->opened_at)
        keep_left(course, total);
    *total = (struct total){.at = total->at};
    for (int i = 0; i < course->rank_count && course->epoch > 0; i++) {
        if (!course->ranks[i].opened_at || !is_of(&course->ranks[i], rank))
            continue;
        *total = course->ranks[i];
        course->ranks[i] = (struct total){.at = course->before};
        return;
    }
    for (int i = 0; i < course->left_count; i++) {
        if (!is_left(&course->left[i], rank, epoch))
            continue;
        *total = course->left[i];
        course->left[i] = course->left[--course->left_count];
        return;
    }
}

/* Adds what a rank has done in the `seconds` since it was seen before. */
static void add_counts(struct course *course, const struct course_look *look, const struct course_rank *rank,
                       double seconds)
{
    struct total *total = &course->ranks[rank->rank];
    if (rank->opened_at != total->opened_at)
        *total = (struct total){.at = total->at, .opened_at = rank->opened_at, .late = total->late};
    double late = grow(&total->late_ns, rank->late_ns) / 1e9;
    total->rank = rank->rank;
    total->process = rank->process;
    total->born = rank->born;
    snprintf(total->host, sizeof total->host, "%s", rank->host);
    total->late += late;
    total->share = seconds > 0 ? fmin(late / seconds, 1) : 0;
    course->late += late;
    course->lost += late * (look->count - 1);
    course->horovod += fmin(grow(&total->horovod_ns, rank->horovod_ns) / 1e9, seconds);
    course->bytes += grow(&total->bytes, rank->bytes);
    course->engine += grow(&total->engine_ns, rank->engine_ns) / 1e9;
}

/* The time of a rank that is not seen counts when it is seen again, together with what it did meanwhile. */
static void add_rank(struct course *course, const struct course_look *look, const struct course_rank *rank)
{
    struct total *total = &course->ranks[rank->rank];
    total->share = 0;
    if (!rank->seen)
        return;
    if (rank->opened_at && look->epoch == course->begun)
        forget_newcomer(course, rank->rank);
    if (rank->opened_at && !is_of(total, rank))
        exchange(course, rank, look->epoch);
    double seconds = course->at - total->at;
    total->at = course->at;
    course->present += seconds;
    course->starting += rank->joined ? 0 : seconds;
    if (rank->opened_at)
        add_counts(course, look, rank, seconds);
}

/* The time for which there was no rank of a number is nobody's. */
static void begin_epoch(struct course *course, int epoch)
{
    course->epoch = epoch;
    course->most_steps = 0;
    for (int i = 0; i < course->rank_count; i++)
        course->ranks[i].at = fmax(course->ranks[i].at, course->before);
}

/* The epoch has other ranks than the one before, possibly fewer. */
static void end_missing(struct course *course, const struct course_look *look)
{
    for (int i = 0, next = 0; i < course->rank_count; i++) {
        while (next < look->count && look->ranks[next].rank < i)
            next++;
        if (!course->ranks[i].opened_at || (next < look->count && look->ranks[next].rank == i))
            continue;
        keep_left(course, &course->ranks[i]);
        course->ranks[i] = (struct total){.at = course->before};
    }
}

/* The ranks of an earlier epoch may be all that is seen for a moment. */
static void add_steps(struct course *course, const struct course_look *look)
{
    if (look->epoch == course->epoch)
        course->steps += grow(&course->most_steps, look->steps);
}

/* Makes room by twice the interval, as often as it takes. */
static void thin_points(struct course *course)
{
    while (course->point_count > COURSE_POINTS / 2) {
        int kept = 1;
        course->interval *= 2;
        for (int i = 1; i < course->point_count; i++) {
            struct point *last = &course->points[kept - 1], *point = &course->points[i];
            if (point->at - last->at >= 0.9 * course->interval)
                course->points[kept++] = *point;
            else if (kept > 1 && point->late > last->late) {
                last->late = point->late;
                last->late_rank = point->late_rank;
            }
        }
        course->point_count = kept;
    }
}

static bool is_after_gap(const struct course *course)
{
    return course->at - course->before > COURSE_GAP;
}

/* A gap that is shorter than the time between two points is none. */
static void add_point(struct course *course)
{
    const struct point *last = &course->points[course->point_count - 1];
    struct point point = {.at = course->at,
                          .steps = course->steps,
                          .present = course->present,
                          .horovod = course->horovod,
                          .gap = is_after_gap(course)};
    if (course->at - last->at < 0.9 * course->interval)
        return;
    for (int i = 0; i < course->rank_count; i++) {
        if (course->ranks[i].share > point.late) {
            point.late = course->ranks[i].share;
            point.late_rank = i;
        }
    }
    if (course->point_count == COURSE_POINTS)
        thin_points(course);
    course->points[course->point_count++] = point;
}

/* Returns true if two texts are about the same: they are equal up to their first number, which is that of a
 * rank. What follows, such as a number of seconds, changes with every look. */
static bool same_subject(const char *one, const char *other)
{
    while (*one && *one == *other && !isdigit((unsigned char)*one)) {
        one++;
        other++;
    }
    return strtol(one, NULL, 10) == strtol(other, NULL, 10);
}

static void forget_shortest(struct course *course)
{
    int shortest = 0;
    for (int i = 1; i < course->verdict_count - 1; i++) {
        const struct verdict *best = &course->verdicts[shortest], *each = &course->verdicts[i];
        if (each->until - each->at < best->until - best->at)
            shortest = i;
    }
    free(course->verdicts[shortest].text);
    course->verdict_count--;
    memmove(&course->verdicts[shortest], &course->verdicts[shortest + 1],
            (size_t)(course->verdict_count - shortest) * sizeof *course->verdicts);
}

static void add_verdict(struct course *course, const struct course_look *look)
{
    struct verdict *last = course->verdict_count ? &course->verdicts[course->verdict_count - 1] : NULL;
    char *text = look->text ? strdup(look->text) : NULL;
    bool continues = last && !is_after_gap(course);
    if (continues)
        last->until = look->at;
    if (!text)
        return;
    if (continues && last->exit == look->exit && (!look->exit || same_subject(last->text, look->text))) {
        free(last->text);
        last->text = text;
        return;
    }
    if (course->verdict_count == COURSE_VERDICTS)
        forget_shortest(course);
    course->verdicts[course->verdict_count++] =
        (struct verdict){last || is_after_gap(course) ? look->at : 0, look->at, look->exit, text};
}

void course_add(struct course *course, const struct course_look *look)
{
    bool begins = look->epoch > course->epoch;
    course->before = course->at;
    course->at = look->at;
    if (begins)
        begin_epoch(course, look->epoch);
    add_steps(course, look);
    course->joules = look->joules;
    for (int i = 0; i < look->count; i++) {
        if (look->ranks[i].rank >= 0 && look->ranks[i].rank < course->rank_count)
            add_rank(course, look, &look->ranks[i]);
    }
    if (begins)
        end_missing(course, look);
    add_point(course);
    add_verdict(course, look);
}

/* ---- texts --------------------------------------------------------------------------------------------- */

/* Shares of the time of all ranks; together 1. */
struct cost {
    double starting, late, moving, computing;
    const struct total *late_rank; /* that nearly all of `late` is for; NULL: there are several */
    bool left;                     /* it is no rank any longer */
};

static const struct total *find_latest(const struct total *list, int count, const struct total *latest)
{
    for (int i = 0; i < count; i++)
        latest = !latest || list[i].late > latest->late ? &list[i] : latest;
    return latest;
}

static struct cost find_cost(const struct course *course)
{
    double all = course->present > 0 ? course->present : 1;
    const struct total *rank = find_latest(course->ranks, course->rank_count, NULL);
    const struct total *worst = find_latest(course->left, course->left_count, rank);
    double late = fmin(course->lost, course->horovod);
    return (struct cost){.starting = course->starting / all,
                         .late = late / all,
                         .moving = (course->horovod - late) / all,
                         .computing = fmax(1 - (course->starting + course->horovod) / all, 0),
                         .late_rank = worst->late >= 0.8 * course->late ? worst : NULL,
                         .left = worst != rank};
}

static void append_time(char *text, size_t capacity, double seconds, const char *what)
{
    if (seconds >= 3600)
        append_text(text, capacity, "%.2g %s-hours", seconds / 3600, what);
    else if (seconds >= 60)
        append_text(text, capacity, "%.2g %s-minutes", seconds / 60, what);
    else
        append_text(text, capacity, "%.2g %s-seconds", seconds, what);
}

void course_cost(const struct course *course, char *text, size_t capacity)
{
    struct cost cost = find_cost(course);
    text[0] = '\0';
    append_time(text, capacity, course->present, "rank");
    append_text(text, capacity, ": %.0f %% computing", 100 * cost.computing);
    if (cost.late >= 0.005 && cost.late_rank)
        append_text(text, capacity, ", %.0f %% waiting for rank %d%s", 100 * cost.late, cost.late_rank->rank,
                    cost.left ? ", which has left" : "");
    else if (cost.late >= 0.005)
        append_text(text, capacity, ", %.0f %% waiting for late ranks", 100 * cost.late);
    append_text(text, capacity, ", %.0f %% moving ", 100 * cost.moving);
    append_bytes(text, capacity, course->bytes);
    append_text(text, capacity, ", %.0f %% starting", 100 * cost.starting);
    if (course->engine > 0) {
        append_text(text, capacity, "; engine ");
        append_time(text, capacity, course->engine, "core");
    }
    if (course->joules >= 0)
        append_text(text, capacity, course->joules >= 1000 ? "; %.0f kJ" : "; %.1f kJ",
                    course->joules / 1000);
}

/* ---- JSON ---------------------------------------------------------------------------------------------- */

static void write_points(const struct course *course, FILE *file)
{
    fputs("\"points\": [", file);
    for (int i = 1; i < course->point_count; i++) {
        const struct point *last = &course->points[i - 1], *point = &course->points[i];
        double present = point->present - last->present;
        fprintf(file, "%s[%.1f, %.4g, %.3f, %.3f, %d%s]", i > 1 ? ", " : "", point->at,
                (point->steps - last->steps) / (point->at - last->at),
                present > 0 ? (point->horovod - last->horovod) / present : 0, point->late, point->late_rank,
                point->gap ? ", true" : "");
    }
    fputs("]", file);
}

static void write_verdicts(const struct course *course, FILE *file)
{
    fputs("\"verdicts\": [", file);
    for (int i = 0; i < course->verdict_count; i++) {
        const struct verdict *each = &course->verdicts[i];
        fprintf(file, "%s{\"at\": %.1f, \"until\": %.1f, \"exit\": %d, ", i ? ", " : "", each->at,
                each->until, each->exit);
        json_put_text(file, "text", each->text);
        fputs("}", file);
    }
    fputs("]", file);
}

static void write_late_rank(const struct course *course, const struct total *total, bool left, FILE *file)
{
    double share = course->at > 0 ? total->late / course->at : 0;
    fprintf(file, "{\"rank\": %d, ", total->rank);
    json_put_text(file, "host", total->host);
    fprintf(file, ", \"left\": %s, \"share\": %.4f, \"late\": %s, \"ms\": %.4g}", left ? "true" : "false",
            share, lateness_counts(share, total->late) ? "true" : "false",
            course->steps > 0 ? 1000 * total->late / course->steps : 0);
}

static void write_late(const struct course *course, FILE *file)
{
    const char *comma = "";
    fputs("\"late\": [", file);
    for (int i = 0; i < course->rank_count; i++) {
        if (!course->ranks[i].opened_at)
            continue;
        fputs(comma, file);
        write_late_rank(course, &course->ranks[i], false, file);
        comma = ", ";
    }
    for (int i = 0; i < course->newcomer_count; i++) {
        struct total total = {.rank = course->newcomers[i].rank};
        memcpy(total.host, course->newcomers[i].host, sizeof total.host);
        fputs(comma, file);
        write_late_rank(course, &total, false, file);
        comma = ", ";
    }
    for (int i = 0; i < course->left_count; i++) {
        fputs(comma, file);
        write_late_rank(course, &course->left[i], true, file);
        comma = ", ";
    }
    fputs("]", file);
}

void course_write(const struct course *course, FILE *file)
{
    struct cost cost = find_cost(course);
    char text[256];
    fprintf(file, "{\"version\": 1, \"steps\": %.0f, ", course->steps);
    write_points(course, file);
    fputs(", ", file);
    write_verdicts(course, file);
    fputs(", ", file);
    write_late(course, file);
    course_cost(course, text, sizeof text);
    fprintf(file, ", \"cost\": {\"rank_seconds\": %.3f, \"computing\": %.4f, \"waiting\": %.4f, ",
            course->present, cost.computing, cost.late);
    if (cost.late_rank)
        fprintf(file, "\"waiting_for\": %d, \"left\": %s, ", cost.late_rank->rank,
                cost.left ? "true" : "false");
    fprintf(file, "\"moving\": %.4f, \"starting\": %.4f, ", cost.moving, cost.starting);
    json_put_text(file, "text", text);
    fputs("}}", file);
}
