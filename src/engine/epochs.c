/* epochs.c - a process's connection to the starter of an elastic job, which it keeps over all epochs: it
 * reports that it is ready, waits or is done, follows what the starter publishes for its slot, and ends with
 * the starter. No context is needed. Any thread; one at a time waits. */
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "engine/api.h"
#include "engine/starter_watch.h"
#include "rendezvous/slots.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_SECONDS 10.0

struct hvd_epochs {
    pthread_mutex_t lock; /* of the members below, except `noticed` */
    struct settings settings;
    struct rendezvous_client *client;
    struct starter_watch watch;
    uint32_t seen; /* number of the news below; 0: none yet */
    struct slot_news news;
    bool leaves;                    /* each report says so */
    char report[SLOT_REPORT_LIMIT]; /* the last one, while it holds; "": none */
    atomic_uint_least64_t noticed;  /* epoch and notice of `news`, for hvd_epoch_notice in other threads */
};

/* The thread that watches the connection may not know that this one has closed it. */
static hvd_code check_starter(struct hvd_epochs *epochs, hvd_code code)
{
    if (code == HVD_PEER_LOST)
        starter_watch_report(&epochs->watch);
    return code;
}

/* Sends the report, unless it is the last one and still holds. */
static hvd_code report(struct hvd_epochs *epochs, const char *text, hvd_status *status)
{
    char whole[sizeof epochs->report];
    snprintf(whole, sizeof whole, "%s%s", text, epochs->leaves ? " leaves" : "");
    if (strcmp(epochs->report, whole) == 0)
        return HVD_OK;
    TRY(check_starter(epochs, slots_report(epochs->client, epochs->settings.slot, whole,
                                           clock_after(REPORT_SECONDS), status)));
    memcpy(epochs->report, whole, sizeof whole);
    return HVD_OK;
}

/* ---- news ---------------------------------------------------------------------------------------------- */

/* HVD_TIMED_OUT: there are no newer ones. */
static hvd_code follow(struct hvd_epochs *epochs, int64_t deadline, hvd_status *status)
{
    TRY(check_starter(epochs, slots_follow(epochs->client, epochs->settings.slot, &epochs->seen, deadline,
                                           &epochs->news, status)));
    if (epochs->news.kind == HVD_NEWS_EPOCH)
        atomic_store(&epochs->noticed,
                     (uint64_t)epochs->news.epoch << 32 | (uint64_t)(unsigned)epochs->news.notice);
    else /* it is in no epoch any more: whichever it is still in is lost */
        atomic_store(&epochs->noticed, (uint64_t)UINT32_MAX << 32);
    return HVD_OK;
}

int32_t hvd_epoch_notice(hvd_epochs *epochs, int32_t epoch)
{
    hvd_status ignored; /* of a lost connection: hvd_epoch_wait reports it */
    if (pthread_mutex_trylock(&epochs->lock) == 0) {
        while (!follow(epochs, 0, &ignored))
            ;
        pthread_mutex_unlock(&epochs->lock);
    }
    uint64_t noticed = atomic_load(&epochs->noticed);
    if (noticed >> 32 > (uint64_t)epoch) /* a newer one has begun without this process */
        return HVD_NOTICE_LOST;
    return noticed >> 32 == (uint64_t)epoch ? (int32_t)(noticed & UINT32_MAX) : 0;
}

/* ---- open and close ------------------------------------------------------------------------------------ */

/* Processes that are done, and those of a job that is over, end by themselves. */
static bool starter_is_needed(void *owner)
{
    struct hvd_epochs *epochs = owner;
    hvd_status ignored;
    pthread_mutex_lock(&epochs->lock);
    while (!follow(epochs, 0, &ignored)) /* its last messages */
        ;
    bool over = epochs->seen && epochs->news.kind == HVD_NEWS_OVER;
    bool done = strncmp(epochs->report, "done", 4) == 0;
    pthread_mutex_unlock(&epochs->lock);
    return !over && !done;
}

static hvd_code connect_slot(struct hvd_epochs *epochs, const struct interrupt *interrupt, hvd_status *status)
{
    struct settings *settings = &epochs->settings;
    if (!*settings->slot || !*settings->rendezvous)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "this process belongs to no elastic job: it has no slot (HOROVOD_SLOT) or no "
                          "rendezvous (HOROVOD_RENDEZVOUS); start it with horovodrun and --min-np");
    TRY(bootstrap_read_secret(settings, status));
    TRY(rendezvous_connect(settings->rendezvous, settings->secret, settings->encryption,
                           clock_after(settings->start_timeout_seconds), interrupt, &epochs->client, status));
    rendezvous_interrupt(epochs->client, NULL); /* it may ask hvd_epoch_notice, which uses the client */
    TRY(slots_enter(epochs->client, settings->job, status));
    TRY(report(epochs, "entered", status));
    epochs->watch.needed = starter_is_needed;
    epochs->watch.owner = epochs;
    epochs->watch.grace_seconds = settings->grace_seconds;
    return starter_watch_open(&epochs->watch, rendezvous_descriptor(epochs->client), status);
}

