/* test_dial.c - a race over addresses, whose owner decides what proves an address: here it is a byte. The
 * users are tested in test_mesh.c and test_rendezvous.c. */
#include "base/platform_poller.h"
#include "base/status.h"
#include "net/dial.h"
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECONDS 60

enum { ADDRESSES = 3 };

struct address {
    struct candidate candidate;
    int port;
    int begun, ended; /* calls */
};

struct race {
    struct dial dial;
    hvd_status status; /* of the last turn */
    hvd_code fault;    /* of an address after its byte, if it is not 'y' */
    bool needs_more;   /* than that byte: the candidate is proven by then */
    struct address list[ADDRESSES];
    int listeners[ADDRESSES], poller;
};

static struct race *race_of(const struct candidate *candidate)
{
    return (struct race *)candidate->dial;
}

static hvd_code begin(struct candidate *candidate, hvd_status *fault)
{
    struct address *address = (struct address *)candidate;
    address->begun++;
    candidate->socket.fd = socket_connect_numeric("127.0.0.1", address->port);
    return candidate->socket.fd < 0 ? status_set_errno(fault, errno, "no connection") : HVD_IN_PROGRESS;
}

static hvd_code advance(struct candidate *candidate, hvd_status *fault)
{
    char byte;
    int error = candidate->connected ? 0 : socket_error(candidate->socket.fd);
    if (error) {
        status_set_errno(fault, error, "no connection");
        return HVD_PEER_LOST;
    }
    candidate->connected = true;
    if (recv(candidate->socket.fd, &byte, 1, MSG_DONTWAIT) != 1)
        return HVD_IN_PROGRESS;
    candidate->proven = race_of(candidate)->needs_more;
    return byte == 'y' ? HVD_OK : status_set(fault, race_of(candidate)->fault, "refused: it says %c", byte);
}

static short events(const struct candidate *candidate)
{
    return candidate->connected ? POLLIN : POLLOUT;
}

static void end(struct candidate *candidate, const hvd_status *fault)
{
    (void)fault;
    ((struct address *)candidate)->ended++;
}

static void name(const struct candidate *candidate, char *text, size_t capacity)
{
    snprintf(text, capacity, "address %d", dial_index(candidate));
}

static void race_open(struct race *race)
{
    static const struct dial_operations operations = {begin, advance, events, end, name};
    *race = (struct race){.poller = platform_poller_create()};
    for (int i = 0; i < ADDRESSES; i++)
        assert_true((race->listeners[i] = socket_listen("127.0.0.1", &race->list[i].port)) >= 0);
    dial_init(&race->dial, &operations, race->poller, race->list, sizeof *race->list, ADDRESSES);
}

static void race_close(struct race *race)
{
    dial_end(&race->dial);
    for (int i = 0; i < ADDRESSES; i++) {
        assert_int_equal(race->list[i].candidate.socket.fd, -1);
        socket_close(&race->listeners[i]);
    }
    socket_close(&race->poller);
}

/* Accepts the connection to an address and sends it a byte; returns its other end. */
static int answer(const struct race *race, int index, char byte)
{
    int fd;
    assert_true(socket_wait(race->listeners[index], POLLIN, clock_after(SECONDS)));
    assert_true((fd = socket_accept(race->listeners[index])) >= 0);
    assert_int_equal(send(fd, &byte, 1, MSG_NOSIGNAL), 1);
    return fd;
}

/* Until the race has news other than that it continues. */
static hvd_code turn_until_news(struct race *race, int begun)
{
    hvd_code code = dial_turn(&race->dial, &race->status);
    for (int64_t end = clock_after(SECONDS); code == HVD_IN_PROGRESS && race->dial.begun < begun;) {
        struct poller_news news;
        assert_true(clock_now() < end);
        platform_poller_wait(race->poller, -1, clock_earlier(end, dial_due(&race->dial)));
        code = platform_poller_read(race->poller, &news, 1) ? dial_advance(news.tag, &race->status)
                                                            : dial_turn(&race->dial, &race->status);
    }
    return code;
}

/* The first refuses, the second says nothing, the third is the right one. */
TEST(test_the_first_that_is_proven_wins)
{
    struct race race;
    char text[512] = "";
    race_open(&race);
    socket_close(&race.listeners[0]);
    assert_int_equal(turn_until_news(&race, ADDRESSES), HVD_IN_PROGRESS);
    int other = answer(&race, 2, 'y');
    dial_append_outcomes(&race.dial, text, sizeof text);
    assert_string_equal(
        text, ": address 0 (from 127.0.0.1): Connection refused; address 1 (from 127.0.0.1): no end "
              "of the handshake; address 2 (from 127.0.0.1): no answer");
    assert_int_equal(turn_until_news(&race, ADDRESSES + 1), HVD_OK);
    assert_ptr_equal(race.dial.winner, dial_candidate(&race.dial, 2));
    assert_true(race.list[1].candidate.socket.fd >= 0); /* until dial_end */
    assert_true(dial_due(&race.dial) == CLOCK_NEVER);
    race_close(&race);
    close(other);
}

/* Each failure lets the next one start at once; then all may be tried again, and keep their outcomes until
 * they have another one. */
TEST(test_all_fail_and_are_tried_again)
{
    struct race race;
    char text[512] = "";
    race_open(&race);
    for (int i = 0; i < ADDRESSES; i++)
        socket_close(&race.listeners[i]);
    for (int round = 1; round < 3; round++) {
        assert_int_equal(turn_until_news(&race, ADDRESSES + 1), HVD_PEER_LOST);
        for (int i = 0; i < ADDRESSES; i++) {
            assert_int_equal(race.list[i].candidate.code, HVD_PEER_LOST);
            assert_int_equal(race.list[i].begun, round);
            assert_int_equal(race.list[i].ended, round);
        }
        dial_restart(&race.dial);
    }
    dial_append_outcomes(&race.dial, text, sizeof text);
    check_text(text, "address 2 (from 127.0.0.1): Connection refused");
    race_close(&race);
}

/* A fault of a proven candidate ends the race, and its connection stays open until the end. */
TEST(test_a_fault_after_the_proof_is_final)
{
    struct race race;
    char byte;
    race_open(&race);
    race.fault = HVD_SYSTEM;
    race.needs_more = true;
    assert_int_equal(turn_until_news(&race, 1), HVD_IN_PROGRESS);
    int other = answer(&race, 0, 'n');
    assert_int_equal(turn_until_news(&race, ADDRESSES + 1), HVD_SYSTEM);
    assert_string_equal(race.status.text, "refused: it says n");
    assert_true(recv(other, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    race_close(&race);
    assert_true(socket_wait(other, POLLIN, clock_after(SECONDS)));
    assert_int_equal(recv(other, &byte, 1, MSG_DONTWAIT), 0);
    close(other);
}

static int ask(void *argument)
{
    return ++*(int *)argument > 2;
}

TEST(test_a_race_that_blocks_ends_in_time)
{
    struct race race;
    hvd_status status;
    int asked = 0;
    struct interrupt interrupt = {ask, &asked};
    race_open(&race);
    assert_int_equal(dial_run(&race.dial, CLOCK_SECOND / 100, clock_after(SECONDS), NULL, &status),
                     HVD_PEER_LOST);
    dial_end(&race.dial);
    dial_restart(&race.dial);
    assert_int_equal(dial_run(&race.dial, CLOCK_SECOND, clock_after(SECONDS), &interrupt, &status),
                     HVD_INTERRUPTED);
    race_close(&race);
}
