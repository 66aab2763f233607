/* test_acceptor.c - the acceptor of a hub without its mesh: how many unauthenticated connections it bears and
 * for how long, that it reads before it drops, and where authenticated ones wait. */
#include "base/clock.h"
#include "base/platform_poller.h"
#include "base/status.h"
#include "intruders.h"
#include "net/socket.h"
#include "test.h"
#include "transport/connector.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECRET "the secret of this test"
#define TCP    1
#define YOUTH  (60 * CLOCK_SECOND) /* so that no newcomer ages while this thread is kept from running */

struct bench {
    struct settings settings;
    struct mesh hub;
    struct acceptor acceptor;
    int port;
};

static void bench_open(struct bench *bench)
{
    int listener;
    *bench = (struct bench){.settings = {.job = "job", .secret = SECRET, .start_timeout_seconds = 30}};
    bench->hub = (struct mesh){
        .hub = &bench->hub, .settings = &bench->settings, .acceptor = &bench->acceptor, .attached = true};
    bench->hub.slots = calloc(MESH_SLOTS, sizeof *bench->hub.slots);
    ASSERT_OK(connector_create(&bench->hub, &bench->hub.connector, &check_status));
    acceptor_init(&bench->acceptor, &bench->hub, bench->hub.connector->poller);
    assert_true((listener = socket_listen("127.0.0.1", &bench->port)) >= 0);
    ASSERT_OK(admission_listen(&bench->acceptor.admission, listener, TCP, &check_status));
}

static void bench_close(struct bench *bench)
{
    acceptor_close(&bench->acceptor);
    connector_free(bench->hub.connector);
    free(bench->hub.slots);
}

static void turn(struct bench *bench)
{
    ASSERT_OK(connector_turn(bench->hub.connector, &check_status));
}

static int dial(const struct bench *bench)
{
    int fd = socket_connect_numeric("127.0.0.1", bench->port);
    assert_true(fd >= 0 && socket_wait(fd, POLLOUT, clock_after(60)));
    /* The last message of the kernels' handshake may still be on its way. */
    assert_true(socket_wait(bench->acceptor.admission.listeners[0].fd, POLLIN, clock_after(60)));
    return fd;
}

static bool is_dropped(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* As if they had arrived that much earlier: those that have not authenticated, or those that have. */
static void age_newcomers(struct bench *bench, int64_t time)
{
    struct newcomer *each = bench->acceptor.admission.oldest;
    for (int i = 0; i < bench->acceptor.admission.count; i++, each = each->next)
        each->since -= time;
}

static void age_authenticated(struct bench *bench, int64_t time)
{
    for (struct attempt *each = bench->acceptor.authenticated; each; each = each->next)
        each->since -= time;
}

TEST(test_idle_costs_nothing)
{
    struct bench bench;
    struct poller_news news;
    bench_open(&bench);
    turn(&bench);
    assert_true(bench.hub.connector->next == CLOCK_NEVER);
    assert_int_equal(platform_poller_read(bench.hub.connector->poller, &news, 1), 0);
    bench_close(&bench);
}

/* In a flood the newest wait for those younger than the grace, then the oldest is dropped for each. */
TEST(test_flood_is_bounded)
{
    enum { MORE = 20 };
    struct bench bench;
    int fds[UNAUTHENTICATED_LIMIT + MORE], dropped = 0;
    bench_open(&bench);
    for (int i = 0; i < UNAUTHENTICATED_LIMIT + MORE; i++) {
        if (i == UNAUTHENTICATED_LIMIT)
            age_newcomers(&bench, -YOUTH);
        fds[i] = dial(&bench);
        turn(&bench);
    }
    for (int64_t end = clock_after(60); !bench.acceptor.admission.paused_until; turn(&bench))
        assert_true(clock_now() < end); /* a pause was just over */
    assert_int_equal(bench.acceptor.admission.count, UNAUTHENTICATED_LIMIT);
    assert_true(bench.hub.connector->next != CLOCK_NEVER);
    assert_false(is_dropped(fds[0]));
    age_newcomers(&bench, YOUTH + UNAUTHENTICATED_GRACE);
    bench.acceptor.admission.paused_until = 1;
    turn(&bench); /* the pause is over */
    turn(&bench);
    assert_int_equal(bench.acceptor.admission.count, UNAUTHENTICATED_LIMIT);
    for (int i = 0; i < UNAUTHENTICATED_LIMIT + MORE; i++) {
        dropped += is_dropped(fds[i]);
        assert_true(is_dropped(fds[i]) == (i < MORE));
        close(fds[i]);
    }
    assert_int_equal(dropped, MORE);
    bench_close(&bench);
}

/* ---- intruders ---------------------------------------------------------------------------------------- */

static void serve(void *bench)
{
    turn(bench);
}

static struct target target_of(struct bench *bench)
{
    const struct handshake_claim claim = {
        .role = HANDSHAKE_LINK + TCP, .job = "job", .from = 3, .mesh = 7, .channel = 1};
    return (struct target){bench->port, SECRET, claim, serve, bench};
}

/* A rank gets in, and its connection is the only one that does. */
static void check_that_a_rank_gets_in(const struct target *target)
{
    struct bench *bench = target->owner;
    struct handshake handshake;
    int fd = intruder_dial(target);
    assert_null(bench->acceptor.authenticated);
    ASSERT_OK(handshake_initiate(&handshake, SECRET, &target->claim, "rank 0", &check_status));
    ASSERT_OK(intruder_shake(target, &handshake, fd, &check_status));
    for (int64_t end = clock_after(INTRUDERS_TIME); !bench->acceptor.authenticated;) {
        turn(bench);
        assert_true(clock_now() < end);
    }
    assert_null(bench->acceptor.authenticated->next);
    age_authenticated(bench, 30 * CLOCK_SECOND);
    turn(bench);
    close(fd);
}

/* One after the other. */
TEST(test_intruders_do_no_harm)
{
    static void (*const tries[])(const struct target *) = {try_wrong_key, try_other_release, try_oversized,
                                                           try_garbage};
    struct bench bench;
    bench_open(&bench);
    const struct target target = target_of(&bench);
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        tries[i](&target);
        check_that_a_rank_gets_in(&target);
    }
    bench_close(&bench);
}