hvd_code hvd_epochs_open(const hvd_config *config, hvd_epochs **epochs, hvd_status *status)
{
    struct hvd_epochs *opened = calloc(1, sizeof *opened);
    if (!opened)
        return status_no_memory(status);
    pthread_mutex_init(&opened->lock, NULL);
    hvd_code code = settings_copy(&opened->settings, &config->settings, status);
    if (!code)
        code = connect_slot(opened, &config->interrupt, status);
    if (code) {
        hvd_epochs_close(opened);
        return code;
    }
    *epochs = opened;
    return status_ok(status);
}

void hvd_epochs_close(hvd_epochs *epochs)
{
    if (!epochs)
        return;
    starter_watch_close(&epochs->watch);
    rendezvous_close(epochs->client);
    settings_free(&epochs->settings);
    pthread_mutex_destroy(&epochs->lock);
    free(epochs);
}

/* ---- reports ------------------------------------------------------------------------------------------- */

static hvd_code report_waiting(struct hvd_epochs *epochs, const hvd_epoch_question *question,
                               hvd_status *status)
{
    char text[sizeof epochs->report] = "ready";
    if (question->after >= 0)
        snprintf(text, sizeof text, "waits %d %d %d", (int)question->after, question->holds_state != 0,
                 (int)question->lost_rank);
    return report(epochs, text, status);
}

/* An epoch that has lost a member before this process knew of it counts as one that it has left. */
static hvd_code wait_for_epoch(struct hvd_epochs *epochs, const hvd_epoch_question *question,
                               int64_t deadline, hvd_status *status)
{
    hvd_epoch_question asked = *question;
    const struct slot_news *news = &epochs->news;
    for (;;) {
        if (epochs->seen && news->kind == HVD_NEWS_OUT)
            return status_set(status, HVD_REFUSED, "slot '%s' has no place in the job any more: %s",
                              epochs->settings.slot, *news->reason ? news->reason : "its starter says so");
        if (epochs->seen && news->kind == HVD_NEWS_OVER)
            return status_set(status, HVD_SHUT_DOWN, "the job has ended: %s",
                              *news->reason ? news->reason : "its starter says so");
        if (epochs->seen && news->epoch > asked.after && !(news->notice & HVD_NOTICE_LOST))
            return HVD_OK;
        if (epochs->seen && news->epoch > asked.after) {
            asked.after = news->epoch;
            asked.lost_rank = -1; /* it was one of an older epoch */
        }
        TRY(report_waiting(epochs, &asked, status));
        TRY(follow(epochs, deadline, status));
    }
}

hvd_code hvd_epoch_wait(hvd_epochs *epochs, const hvd_epoch_question *question, double seconds,
                        hvd_epoch *next, hvd_status *status)
{
    hvd_epoch_question own = {.after = -1, .lost_rank = -1};
    memcpy(&own, question, question->struct_size < sizeof own ? question->struct_size : sizeof own);
    pthread_mutex_lock(&epochs->lock);
    hvd_code code = wait_for_epoch(epochs, &own, clock_after(seconds), status);
    if (code == HVD_TIMED_OUT)
        status_set(status, code, "the starter has begun no epoch after %d within %g s", (int)own.after,
                   seconds);
    if (!code) {
        const struct slot_news *news = &epochs->news;
        hvd_epoch found = {
            .struct_size = next->struct_size, .number = news->epoch, .rank = news->rank, .size = news->size};
        memcpy(next, &found, next->struct_size < sizeof found ? next->struct_size : sizeof found);
        epochs->report[0] = '\0';
        status_ok(status);
    }
    pthread_mutex_unlock(&epochs->lock);
    return code;
}

hvd_code hvd_epoch_leave(hvd_epochs *epochs, hvd_status *status)
{
    char last[sizeof epochs->report];
    hvd_code code = HVD_OK;
    pthread_mutex_lock(&epochs->lock);
    memcpy(last, epochs->report, sizeof last);
    if (!epochs->leaves) {
        epochs->leaves = true;
        code = report(epochs, last, status);
    }
    pthread_mutex_unlock(&epochs->lock);
    return code ? code : status_ok(status);
}

hvd_code hvd_epoch_done(hvd_epochs *epochs, hvd_status *status)
{
    pthread_mutex_lock(&epochs->lock);
    hvd_code code = report(epochs, "done", status);
    pthread_mutex_unlock(&epochs->lock);
    return code ? code : status_ok(status);
}
