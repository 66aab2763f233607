/* status_json.c - see status_json.h. */
#include "status_json.h"
#include "json.h"
#include "slowness.h"
#include "verdict.h"

#include "base/clock.h"
#include "base/types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#define WAITING_LIMIT 64 /* requests that are listed */

static double seconds_since(const struct job_view *job_view, int64_t time)
{
    return (double)(job_view->taken - time) / CLOCK_SECOND;
}

/* Writes `"name": x, `, or null for a time that is not known. */
static void put_seconds(const struct job_view *job_view, const char *name, int64_t time, FILE *file)
{
    if (time)
        fprintf(file, "\"%s\": %.3f, ", name, seconds_since(job_view, time));
    else
        fprintf(file, "\"%s\": null, ", name);
}

static void put_time(int64_t at, FILE *file)
{
    char text[32] = "";
    time_t seconds = (time_t)(at / CLOCK_SECOND);
    struct tm parts;
    if (gmtime_r(&seconds, &parts))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_put_text(file, "time", text);
}

static void put_steps(const struct job_view *job_view, FILE *file)
{
    const struct page_steps *steps = &job_view->steps;
    double median = (double)steps->median / CLOCK_SECOND;
    put_seconds(job_view, "last_step_seconds", steps->last, file);
    fprintf(file, "\"steps\": %" PRIu64 ", \"step\": %" PRId64 ", \"samples\": %" PRIu64 ", ", steps->count,
            steps->number, job_view->samples);
    if (steps->median)
        fprintf(file, "\"step_seconds\": %.6g, \"steps_per_second\": %.6g", median, 1 / median);
    else
        fputs("\"step_seconds\": null, \"steps_per_second\": null", file);
}

static void put_job(const struct job_view *job_view, FILE *file)
{
    fputs("\"job\": {", file);
    json_put_text(file, "id", job_view->id);
    fputs(", ", file);
    json_put_text(file, "name", job_view->name);
    fprintf(file, ", \"size\": %d, \"ranks\": %d, \"hosts\": %d, \"epoch\": %d, \"all_hosts\": %s, ",
            job_view->size, job_view->count, job_view->host_count, job_view->epoch,
            job_view->whole ? "true" : "false");
    put_seconds(job_view, "up_seconds", job_view->started, file);
    put_seconds(job_view, "last_progress_seconds", job_view->progress, file);
    put_steps(job_view, file);
    fputc('}', file);
}

static void put_verdict(const struct job_view *job_view, FILE *file)
{
    const char *kind = job_view->verdict == VERDICT_BROKEN ? "broken"
                       : job_view->verdict == VERDICT_LATE ? "late"
                                                           : "healthy";
    fprintf(file, "\"verdict\": {\"exit\": %d, ", job_view->verdict);
    json_put_text(file, "kind", kind);
    fputs(", ", file);
    json_put_text(file, "text", job_view->text);
    fputc('}', file);
}

static void put_ranks_of(const struct job_view *job_view, const char *name,
                         const struct page_waiting *waiting, enum page_part part, FILE *file)
{
    const char *comma = "";
    fprintf(file, "\"%s\": [", name);
    for (int i = 0; i < job_view->count; i++) {
        if (waiting->parts[i] != part)
            continue;
        fprintf(file, "%s%d", comma, job_view->ranks[i].page.identity.rank);
        comma = ", ";
    }
    fputc(']', file);
}

static void put_waitings(const struct job_view *job_view, FILE *file)
{
    fprintf(file, "\"waiting_count\": %d, \"waiting\": [", job_view->waitings.count);
    for (int i = 0; i < job_view->waitings.count && i < WAITING_LIMIT; i++) {
        const struct page_waiting *waiting = &job_view->waitings.list[i];
        fputs(i ? ", {" : "{", file);
        json_put_text(file, "tensor", waiting->request->title);
        fprintf(file, ", \"process_set\": %d, ", waiting->request->process_set);
        put_seconds(job_view, "seconds", waiting->since, file);
        put_ranks_of(job_view, "waits", waiting, PART_WAITS, file);
        fputs(", ", file);
        put_ranks_of(job_view, "missing", waiting, PART_MISSING, file);
        fprintf(file, ", \"hidden\": %d}", waiting->hidden);
    }
    fputc(']', file);
}

