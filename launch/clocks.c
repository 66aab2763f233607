/* clocks.c - see clocks.h. */
#include "clocks.h"

#include "base/status.h"

#include <stdlib.h>

#define DRIFT 20000 /* ns in which two clocks may drift apart by 1: 50 parts in a million */

void clock_look_add(struct clock_look *look, int64_t sent, int64_t theirs, int64_t received)
{
    if (sent <= 0 || received < sent || theirs <= 0 || theirs > INT64_MAX / 4)
        return;
    int64_t half = (received - sent) / 2;
    if (look->sent && half > look->trip / 2 + (sent - look->sent) / DRIFT)
        return;
    *look = (struct clock_look){.sent = sent, .trip = received - sent, .ahead = theirs - sent - half};
}

/* ---- causality ----------------------------------------------------------------------------------------- */

/* What the ranks of one host, or of several hosts, have recorded of a batch, in the time of host 0. */
struct mark {
    int32_t process_set;
    int host;
    uint64_t batch;
    int64_t submitted; /* the last request of the batch */
    int64_t decided;   /* when the first rank learned of the decision */
};

static int compare_batches(const struct mark *a, const struct mark *b)
{
    if (a->process_set != b->process_set)
        return a->process_set < b->process_set ? -1 : 1;
    return (a->batch > b->batch) - (a->batch < b->batch);
}

static int compare_marks(const void *one, const void *other)
{
    const struct mark *a = one, *b = other;
    int order = compare_batches(a, b);
    return order ? order : (a->host > b->host) - (a->host < b->host);
}

static void merge(struct mark *into, const struct mark *mark)
{
    into->submitted = mark->submitted > into->submitted ? mark->submitted : into->submitted;
    into->decided = mark->decided < into->decided ? mark->decided : into->decided;
}

/* Makes one mark for each batch of each host, in the order of batches. Returns their number. */
static size_t collect(const struct clock_rank *ranks, int count, struct mark *marks)
{
    size_t used = 0, kept = 0;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < ranks[i].history->count; j++) {
            const struct history_request *request = &ranks[i].history->list[j];
            if (request->decided)
                marks[used++] = (struct mark){request->process_set, ranks[i].host, request->batch,
                                              request->submitted, request->decided};
        }
    }
    qsort(marks, used, sizeof *marks, compare_marks);
    for (size_t i = 0; i < used; i++) {
        if (kept && compare_marks(&marks[kept - 1], &marks[i]) == 0)
            merge(&marks[kept - 1], &marks[i]);
        else
            marks[kept++] = marks[i];
    }
    return kept;
}

/* Narrows the range in which the clock of `host` can be ahead, by one batch of it and of hosts whose clocks
 * are known. */
static void narrow(const struct mark *mark, const struct mark *known, int64_t *least, int64_t *most)
{
    int64_t highest = mark->decided - known->submitted, lowest = mark->submitted - known->decided;
    *most = highest < *most ? highest : *most;
    *least = lowest > *least ? lowest : *least;
}

/* Returns what is known of a batch from hosts below this one. */
static bool find_known(const struct mark *first, const struct mark *end, int host, const int64_t *ahead,
                       struct mark *known)
{
    bool found = false;
    for (const struct mark *mark = first; mark < end && mark->host < host; mark++) {
        struct mark moved = *mark;
        moved.submitted -= ahead[mark->host];
        moved.decided -= ahead[mark->host];
        if (found)
            merge(known, &moved);
        else
            *known = moved;
        found = true;
    }
    return found;
}

static void correct(const struct mark *marks, size_t count, int host, int64_t *ahead)
{
    int64_t least = INT64_MIN, most = INT64_MAX;
    for (size_t first = 0, end; first < count; first = end) {
        struct mark known;
        const struct mark *own = NULL;
        for (end = first; end < count && compare_batches(&marks[first], &marks[end]) == 0; end++)
            own = marks[end].host == host ? &marks[end] : own;
        if (own && find_known(&marks[first], &marks[end], host, ahead, &known))
            narrow(own, &known, &least, &most);
    }
    if (least >
        most) /* the times of a record are those of a turn of the engine, so both may be a little off */
        ahead[host] = most + (least - most) / 2;
    else if (ahead[host] < least)
        ahead[host] = least;
    else if (ahead[host] > most)
        ahead[host] = most;
}

hvd_code clocks_correct(const struct clock_rank *ranks, int count, int64_t *ahead, int hosts,
                        hvd_status *status)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += (size_t)ranks[i].history->count;
    if (hosts < 2 || !total)
        return HVD_OK;
    struct mark *marks = calloc(total, sizeof *marks);
    if (!marks)
        return status_no_memory(status);
    size_t made = collect(ranks, count, marks);
    for (int host = 1; host < hosts; host++)
        correct(marks, made, host, ahead);
    free(marks);
    return HVD_OK;
}
