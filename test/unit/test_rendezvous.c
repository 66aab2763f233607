/* test_rendezvous.c - the key-value store over real connections: values, waiting, joining, limits, and
 * intruders of every kind, which must not keep honest clients out. */
#include "closed_port.h"
#include "intruders.h"
#include "rendezvous/assignments.h"
#include "rendezvous/server.h"
#include "test.h"

#include "base/clock.h"
#include "net/socket.h"
#include "rendezvous/connection.h"
#include "rendezvous/slots.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET   "the secret of this test"
#define DEADLINE 60.0

struct place {
    hvd_rendezvous *server;
    char address[32];
};

static int open_place(void **state)
{
    hvd_status status;
    struct place *place = calloc(1, sizeof *place);
    if (!place || hvd_rendezvous_start("127.0.0.1", SECRET, &place->server, &status))
        return -1;
    snprintf(place->address, sizeof place->address, "127.0.0.1:%d", hvd_rendezvous_port(place->server));
    *state = place;
    return 0;
}

static int close_place(void **state)
{
    struct place *place = *state;
    hvd_rendezvous_stop(place->server);
    free(place);
    return 0;
}

const struct test_hooks test_hooks = {.before_all = open_place, .after_all = close_place};

/* Enters an epoch; size 0: not as a rank that joins. */
static uint32_t enter(struct rendezvous_client *client, const char *job, uint32_t epoch, int rank, int size)
{
    uint32_t generation = 77;
    ASSERT_OK(rendezvous_enter(client, &(struct rendezvous_place){job, epoch, rank, size}, &generation,
                               &check_status));
    return generation;
}

static struct rendezvous_client *connect_for(const struct place *place, double seconds)
{
    struct rendezvous_client *client = NULL;
    ASSERT_OK(rendezvous_connect(place->address, SECRET, false, clock_after(seconds), NULL, &client,
                                 &check_status));
    return client;
}

static struct rendezvous_client *connect_to(const struct place *place)
{
    struct rendezvous_client *client = connect_for(place, DEADLINE);
    enter(client, "job", 0, -1, 0);
    return client;
}

static void put(struct rendezvous_client *client, const char *key, const char *value)
{
    ASSERT_OK(rendezvous_put(client, key, value, strlen(value), &check_status));
}

static void publish(struct rendezvous_client *client, const char *key)
{
    ASSERT_OK(rendezvous_publish(client, key, "x", 1, clock_after(DEADLINE), &check_status));
}

static void check_value(struct rendezvous_client *client, const char *key, const char *value)
{
    struct wire_writer got = {0};
    ASSERT_OK(rendezvous_get(client, key, clock_after(DEADLINE), &got, &check_status));
    assert_int_equal(got.length, strlen(value));
    assert_memory_equal(got.bytes, value, got.length);
    wire_writer_free(&got);
}

/* ---- values ------------------------------------------------------------------------------------------- */

TEST(test_put_and_get)
{
    struct rendezvous_client *one = connect_to(*state), *other = connect_to(*state);
    put(one, "color", "green");
    check_value(other, "color", "green");
    put(other, "color", "red"); /* replaces */
    check_value(one, "color", "red");
    put(one, "nothing", "x");
    ASSERT_OK(rendezvous_put(one, "nothing", NULL, 0, &check_status));
    check_value(one, "nothing", "");
    assert_string_equal(rendezvous_local_address(one), "127.0.0.1");
    rendezvous_close(one);
    rendezvous_close(other);
}

TEST(test_largest_value_and_key)
{
    hvd_status status;
    struct rendezvous_client *client = connect_to(*state);
    char *large = malloc(RENDEZVOUS_VALUE_LIMIT + 2);
    char key[RENDEZVOUS_KEY_LIMIT + 1];
    memset(large, 'v', RENDEZVOUS_VALUE_LIMIT + 1);
    memset(key, 'k', sizeof key);
    large[RENDEZVOUS_VALUE_LIMIT + 1] = key[RENDEZVOUS_KEY_LIMIT] = '\0';
    assert_int_equal(rendezvous_put(client, "large", large, RENDEZVOUS_VALUE_LIMIT + 1, &status),
                     HVD_INVALID_ARGUMENT);
    assert_int_equal(rendezvous_put(client, key, "x", 1, &status), HVD_INVALID_ARGUMENT);
    large[RENDEZVOUS_VALUE_LIMIT] = key[RENDEZVOUS_KEY_LIMIT - 1] = '\0';
    put(client, key, large);
    check_value(client, key, large);
    free(large);
    rendezvous_close(client);
}

struct waiter {
    const struct place *place;
    pthread_t thread;
    const char *job;
    hvd_code code;
    hvd_status status;
    char text[16];
};

static void *wait_for_key(void *argument)
{
    hvd_status status;
    struct waiter *waiter = argument;
    struct rendezvous_client *client;
    struct wire_writer got = {0};
    waiter->code = rendezvous_connect(waiter->place->address, SECRET, false, clock_after(DEADLINE), NULL,
                                      &client, &status);
    if (waiter->code)
        return NULL;
    waiter->code = rendezvous_enter(client, &(struct rendezvous_place){waiter->job, 0, 1, 0}, NULL, &status);
    if (!waiter->code)
        waiter->code = rendezvous_get(client, "late", clock_after(DEADLINE), &got, &waiter->status);
    if (!waiter->code)
        snprintf(waiter->text, sizeof waiter->text, "%.*s", (int)got.length, (const char *)got.bytes);
    wire_writer_free(&got);
    rendezvous_close(client);
    return NULL;
}

TEST(test_get_waits_for_put)
{
    struct waiter waiters[20];
    for (int i = 0; i < 20; i++) {
        waiters[i] = (struct waiter){.place = *state, .job = "job", .code = HVD_SYSTEM};
        assert_int_equal(pthread_create(&waiters[i].thread, NULL, wait_for_key, &waiters[i]), 0);
    }
    usleep(50000); /* most of them wait by now; the test holds either way */
    struct rendezvous_client *client = connect_to(*state);
    put(client, "late", "here");
    for (int i = 0; i < 20; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].code, HVD_OK);
        assert_string_equal(waiters[i].text, "here");
    }
    rendezvous_close(client);
}

