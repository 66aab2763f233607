/* metrics.c - the families of metrics, in base units. Rates, shares and extremes are left to the one who
 * asks: each number is a counter or the state of the moment. No family has a label for a tensor or a step, of
 * which there is no end. Pure.
 *
 * A rank that was not seen has no numbers, except that it is not up; so its counters have a gap, and do not
 * start again from 0. */
#include "metrics.h"
#include "utf8.h"

#include "base/clock.h"
#include "base/types.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct writer {
    FILE *file;
    const struct job_view *job_view;
    int *hosts;      /* [count] index of each rank's host; NULL: each rank is a row of its own */
    double *sums;    /* [host_count], or NULL */
    double *numbers; /* [count] of the family that is being written */
};

/* ---- the format ---------------------------------------------------------------------------------------- */

static void put_family(const struct writer *writer, const char *name, const char *type, const char *help)
{
    fprintf(writer->file, "# HELP horovod_%s %s\n# TYPE horovod_%s %s\n", name, help, name, type);
}

/* Writes `name="text"`; what is no UTF-8 is replaced. */
static void put_label(FILE *file, const char *name, const char *text)
{
    fprintf(file, "%s=\"", name);
    for (const char *at = text; *at;) {
        size_t length = utf8_length(at);
        if (!length)
            fputs("\xef\xbf\xbd", file);
        else if (*at == '\n')
            fputs("\\n", file);
        else
            fprintf(file, *at == '"' || *at == '\\' ? "\\%.*s" : "%.*s", (int)length, at);
        at += length ? length : 1;
    }
    fputc('"', file);
}

/* Counts up to 2^53 stay exact, and 1.93 stays 1.93. */
static void put_value(FILE *file, double value)
{
    fprintf(file, " %.16g\n", value);
}

static void put_one(const struct writer *writer, const char *name, const char *type, const char *help,
                    double value)
{
    put_family(writer, name, type, help);
    fprintf(writer->file, "horovod_%s", name);
    put_value(writer->file, value);
}

/* Returns the highest value so far. */
static double keep(double *highest, double value)
{
    *highest = value > *highest ? value : *highest;
    return *highest;
}

/* ---- the job ------------------------------------------------------------------------------------------- */

static bool is_silent(const struct rank_view *rank)
{
    enum rank_view_state state = rank_view_state(rank);
    return state == RANK_VIEW_UNSEEN || state == RANK_VIEW_STOPPED || state == RANK_VIEW_ENDED;
}

/* Returns the time as seconds since 1970. */
static double seconds_of(const struct job_view *job_view, int64_t time)
{
    return (double)(job_view->taken_at - (job_view->taken - time)) / CLOCK_SECOND;
}

static void put_job(const struct writer *writer)
{
    const struct job_view *job_view = writer->job_view;
    put_family(writer, "job_info", "gauge", "The job; always 1.");
    fputs("horovod_job_info{", writer->file);
    put_label(writer->file, "job_id", job_view->id);
    fputc(',', writer->file);
    put_label(writer->file, "name", job_view->name);
    fputc(',', writer->file);
    put_label(writer->file, "version", hvd_version());
    fputs("} 1\n", writer->file);
}

static void put_totals(const struct writer *writer, struct metrics_past *past)
{
    const struct job_view *job_view = writer->job_view;
    int silent = 0;
    for (int i = 0; i < job_view->count; i++)
        silent += is_silent(&job_view->ranks[i]);
    if (job_view->started)
        put_one(writer, "job_start_time_seconds", "gauge", "When the job was started, in seconds since 1970.",
                seconds_of(job_view, job_view->started));
    put_one(writer, "ranks", "gauge", "Ranks of the job.", job_view->size);
    put_one(writer, "ranks_silent", "gauge",
            "Ranks that are stopped, or have ended without leaving the job, or whose host does not answer.",
            silent);
    put_one(writer, "epoch", "gauge", "Number of the job's epoch.", job_view->epoch);
    put_one(writer, "steps_total", "counter", "Training steps of the rank that has made most.",
            past->before.steps + keep(&past->totals.steps, (double)job_view->steps.count));
    put_one(writer, "samples_total", "counter", "Samples that the programs have reported, of all ranks.",
            past->before.samples + keep(&past->totals.samples, (double)job_view->samples));
    if (job_view->progress)
        put_one(writer, "last_progress_timestamp_seconds", "gauge",
                "When an operation last ended on any rank, in seconds since 1970.",
                seconds_of(job_view, job_view->progress));
}