/* Only the member's own connection counts. */
TEST(test_replay_is_turned_away)
{
    struct bench bench;
    bench_open(&bench);
    const struct target target = target_of(&bench);
    try_replay(&target, "x", 1);
    assert_true(bench.acceptor.authenticated && !bench.acceptor.authenticated->next);
    age_authenticated(&bench, 30 * CLOCK_SECOND);
    turn(&bench);
    check_that_a_rank_gets_in(&target);
    bench_close(&bench);
}

TEST(test_10000_silent_connections)
{
    struct bench bench;
    bench_open(&bench);
    const struct target target = target_of(&bench);
    size_t before = own_bytes();
    struct silent silent = silent_flood(&target);
    for (int i = 0; i < 3; i++)
        check_that_a_rank_gets_in(&target);
    size_t after = own_bytes();
    assert_in_range(bench.acceptor.admission.count, UNAUTHENTICATED_LIMIT / 2, UNAUTHENTICATED_LIMIT);
    if (after > before + 2 * UNAUTHENTICATED_LIMIT * sizeof(struct attempt) + (1 << 20))
        fail_msg("%zu bytes before the flood, %zu in it", before, after);
    silent_end(&silent);
    check_that_a_rank_gets_in(&target);
    bench_close(&bench);
}

/* A byte a second: the time of a connection is not that between two bytes. */
TEST(test_dripping_hello_ends_in_time)
{
    struct bench bench;
    struct handshake handshake;
    bench_open(&bench);
    const struct target target = target_of(&bench);
    int fd = dial(&bench), seconds = 0;
    int64_t begun = clock_now();
    ASSERT_OK(handshake_initiate(&handshake, SECRET, &target.claim, "rank 0", &check_status));
    for (turn(&bench); !is_dropped(fd); turn(&bench)) {
        assert_true(seconds < UNAUTHENTICATED_TIME / CLOCK_SECOND);
        intruder_send(fd, handshake.out + seconds++, 1);
        check_that_a_rank_gets_in(&target);
        age_newcomers(&bench, CLOCK_SECOND);
    }
    assert_true(seconds * CLOCK_SECOND + clock_now() - begun >= UNAUTHENTICATED_TIME);
    close(fd);
    bench_close(&bench);
}

/* ---- time --------------------------------------------------------------------------------------------- */

TEST(test_silent_connection_is_dropped_in_time)
{
    struct bench bench;
    bench_open(&bench);
    int fd = dial(&bench);
    turn(&bench);
    int64_t due = bench.acceptor.admission.oldest->since + UNAUTHENTICATED_TIME;
    assert_true(bench.hub.connector->next == due);
    assert_false(is_dropped(fd));
    age_newcomers(&bench, UNAUTHENTICATED_TIME);
    turn(&bench);
    assert_true(is_dropped(fd) && !bench.acceptor.admission.count);
    assert_true(bench.hub.connector->next == CLOCK_NEVER);
    close(fd);
    bench_close(&bench);
}

