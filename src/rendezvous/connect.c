/* connect.c - handshake_connect, see handshake.h: from names to a connection whose other end is
 * authenticated. The addresses are tried side by side, as RFC 8305 recommends, but the handshake decides, not
 * the kernel: an address may lead to something else. */
#include "base/status.h"
#include "net/handshake.h"
#include "net/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES         16
#define NEXT_ADDRESS_DELAY (CLOCK_SECOND / 4) /* after the last one was begun */
#define HANDSHAKE_TIME     (5 * CLOCK_SECOND) /* of a round; a busy server may have dropped it */
#define FIRST_PAUSE        (CLOCK_SECOND / 20)
#define LONGEST_PAUSE      (CLOCK_SECOND / 2)

/* One address. */
struct candidate {
    struct sockaddr_storage address;
    socklen_t length;
    int fd; /* -1: not begun, or it has failed */
    bool connecting;
    struct handshake handshake;
    hvd_code code; /* how it has failed */
    char from[SOCKET_TEXT];
    hvd_status fault;
};

struct race {
    const char *addresses, *secret, *who; /* who: for texts */
    bool encrypted;
    struct stream *stream; /* gets the connection that wins */
    int64_t deadline;
    const struct interrupt *interrupt;
    struct candidate candidates[CANDIDATES];
    int count, begun;
    int64_t next_due, end; /* when the next one begins; of this round */
};

/* ---- names -------------------------------------------------------------------------------------------- */

static void add_candidates(struct race *race, const struct addrinfo *found)
{
    for (; found && race->count < CANDIDATES; found = found->ai_next) {
        struct candidate *candidate = &race->candidates[race->count++];
        *candidate = (struct candidate){.length = found->ai_addrlen, .fd = -1};
        memcpy(&candidate->address, found->ai_addr, found->ai_addrlen);
    }
}

/* HVD_TIMED_OUT: no name can be resolved yet. */
static hvd_code resolve(struct race *race, hvd_status *status)
{
    hvd_code code = HVD_OK;
    const char *at = race->addresses;
    race->count = race->begun = 0;
    do {
        char one[300];
        struct addrinfo *found;
        size_t length = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        code = socket_resolve(one, &found, status);
        if (!code) {
            add_candidates(race, found);
            freeaddrinfo(found);
        } else if (code != HVD_TIMED_OUT) {
            return code;
        }
        at += length;
    } while (*at++ == ',');
    return race->count ? HVD_OK : code;
}

/* ---- one address -------------------------------------------------------------------------------------- */

static hvd_code fail(struct candidate *candidate, hvd_code code)
{
    if (candidate->fd >= 0)
        socket_local_address(candidate->fd, candidate->from);
    socket_close(&candidate->fd);
    handshake_end(&candidate->handshake);
    return candidate->code = code;
}

/* The server may not listen yet, so another round may help. */
static hvd_code cannot_connect(const struct race *race, struct candidate *candidate, int error)
{
    status_set_errno(&candidate->fault, error, "%s can't be reached", race->who);
    return fail(candidate, error == EMFILE || error == ENFILE ? HVD_SYSTEM : HVD_PEER_LOST);
}

static hvd_code begin(const struct race *race, struct candidate *candidate)
{
    struct handshake_claim claim = {.role = HANDSHAKE_RENDEZVOUS, .encrypted = race->encrypted};
    const struct addrinfo address = {.ai_family = candidate->address.ss_family,
                                     .ai_addr = (struct sockaddr *)&candidate->address,
                                     .ai_addrlen = candidate->length};
    hvd_code code =
        handshake_initiate(&candidate->handshake, race->secret, &claim, race->who, &candidate->fault);
    if (code)
        return fail(candidate, code);
    candidate->connecting = true;
    candidate->fd = socket_connect(&address);
    return candidate->fd < 0 ? cannot_connect(race, candidate, errno) : HVD_IN_PROGRESS;
}

static hvd_code advance(const struct race *race, struct candidate *candidate)
{
    int error = candidate->connecting ? socket_error(candidate->fd) : 0;
    if (error)
        return cannot_connect(race, candidate, error);
    candidate->connecting = false;
    hvd_code code = handshake_advance(&candidate->handshake, candidate->fd, &candidate->fault);
    return code && code != HVD_IN_PROGRESS ? fail(candidate, code) : code;
}

/* ---- a round of all ----------------------------------------------------------------------------------- */

static void begin_due(struct race *race)
{
    int64_t now = clock_now();
    while (race->begun < race->count && now >= race->next_due) {
        if (begin(race, &race->candidates[race->begun++]) == HVD_IN_PROGRESS)
            race->next_due = now + NEXT_ADDRESS_DELAY;
        race->end = clock_earlier(race->deadline, now + HANDSHAKE_TIME);
    }
}

static int poll_candidates(const struct race *race, struct pollfd polls[CANDIDATES])
{
    int alive = 0;
    int64_t due = race->begun < race->count ? clock_earlier(race->end, race->next_due) : race->end;
    for (int i = 0; i < race->begun; i++) {
        const struct candidate *each = &race->candidates[i];
        alive += each->fd >= 0;
        polls[i] =
            (struct pollfd){each->fd, each->connecting ? POLLOUT : handshake_events(&each->handshake), 0};
    }
    if (alive)
        poll(polls, (nfds_t)race->begun, socket_poll_timeout(interrupt_slice(race->interrupt, due)));
    return alive;
}