static void put_changes(const struct writer *writer, const struct changes *changes)
{
    static const char *const names[CHANGE_KINDS] = CHANGE_NAMES;
    put_family(writer, "elastic_resets_total", "counter",
               "Epochs after the first, by why the one before has ended.");
    for (int kind = 0; kind < CHANGE_KINDS; kind++) {
        fprintf(writer->file, "horovod_elastic_resets_total{cause=\"%s\"}", names[kind]);
        put_value(writer->file, changes->resets[kind]);
    }
    put_one(writer, "elastic_ranks_lost_total", "counter", "Ranks that were lost or removed.", changes->lost);
    put_one(writer, "elastic_ranks_added_total", "counter", "Ranks that were added.", changes->added);
    put_one(writer, "elastic_interrupted_seconds_total", "counter",
            "Time from the first sign that an epoch ends to the beginning of the next one.",
            (double)changes->interrupted / CLOCK_SECOND);
}

static void put_stall(const struct writer *writer)
{
    const struct job_view *job_view = writer->job_view;
    const struct page_waiting *late = job_view_late(job_view);
    double age = late ? (double)(job_view->taken - late->since) / CLOCK_SECOND : 0;
    put_one(writer, "stalled_seconds", "gauge",
            "For how long the oldest tensor has waited that some ranks have submitted and others have not; "
            "0: less than "
            "a second.",
            age);
    put_one(writer, "stalled_ranks", "gauge", "Ranks for which that tensor waits.",
            late ? late->missing + late->hidden : 0);
}

/* Adds up what the roots of all process sets have seen, on whichever ranks they are. */
static void put_negotiations(const struct writer *writer, struct metrics_past *past)
{
    static const char *const limits[PAGE_NEGOTIATIONS] = {"0.0001", "0.001", "0.01", "0.1",
                                                          "1",      "10",    "+Inf"};
    const struct job_view *job_view = writer->job_view;
    double total = 0, count = 0;
    put_family(writer, "negotiation_seconds", "histogram",
               "From the first rank's submission of an operation to the decision to run it.");
    for (int limit = 0; limit < PAGE_NEGOTIATIONS; limit++) {
        for (int i = 0; i < job_view->count; i++)
            count += (double)job_view->ranks[i].page.negotiations[limit];
        count = keep(&past->totals.negotiations[limit], count);
        fprintf(writer->file, "horovod_negotiation_seconds_bucket{le=\"%s\"}", limits[limit]);
        put_value(writer->file, past->before.negotiations[limit] + count);
    }
    for (int i = 0; i < job_view->count; i++)
        total += (double)job_view->ranks[i].page.negotiation_total / CLOCK_SECOND;
    fputs("horovod_negotiation_seconds_sum", writer->file);
    put_value(writer->file,
              past->before.negotiation_seconds + keep(&past->totals.negotiation_seconds, total));
    fputs("horovod_negotiation_seconds_count", writer->file);
    put_value(writer->file, past->before.negotiations[PAGE_NEGOTIATIONS - 1] + count);
}

/* All ranks count the same checks. */
static void put_checks(const struct writer *writer, struct metrics_past *past)
{
    const struct job_view *job_view = writer->job_view;
    for (int i = 0; i < job_view->count; i++) {
        const struct page_summary *page = &job_view->ranks[i].page;
        keep(&past->totals.checks, (double)page->parameter_checks);
        keep(&past->totals.divergences, (double)page->divergences);
    }
    put_one(writer, "parameter_checks_total", "counter", "Comparisons of the parameters of all ranks.",
            past->before.checks + past->totals.checks);
    put_one(writer, "divergence_total", "counter", "Comparisons in which parameters differed.",
            past->before.divergences + past->totals.divergences);
}

