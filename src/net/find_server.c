/* find_server.c - the rounds in which all addresses of a server are tried. Blocks; any thread. */
#include "net/find_server.h"

#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "net/dial.h"
#include "net/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES     16
#define HANDSHAKE_TIME (5 * CLOCK_SECOND) /* of a round; a busy server may have dropped the connection */
#define FIRST_PAUSE    (CLOCK_SECOND / 20)
#define LONGEST_PAUSE  (CLOCK_SECOND / 2)

/* One address of the server. */
struct server_address {
    struct candidate candidate;
    struct sockaddr_storage address;
    socklen_t length;
    struct handshake handshake;
};

struct search {
    struct dial dial; /* the first member: a pointer to one is a pointer to the other */
    const struct server *server;
    hvd_status refusal; /* of a server that has answered; HVD_OK: none has */
    int count;
    struct server_address list[CANDIDATES];
};

/* HVD_TIMED_OUT: no name can be resolved yet. */
static hvd_code resolve(struct search *search, hvd_status *status)
{
    hvd_code code = HVD_OK;
    const char *at = search->server->addresses;
    search->count = 0;
    do {
        char one[300];
        struct addrinfo *found;
        size_t length = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        code = socket_resolve(one, &found, status);
        if (code && code != HVD_TIMED_OUT)
            return code;
        for (const struct addrinfo *each = code ? NULL : found; each && search->count < CANDIDATES;
             each = each->ai_next) {
            struct server_address *address = &search->list[search->count++];
            *address = (struct server_address){.length = each->ai_addrlen};
            memcpy(&address->address, each->ai_addr, each->ai_addrlen);
        }
        if (!code)
            freeaddrinfo(found);
        at += length;
    } while (*at++ == ',');
    return search->count ? HVD_OK : code;
}

/* Mostly HVD_PEER_LOST: the server may not listen yet, so another round may help. */
static hvd_code cannot_connect(const struct search *search, int error, hvd_status *fault)
{
    status_set_errno(fault, error, "%s can't be reached", search->server->who);
    return error == EMFILE || error == ENFILE ? HVD_SYSTEM : HVD_PEER_LOST;
}

static hvd_code begin_address(struct candidate *candidate, hvd_status *fault)
{
    struct server_address *address = (struct server_address *)candidate;
    const struct search *search = (const struct search *)candidate->dial;
    const struct addrinfo info = {.ai_family = address->address.ss_family,
                                  .ai_addr = (struct sockaddr *)&address->address,
                                  .ai_addrlen = address->length};
    TRY(handshake_initiate(&address->handshake, search->server->secret, search->server->claim,
                           search->server->who, fault));
    candidate->socket.fd = socket_connect(&info);
    return candidate->socket.fd < 0 ? cannot_connect(search, errno, fault) : HVD_IN_PROGRESS;
}

static hvd_code advance_address(struct candidate *candidate, hvd_status *fault)
{
    struct server_address *address = (struct server_address *)candidate;
    int error = candidate->connected ? 0 : socket_error(candidate->socket.fd);
    if (error)
        return cannot_connect((const struct search *)candidate->dial, error, fault);
    candidate->connected = true;
    return handshake_advance(&address->handshake, candidate->socket.fd, fault);
}

static short address_events(const struct candidate *candidate)
{
    const struct server_address *address = (const struct server_address *)candidate;
    return candidate->connected ? handshake_events(&address->handshake) : POLLOUT;
}

static void end_address(struct candidate *candidate, const hvd_status *fault)
{
    struct server_address *address = (struct server_address *)candidate;
    struct search *search = (struct search *)candidate->dial;
    handshake_end(&address->handshake);
    if (fault && candidate->code != HVD_PEER_LOST) {
        status_copy(&search->refusal, fault);
        search->refusal.code = candidate->code;
    }
}

