/* slots.c - reports of slots, and news for them, as keys of a job beside theirs. The driver's functions use
 * the server of this process, those of a slot a client. */
#include "rendezvous/slots.h"

#include "base/status.h"
#include "rendezvous/assignments.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_PREFIX "report/"
#define NEWS_PREFIX   "news/"
#define DONE          "done"

/* A name that is too long stays longer than the limit, so that it is refused. */
static const char *join(const char *first, const char *second, char text[RENDEZVOUS_KEY_LIMIT + 1])
{
    snprintf(text, RENDEZVOUS_KEY_LIMIT + 1, "%s%s", first, second);
    return text;
}

static const char *slots_job(const char *job, char text[RENDEZVOUS_KEY_LIMIT + 1])
{
    return join(job, "/slots", text);
}

/* ---- the driver ---------------------------------------------------------------------------------------- */

static void news_encode(struct wire_writer *writer, const hvd_news *news)
{
    char reason[SLOT_REASON_LIMIT];
    snprintf(reason, sizeof reason, "%s", news->reason ? news->reason : "");
    wire_put_u8(writer, (uint8_t)news->kind);
    wire_put_u32(writer, (uint32_t)news->epoch);
    wire_put_u32(writer, (uint32_t)news->rank);
    wire_put_u32(writer, (uint32_t)news->size);
    wire_put_u32(writer, (uint32_t)news->notice);
    wire_put_string(writer, reason);
}

hvd_code hvd_rendezvous_send_news(hvd_rendezvous *rendezvous, const char *job, const hvd_news *news,
                                  hvd_status *status)
{
    char name[RENDEZVOUS_KEY_LIMIT + 1], key[RENDEZVOUS_KEY_LIMIT + 1];
    struct wire_writer value = {0};
    struct slot_news check;
    hvd_news own = {0};
    memcpy(&own, news, news->struct_size < sizeof own ? news->struct_size : sizeof own);
    if (!own.slot || !*own.slot)
        return status_set(status, HVD_INVALID_ARGUMENT, "news need the name of a slot");
    news_encode(&value, &own);
    hvd_code code = HVD_OK;
    if (value.failed)
        code = status_no_memory(status);
    else if (!slot_news_decode(&check, value.bytes, value.length))
        code = status_set(status, HVD_INVALID_ARGUMENT,
                          "slot '%.100s' as rank %d of %d in epoch %d: that is no place", own.slot, own.rank,
                          own.size, own.epoch);
    else
        code = hvd_rendezvous_put(rendezvous, slots_job(job, name), 0, join(NEWS_PREFIX, own.slot, key),
                                  value.bytes, value.length, status);
    wire_writer_free(&value);
    return code;
}

hvd_code hvd_rendezvous_forget_slot(hvd_rendezvous *rendezvous, const char *job, const char *slot,
                                    hvd_status *status)
{
    char name[RENDEZVOUS_KEY_LIMIT + 1], key[RENDEZVOUS_KEY_LIMIT + 1];
    slots_job(job, name);
    TRY(assignments_remove(rendezvous, name, join(NEWS_PREFIX, slot, key), status));
    return assignments_remove(rendezvous, name, join(REPORT_PREFIX, slot, key), status);
}

hvd_code hvd_rendezvous_watch_slots(hvd_rendezvous *rendezvous, const char *job, hvd_watch **watch,
                                    hvd_status *status)
{
    char name[RENDEZVOUS_KEY_LIMIT + 1];
    return assignments_watch(rendezvous, slots_job(job, name), 0, REPORT_PREFIX, strlen(REPORT_PREFIX), watch,
                             status);
}

/* Reads a whole number in front of a blank or the end. */
static bool read_number(const char **text, int *number)
{
    char *end;
    errno = 0;
    long value = strtol(*text, &end, 10);
    bool found = end != *text && !errno && value >= INT_MIN && value <= INT_MAX && (*end == ' ' || !*end);
    *text = *end == ' ' ? end + 1 : end;
    *number = found ? (int)value : -1;
    return found;
}