/* ---- the ranks ----------------------------------------------------------------------------------------- */

static void put_ranks(const struct writer *writer)
{
    const struct job_view *job_view = writer->job_view;
    put_family(writer, "rank_info", "gauge", "Where a rank runs; always 1.");
    for (int i = 0; i < job_view->count; i++) {
        const struct page_identity *rank = &job_view->ranks[i].page.identity;
        fprintf(writer->file, "horovod_rank_info{rank=\"%d\",", rank->rank);
        put_label(writer->file, "host", rank->host);
        fprintf(writer->file, ",local_rank=\"%d\",pid=\"%d\"} 1\n", rank->local_rank,
                job_view->ranks[i].process);
    }
}

typedef double value_fn(const struct rank_view *rank, int which);

/* Sets the number of each rank; NAN: it is not known. */
static void find_numbers(const struct writer *writer, value_fn *value, int which)
{
    for (int i = 0; i < writer->job_view->count; i++)
        writer->numbers[i] = value(&writer->job_view->ranks[i], which);
}

static void put_hosts(const struct writer *writer, const char *name, const char *more)
{
    const struct job_view *job_view = writer->job_view;
    for (int i = 0; i < job_view->host_count; i++)
        writer->sums[i] = NAN;
    for (int i = 0; i < job_view->count; i++) {
        double *sum = &writer->sums[writer->hosts[i]], number = writer->numbers[i];
        if (!isnan(number))
            *sum = isnan(*sum) ? number : *sum + number;
    }
    for (int i = 0; i < job_view->host_count; i++) {
        if (isnan(writer->sums[i]))
            continue;
        fprintf(writer->file, "horovod_%s{", name);
        put_label(writer->file, "host", job_view->hosts[i].name);
        fprintf(writer->file, "%s}", more);
        put_value(writer->file, writer->sums[i]);
    }
}

/* Writes the number of each rank or host. `more` are further labels, ",state=\"running\"", or "". */
static void put_numbers(const struct writer *writer, const char *name, const char *more)
{
    const struct job_view *job_view = writer->job_view;
    if (writer->hosts) {
        put_hosts(writer, name, more);
        return;
    }
    for (int i = 0; i < job_view->count; i++) {
        if (isnan(writer->numbers[i]))
            continue;
        fprintf(writer->file, "horovod_%s{rank=\"%d\"%s}", name, job_view->ranks[i].page.identity.rank, more);
        put_value(writer->file, writer->numbers[i]);
    }
}

/* Raises the numbers to the highest ones so far of the same processes. */
static void keep_highest(const struct writer *writer, struct metrics_past *past, double *highest)
{
    for (int i = 0; i < past->count; i++) {
        if (!isnan(writer->numbers[i]))
            writer->numbers[i] = keep(&highest[i], writer->numbers[i]);
    }
}

static double up_of(const struct rank_view *rank, int which)
{
    enum rank_view_state state = rank_view_state(rank);
    (void)which;
    return state == RANK_VIEW_WAITS || state == RANK_VIEW_PROGRAM;
}

static double waited_of(const struct rank_view *rank, int which)
{
    (void)which;
    return rank->seen ? (double)rank->page.all.wait_ns / CLOCK_SECOND : NAN;
}

static double late_of(const struct rank_view *rank, int which)
{
    (void)which;
    return rank->seen ? (double)rank->late_ns / CLOCK_SECOND : NAN;
}

static double late_count_of(const struct rank_view *rank, int which)
{
    (void)which;
    return rank->seen ? (double)rank->late_count : NAN;
}

static double engine_of(const struct rank_view *rank, int which)
{
    (void)which;
    return rank->seen && rank->engine_ns ? (double)rank->engine_ns / CLOCK_SECOND : NAN;
}

static double nonfinite_of(const struct rank_view *rank, int which)
{
    (void)which;
    return rank->seen ? (double)rank->page.all.nonfinite : NAN;
}