TEST(test_get_gives_up_and_goes_on)
{
    hvd_status status;
    struct wire_writer got = {0};
    struct rendezvous_client *client = connect_to(*state), *other = connect_to(*state);
    int64_t start = clock_now();
    assert_int_equal(rendezvous_get(client, "never", clock_after(0.05), &got, &status), HVD_TIMED_OUT);
    assert_true(clock_now() - start >= CLOCK_SECOND / 25);
    ASSERT_FAILS(rendezvous_get(client, "never", clock_now(), &got, &check_status), HVD_TIMED_OUT, "never");
    put(other, "never", "after all"); /* the question given up must not disturb the next ones */
    put(client, "color", "blue");
    check_value(client, "color", "blue");
    ASSERT_OK(rendezvous_get(client, "never", clock_now(), &got, &check_status));
    assert_int_equal(got.length, strlen("after all"));
    wire_writer_free(&got);
    rendezvous_close(client);
    rendezvous_close(other);
}

/* Gives up at the third question. */
static int ask_thrice(void *questions)
{
    return ++*(int *)questions == 3;
}

TEST(test_interrupt_ends_every_wait)
{
    const struct place *place = *state;
    hvd_status status;
    struct wire_writer got = {0};
    int questions = 3; /* never again: connecting may take long */
    struct interrupt interrupt = {ask_thrice, &questions};
    struct rendezvous_client *client;
    ASSERT_OK(rendezvous_connect(place->address, SECRET, false, clock_after(DEADLINE), &interrupt, &client,
                                 &check_status));
    enter(client, "job", 0, -1, 0);
    questions = 0;
    ASSERT_FAILS(rendezvous_get(client, "no such key", clock_after(DEADLINE), &got, &check_status),
                 HVD_INTERRUPTED, place->address);
    rendezvous_close(client);
    questions = 0;
    assert_int_equal(
        rendezvous_connect("127.0.0.1:1", SECRET, false, clock_after(DEADLINE), &interrupt, &client, &status),
        HVD_INTERRUPTED);
}

static void check_followed(struct rendezvous_client *client, uint32_t *seen, const char *value)
{
    struct wire_writer got = {0};
    ASSERT_OK(rendezvous_follow(client, "followed", seen, clock_after(DEADLINE), &got, &check_status));
    assert_int_equal(got.length, strlen(value));
    if (got.length)
        assert_memory_equal(got.bytes, value, got.length);
    wire_writer_free(&got);
}

static void report(struct rendezvous_client *client, const char *value)
{
    ASSERT_OK(
        rendezvous_report(client, "followed", value, strlen(value), clock_after(DEADLINE), &check_status));
}

TEST(test_a_followed_key_becomes_empty)
{
    hvd_status status;
    struct wire_writer none = {0};
    uint32_t seen = 0;
    struct rendezvous_client *follower = connect_to(*state), *first = connect_to(*state),
                             *second = connect_to(*state);
    for (int i = 0; i < 3; i++)
        assert_int_equal(rendezvous_follow(follower, "followed", &seen, 0, &none, &status), HVD_TIMED_OUT);
    report(first, "one");
    check_followed(follower, &seen, "one");
    assert_int_equal(rendezvous_follow(follower, "followed", &seen, 0, &none, &status), HVD_TIMED_OUT);
    report(first, "one"); /* equal, but put again */
    check_followed(follower, &seen, "one");
    put(follower, "other", "x"); /* ends the open question */
    report(second, "two");
    check_followed(follower, &seen, "two");
    rendezvous_close(first); /* its value is replaced already */
    put(follower, "other", "x");
    assert_int_equal(rendezvous_follow(follower, "followed", &seen, clock_after(0.05), &none, &status),
                     HVD_TIMED_OUT);
    rendezvous_close(second);
    check_followed(follower, &seen, "");
    rendezvous_close(follower);
}

TEST(test_join_counts_per_job_and_rank)
{
    static const struct {
        const char *job;
        int rank;
        uint32_t generation;
    } joins[] = {{"a", 0, 0}, {"a", 1, 0}, {"a", 0, 1}, {"b", 0, 0}, {"a", 1, 1}, {"a", 0, 2}, {"", 0, 0}};
    struct rendezvous_client *client = connect_to(*state);
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++)
        assert_int_equal(enter(client, joins[i].job, 0, joins[i].rank, 3), joins[i].generation);
    rendezvous_close(client);
}

/* ---- epochs ------------------------------------------------------------------------------------------- */

/* The server sees the end of a connection some time after it. */
static void wait_for_entries(const struct place *place, size_t expected)
{
    int64_t end = clock_after(DEADLINE);
    while (rendezvous_entries(place->server) != expected) {
        if (clock_now() > end)
            fail_msg("%zu entries, not %zu", rendezvous_entries(place->server), expected);
        usleep(1000);
    }
}

static void open_own(struct place *place)
{
    ASSERT_OK(hvd_rendezvous_start("127.0.0.1", SECRET, &place->server, &check_status));
    snprintf(place->address, sizeof place->address, "127.0.0.1:%d", hvd_rendezvous_port(place->server));
}