static void name_address(const struct candidate *candidate, char *text, size_t capacity)
{
    char host[SOCKET_TEXT] = "";
    socket_host_text((const struct sockaddr *)&((const struct server_address *)candidate)->address, host);
    snprintf(text, capacity, "%s", host);
}

/* The answer of a server takes precedence over addresses without one. HVD_PEER_LOST: another round may help.
 */
static hvd_code explain(const struct search *search, hvd_status *status)
{
    if (search->refusal.code && search->count == 1)
        return status_copy(status, &search->refusal);
    if (search->refusal.code)
        status_set(status, search->refusal.code, "%s; tried", search->refusal.text);
    else
        status_set(status, HVD_PEER_LOST, "%s can't be reached", search->server->who);
    dial_append_outcomes(&search->dial, status->text, sizeof status->text);
    return status->code;
}

static hvd_code run_round(struct search *search, int poller, int *fd, struct tls **tls, hvd_status *status)
{
    static const struct dial_operations operations = {
        begin_address, advance_address, address_events, end_address, name_address,
    };
    search->refusal.code = HVD_OK;
    dial_init(&search->dial, &operations, poller, search->list, sizeof *search->list, search->count);
    hvd_code code =
        dial_run(&search->dial, HANDSHAKE_TIME, search->server->deadline, search->server->interrupt, status);
    if (code == HVD_OK) {
        struct server_address *winner = (struct server_address *)search->dial.winner;
        *fd = winner->candidate.socket.fd;
        *tls = winner->handshake.tls;
        winner->candidate.socket.fd = -1;
        winner->handshake.tls = NULL;
    } else if (code == HVD_PEER_LOST) {
        code = explain(search, status);
    } else if (code == HVD_INTERRUPTED) {
        explain(search, status);
    }
    dial_end(&search->dial);
    return code;
}

/* Returns false if it was interrupted. */
static bool wait_until(const struct interrupt *interrupt, int64_t until)
{
    while (clock_now() < until) {
        poll(NULL, 0, socket_poll_timeout(interrupt_slice(interrupt, until)));
        if (interrupt_is_set(interrupt))
            return false;
    }
    return true;
}

static hvd_code run_rounds(struct search *search, int poller, int *fd, struct tls **tls, hvd_status *status)
{
    hvd_status last;
    for (int64_t pause = FIRST_PAUSE;; pause = clock_earlier(2 * pause, LONGEST_PAUSE)) {
        hvd_code code = resolve(search, &last);
        if (code == HVD_TIMED_OUT && pause == FIRST_PAUSE)
            log_info(-1, "%s; it is looked up again until the time to start is over", last.text);
        if (!code)
            code = run_round(search, poller, fd, tls, &last);
        if (code == HVD_PEER_LOST || code == HVD_TIMED_OUT) {
            if (clock_now() >= search->server->deadline)
                return status_set(
                    status, HVD_TIMED_OUT,
                    "%.700s, and the time to start is over (HOROVOD_START_TIMEOUT); is the launcher "
                    "alive, and may this host reach it?",
                    last.text);
            if (wait_until(search->server->interrupt,
                           clock_earlier(search->server->deadline, clock_now() + pause)))
                continue;
            code = HVD_INTERRUPTED;
        }
        if (code == HVD_INTERRUPTED)
            return status_set(status, code, "interrupted: %.400s", last.text);
        return code ? status_copy(status, &last) : HVD_OK;
    }
}

hvd_code find_server(const struct server *server, int *fd, struct tls **tls, hvd_status *status)
{
    int poller = platform_poller_create();
    if (poller < 0)
        return status_set_errno(status, errno, "can't make a descriptor to connect to %s", server->who);
    hvd_code code;
    struct search *search = calloc(1, sizeof *search);
    if (!search) {
        code = status_no_memory(status);
        goto close_poller;
    }
    search->server = server;
    code = run_rounds(search, poller, fd, tls, status);
    free(search);
close_poller:
    socket_close(&poller);
    return code;
}