static double memory_of(const struct rank_view *rank, int which)
{
    (void)which;
    return rank->process ? (double)rank->memory_bytes : NAN;
}

static const struct page_counts *counts_of(const struct rank_view *rank, int operation)
{
    const struct page_counts *counts = &rank->page.operations[operation];
    return rank->seen && counts->submitted ? counts : NULL;
}

static double requests_of(const struct rank_view *rank, int operation)
{
    const struct page_counts *counts = counts_of(rank, operation);
    return counts ? (double)counts->submitted : NAN;
}

static double failed_of(const struct rank_view *rank, int operation)
{
    const struct page_counts *counts = counts_of(rank, operation);
    return counts ? (double)counts->failed : NAN;
}

static double batches_of(const struct rank_view *rank, int operation)
{
    const struct page_counts *counts = counts_of(rank, operation);
    return counts ? (double)counts->batches : NAN;
}

static double bytes_of(const struct rank_view *rank, int operation)
{
    const struct page_counts *counts = counts_of(rank, operation);
    return counts ? (double)counts->bytes : NAN;
}

static void put_operations(const struct writer *writer)
{
    static const struct {
        const char *name, *help;
        value_fn *value;
    } families[] = {{"requests_total", "Operations that the program has submitted.", requests_of},
                    {"requests_failed_total", "Operations that have failed.", failed_of},
                    {"batches_total", "Batches in which operations ran.", batches_of},
                    {"operation_bytes_total", "Bytes of the inputs of operations.", bytes_of}};
    char label[64];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        put_family(writer, families[i].name, "counter", families[i].help);
        for (int operation = 0; operation < OPERATION_NUMBERS; operation++) {
            if (!operation_known(operation))
                continue;
            snprintf(label, sizeof label, ",operation=\"%s\"", operation_name((hvd_operation)operation));
            find_numbers(writer, families[i].value, operation);
            put_numbers(writer, families[i].name, label);
        }
    }
}

static void put_rows(const struct writer *writer)
{
    static const struct {
        const char *name, *type, *help;
        value_fn *value;
    } families[] = {
        {"rank_up", "gauge", "1 if the rank has joined the job and runs; of a host: how many ranks have.",
         up_of},
        {"wait_seconds_total", "counter", "Time that the program has waited for operations.", waited_of},
        {"engine_cpu_seconds_total", "counter", "Processor time of the thread that makes progress.",
         engine_of},
        {"nonfinite_tensors_total", "counter",
         "Tensors with NaN or infinity that this rank has given to reductions.", nonfinite_of},
        {"resident_memory_bytes", "gauge", "Memory of the process.", memory_of},
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        put_family(writer, families[i].name, families[i].type, families[i].help);
        find_numbers(writer, families[i].value, 0);
        put_numbers(writer, families[i].name, "");
    }
}

enum program { PROGRAM_RUNNING, PROGRAM_RUNNABLE, PROGRAM_BLOCKED, PROGRAM_STATES };

static double program_of(const struct rank_view *rank, int state)
{
    const uint64_t times[PROGRAM_STATES] = {rank->times.running, rank->times.runnable, rank->times.blocked};
    return rank->seen && rank->process ? (double)times[state] / CLOCK_SECOND : NAN;
}

static void put_programs(const struct writer *writer, struct metrics_past *past)
{
    static const char *const labels[PROGRAM_STATES] = {",state=\"running\"", ",state=\"runnable\"",
                                                       ",state=\"blocked\""};
    put_family(writer, "program_seconds_total", "counter",
               "What the main thread did outside of Horovod: it ran, waited for a processor, or for "
               "something else.");
    for (int state = 0; state < PROGRAM_STATES; state++) {
        find_numbers(writer, program_of, state);
        if (state == PROGRAM_BLOCKED)
            keep_highest(writer, past, past->blocked);
        put_numbers(writer, "program_seconds_total", labels[state]);
    }
}