TEST(test_newer_epoch_drops_older_keys)
{
    struct place place;
    open_own(&place);
    struct rendezvous_client *starter = connect_to(&place), *old = connect_to(&place),
                             *new = connect_to(&place);
    struct waiter waiter = {.place = &place, .job = "a", .code = HVD_SYSTEM};
    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_key, &waiter), 0);
    enter(starter, "a", 0, -1, 0);
    publish(starter, "table");
    enter(old, "a", 0, 0, 2);
    rendezvous_scope(old, 0, 0);
    put(old, "mesh", "x");
    enter(new, "b", 0, 0, 2);
    rendezvous_scope(new, 0, 0);
    put(new, "mesh", "y");
    wait_for_entries(&place, 5);
    enter(new, "a", 7, -1, 0); /* a client that does not join begins no epoch */
    put(old, "still", "x");
    wait_for_entries(&place, 6);
    enter(new, "a", 7, 1, 2);
    wait_for_entries(&place, 3); /* those of job b, and rank 1 */
    static const char words[] = "rank 0 is in epoch 0 of the job, but epoch 7 has begun at the rendezvous at";
    struct wire_writer got = {0};
    ASSERT_FAILS(rendezvous_put(old, "late", "x", 1, &check_status), HVD_REFUSED, words);
    ASSERT_FAILS(rendezvous_get(old, "mesh", clock_after(DEADLINE), &got, &check_status), HVD_REFUSED, words);
    ASSERT_FAILS(rendezvous_enter(old, &(struct rendezvous_place){"a", 6, 0, 2}, NULL, &check_status),
                 HVD_REFUSED, "rank 0 is in epoch 6 of the job, but epoch 7");
    ASSERT_FAILS(rendezvous_publish(starter, "table", "x", 1, clock_after(DEADLINE), &check_status),
                 HVD_REFUSED, "this process is in");
    pthread_join(waiter.thread, NULL); /* it was waiting, or came later: refused either way */
    assert_int_equal(waiter.code, HVD_REFUSED);
    enter(old, "b", 0, 1, 2);
    check_value(old, "mesh", "y");
    assert_int_equal(enter(old, "a", 7, 0, 2), 1); /* no generation twice */
    rendezvous_close(starter);
    rendezvous_close(old);
    rendezvous_close(new);
    hvd_rendezvous_stop(place.server);
}

/* Keys of ranks are dropped with the last rank, once all have joined; the starter's stay. */
TEST(test_last_rank_drops_keys)
{
    struct place place;
    open_own(&place);
    struct rendezvous_client *starter = connect_to(&place), *clients[3];
    publish(starter, "table");
    for (int rank = 0; rank < 3; rank++) {
        clients[rank] = connect_to(&place);
        assert_int_equal(enter(clients[rank], "job", 0, rank, 3), 0);
        put(clients[rank], rank ? "one" : "other", "x");
        if (rank == 1) { /* these two are gone before the third comes */
            rendezvous_close(clients[0]);
            rendezvous_close(clients[1]);
        }
    }
    check_value(clients[2], "other", "x");
    wait_for_entries(&place, 1 + 3 + 2);
    assert_int_equal(enter(clients[2], "job", 0, 2, 0), 0); /* no more a member */
    wait_for_entries(&place, 1);
    check_value(clients[2], "table", "x");
    for (int rank = 0; rank < 2; rank++) /* anew */
        assert_int_equal(enter(clients[2], "job", 0, rank, 2), 1);
    wait_for_entries(&place, 3);
    rendezvous_close(clients[2]);
    wait_for_entries(&place, 1);
    rendezvous_close(starter);
    hvd_rendezvous_stop(place.server);
}

/* As a process does that does not know its rank. */
static hvd_code look_up(struct rendezvous_client *client, uint32_t epoch, const char *slot,
                        struct assignment *found, hvd_status *status)
{
    return assignments_enter(client, &(struct rendezvous_place){"job", epoch, -1, 0}, slot, true, NULL, found,
                             status);
}

