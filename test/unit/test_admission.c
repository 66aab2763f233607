/* test_admission.c - how long a connection that has not authenticated may stay when others wait for its
 * place. What owners do with it is in test_acceptor.c and test_rendezvous.c. */
#include "base/clock.h"
#include "net/admission.h"
#include "test.h"

#include <unistd.h>

/* Returns true if a newcomer of this age must wait; repeated where this thread was kept from running. */
static bool waits(int listener, int64_t age, bool is_silent)
{
    int64_t now, until;
    do {
        now = clock_now();
        until = admission_wait(listener, now - age, is_silent);
    } while (clock_now() - now > CLOCK_SECOND / 100);
    assert_true(!until || until > now);
    return until;
}

/* The oldest may go the sooner, the more connections wait for its place. */
TEST(test_grace_falls_in_a_flood)
{
    enum { WAITING = 300 };
    int fds[WAITING], port = 0, listener = socket_listen("127.0.0.1", &port);
    unsigned waiting = 0, limit = 1;
    int64_t nearly = UNAUTHENTICATED_GRACE - CLOCK_SECOND / 20;
    assert_true(waits(listener, nearly, true));
    assert_false(waits(listener, UNAUTHENTICATED_GRACE, true));
    for (int i = 0; i < WAITING; i++)
        assert_true((fds[i] = socket_connect_numeric("127.0.0.1", port)) >= 0);
    for (int64_t end = clock_after(60); waiting < WAITING && waiting < limit; usleep(1000)) {
        assert_true(socket_backlog(listener, &waiting, &limit));
        assert_true(clock_now() < end);
    }
    assert_false(waits(listener, nearly, true));
    assert_true(waits(listener, 0, true));
    assert_true(waits(listener, nearly, false)); /* it has sent its hello */
    assert_false(socket_backlog(fds[0], &waiting, &limit));
    for (int i = 0; i < WAITING; i++)
        close(fds[i]);
    socket_close(&listener);
}