/* Until the initiator's last message is sent. */
static int shake(struct bench *bench, unsigned mesh)
{
    struct handshake handshake;
    struct handshake_claim claim = {
        .role = HANDSHAKE_LINK + TCP, .job = "job", .from = 3, .mesh = mesh, .channel = 1};
    int fd = dial(bench);
    ASSERT_OK(handshake_initiate(&handshake, SECRET, &claim, "rank 0", &check_status));
    int64_t deadline = clock_after(60);
    while (handshake_advance(&handshake, fd, NULL) == HVD_IN_PROGRESS) {
        turn(bench);
        assert_true(clock_now() < deadline);
    }
    return fd;
}

/* A rank that was kept from running for long finds the others' messages there, and their time over. */
TEST(test_what_has_arrived_is_read_before_the_drop)
{
    struct bench bench;
    bench_open(&bench);
    int fd = shake(&bench, 7);
    assert_int_equal(bench.acceptor.admission.count, 1);
    age_newcomers(&bench, UNAUTHENTICATED_TIME);
    turn(&bench);
    assert_false(is_dropped(fd));
    assert_true(!bench.acceptor.admission.count && bench.acceptor.authenticated);
    close(fd);
    bench_close(&bench);
}

/* For the mesh that it names, and not forever. */
TEST(test_authenticated_connection_waits_for_its_mesh)
{
    struct bench bench;
    struct connector *others[2];
    struct mesh meshes[2];
    struct link *links[2] = {NULL};
    struct peer peer = {.mesh = &meshes[1], .rank = 3, .reachable = 1 << TCP, .links = links};
    bench_open(&bench);
    for (unsigned i = 0; i < 2; i++) {
        meshes[i] = (struct mesh){
            .hub = &bench.hub, .number = 6 + i, .channels = 2, .peers = &peer, .peer_count = (int)i};
        ASSERT_OK(connector_create(&meshes[i], &others[i], &check_status));
        platform_event_clear(others[i]->claimant.event);
    }
    int early = shake(&bench, 7), late = shake(&bench, 8), nonpeer = shake(&bench, 6);
    turn(&bench);
    assert_true(socket_wait(others[1]->claimant.event, POLLIN, clock_now()));
    assert_null(acceptor_claim(&bench.acceptor, &bench.hub));
    assert_false(is_dropped(nonpeer));
    assert_null(acceptor_claim(&bench.acceptor, &meshes[0])); /* in which rank 3 is no peer */
    assert_true(is_dropped(nonpeer));
    struct attempt *attempt = acceptor_claim(&bench.acceptor, &meshes[1]);
    assert_true(attempt && attempt->handshake.claim.from == 3 && attempt->handshake.claim.channel == 1);
    assert_ptr_equal(attempt->peer, &peer);
    attempt_free(attempt);
    assert_null(acceptor_claim(&bench.acceptor, &meshes[1]));
    assert_false(is_dropped(late));
    age_authenticated(&bench, 30 * CLOCK_SECOND);
    turn(&bench);
    assert_true(is_dropped(late));
    close(nonpeer);
    close(early);
    close(late);
    connector_free(others[0]);
    connector_free(others[1]);
    bench_close(&bench);
}

/* Those that open a mesh learn of it, and the acceptor goes on later. */
TEST(test_lack_of_descriptors_reaches_openings)
{
    struct bench bench;
    struct connector *opening;
    struct mesh mesh = {.hub = &bench.hub, .number = 6};
    bench_open(&bench);
    ASSERT_OK(connector_create(&mesh, &opening, &check_status));
    int fd = dial(&bench), taken[1024], count = 0;
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){512, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (count < 1024 && (taken[count] = dup(fd)) >= 0)
        count++;
    turn(&bench);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    while (count)
        close(taken[--count]);
    hvd_status status;
    assert_int_equal(connector_turn(opening, &status), HVD_SYSTEM);
    assert_non_null(strstr(status.text, "ulimit -n"));
    assert_true(bench.acceptor.admission.paused_until && !bench.acceptor.admission.count);
    bench.acceptor.admission.paused_until = 1;
    turn(&bench);
    turn(&bench);
    assert_int_equal(bench.acceptor.admission.count, 1);
    close(fd);
    connector_free(opening);
    bench_close(&bench);
}
