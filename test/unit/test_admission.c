/* test_admission.c - how long a connection that has not authenticated may stay when others wait for its
 * place. What owners do with it is in test_acceptor.c and test_rendezvous.c. */
#include "base/clock.h"
#include "net/admission.h"
#include "test.h"

#include <unistd.h>

/* The oldest may go the sooner, the more connections wait for its place. */
TEST(test_grace_falls_in_a_flood)
{
    enum { WAITING = 300 };
    int fds[WAITING], port = 0, listener = socket_listen("127.0.0.1", &port);
    unsigned waiting = 0, limit = 1;
    int64_t nearly = UNAUTHENTICATED_GRACE - CLOCK_SECOND / 20;
    assert_true(admission_wait(listener, clock_now() - nearly, true) > clock_now());
    assert_int_equal(admission_wait(listener, clock_now() - UNAUTHENTICATED_GRACE, true), 0);
    for (int i = 0; i < WAITING; i++)
        assert_true((fds[i] = socket_connect_numeric("127.0.0.1", port)) >= 0);
    for (int64_t end = clock_after(10); waiting < WAITING && waiting < limit; usleep(1000)) {
        assert_true(socket_backlog(listener, &waiting, &limit));
        assert_true(clock_now() < end);
    }
    assert_int_equal(admission_wait(listener, clock_now() - nearly, true), 0);
    assert_true(admission_wait(listener, clock_now(), true) > 0);
    assert_true(admission_wait(listener, clock_now() - nearly, false) > 0); /* it has sent its hello */
    assert_false(socket_backlog(fds[0], &waiting, &limit));
    for (int i = 0; i < WAITING; i++)
        close(fds[i]);
    socket_close(&listener);
}
