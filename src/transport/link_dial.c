/* link_dial.c - dials one connection at each address of a peer. The thread of its connector. The attempts are
 * in the struct, one for each address, and are released whenever dial.h ends them. */
#include "transport/link_dial.h"

#include "base/status.h"
#include "base/thread.h"
#include "transport/address_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool link_dial_is_optional(const struct link_dial *link)
{
    return link->number / link->peer->mesh->channels > 1;
}

/* ---- what net/dial.h calls ---------------------------------------------------------------------------- */

static const char *candidate_address(const struct candidate *candidate)
{
    const struct link_dial *link = (const struct link_dial *)candidate->dial;
    return address_record_of_peer(link->peer, link->row, link->first + dial_index(candidate));
}

static hvd_code begin_attempt(struct candidate *candidate, hvd_status *status)
{
    return attempt_dial(attempt_of(candidate), candidate_address(candidate), status);
}

/* The fault at the first address is the peer's cause: the other addresses may lead anywhere. */
static void end_attempt(struct candidate *candidate, const hvd_status *fault)
{
    struct attempt *attempt = attempt_of(candidate);
    if (fault && dial_index(candidate) == 0 &&
        !link_dial_is_optional((const struct link_dial *)candidate->dial))
        status_copy(&attempt->peer->cause, fault);
    attempt_release(attempt);
}

static void name_attempt(const struct candidate *candidate, char *text, size_t capacity)
{
    const char *address = candidate_address(candidate);
    snprintf(text, capacity, "%.*s", (int)strcspn(address, "\n"), address);
}

static const struct dial_operations dial_operations = {
    .begin = begin_attempt,
    .advance = attempt_advance,
    .events = attempt_events,
    .end = end_attempt,
    .name = name_attempt,
};

/* ---- life --------------------------------------------------------------------------------------------- */

struct link_dial *link_dial_create(struct peer *peer, int row, int number, int address, int poller)
{
    int count = address >= 0;
    while (address < 0 && address_record_of_peer(peer, row, count))
        count++;
    struct link_dial *link = calloc(1, sizeof *link + (size_t)count * sizeof *link->attempts);
    if (!link)
        return NULL;
    link->peer = peer;
    link->row = row;
    link->number = number;
    link->first = address < 0 ? 0 : address;
    link->since = clock_now();
    link->again_at = CLOCK_NEVER;
    for (int i = 0; i < count; i++) {
        struct attempt *attempt = &link->attempts[i];
        attempt->mesh = peer->mesh;
        attempt->peer = peer;
        attempt->row = row;
        attempt->number = number;
    }
    dial_init(&link->dial, &dial_operations, poller, link->attempts, sizeof *link->attempts, count);
    return link;
}

void link_dial_remove(struct link_dial **place)
{
    struct link_dial *link = *place;
    atfork_lock();
    *place = link->next;
    atfork_unlock();
    dial_end(&link->dial);
    free(link);
}

/* ---- time --------------------------------------------------------------------------------------------- */

int64_t link_dial_deadline(const struct link_dial *link)
{
    const struct mesh *mesh = link->peer->mesh;
    if (link_dial_is_optional(link))
        return link->since + (int64_t)(mesh->hub->settings->start_timeout_seconds * CLOCK_SECOND);
    return mesh->attached ? link->peer->deadline : CLOCK_NEVER;
}

int64_t link_dial_due(const struct link_dial *link)
{
    int64_t due = link->again_at == CLOCK_NEVER ? dial_due(&link->dial) : link->again_at;
    return clock_earlier(due, link_dial_deadline(link));
}

/* ---- failures ----------------------------------------------------------------------------------------- */

bool link_dial_has_failed_with(const struct link_dial *link, hvd_code code)
{
    bool any = false;
    for (int i = 0; i < link->dial.count; i++)
        any |= link->attempts[i].candidate.code == code;
    return any;
}

void link_dial_give_up(struct link_dial *link)
{
    char who[128], outcome[256] = "";
    dial_append_outcomes(&link->dial, outcome, sizeof outcome);
    log_info(link->peer->mesh->rank, "no further connection to %s%s", peer_text(link->peer, who, sizeof who),
             outcome);
    link->ended = true;
}

void link_dial_append_outcomes(const struct link_dial *link, hvd_status *status)
{
    const struct mesh *hub = link->peer->mesh->hub;
    append_text(status->text, sizeof status->text, "; rank %d (host %s) tried", hub->rank,
                hub->records[hub->rank].host);
    dial_append_outcomes(&link->dial, status->text, sizeof status->text);
}
