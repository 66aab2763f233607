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
#include <stdlib.h>
#include <string.h>

struct writer {
    FILE *file;
    const struct survey *survey;
    int *hosts;   /* [count] index of each rank's host; NULL: each rank is a row of its own */
    double *sums; /* [host_count], or NULL */
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

/* ---- the job ------------------------------------------------------------------------------------------- */

static bool is_silent(const struct sight *rank)
{
    enum sight_state state = sight_state(rank);
    return state == SIGHT_UNSEEN || state == SIGHT_STOPPED || state == SIGHT_ENDED;
}

/* Returns the time as seconds since 1970. */
static double seconds_of(const struct survey *survey, int64_t time)
{
    return (double)(survey->taken_at - (survey->taken - time)) / CLOCK_SECOND;
}

static void put_job(const struct writer *writer)
{
    const struct survey *survey = writer->survey;
    put_family(writer, "job_info", "gauge", "The job; always 1.");
    fputs("horovod_job_info{", writer->file);
    put_label(writer->file, "job_id", survey->id);
    fputc(',', writer->file);
    put_label(writer->file, "name", survey->name);
    fputc(',', writer->file);
    put_label(writer->file, "version", hvd_version());
    fputs("} 1\n", writer->file);
}

static void put_totals(const struct writer *writer)
{
    const struct survey *survey = writer->survey;
    int silent = 0;
    for (int i = 0; i < survey->count; i++)
        silent += is_silent(&survey->ranks[i]);
    if (survey->started)
        put_one(writer, "job_start_time_seconds", "gauge", "When the job was started, in seconds since 1970.",
                seconds_of(survey, survey->started));
    put_one(writer, "ranks", "gauge", "Ranks of the job.", survey->size);
    put_one(writer, "ranks_silent", "gauge",
            "Ranks that are stopped, or have ended without leaving the job, or whose host does not answer.",
            silent);
    put_one(writer, "epoch", "gauge", "Number of the job's epoch.", survey->epoch);
    put_one(writer, "steps_total", "counter", "Training steps of the rank that has made most.",
            (double)survey->steps.count);
    put_one(writer, "samples_total", "counter", "Samples that the programs have reported, of all ranks.",
            (double)survey->samples);
    if (survey->progress)
        put_one(writer, "last_progress_timestamp_seconds", "gauge",
                "When an operation last ended on any rank, in seconds since 1970.",
                seconds_of(survey, survey->progress));
}

static void put_stall(const struct writer *writer)
{
    const struct survey *survey = writer->survey;
    const struct page_waiting *late = survey_late(survey);
    double age = late ? (double)(survey->taken - late->since) / CLOCK_SECOND : 0;
    put_one(writer, "stalled_seconds", "gauge",
            "For how long the oldest tensor has waited that some ranks have submitted and others have not; "
            "0: less than "
            "a second.",
            age);
    put_one(writer, "stalled_ranks", "gauge", "Ranks for which that tensor waits.",
            late ? late->missing + late->hidden : 0);
}

/* Adds up what the roots of all process sets have seen, on whichever ranks they are. */
static void put_negotiations(const struct writer *writer)
{
    static const char *const limits[PAGE_NEGOTIATIONS] = {"0.0001", "0.001", "0.01", "0.1",
                                                          "1",      "10",    "+Inf"};
    const struct survey *survey = writer->survey;
    uint64_t total = 0, count = 0;
    put_family(writer, "negotiation_seconds", "histogram",
               "From the first rank's submission of an operation to the decision to run it.");
    for (int limit = 0; limit < PAGE_NEGOTIATIONS; limit++) {
        for (int i = 0; i < survey->count; i++)
            count += survey->ranks[i].page.negotiations[limit];
        fprintf(writer->file, "horovod_negotiation_seconds_bucket{le=\"%s\"} %" PRIu64 "\n", limits[limit],
                count);
    }
    for (int i = 0; i < survey->count; i++)
        total += (uint64_t)survey->ranks[i].page.negotiation_total;
    fputs("horovod_negotiation_seconds_sum", writer->file);
    put_value(writer->file, (double)total / CLOCK_SECOND);
    fprintf(writer->file, "horovod_negotiation_seconds_count %" PRIu64 "\n", count);
}

/* ---- the ranks ----------------------------------------------------------------------------------------- */

static void put_ranks(const struct writer *writer)
{
    const struct survey *survey = writer->survey;
    put_family(writer, "rank_info", "gauge", "Where a rank runs; always 1.");
    for (int i = 0; i < survey->count; i++) {
        const struct page_identity *rank = &survey->ranks[i].page.identity;
        fprintf(writer->file, "horovod_rank_info{rank=\"%d\",", rank->rank);
        put_label(writer->file, "host", rank->host);
        fprintf(writer->file, ",local_rank=\"%d\",pid=\"%d\"} 1\n", rank->local_rank,
                survey->ranks[i].process);
    }
}

/* Writes a row for each rank or host. `more` are further labels, ",state=\"running\"", or "". A value that is
 * NAN is not known. */
static void put_values(const struct writer *writer, const char *name, const char *more,
                       double (*value)(const struct sight *rank, int which), int which)
{
    const struct survey *survey = writer->survey;
    for (int i = 0; writer->hosts && i < survey->host_count; i++)
        writer->sums[i] = NAN;
    for (int i = 0; i < survey->count; i++) {
        double number = value(&survey->ranks[i], which);
        if (isnan(number))
            continue;
        if (writer->hosts) {
            double *sum = &writer->sums[writer->hosts[i]];
            *sum = isnan(*sum) ? number : *sum + number;
        } else {
            fprintf(writer->file, "horovod_%s{rank=\"%d\"%s}", name, survey->ranks[i].page.identity.rank,
                    more);
            put_value(writer->file, number);
        }
    }
    for (int i = 0; writer->hosts && i < survey->host_count; i++) {
        if (isnan(writer->sums[i]))
            continue;
        fprintf(writer->file, "horovod_%s{", name);
        put_label(writer->file, "host", survey->hosts[i].name);
        fprintf(writer->file, "%s}", more);
        put_value(writer->file, writer->sums[i]);
    }
}

static double up_of(const struct sight *rank, int which)
{
    enum sight_state state = sight_state(rank);
    (void)which;
    return state == SIGHT_WAITS || state == SIGHT_PROGRAM;
}

static double waited_of(const struct sight *rank, int which)
{
    (void)which;
    return rank->seen ? (double)rank->page.all.wait_ns / CLOCK_SECOND : NAN;
}

static double late_of(const struct sight *rank, int which)
{
    (void)which;
    return rank->seen ? (double)rank->late_ns / CLOCK_SECOND : NAN;
}

static double memory_of(const struct sight *rank, int which)
{
    (void)which;
    return rank->process ? (double)rank->memory_bytes : NAN;
}

static const struct page_counts *counts_of(const struct sight *rank, int operation)
{
    const struct page_counts *counts = &rank->page.operations[operation];
    return rank->seen && counts->submitted ? counts : NULL;
}

static double requests_of(const struct sight *rank, int operation)
{
    const struct page_counts *counts = counts_of(rank, operation);
    return counts ? (double)counts->submitted : NAN;
}

static double failed_of(const struct sight *rank, int operation)
{
    const struct page_counts *counts = counts_of(rank, operation);
    return counts ? (double)counts->failed : NAN;
}

static double batches_of(const struct sight *rank, int operation)
{
    const struct page_counts *counts = counts_of(rank, operation);
    return counts ? (double)counts->batches : NAN;
}

static double bytes_of(const struct sight *rank, int operation)
{
    const struct page_counts *counts = counts_of(rank, operation);
    return counts ? (double)counts->bytes : NAN;
}

static void put_operations(const struct writer *writer)
{
    static const struct {
        const char *name, *help;
        double (*value)(const struct sight *rank, int operation);
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
            put_values(writer, families[i].name, label, families[i].value, operation);
        }
    }
}