static void put_hosts(const struct job_view *job_view, FILE *file)
{
    fputs("\"hosts\": [", file);
    for (int i = 0; i < job_view->host_count; i++) {
        const struct job_view_host *host = &job_view->hosts[i];
        fputs(i ? ", {" : "{", file);
        json_put_text(file, "name", host->name);
        fprintf(file, ", \"ranks\": %d, \"answers\": %s, \"silent_seconds\": %.3f}", host->ranks,
                host->answers ? "true" : "false", host->answers ? 0 : host->silent);
    }
    fputc(']', file);
}

static void put_links(const struct job_view *job_view, FILE *file)
{
    double seconds = job_view_seconds(job_view);
    const struct job_view_link *limit = slowness_limit(job_view);
    fputs("\"links\": [", file);
    for (int i = 0; i < job_view->link_count; i++) {
        const struct job_view_link *link = &job_view->links[i];
        double busy = (double)link->busy / CLOCK_SECOND;
        fputs(i ? ", {" : "{", file);
        json_put_text(file, "from", job_view->hosts[link->from].name);
        fputs(", ", file);
        json_put_text(file, "to", job_view->hosts[link->to].name);
        fprintf(
            file,
            ", \"bytes\": %" PRIu64 ", \"bytes_per_second\": %.0f, \"busy\": %.4f, \"busy_seconds\": %.3f, "
            "\"bytes_per_busy_second\": %.0f, \"receiver_limited_seconds\": %.3f, \"retransmitted\": %" PRIu64
            ", \"limits\": %s}",
            link->bytes, seconds > 0 ? (double)link->bytes / seconds : 0, seconds > 0 ? busy / seconds : 0,
            busy, busy > 0 ? (double)link->bytes / busy : 0, (double)link->receiver_limited / CLOCK_SECOND,
            link->retransmitted, link == limit ? "true" : "false");
    }
    fputc(']', file);
}

static void put_counters(const struct page_summary *page, FILE *file)
{
    const char *comma = "";
    fputs("\"counters\": {", file);
    for (int i = 0; i < OPERATION_NUMBERS; i++) {
        const struct page_counts *counts = &page->operations[i];
        if (!operation_known(i) || !(counts->submitted | counts->batches))
            continue;
        fprintf(file,
                "%s\"%s\": {\"requests\": %" PRIu64 ", \"succeeded\": %" PRIu64 ", \"failed\": %" PRIu64
                ", \"batches\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
                comma, operation_name((hvd_operation)i), counts->submitted, counts->succeeded, counts->failed,
                counts->batches, counts->bytes);
        comma = ", ";
    }
    fputc('}', file);
}

static void put_checks(const struct page_summary *page, FILE *file)
{
    fprintf(file, "\"nonfinite\": %" PRIu64 ", \"nan\": ", page->all.nonfinite);
    if (*page->nan) {
        fputc('{', file);
        json_put_text(file, "tensor", page->nan);
        fprintf(file, ", \"step\": %" PRId64 "}, ", page->nan_step);
    } else {
        fputs("null, ", file);
    }
    fprintf(file, "\"parameter_checks\": %" PRIu64 ", \"divergences\": %" PRIu64 ", ", page->parameter_checks,
            page->divergences);
    json_put_text(file, "divergence", page->divergence);
    fputs(", ", file);
}

static void put_frames(const char *name, const struct stack_frame *frames, int count, bool python, FILE *file)
{
    fprintf(file, "\"%s\": [", name);
    for (int i = 0; i < count; i++) {
        fputs(i ? ", {" : "{", file);
        json_put_text(file, "function", frames[i].function);
        fputs(", ", file);
        json_put_text(file, python ? "file" : "library", frames[i].file);
        if (python) {
            fprintf(file, ", \"line\": %d, ", frames[i].line);
            json_put_text(file, "text", frames[i].text);
        }
        fputc('}', file);
    }
    fputc(']', file);
}