TEST(test_placement_table)
{
    struct place place;
    struct assignment found;
    char longer[300];
    memset(longer, 's', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    const hvd_assignment good[] = {{"b", 0, NULL}, {"a", 1, "host of a"}, {"c", -1, NULL}};
    const hvd_assignment bad[] = {{"", 0, NULL},   {NULL, 0, NULL},  {"a", 1, NULL},
                                  {"a", -2, NULL}, {"a", 0, longer}, {longer, 0, NULL}};
    open_own(&place);
    struct rendezvous_client *client = connect_to(&place), *impatient = connect_for(&place, 0.05);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ASSERT_FAILS(hvd_rendezvous_assign(place.server, "job", 0, &bad[i], 1, &check_status),
                     HVD_INVALID_ARGUMENT,
                     bad[i].slot == longer ? "longer than" : "is no assignment in an epoch");
    ASSERT_FAILS(hvd_rendezvous_assign(place.server, "job", -1, good, 3, &check_status), HVD_INVALID_ARGUMENT,
                 "epoch -1");
    ASSERT_FAILS(look_up(impatient, 0, "a", &found, &check_status), HVD_TIMED_OUT,
                 "slot 'a' has not got a place in this epoch");
    ASSERT_OK(hvd_rendezvous_assign(place.server, "job", 1, good, 3, &check_status));
    ASSERT_FAILS(hvd_rendezvous_assign(place.server, "job", 0, good, 3, &check_status), HVD_REFUSED,
                 "epoch 0 of the job, but epoch 1 has begun");
    ASSERT_FAILS(look_up(client, 0, "a", &found, &check_status), HVD_REFUSED,
                 "epoch 0 of the job, but epoch 1 has begun");
    ASSERT_OK(look_up(client, 1, "a", &found, &check_status));
    assert_true(found.rank == 1 && found.size == 2 && strcmp(found.host, "host of a") == 0);
    ASSERT_OK(look_up(client, 1, "b", &found, &check_status));
    assert_true(found.rank == 0 && found.size == 2 && !*found.host);
    ASSERT_FAILS(look_up(client, 1, "c", &found, &check_status), HVD_REFUSED,
                 "slot 'c' has no place among the 2 ranks of this epoch");
    ASSERT_FAILS(look_up(client, 1, longer, &found, &check_status), HVD_INVALID_ARGUMENT,
                 "longer than the 255 bytes");
    ASSERT_OK(hvd_rendezvous_put(place.server, "job", 1, "slot/d", "", 0, &check_status));
    ASSERT_FAILS(look_up(client, 1, "d", &found, &check_status), HVD_REFUSED,
                 "the place of slot 'd' is malformed");
    rendezvous_close(impatient);
    rendezvous_close(client);
    hvd_rendezvous_stop(place.server);
}

/* A launched process knows its rank: it joins whether or not its slot has an assignment, and waits for none.
 */
TEST(test_a_rank_joins_and_finds_its_slot)
{
    struct place place;
    struct assignment found;
    uint32_t generation;
    const hvd_assignment assignments[] = {{"a", 0, "host of a"}, {"b", -1, NULL}};
    const struct rendezvous_place own = {"job", 2, 0, 1}, late = {"job", 1, 0, 1};
    open_own(&place);
    struct rendezvous_client *client = connect_to(&place);
    ASSERT_OK(assignments_enter(client, &own, "a", false, &generation, &found, &check_status));
    assert_int_equal(generation, 0);
    assert_int_equal(found.rank, -1);
    wait_for_entries(&place, 1); /* the join */
    ASSERT_OK(hvd_rendezvous_assign(place.server, "job", 2, assignments, 2, &check_status));
    size_t visits = rendezvous_visits(place.server);
    ASSERT_OK(assignments_enter(client, &own, "a", false, &generation, &found, &check_status));
    assert_int_equal(generation, 1);
    assert_true(found.rank == 0 && found.size == 1 && strcmp(found.host, "host of a") == 0);
    assert_true(rendezvous_visits(place.server) <= visits + 2); /* the server was woken once */
    ASSERT_OK(assignments_enter(client, &own, "no such slot", false, &generation, &found, &check_status));
    assert_int_equal(found.rank, -1);
    ASSERT_FAILS(assignments_enter(client, &own, "b", false, &generation, &found, &check_status), HVD_REFUSED,
                 "slot 'b' has no place among the 1 ranks");
    ASSERT_FAILS(assignments_enter(client, &late, "a", false, &generation, &found, &check_status),
                 HVD_REFUSED, "rank 0 is in epoch 1 of the job, but epoch 2 has begun");
    rendezvous_close(client);
    hvd_rendezvous_stop(place.server);
}

struct looker {
    const struct place *place;
    uint32_t epoch;
    pthread_t thread;
    hvd_code code;
    hvd_status status;
    struct assignment found;
};

static void *look_for_slot(void *argument)
{
    struct looker *looker = argument;
    struct rendezvous_client *client;
    looker->code = rendezvous_connect(looker->place->address, SECRET, false, clock_after(DEADLINE), NULL,
                                      &client, &looker->status);
    if (looker->code)
        return NULL;
    const struct rendezvous_place nobody = {"job", looker->epoch, -1, 0};
    looker->code = assignments_enter(client, &nobody, "a", true, NULL, &looker->found, &looker->status);
    rendezvous_close(client);
    return NULL;
}

TEST(test_a_process_waits_for_its_assignment)
{
    struct place place;
    const hvd_assignment assignment = {"a", 0, NULL};
    struct looker lookers[2];
    open_own(&place);
    for (int i = 0; i < 2; i++) {
        lookers[i] = (struct looker){.place = &place, .epoch = (uint32_t)i, .code = HVD_SYSTEM};
        assert_int_equal(pthread_create(&lookers[i].thread, NULL, look_for_slot, &lookers[i]), 0);
    }
    usleep(50000); /* mostly both wait by now; the test holds either way */
    ASSERT_OK(hvd_rendezvous_assign(place.server, "job", 1, &assignment, 1, &check_status));
    for (int i = 0; i < 2; i++)
        pthread_join(lookers[i].thread, NULL);
    assert_int_equal(lookers[0].code, HVD_REFUSED);
    assert_non_null(strstr(lookers[0].status.text, "in epoch 0 of the job, but epoch 1 has begun"));
    assert_int_equal(lookers[1].code, HVD_OK);
    assert_true(lookers[1].found.rank == 0 && lookers[1].found.size == 1);
    hvd_rendezvous_stop(place.server);
}

/* ---- many clients -------------------------------------------------------------------------------------- */

/* As at the start of a job: each publishes a claim and waits for a verdict, which comes after the last claim.
 */
static size_t visits_for(int clients)
{
    hvd_status status;
    struct place place;
    struct wire_writer value = {0};
    struct rendezvous_client **list = calloc((size_t)clients, sizeof(struct rendezvous_client *));
    ASSERT_OK(hvd_rendezvous_start("127.0.0.1", SECRET, &place.server, &check_status));
    snprintf(place.address, sizeof place.address, "127.0.0.1:%d", hvd_rendezvous_port(place.server));
    for (int rank = 0; rank < clients; rank++) {
        char key[32];
        list[rank] = connect_to(&place);
        enter(list[rank], "job", 0, rank, clients);
        snprintf(key, sizeof key, "claim %d", rank);
        put(list[rank], key, "x");
        /* The server keeps it waiting. */
        hvd_code code =
            rendezvous_get(list[rank], "verdict", clock_now() + CLOCK_SECOND / 1000, &value, &status);
        assert_int_equal(code, HVD_TIMED_OUT);
    }
    put(list[0], "verdict", "accepted");
    for (int rank = 0; rank < clients; rank++)
        check_value(list[rank], "verdict", "accepted");
    size_t visits = rendezvous_visits(place.server);
    for (int rank = 0; rank < clients; rank++)
        rendezvous_close(list[rank]);
    hvd_rendezvous_stop(place.server);
    free(list);
    return visits;
}

TEST(test_work_is_linear_in_the_clients)
{
    for (int clients = 16; clients <= 256; clients *= 4) {
        size_t visits = visits_for(clients);
        if (visits > (size_t)clients * 24)
            fail_msg("%d clients take %zu visits", clients, visits);
    }
}

/* Connections that wait for one key leave its list in any order: by another question, by their end, by the
 * value. */
TEST(test_waiting_for_one_key)
{
    enum { CLIENTS = 4 };
    hvd_status status;
    struct rendezvous_client *clients[CLIENTS], *late;
    struct wire_writer value = {0};
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = connect_to(*state);
        hvd_code code = rendezvous_get(clients[i], "one", clock_now() + CLOCK_SECOND / 1000, &value, &status);
        assert_int_equal(code, HVD_TIMED_OUT);
    }
    put(clients[0], "another", "x");
    rendezvous_close(clients[2]);
    put(clients[3], "one", "1");
    check_value(clients[0], "one", "1");
    check_value(clients[1], "one", "1");
    late = connect_to(*state);
    check_value(late, "one", "1");
    rendezvous_close(late);
    for (int i = 0; i < CLIENTS; i++)
        if (i != 2)
            rendezvous_close(clients[i]);
}