/* Whether one has won. */
static bool advance_ready(struct race *race, const struct pollfd polls[CANDIDATES])
{
    for (int i = 0; i < race->begun; i++) {
        struct candidate *each = &race->candidates[i];
        hvd_code code = each->fd >= 0 && polls[i].revents ? advance(race, each) : HVD_IN_PROGRESS;
        if (!code) {
            race->stream->fd = each->fd;
            race->stream->tls = each->handshake.tls;
            each->fd = -1;
            each->handshake.tls = NULL;
            return true;
        }
        if (code != HVD_IN_PROGRESS)
            race->next_due = 0;
    }
    return false;
}

/* "; 10.0.0.7 (from 10.0.0.1): Connection refused", of all. */
static void append_outcomes(const struct race *race, hvd_status *status)
{
    for (int i = 0; i < race->begun; i++) {
        const struct candidate *each = &race->candidates[i];
        char address[SOCKET_TEXT] = "", from[SOCKET_TEXT] = "";
        const char *reason = strstr(each->fault.text, ": ");
        bool known = each->fd >= 0 && socket_local_address(each->fd, from);
        socket_host_text((const struct sockaddr *)&each->address, address);
        append_text(status->text, sizeof status->text, "%s%s", i ? "; " : ": ", address);
        if (known || *each->from)
            append_text(status->text, sizeof status->text, " (from %s)", known ? from : each->from);
        append_text(status->text, sizeof status->text, ": %s",
                    each->fd < 0       ? (reason ? reason + 2 : each->fault.text)
                    : each->connecting ? "no answer"
                                       : "no end of the handshake");
    }
}

/* An answer of a server takes precedence over addresses without one. HVD_PEER_LOST: another round may
 * help. */
static hvd_code explain(const struct race *race, hvd_status *status)
{
    const struct candidate *worst = NULL;
    for (int i = 0; i < race->begun; i++)
        if (race->candidates[i].code && race->candidates[i].code != HVD_PEER_LOST)
            worst = &race->candidates[i];
    if (worst && race->count == 1)
        return status_copy(status, &worst->fault);
    if (worst)
        status_set(status, worst->code, "%s; tried", worst->fault.text);
    else
        status_set(status, HVD_PEER_LOST, "%s can't be reached", race->who);
    append_outcomes(race, status);
    return status->code;
}

static hvd_code run_round(struct race *race, hvd_status *status)
{
    struct pollfd polls[CANDIDATES];
    bool won = false, over = false, interrupted = false;
    race->next_due = 0;
    while (!won && !over && !interrupted) {
        begin_due(race);
        bool alive = poll_candidates(race, polls) > 0;
        won = alive && advance_ready(race, polls);
        over = race->begun == race->count && (!alive || clock_now() >= race->end);
        interrupted = !won && interrupt_is_set(race->interrupt);
    }
    hvd_code code = won ? HVD_OK : explain(race, status);
    for (int i = 0; i < race->begun; i++) {
        socket_close(&race->candidates[i].fd);
        handshake_end(&race->candidates[i].handshake);
    }
    return interrupted ? HVD_INTERRUPTED : code;
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

/* False: interrupted. */
static bool wait_until(const struct race *race, int64_t until)
{
    while (clock_now() < until) {
        poll(NULL, 0, socket_poll_timeout(interrupt_slice(race->interrupt, until)));
        if (interrupt_is_set(race->interrupt))
            return false;
    }
    return true;
}

static hvd_code run(struct race *race, hvd_status *status)
{
    hvd_status last;
    for (int64_t pause = FIRST_PAUSE;; pause = clock_earlier(2 * pause, LONGEST_PAUSE)) {
        hvd_code code = resolve(race, &last);
        if (code == HVD_TIMED_OUT && pause == FIRST_PAUSE)
            log_info(-1, "%s; it is looked up again until the time to start is over", last.text);
        if (!code)
            code = run_round(race, &last);
        if (code == HVD_PEER_LOST || code == HVD_TIMED_OUT) {
            if (clock_now() >= race->deadline)
                return status_set(
                    status, HVD_TIMED_OUT,
                    "%.700s, and the time to start is over (HOROVOD_START_TIMEOUT); is the launcher "
                    "alive, and may this host reach it?",
                    last.text);
            if (wait_until(race, clock_earlier(race->deadline, clock_now() + pause)))
                continue;
            code = HVD_INTERRUPTED;
        }
        if (code == HVD_INTERRUPTED)
            return status_set(status, code, "interrupted: %.400s", last.text);
        return code ? status_copy(status, &last) : HVD_OK;
    }
}

hvd_code handshake_connect(const char *addresses, const char *secret, bool encrypted, const char *who,
                           int64_t deadline, const struct interrupt *interrupt, struct stream *stream,
                           hvd_status *status)
{
    struct race *race = calloc(1, sizeof *race);
    if (!race)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while joining the job");
    race->addresses = addresses;
    race->secret = secret;
    race->encrypted = encrypted;
    race->stream = stream;
    race->who = who;
    race->deadline = deadline;
    race->interrupt = interrupt;
    hvd_code code = run(race, status);
    free(race);
    return code;
}
