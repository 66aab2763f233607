/* dial.c - tries the addresses of one destination side by side until one is proven. One thread at a time;
 * nothing blocks except dial_run. */
#include "net/dial.h"

#include "base/platform_poller.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NEWS_PER_TURN 16

struct candidate *dial_candidate(const struct dial *dial, int index)
{
    return (struct candidate *)(dial->candidates + (size_t)index * dial->stride);
}

int dial_index(const struct candidate *candidate)
{
    return (int)((size_t)((const char *)candidate - candidate->dial->candidates) / candidate->dial->stride);
}

void dial_init(struct dial *dial, const struct dial_operations *operations, int poller, void *candidates,
               size_t stride, int count)
{
    *dial = (struct dial){.operations = operations,
                          .poller = poller,
                          .candidates = candidates,
                          .stride = stride,
                          .count = count};
    for (int i = 0; i < count; i++) {
        dial_candidate(dial, i)->dial = dial;
        dial_candidate(dial, i)->socket = POLLED_NONE;
    }
}

/* ---- one address -------------------------------------------------------------------------------------- */

static void fail(struct candidate *candidate, hvd_code code, const hvd_status *fault)
{
    char from[SOCKET_TEXT], *outcome = candidate->outcome;
    const char *reason = strstr(fault->text, ": ");
    *outcome = '\0';
    if (candidate->socket.fd >= 0 && socket_local_address(candidate->socket.fd, from))
        append_text(outcome, sizeof candidate->outcome, " (from %s)", from);
    append_text(outcome, sizeof candidate->outcome, ": %s", reason ? reason + 2 : fault->text);
    candidate->code = code;
    polled_close(&candidate->socket);
    candidate->dial->operations->end(candidate, fault);
}

/* Acts on the code of an operation. HVD_PEER_LOST: the candidate has failed. */
static hvd_code conclude(struct candidate *candidate, hvd_code code, const hvd_status *fault,
                         hvd_status *status)
{
    struct dial *dial = candidate->dial;
    if (code == HVD_OK) {
        polled_unwatch(&candidate->socket);
        dial->winner = candidate;
        return HVD_OK;
    }
    if (code == HVD_IN_PROGRESS) {
        if (polled_watch(&candidate->socket, dial->poller, dial->operations->events(candidate), candidate))
            return HVD_IN_PROGRESS;
        return status_set_errno(status, errno, "can't wait for a connection");
    }
    if (candidate->proven && code != HVD_PEER_LOST) {
        status_copy(status, fault);
        return code;
    }
    fail(candidate, code, fault);
    dial->next_due = 0;
    return HVD_PEER_LOST;
}

static hvd_code begin(struct candidate *candidate, hvd_status *status)
{
    hvd_status fault;
    struct dial *dial = candidate->dial;
    candidate->connected = candidate->proven = false;
    dial->last_begun = clock_now();
    dial->next_due = dial->last_begun + NEXT_ADDRESS_DELAY;
    hvd_code code = dial->operations->begin(candidate, &fault);
    return conclude(candidate, code, &fault, status);
}

/* ---- all of them -------------------------------------------------------------------------------------- */

hvd_code dial_turn(struct dial *dial, hvd_status *status)
{
    while (dial->begun < dial->count && clock_now() >= dial->next_due) {
        hvd_code code = begin(dial_candidate(dial, dial->begun++), status);
        if (code != HVD_IN_PROGRESS && code != HVD_PEER_LOST)
            return code;
    }
    bool trying = dial->begun < dial->count;
    for (int i = 0; i < dial->begun; i++)
        trying |= dial_candidate(dial, i)->socket.fd >= 0;
    return trying ? HVD_IN_PROGRESS : HVD_PEER_LOST;
}

hvd_code dial_advance(struct candidate *candidate, hvd_status *status)
{
    hvd_status fault;
    struct dial *dial = candidate->dial;
    bool connected = candidate->connected;
    hvd_code code = dial->operations->advance(candidate, &fault);
    if (!connected && candidate->connected && dial_index(candidate) == dial->begun - 1)
        dial->next_due = clock_now() + NEXT_PROOF_DELAY;
    code = conclude(candidate, code, &fault, status);
    return code == HVD_PEER_LOST ? dial_turn(dial, status) : code;
}

int64_t dial_due(const struct dial *dial)
{
    return dial->begun < dial->count && !dial->winner ? dial->next_due : CLOCK_NEVER;
}

void dial_restart(struct dial *dial)
{
    dial->begun = 0;
    dial->next_due = 0;
}

void dial_end(struct dial *dial)
{
    for (int i = 0; i < dial->count; i++) {
        polled_close(&dial_candidate(dial, i)->socket);
        dial->operations->end(dial_candidate(dial, i), NULL);
    }
}

void dial_append_outcomes(const struct dial *dial, char *text, size_t capacity)
{
    const char *before = ": ";
    for (int i = 0; i < dial->count; i++) {
        char name[SOCKET_TEXT * 2], from[SOCKET_TEXT];
        const struct candidate *each = dial_candidate(dial, i);
        if (i >= dial->begun && !each->code)
            continue;
        dial->operations->name(each, name, sizeof name);
        append_text(text, capacity, "%s%s", before, name);
        before = "; ";
        if (each->code)
            append_text(text, capacity, "%s", each->outcome);
        else if (socket_local_address(each->socket.fd, from))
            append_text(text, capacity, " (from %s): %s", from,
                        each->connected ? "no end of the handshake" : "no answer");
    }
}

/* ---- a race that blocks ------------------------------------------------------------------------------- */

static hvd_code advance_reported(struct dial *dial, hvd_status *status)
{
    struct poller_news news[NEWS_PER_TURN];
    int count = platform_poller_read(dial->poller, news, NEWS_PER_TURN);
    for (int i = 0; i < count; i++) {
        struct candidate *candidate = news[i].tag;
        hvd_code code = candidate->socket.fd < 0 ? HVD_IN_PROGRESS : dial_advance(candidate, status);
        if (code != HVD_IN_PROGRESS)
            return code;
    }
    return dial_turn(dial, status);
}

hvd_code dial_run(struct dial *dial, int64_t patience, int64_t deadline, const struct interrupt *interrupt,
                  hvd_status *status)
{
    hvd_code code = dial_turn(dial, status);
    while (code == HVD_IN_PROGRESS) {
        bool all = dial->begun == dial->count;
        int64_t end = all ? clock_earlier(deadline, dial->last_begun + patience) : dial->next_due;
        if (interrupt_is_set(interrupt))
            return HVD_INTERRUPTED;
        if (all && clock_now() >= end)
            return HVD_PEER_LOST;
        platform_poller_wait(dial->poller, -1, interrupt_slice(interrupt, end));
        code = advance_reported(dial, status);
    }
    return code;
}