/* ---- who may come in ---------------------------------------------------------------------------------- */

TEST(test_wrong_secret_is_refused)
{
    hvd_status status;
    const struct place *place = *state;
    struct rendezvous_client *client;
    /* More attempts would end in HVD_TIMED_OUT. */
    assert_int_equal(
        rendezvous_connect(place->address, "guess", false, clock_after(DEADLINE), NULL, &client, &status),
        HVD_REFUSED);
    assert_non_null(strstr(status.text, place->address));
    assert_non_null(strstr(status.text, "HOROVOD_SECRET"));
    assert_int_equal(hvd_rendezvous_start("127.0.0.1", "", &(hvd_rendezvous *){0}, &status),
                     HVD_INVALID_ARGUMENT);
}

TEST(test_nobody_there_times_out)
{
    hvd_status status;
    struct rendezvous_client *client;
    char address[32];
    int port, fd = closed_port(&port);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    ASSERT_FAILS(rendezvous_connect(address, SECRET, false, clock_after(0.2), NULL, &client, &check_status),
                 HVD_TIMED_OUT, address);
    close(fd);
    static const char *const bad[] = {"", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:port", "[::1:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(rendezvous_connect(bad[i], SECRET, false, clock_after(1), NULL, &client, &status),
                         HVD_INVALID_ARGUMENT);
}

/* ---- several addresses -------------------------------------------------------------------------------- */

/* One at which nothing listens, one that never answers, and then the right one: each has its own time. */
TEST(test_addresses_are_tried_side_by_side)
{
    const struct place *place = *state;
    int refusing_port, silent_port = 0;
    int refusing = closed_port(&refusing_port), silent = socket_listen("127.0.0.1", &silent_port);
    struct rendezvous_client *client;
    char list[128];
    assert_true(silent >= 0);
    snprintf(list, sizeof list, "127.0.0.1:%d,127.0.0.1:%d,%s", refusing_port, silent_port, place->address);
    ASSERT_OK(rendezvous_connect(list, SECRET, false, clock_after(DEADLINE), NULL, &client, &check_status));
    rendezvous_close(client);
    snprintf(list, sizeof list, "127.0.0.1:%d,127.0.0.1:%d", refusing_port, silent_port);
    hvd_status status;
    assert_int_equal(rendezvous_connect(list, SECRET, false, clock_after(3), NULL, &client, &status),
                     HVD_TIMED_OUT);
    check_text(status.text,
               "127.0.0.1 (from 127.0.0.1): Connection refused; 127.0.0.1 (from 127.0.0.1): no end of the");
    check_text(status.text, "the time to start is over (HOROVOD_START_TIMEOUT)");
    /* A server that refuses is the cause, whatever happens at the other addresses. */
    snprintf(list, sizeof list, "127.0.0.1:%d,%s", refusing_port, place->address);
    ASSERT_FAILS(
        rendezvous_connect(list, "another", false, clock_after(DEADLINE), NULL, &client, &check_status),
        HVD_REFUSED, "HOROVOD_SECRET");
    socket_close(&refusing);
    socket_close(&silent);
}

/* It may become known later, as the names of pods do. */
TEST(test_unknown_name_is_looked_up_again)
{
    struct rendezvous_client *client;
    int64_t begin = clock_now();
    ASSERT_FAILS(rendezvous_connect("name.invalid:4000", SECRET, false, clock_after(0.5), NULL, &client,
                                    &check_status),
                 HVD_TIMED_OUT, "the address of 'name.invalid:4000' can't be found: ");
    assert_true(clock_now() - begin >= CLOCK_SECOND / 2);
}

TEST(test_serves_several_addresses_and_ports)
{
    hvd_rendezvous *server;
    struct rendezvous_client *client;
    char address[64];
    ASSERT_OK(hvd_rendezvous_start("127.0.0.1,[127.0.0.2]", SECRET, &server, &check_status));
    int port = hvd_rendezvous_port(server);
    for (int i = 0; i < 2; i++) {
        snprintf(address, sizeof address, "127.0.0.%d:%d", i + 1, port);
        ASSERT_OK(
            rendezvous_connect(address, SECRET, false, clock_after(DEADLINE), NULL, &client, &check_status));
        rendezvous_close(client);
    }
    hvd_rendezvous *more;
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    ASSERT_FAILS(hvd_rendezvous_start(address, SECRET, &more, &check_status), HVD_SYSTEM,
                 "is in use on host");
    hvd_rendezvous_stop(server);
    ASSERT_OK(hvd_rendezvous_start(address, SECRET, &more, &check_status));
    assert_int_equal(hvd_rendezvous_port(more), port);
    hvd_rendezvous_stop(more);
    ASSERT_FAILS(hvd_rendezvous_start("[::1", SECRET, &more, &check_status), HVD_INVALID_ARGUMENT,
                 "it is no address");
}

static int connect_raw(const struct place *place)
{
    int fd = socket_connect_numeric("127.0.0.1", hvd_rendezvous_port(place->server));
    if (fd >= 0 && !socket_wait(fd, POLLOUT, clock_after(DEADLINE)))
        socket_close(&fd);
    return fd;
}

static void check_that_clients_get_in(const struct place *place)
{
    struct rendezvous_client *client = connect_to(place);
    put(client, "still", "alive");
    check_value(client, "still", "alive");
    rendezvous_close(client);
}

static struct target target_of(const struct place *place)
{
    return (struct target){
        hvd_rendezvous_port(place->server), SECRET, {.role = HANDSHAKE_RENDEZVOUS}, NULL, NULL};
}

TEST(test_intruders_do_no_harm)
{
    const struct target target = target_of(*state);
    static void (*const tries[])(const struct target *) = {try_wrong_key, try_other_release, try_oversized,
                                                           try_garbage};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        tries[i](&target);
        check_that_clients_get_in(*state);
    }
}

/* A member's conversation, and behind it a question of its own. */
TEST(test_replay_is_turned_away)
{
    const struct target target = target_of(*state);
    struct wire_writer questions = {0};
    const struct question enter_job = {.id = 1, .kind = QUESTION_ENTER, .job = "job"},
                          put_key = {.id = 2,
                                     .kind = QUESTION_PUT,
                                     .key = "replayed",
                                     .value = (uint8_t *)"x",
                                     .length = 1};
    question_encode(&questions, &enter_job);
    question_encode(&questions, &put_key);
    try_replay(&target, questions.bytes, questions.length);
    wire_writer_free(&questions);
    struct rendezvous_client *client = connect_to(*state);
    struct wire_writer got = {0};
    hvd_status status;
    assert_int_equal(rendezvous_get(client, "replayed", clock_now(), &got, &status), HVD_TIMED_OUT);
    rendezvous_close(client);
}

/* This holds for those that know the secret as well: the length of a frame is checked before memory is
 * allocated. */
TEST(test_oversized_frame_ends_the_connection)
{
    const struct target target = target_of(*state);
    struct handshake handshake;
    int fd = intruder_dial(&target);
    ASSERT_OK(handshake_initiate(&handshake, SECRET, &target.claim, "the job", &check_status));
    ASSERT_OK(intruder_shake(&target, &handshake, fd, &check_status));
    intruder_send(fd, "\377\377\377\377", 4);
    intruder_is_turned_away(&target, fd);
    check_that_clients_get_in(*state);
}

/* With more silent connections than the server admits, the oldest ones are dropped, honest clients get in
 * however many wait before them, and memory is limited. */
TEST(test_silent_flood_does_no_harm)
{
    const struct target target = target_of(*state);
    check_that_clients_get_in(*state);
    size_t before = own_bytes();
    struct silent silent = silent_flood(&target);
    for (int i = 0; i < 3; i++)
        check_that_clients_get_in(*state);
    size_t after = own_bytes();
    if (after > before + 2 * UNAUTHENTICATED_LIMIT * sizeof(struct connection) + (1 << 20))
        fail_msg("%zu bytes before the flood, %zu in it", before, after);
    silent_end(&silent);
    check_that_clients_get_in(*state);
}

/* A byte a second: the time of a connection is not that between two bytes. */
TEST(test_dripping_hello_ends_in_time)
{
    if (!getenv("HOROVOD_TEST_FULL"))
        skip(); /* ten seconds */
    const struct target target = target_of(*state);
    struct handshake handshake;
    int64_t begin = clock_now();
    int fd = intruder_dial(&target);
    ASSERT_OK(handshake_initiate(&handshake, SECRET, &target.claim, "the job", &check_status));
    for (size_t i = 0; !socket_wait(fd, POLLIN, clock_now() + CLOCK_SECOND); i++) {
        assert_true(i < 15);
        intruder_send(fd, handshake.out + i, 1);
        check_that_clients_get_in(*state);
    }
    assert_true(clock_now() - begin >= UNAUTHENTICATED_TIME);
    intruder_is_turned_away(&target, fd);
}

TEST(test_malformed_frames_are_refused)
{
    struct question question;
    struct answer answer;
    assert_false(question_decode(&question, (const uint8_t *)"\1\0\0\0\11\0\0\0\0", 9)); /* unknown kind */
    assert_false(question_decode(&question, (const uint8_t *)"", 0));
    assert_false(answer_decode(&answer, (const uint8_t *)"\1\0\0\0\11\0\0\0\0", 9)); /* unknown outcome */
}

TEST(test_store_is_bounded)
{
    struct store store = {0};
    struct store_value value;
    struct epoch *epoch = store_epoch(&store, "job");
    uint8_t *large = calloc(1, RENDEZVOUS_VALUE_LIMIT);
    char key[32];
    size_t stored = 0;
    do
        snprintf(key, sizeof key, "key %zu", stored);
    while (store_put(&store, &epoch->values, key, large, RENDEZVOUS_VALUE_LIMIT) && stored++ < 10000);
    assert_in_range(stored, 4000, 4096);
    assert_int_equal(store.entries, stored);
    assert_true(store_put(&store, &epoch->values, "key 7", "x", 1)); /* smaller than what it replaces */
    assert_true(store_get(epoch, "key 7", &value) && value.length == 1 && value.bytes[0] == 'x');
    assert_true(store_put(&store, &epoch->values, key, large, 1000));
    assert_ptr_equal(store_epoch(&store, "job"), epoch);
    assert_false(store_begin(&store, epoch, 0));
    assert_true(store_begin(&store, epoch, 4));
    assert_int_equal(store.entries, 0);
    assert_int_equal(store.bytes, 0);
    for (size_t i = 1; i < STORE_JOB_LIMIT; i++) {
        snprintf(key, sizeof key, "job %zu", i);
        assert_non_null(store_epoch(&store, key));
    }
    assert_null(store_epoch(&store, "one more"));
    store_free(&store);
    free(large);
}

/* ---- a server that stops reading ----------------------------------------------------------------------- */

struct slow {
    int listener;
    struct connection *connection;
    struct store store;
    bool until_entered; /* else until the client ends */
    char fault[sizeof((hvd_status *)0)->text];
};

static void *serve(void *argument)
{
    struct slow *slow = argument;
    hvd_status status = {0};
    int64_t deadline = clock_after(DEADLINE);
    if (!slow->connection && socket_wait(slow->listener, POLLIN, deadline))
        slow->connection = connection_create(socket_accept(slow->listener), SECRET);
    while (connection_advance(slow->connection, &slow->store, &status) == HVD_OK &&
           !(slow->until_entered && slow->connection->epoch) &&
           socket_wait(slow->connection->stream.fd, POLLIN, deadline))
        ;
    snprintf(slow->fault, sizeof slow->fault, "%s", status.text);
    return NULL;
}

/* Of this process's end that is connected to the port: far less than a value may be sent ahead. */
static void shorten_send_buffer(int port)
{
    int bytes = 4096;
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in peer = {0};
        socklen_t length = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && ntohs(peer.sin_port) == port)
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    }
}