/* Of the program's thread. */
static void put_stack(const struct stack *stack, FILE *file)
{
    if (!stack || !stack->thread_count) {
        fputs("\"stack\": null", file);
        return;
    }
    const struct stack_thread *thread = stack->threads;
    fprintf(file, "\"stack\": {\"interrupted\": %s, ", stack->how == STACK_SIGNAL ? "true" : "false");
    json_put_text(file, "call", thread->call);
    fputs(", ", file);
    put_frames("python", thread->python, thread->python_count, true, file);
    fputs(", ", file);
    put_frames("c", thread->c, thread->c_count, false, file);
    fputc('}', file);
}

static const char *state_name(const struct rank_view *rank)
{
    static const char *const names[] = {
        [RANK_VIEW_UNSEEN] = "unseen", [RANK_VIEW_STOPPED] = "stopped", [RANK_VIEW_ENDED] = "ended",
        [RANK_VIEW_FAILED] = "failed", [RANK_VIEW_LEFT] = "left",       [RANK_VIEW_STARTED] = "started",
        [RANK_VIEW_JOINING] = "init",  [RANK_VIEW_WAITS] = "waits",     [RANK_VIEW_PROGRAM] = "program"};
    return names[rank_view_state(rank)];
}

/* Returns since when the rank waits; 0: it does not, or it is not known for what. */
static int64_t waits_since(const struct rank_view *rank)
{
    const struct page_request *request = rank_view_awaited(rank);
    return request ? request->submitted : 0;
}

static void put_rank(const struct job_view *job_view, int index, FILE *file)
{
    const struct rank_view *rank = &job_view->ranks[index];
    const struct page_identity *identity = &rank->page.identity;
    char text[PAGE_TITLE + 64];
    verdict_state(rank, text, sizeof text);
    fprintf(file, "{\"rank\": %d, ", identity->rank);
    json_put_text(file, "host", job_view_host_of(rank));
    fprintf(file, ", \"local_rank\": %d, \"pid\": %d, ", identity->local_rank, rank->process);
    json_put_text(file, "state", state_name(rank));
    fputs(", ", file);
    json_put_text(file, "text", text);
    fputs(", ", file);
    put_seconds(job_view, "seconds", waits_since(rank), file);
    fprintf(file, "\"in_horovod\": %.4f, \"wait_seconds\": %.3f, \"memory_bytes\": %" PRIu64 ", ",
            job_view_share_in_horovod(job_view, rank), (double)rank->page.all.wait_ns / CLOCK_SECOND,
            rank->memory_bytes);
    fprintf(file,
            "\"late\": %s, \"late_seconds\": %.3f, \"late_share\": %.4f, \"late_ms_per_step\": %.3f, "
            "\"program\": {\"running\": %.3f, \"runnable\": %.3f, \"blocked\": %.3f}, ",
            slowness_holds_up(job_view, index) ? "true" : "false", (double)rank->late_ns / CLOCK_SECOND,
            rank->late_share, 1000 * slowness_per_step(job_view, rank),
            (double)rank->times.running / CLOCK_SECOND, (double)rank->times.runnable / CLOCK_SECOND,
            (double)rank->times.blocked / CLOCK_SECOND);
    put_checks(&rank->page, file);
    put_counters(&rank->page, file);
    fputs(", ", file);
    put_stack(rank->stack, file);
    fputc('}', file);
}

void status_json_write(const struct job_view *job_view, FILE *file)
{
    fputs("{\"version\": 1, ", file);
    put_time(job_view->taken_at, file);
    fputs(", ", file);
    put_job(job_view, file);
    fputs(", ", file);
    put_verdict(job_view, file);
    fputs(", ", file);
    put_waitings(job_view, file);
    fputs(", ", file);
    put_hosts(job_view, file);
    fputs(", ", file);
    put_links(job_view, file);
    fputs(", \"ranks\": [", file);
    for (int i = 0; i < job_view->count; i++) {
        fputs(i ? ", " : "", file);
        put_rank(job_view, i, file);
    }
    fputs("]}\n", file);
}
