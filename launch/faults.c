/* faults.c - reads fault records as ranks publish them, and writes the outcome of a job for horovod.run. One
 * thread, the loop's. */
#include "faults.h"
#include "json.h"

#include "base/status.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- records ------------------------------------------------------------------------------------------- */

void faults_read(struct table *table, double seconds)
{
    hvd_entry entry = {.struct_size = sizeof entry};
    hvd_fault fault = {.struct_size = sizeof fault};
    hvd_code code = HVD_OK;
    while (table->watch && !code) {
        code = hvd_watch_next(table->watch, seconds, &entry, NULL);
        if (!code && hvd_read_fault(entry.value, entry.length, &fault, NULL) == HVD_OK)
            table->happened(table, &(struct event){.kind = EVENT_FAULT, .fault = &fault});
    }
    if (code && code != HVD_TIMED_OUT) /* a newer epoch has begun, or the rendezvous is gone */
        uv_poll_stop(table->published);
}

static void on_published(uv_poll_t *published, int status, int events)
{
    (void)status; /* the next read has the error, too */
    (void)events;
    faults_read(published->data, 0);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

hvd_code faults_watch(struct table *table, const char *job, int epoch, hvd_status *status)
{
    faults_close(table);
    uv_poll_t *published = malloc(sizeof *published);
    if (!published)
        return status_no_memory(status);
    hvd_code code = hvd_watch_open(table->rendezvous, job, epoch, "fault/", &table->watch, status);
    if (code || uv_poll_init(&table->loop, published, hvd_watch_descriptor(table->watch))) {
        free(published);
        hvd_watch_close(table->watch);
        table->watch = NULL;
        return code ? code : status_set(status, HVD_SYSTEM, "can't watch for the faults of ranks");
    }
    table->published = published;
    published->data = table;
    uv_poll_start(published, UV_READABLE, on_published);
    faults_read(table, 0); /* what was put before the watch was opened sets no event */
    return HVD_OK;
}

void faults_close(struct table *table)
{
    if (!table->watch)
        return;
    uv_close((uv_handle_t *)table->published, free_handle);
    hvd_watch_close(table->watch);
    table->watch = NULL;
}

/* ---- the outcome --------------------------------------------------------------------------------------- */

static void put_member(FILE *file, const char *name, const char *text)
{
    fputs(", ", file);
    json_put_text(file, name, text);
}

static void put_record(FILE *file, const hvd_fault *fault)
{
    bool stopped = fault->status.code != HVD_OK;
    put_member(file, "cause", hvd_cause_name(stopped ? fault->status.cause : HVD_CAUSE_EXCEPTION));
    if (stopped) {
        put_member(file, "code", hvd_code_name(fault->status.code) + strlen("HVD_"));
        put_member(file, "text", fault->status.text);
    }
    if (stopped && fault->status.cause) {
        fprintf(file, ", \"lost_rank\": %d", (int)fault->status.lost_rank);
        put_member(file, "lost_host", fault->status.host);
    }
    put_member(file, "exception", fault->exception);
    put_member(file, "file", fault->file);
    put_member(file, "function", fault->function);
    fprintf(file, ", \"line\": %d", (int)fault->line);
}

static void put_process(FILE *file, const struct process *process)
{
    fprintf(file, "{\"rank\": %d, \"pid\": %d, \"exit_code\": %d, \"signal\": %d", process->place.rank,
            process->pid, process->exit_code, process->signal);
    put_member(file, "host", process_host(process)->name);
    if (process->fault)
        put_record(file, process->fault);
    else
        put_member(file, "cause", process->signal ? "signal" : "exit");
    fputc('}', file);
}

static FILE *open_outcome(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/outcome", folder);
    return fopen(path, "we");
}

void faults_write_outcome(const struct table *table, const struct outcome *outcome)
{
    FILE *file = table->options->task ? open_outcome(table->options->task) : NULL;
    bool any = false;
    if (!file)
        return;
    fprintf(file, "{\"exit_code\": %d", outcome->exit_code);
    put_member(file, "verdict", outcome->verdict);
    if (outcome->first) {
        fprintf(file, ", \"first\": ");
        put_process(file, outcome->first);
    } else if (outcome->cause) {
        fprintf(file, ", \"first\": {\"rank\": null");
        put_record(file, outcome->cause);
        fputc('}', file);
    }
    fprintf(file, ", \"ranks\": [");
    for (int i = 0; i < table->count; i++) {
        const struct process *process = table->list[i];
        if (!process->failed && !process->fault)
            continue;
        fprintf(file, any ? ",\n" : "\n");
        put_process(file, process);
        any = true;
    }
    fprintf(file, "]}\n");
    fclose(file);
}

void faults_write_refusal(const char *folder, const char *text)
{
    FILE *file = open_outcome(folder);
    if (!file)
        return;
    fprintf(file, "{\"exit_code\": 2");
    put_member(file, "refusal", text);
    fprintf(file, "}\n");
    fclose(file);
}