static void put_rows(const struct writer *writer)
{
    static const struct {
        const char *name, *type, *help;
        double (*value)(const struct sight *rank, int which);
    } families[] = {
        {"rank_up", "gauge", "1 if the rank has joined the job and runs; of a host: how many ranks have.",
         up_of},
        {"wait_seconds_total", "counter", "Time that the program has waited for operations.", waited_of},
        {"late_seconds_total", "counter", "Time for which the whole job has waited for this rank alone.",
         late_of},
        {"resident_memory_bytes", "gauge", "Memory of the process.", memory_of},
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        put_family(writer, families[i].name, families[i].type, families[i].help);
        put_values(writer, families[i].name, "", families[i].value, 0);
    }
}

enum program { PROGRAM_RUNNING, PROGRAM_RUNNABLE, PROGRAM_BLOCKED, PROGRAM_STATES };

static double program_of(const struct sight *rank, int state)
{
    const uint64_t times[PROGRAM_STATES] = {rank->times.running, rank->times.runnable, rank->times.blocked};
    return rank->seen && rank->process ? (double)times[state] / CLOCK_SECOND : NAN;
}

static void put_programs(const struct writer *writer)
{
    static const char *const labels[PROGRAM_STATES] = {",state=\"running\"", ",state=\"runnable\"",
                                                       ",state=\"blocked\""};
    put_family(writer, "program_seconds_total", "counter",
               "What the main thread did outside of Horovod: it ran, waited for a processor, or for "
               "something else.");
    for (int state = 0; state < PROGRAM_STATES; state++)
        put_values(writer, "program_seconds_total", labels[state], program_of, state);
}

/* Makes rows of hosts. Without memory they stay rows of ranks. */
static void join_hosts(struct writer *writer)
{
    const struct survey *survey = writer->survey;
    int host = 0;
    writer->sums = calloc((size_t)survey->host_count, sizeof *writer->sums);
    writer->hosts = writer->sums ? calloc((size_t)survey->count, sizeof *writer->hosts) : NULL;
    for (int i = 0; writer->hosts && i < survey->count; i++) {
        const char *name = survey_host_of(&survey->ranks[i]);
        /* Ranks of a host are next to each other. */
        for (int left = survey->host_count; left && strcmp(survey->hosts[host].name, name) != 0; left--)
            host = (host + 1) % survey->host_count;
        writer->hosts[i] = host;
    }
}

void metrics_write(FILE *file, const struct survey *survey, int limit)
{
    struct writer writer = {.file = file, .survey = survey};
    if (survey->count > limit)
        join_hosts(&writer);
    put_job(&writer);
    put_totals(&writer);
    put_stall(&writer);
    put_negotiations(&writer);
    if (!writer.hosts)
        put_ranks(&writer);
    put_rows(&writer);
    put_programs(&writer);
    put_operations(&writer);
    free(writer.hosts);
    free(writer.sums);
}