static void put_lateness(const struct writer *writer, struct metrics_past *past)
{
    put_family(writer, "late_seconds_total", "counter",
               "Time for which the whole job has waited for this rank alone.");
    find_numbers(writer, late_of, 0);
    keep_highest(writer, past, past->late);
    put_numbers(writer, "late_seconds_total", "");
    put_family(writer, "late_total", "counter", "How often the whole job has waited for this rank alone.");
    find_numbers(writer, late_count_of, 0);
    keep_highest(writer, past, past->late_count);
    put_numbers(writer, "late_total", "");
}

static void free_ranks(struct metrics_past *past)
{
    free(past->processes);
    free(past->late);
    free(past->late_count);
    free(past->blocked);
    past->processes = NULL;
    past->late = past->late_count = past->blocked = NULL;
    past->count = 0;
}

void metrics_past_free(struct metrics_past *past)
{
    free_ranks(past);
    free(past->links);
    *past = (struct metrics_past){0};
}

/* Makes the past one of these ranks; what belongs to other processes is forgotten. */
static bool adopt(struct metrics_past *past, const struct job_view *job_view)
{
    size_t count = (size_t)job_view->count;
    if (past->count != job_view->count) {
        free_ranks(past);
        past->processes = calloc(count, sizeof *past->processes);
        past->late = calloc(count, sizeof *past->late);
        past->late_count = calloc(count, sizeof *past->late_count);
        past->blocked = calloc(count, sizeof *past->blocked);
        if (!past->processes || !past->late || !past->late_count || !past->blocked)
            return false;
        past->count = job_view->count;
    }
    for (int i = 0; i < job_view->count; i++) {
        int process = job_view->ranks[i].page.identity.process;
        if (past->processes[i] != process && job_view->ranks[i].seen) {
            past->processes[i] = process;
            past->late[i] = past->late_count[i] = past->blocked[i] = 0;
        }
    }
    return true;
}

/* ---- the network --------------------------------------------------------------------------------------- */

/* Returns the link of the past, which is added if it is new; NULL: memory is out. */
static struct metrics_link *find_link(struct metrics_past *past, int from, int to)
{
    for (int i = 0; i < past->link_count; i++) {
        if (past->links[i].from == from && past->links[i].to == to)
            return &past->links[i];
    }
    struct metrics_link *links = reallocarray(past->links, (size_t)past->link_count + 1, sizeof *links);
    if (!links)
        return NULL;
    past->links = links;
    links[past->link_count] = (struct metrics_link){.from = from, .to = to};
    return &links[past->link_count++];
}

/* Takes over what is seen now. If there are more than `limit` links, those out of a host are one. Returns
 * their number. */
static int find_links(const struct job_view *job_view, struct metrics_past *past, int limit,
                      struct metrics_link *links)
{
    int count = 0;
    for (int i = 0; i < job_view->link_count; i++) {
        const struct job_view_link *link = &job_view->links[i];
        int to = job_view->link_count > limit ? -1 : link->to;
        struct metrics_link *last = count ? &links[count - 1] : NULL;
        if (!last || last->from != link->from || last->to != to) {
            last = &links[count++];
            *last = (struct metrics_link){.from = link->from, .to = to};
        }
        last->bytes += (double)link->bytes;
        last->retransmitted += (double)link->retransmitted;
        if ((double)link->busy / CLOCK_SECOND >= last->busy) {
            last->busy = (double)link->busy / CLOCK_SECOND;
            last->receiver_limited = (double)link->receiver_limited / CLOCK_SECOND;
        }
    }
    for (int i = 0; i < count; i++) {
        struct metrics_link *highest = find_link(past, links[i].from, links[i].to);
        if (!highest)
            continue;
        keep(&highest->bytes, links[i].bytes);
        keep(&highest->busy, links[i].busy);
        keep(&highest->receiver_limited, links[i].receiver_limited);
        keep(&highest->retransmitted, links[i].retransmitted);
        links[i] = *highest;
    }
    return count;
}