static bool read_wait(struct slot_report *report, const char *text)
{
    int holds_state = -1;
    bool valid = read_number(&text, &report->after) && read_number(&text, &holds_state) &&
                 read_number(&text, &report->lost_rank) && !*text;
    report->kind = SLOT_WAITS;
    report->holds_state = holds_state == 1;
    return valid && (holds_state == 0 || holds_state == 1);
}

bool slot_report_read(struct slot_report *report, const void *text, size_t length)
{
    static const char waits[] = "waits ", leaves[] = " leaves";
    static const struct {
        const char *word;
        enum slot_report_kind kind;
    } words[] = {{"entered", SLOT_ENTERED}, {"ready", SLOT_READY}, {DONE, SLOT_HAS_DONE}};
    char own[SLOT_REPORT_LIMIT];
    *report = (struct slot_report){.after = -1, .lost_rank = -1};
    if (!length || length >= sizeof own || memchr(text, '\0', length))
        return false;
    memcpy(own, text, length);
    own[length] = '\0';
    size_t last = sizeof leaves - 1;
    report->leaves = length >= last && strcmp(own + length - last, leaves) == 0;
    if (report->leaves)
        own[length - last] = '\0';
    if (strncmp(own, waits, sizeof waits - 1) == 0)
        return read_wait(report, own + sizeof waits - 1);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(own, words[i].word) == 0)
            report->kind = words[i].kind;
    }
    return report->kind != SLOT_UNKNOWN || report->leaves;
}

/* ---- a slot -------------------------------------------------------------------------------------------- */

bool slot_news_decode(struct slot_news *news, const uint8_t *bytes, size_t length)
{
    struct wire_reader reader = wire_reader_of(bytes, length);
    unsigned kind = wire_get_u8(&reader);
    *news = (struct slot_news){.kind = (hvd_news_kind)kind};
    news->epoch = (int)wire_get_u32(&reader);
    news->rank = (int)wire_get_u32(&reader);
    news->size = (int)wire_get_u32(&reader);
    news->notice = (int)wire_get_u32(&reader);
    wire_get_string(&reader, news->reason, sizeof news->reason);
    bool placed = news->rank >= 0 && news->rank < news->size;
    return wire_done(&reader) && kind <= HVD_NEWS_OVER && news->epoch >= 0 &&
           (placed || kind != HVD_NEWS_EPOCH) && !(news->notice & ~HVD_NOTICE_ALL);
}

hvd_code slots_enter(struct rendezvous_client *client, const char *job, hvd_status *status)
{
    char name[RENDEZVOUS_KEY_LIMIT + 1];
    return rendezvous_enter(client, &(struct rendezvous_place){slots_job(job, name), 0, -1, 0}, NULL, status);
}

hvd_code slots_report(struct rendezvous_client *client, const char *slot, const char *report,
                      int64_t deadline, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT + 1];
    join(REPORT_PREFIX, slot, key);
    /* A starter that looks only after the process has ended must still find that its work was complete. */
    hvd_code (*put)(struct rendezvous_client *, const char *, const void *, size_t, int64_t, hvd_status *) =
        strncmp(report, DONE, strlen(DONE)) == 0 ? rendezvous_publish : rendezvous_report;
    return put(client, key, report, strlen(report), deadline, status);
}

hvd_code slots_follow(struct rendezvous_client *client, const char *slot, uint32_t *seen, int64_t deadline,
                      struct slot_news *news, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT + 1];
    struct wire_writer value = {0};
    struct slot_news newer;
    uint32_t number = *seen;
    hvd_code code =
        rendezvous_follow(client, join(NEWS_PREFIX, slot, key), &number, deadline, &value, status);
    if (!code && !slot_news_decode(&newer, value.bytes, value.length))
        code = status_set(status, HVD_MISMATCH, "the news for slot '%.100s' are malformed", slot);
    if (!code) {
        *news = newer;
        *seen = number;
    }
    wire_writer_free(&value);
    return code;
}