static int as_set(void *set)
{
    return *(int *)set;
}

/* Half a question has been sent when the interruption arrives: its other half is sent before the next one. */
TEST(test_interrupted_question_is_completed)
{
    struct slow slow = {.until_entered = true};
    struct store_value value;
    pthread_t thread;
    int port = 0, little = 4096, interrupted = 0;
    struct interrupt interrupt = {as_set, &interrupted};
    struct rendezvous_client *client;
    char address[32], *large = calloc(1, RENDEZVOUS_VALUE_LIMIT);
    assert_true((slow.listener = socket_listen("127.0.0.1", &port)) >= 0);
    assert_int_equal(setsockopt(slow.listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof little), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    assert_int_equal(pthread_create(&thread, NULL, serve, &slow), 0);
    ASSERT_OK(rendezvous_connect(address, SECRET, false, clock_after(DEADLINE), &interrupt, &client,
                                 &check_status));
    ASSERT_OK(rendezvous_enter(client, &(struct rendezvous_place){"job", 0, 0, 1}, NULL, &check_status));
    pthread_join(thread, NULL);
    shorten_send_buffer(port);
    interrupted = 1;
    ASSERT_FAILS(rendezvous_put(client, "one", large, RENDEZVOUS_VALUE_LIMIT, &check_status), HVD_INTERRUPTED,
                 address);
    interrupted = slow.until_entered = 0;
    little *= 100;
    setsockopt(slow.connection->stream.fd, SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    assert_int_equal(pthread_create(&thread, NULL, serve, &slow), 0);
    put(client, "other", "value");
    rendezvous_close(client);
    pthread_join(thread, NULL);
    assert_string_equal(slow.fault, "");
    assert_true(store_get(slow.connection->epoch, "one", &value) && value.length == RENDEZVOUS_VALUE_LIMIT);
    assert_true(store_get(slow.connection->epoch, "other", &value) && value.length == 5);
    connection_free(slow.connection, &slow.store);
    socket_close(&slow.listener);
    store_free(&slow.store);
    free(large);
}

/* A key that is not there, and a server that does not answer, are two things. */
TEST(test_no_answer_is_not_absence)
{
    struct slow slow = {.until_entered = true};
    struct wire_writer value = {0};
    pthread_t thread;
    int port = 0;
    struct rendezvous_client *client;
    char address[32];
    assert_true((slow.listener = socket_listen("127.0.0.1", &port)) >= 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    assert_int_equal(pthread_create(&thread, NULL, serve, &slow), 0);
    ASSERT_OK(
        rendezvous_connect(address, SECRET, false, clock_after(DEADLINE), NULL, &client, &check_status));
    ASSERT_OK(rendezvous_enter(client, &(struct rendezvous_place){"job", 0, 0, 1}, NULL, &check_status));
    pthread_join(thread, NULL);
    ASSERT_FAILS(rendezvous_get(client, "key", 0, &value, &check_status), HVD_PEER_LOST, "has not answered");
    slow.until_entered = false;
    assert_int_equal(pthread_create(&thread, NULL, serve, &slow), 0);
    ASSERT_FAILS(rendezvous_get(client, "key", 0, &value, &check_status), HVD_TIMED_OUT, "has put 'key'");
    rendezvous_close(client);
    pthread_join(thread, NULL);
    assert_string_equal(slow.fault, "");
    connection_free(slow.connection, &slow.store);
    socket_close(&slow.listener);
    store_free(&slow.store);
}

/* ---- processes ---------------------------------------------------------------------------------------- */

static int count_sockets(void)
{
    int count = 0;
    for (int fd = 3; fd < 256; fd++) {
        struct stat info;
        count += fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
    }
    return count;
}

/* A child of fork() must not keep the server's port or connections, and may stop its copy. */
TEST(test_child_keeps_nothing)
{
    struct place place;
    int hold[2];
    ASSERT_OK(hvd_rendezvous_start("127.0.0.1", SECRET, &place.server, &check_status));
    snprintf(place.address, sizeof place.address, "127.0.0.1:%d", hvd_rendezvous_port(place.server));
    int raw = connect_raw(&place);
    check_that_clients_get_in(&place); /* the server has accepted `raw` by now */
    assert_int_equal(pipe(hold), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char byte;
        close(raw);
        close(hold[1]);
        hvd_rendezvous_stop(place.server);
        int sockets = count_sockets();
        _exit(read(hold[0], &byte, 1) == 0 ? sockets : 99); /* until the parent has looked */
    }
    close(hold[0]);
    hvd_rendezvous_stop(place.server);
    char byte;
    assert_true(socket_wait(raw, POLLIN, clock_after(DEADLINE))); /* only the server's end held it */
    assert_int_equal(recv(raw, &byte, 1, 0), 0);
    close(raw);
    close(hold[1]);
    int outcome;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_int_equal(outcome, 0);
}

TEST(test_stop_ends_waiting_clients)
{
    hvd_status status;
    struct place place;
    ASSERT_OK(hvd_rendezvous_start("127.0.0.1", SECRET, &place.server, &check_status));
    snprintf(place.address, sizeof place.address, "127.0.0.1:%d", hvd_rendezvous_port(place.server));
    struct rendezvous_client *client = connect_to(&place);
    hvd_rendezvous_stop(place.server);
    struct wire_writer got = {0};
    ASSERT_FAILS(rendezvous_get(client, "late", clock_after(DEADLINE), &got, &check_status), HVD_PEER_LOST,
                 "closed its connection");
    assert_int_equal(rendezvous_put(client, "late", "x", 1, &status), HVD_PEER_LOST);
    rendezvous_close(client);
    hvd_rendezvous_stop(NULL);
    rendezvous_close(NULL);
}

/* ---- watches ------------------------------------------------------------------------------------------ */

static void check_next(hvd_watch *watch, const char *key, const char *value)
{
    hvd_entry entry = {.struct_size = sizeof entry};
    ASSERT_OK(hvd_watch_next(watch, DEADLINE, &entry, &check_status));
    assert_string_equal(entry.key, key);
    assert_int_equal(entry.length, strlen(value));
    assert_memory_equal(entry.value, value, entry.length);
}

TEST(test_a_watch_returns_each_put_in_its_order)
{
    struct place place;
    open_own(&place);
    hvd_watch *watch, *all;
    hvd_entry entry = {.struct_size = sizeof entry};
    struct rendezvous_client *rank = connect_to(&place);
    enter(rank, "job", 3, 0, 1);
    rendezvous_scope(rank, 0, 0);
    ASSERT_OK(hvd_rendezvous_put(place.server, "job", 3, "fault/7", "x", 1, &check_status));
    ASSERT_OK(hvd_watch_open(place.server, "job", 3, "fault/", &watch, &check_status));
    check_next(watch, "fault/7", "x"); /* put before */
    ASSERT_FAILS(hvd_watch_next(watch, 0, &entry, &check_status), HVD_TIMED_OUT, "'fault/' was put in time");
    put(rank, "fault/8", "a rank's own key"); /* in its scope, and gone with it */
    ASSERT_OK(hvd_rendezvous_put(place.server, "job", 3, "other", "x", 1, &check_status));
    ASSERT_OK(rendezvous_publish(rank, "fault/9", "y", 1, clock_after(DEADLINE), &check_status));
    assert_true(socket_wait(hvd_watch_descriptor(watch), POLLIN, clock_after(DEADLINE)));
    check_next(watch, "fault/9", "y");
    ASSERT_OK(rendezvous_publish(rank, "fault/9", "z", 1, clock_after(DEADLINE), &check_status));
    ASSERT_OK(rendezvous_publish(rank, "fault/10", "", 0, clock_after(DEADLINE), &check_status));
    rendezvous_close(rank); /* the last one: what it has published stays */
    check_next(watch, "fault/9", "z");
    check_next(watch, "fault/10", "");
    ASSERT_OK(hvd_watch_open(place.server, "job", 3, "", &all, &check_status));
    check_next(all, "fault/7", "x");
    check_next(all, "other", "x");
    check_next(all, "fault/9", "z"); /* of two the newer one */
    hvd_watch_close(all);
    hvd_watch_close(watch);
    hvd_watch_close(NULL);
    hvd_rendezvous_stop(place.server);
}

TEST(test_a_newer_epoch_ends_a_watch)
{
    struct place place;
    open_own(&place);
    hvd_watch *old, *newer;
    hvd_entry entry = {.struct_size = sizeof entry};
    ASSERT_OK(hvd_watch_open(place.server, "job", 1, "", &old, &check_status));
    ASSERT_OK(hvd_watch_open(place.server, "job", 2, "", &newer, &check_status));
    hvd_status status;
    assert_int_equal(hvd_watch_next(old, 0, &entry, &status), HVD_TIMED_OUT);
    assert_int_equal(hvd_watch_next(newer, 0, &entry, &status), HVD_TIMED_OUT);
    ASSERT_OK(hvd_rendezvous_put(place.server, "job", 1, "first", "x", 1, &check_status));
    check_next(old, "first", "x");
    assert_int_equal(hvd_watch_next(old, 0, &entry, &status), HVD_TIMED_OUT);
    ASSERT_OK(hvd_rendezvous_put(place.server, "job", 2, "second", "y", 1, &check_status));
    ASSERT_FAILS(hvd_watch_next(old, DEADLINE, &entry, &check_status), HVD_REFUSED,
                 "watches epoch 1 of the job, but epoch 2 has begun");
    check_next(newer, "second", "y"); /* it had waited for its epoch to begin */
    ASSERT_FAILS(hvd_rendezvous_put(place.server, "job", 1, "late", "x", 1, &check_status), HVD_REFUSED,
                 "epoch 2");
    hvd_watch_close(old);
    hvd_watch_close(newer);
    hvd_rendezvous_stop(place.server);
}

/* In the child nothing serves, and its descriptor is closed; the parent's watch is undisturbed. */
TEST(test_a_child_has_no_watch)
{
    struct place place;
    hvd_watch *watch;
    hvd_entry entry = {.struct_size = sizeof entry};
    hvd_status status;
    int result;
    open_own(&place);
    ASSERT_OK(hvd_watch_open(place.server, "job", 0, "", &watch, &check_status));
    pid_t child = fork();
    if (child == 0) {
        bool refused = hvd_watch_next(watch, DEADLINE, &entry, &status) == HVD_INVALID_ARGUMENT &&
                       hvd_watch_descriptor(watch) < 0;
        hvd_watch_close(watch);
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    ASSERT_OK(hvd_rendezvous_put(place.server, "job", 0, "key", "x", 1, &check_status));
    check_next(watch, "key", "x");
    hvd_watch_close(watch);
    hvd_rendezvous_stop(place.server);
}

TEST(test_reports_of_slots)
{
    struct slot_report report;
    static const char wait[] = "waits 3 1 -1 leaves";
    assert_true(slot_report_read(&report, wait, strlen(wait)));
    assert_int_equal(report.kind, SLOT_WAITS);
    assert_int_equal(report.after, 3);
    assert_int_equal(report.lost_rank, -1);
    assert_true(report.holds_state && report.leaves);
    assert_true(slot_report_read(&report, "ready and more", strlen("ready")));
    assert_int_equal(report.kind, SLOT_READY);
    assert_false(report.leaves);
    assert_true(slot_report_read(&report, " leaves", strlen(" leaves")) && report.leaves);
    static const char *const wrong[] = {"",
                                        "done ",
                                        "waits 3 1",
                                        "waits 3 2 1",
                                        "waits 3 1 99999999999",
                                        "waits 3 1 0 0",
                                        "waits x 1 0",
                                        "leaves",
                                        "readyready"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(slot_report_read(&report, wrong[i], strlen(wrong[i])));
}