static void put_links(const struct writer *writer, struct metrics_past *past, int limit)
{
    static const struct {
        const char *name, *help;
        size_t offset;
    } families[] = {
        {"link_sent_bytes_total", "Bytes that have arrived from one host at another one.",
         offsetof(struct metrics_link, bytes)},
        {"link_busy_seconds_total", "Time for which the busiest connection had bytes to send.",
         offsetof(struct metrics_link, busy)},
        {"link_receiver_limited_seconds_total", "That part of it for which the receiver had no room.",
         offsetof(struct metrics_link, receiver_limited)},
        {"link_retransmitted_segments_total", "Segments that were sent again.",
         offsetof(struct metrics_link, retransmitted)},
    };
    const struct job_view *job_view = writer->job_view;
    struct metrics_link *links = calloc((size_t)job_view->link_count + 1, sizeof *links);
    int count = links ? find_links(job_view, past, limit, links) : 0;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        put_family(writer, families[i].name, "counter", families[i].help);
        for (int link = 0; link < count; link++) {
            fprintf(writer->file, "horovod_%s{", families[i].name);
            put_label(writer->file, "host", job_view->hosts[links[link].from].name);
            if (links[link].to >= 0) {
                fputc(',', writer->file);
                put_label(writer->file, "peer", job_view->hosts[links[link].to].name);
            }
            fputc('}', writer->file);
            put_value(writer->file, *(const double *)((const char *)&links[link] + families[i].offset));
        }
    }
    free(links);
}

/* ---- all ----------------------------------------------------------------------------------------------- */

/* Makes rows of hosts. Without memory they stay rows of ranks. */
static void join_hosts(struct writer *writer)
{
    const struct job_view *job_view = writer->job_view;
    int host = 0;
    writer->sums = calloc((size_t)job_view->host_count, sizeof *writer->sums);
    writer->hosts = writer->sums ? calloc((size_t)job_view->count, sizeof *writer->hosts) : NULL;
    for (int i = 0; writer->hosts && i < job_view->count; i++) {
        const char *name = job_view_host_of(&job_view->ranks[i]);
        /* Ranks of a host are next to each other. */
        for (int left = job_view->host_count; left && strcmp(job_view->hosts[host].name, name) != 0; left--)
            host = (host + 1) % job_view->host_count;
        writer->hosts[i] = host;
    }
}

/* What the ranks count begins at 0 again; what the job counts goes on. */
static void begin_epoch(struct metrics_past *past, int epoch)
{
    struct metrics_totals before = past->before;
    const struct metrics_totals *more = &past->totals;
    before.steps += more->steps;
    before.samples += more->samples;
    before.checks += more->checks;
    before.divergences += more->divergences;
    for (int i = 0; i < PAGE_NEGOTIATIONS; i++)
        before.negotiations[i] += more->negotiations[i];
    before.negotiation_seconds += more->negotiation_seconds;
    metrics_past_free(past);
    past->epoch = epoch;
    past->before = before;
}

void metrics_write(FILE *file, const struct job_view *job_view, const struct changes *changes, int limit,
                   struct metrics_past *past)
{
    /* If those that had joined the running epoch have ended, only pages of the one before are seen, whose
     * counts are among `before` already. */
    bool outdated = job_view->epoch < past->epoch;
    struct job_view job = *job_view;
    struct writer writer = {.file = file, .job_view = &job};
    if (outdated) {
        job.epoch = past->epoch;
        job.count = job.link_count = 0;
        job.steps.count = job.samples = 0;
    }
    if (past->epoch < job.epoch)
        begin_epoch(past, job.epoch);
    put_job(&writer);
    put_totals(&writer, past);
    if (changes)
        put_changes(&writer, changes);
    put_stall(&writer);
    put_negotiations(&writer, past);
    put_checks(&writer, past);
    put_links(&writer, past, limit);
    if (outdated)
        return;
    writer.numbers = calloc((size_t)job_view->count, sizeof *writer.numbers);
    if (!writer.numbers || !adopt(past, job_view)) {
        free(writer.numbers);
        return;
    }
    if (job_view->count > limit)
        join_hosts(&writer);
    else
        put_ranks(&writer);
    put_rows(&writer);
    put_lateness(&writer, past);
    put_programs(&writer, past);
    put_operations(&writer);
    free(writer.hosts);
    free(writer.sums);
    free(writer.numbers);
}
