/* test_links.c - links between ranks that are no neighbours in the tree or the rings: there are none until an
 * operation needs them, of the world or of a set, and then it has them, over every transport. And long
 * messages are striped over several sockets, once they have moved much. */
#define member coordinator_member /* group.h has another struct of this name */
#include "engine/comm.h"
#include "engine/context.h"
#undef member
#include "transport/peer.h"
#include "values.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6 };

static pthread_barrier_t together;

/* One number for each other rank. */
static void exchange(struct member *member, int32_t set, const char *name, const int32_t *ranks, int count)
{
    int64_t out[RANKS], shape[] = {count};
    for (int i = 0; i < count; i++)
        out[i] = 100 * member->rank + ranks[i];
    hvd_tensor tensor = tensor_of(out, HVD_INT64, shape, 1), outputs[2];
    hvd_request request = request_of(HVD_ALLTOALL, name, &tensor);
    request.process_set = set;
    CHECK_OK(hvd_run(member->context, &request, outputs, &check_status));
    const int64_t *got = outputs[0].data;
    for (int i = 0; i < count; i++)
        CHECK(got[i] == 100 * ranks[i] + member->rank, "rank %d: %d from %d", member->rank, (int)got[i],
              (int)ranks[i]);
    hvd_free(outputs[0].data);
    hvd_free(outputs[1].data);
}

static void open_on_first_use(struct member *member)
{
    static const int32_t all[] = {0, 1, 2, 3, 4, 5}, some[] = {0, 1, 3, 5};
    const struct mesh *mesh = member->context->world->mesh;
    int before = mesh->linked_count;
    pthread_barrier_wait(&together);
    CHECK(!member->rank || before < RANKS - 1, "rank %d has %d links at the start", member->rank, before);
    check_allreduce_works(member, "small");
    CHECK(mesh->linked_count <= RANKS - 1, "%d links", mesh->linked_count);
    exchange(member, 0, "all", all, RANKS);
    CHECK(mesh->linked_count == RANKS - 1, "rank %d has %d links in the end", member->rank,
          mesh->linked_count);
    int32_t set;
    CHECK_OK(hvd_process_set_add(member->context, some, 4, &set, &check_status));
    for (int i = 0; i < 4; i++)
        if (some[i] == member->rank)
            exchange(member, set, "some", some, 4);
    check_allreduce_works(member, "end");
}

static void run(const char *transport, const char *const *hosts)
{
    pthread_barrier_init(&together, NULL, RANKS);
    group_run(&(struct group_options){.transport = transport, .hosts = hosts}, RANKS, open_on_first_use,
              NULL);
    pthread_barrier_destroy(&together);
}

TEST(test_links_open_on_first_use)
{
    static const char *const over[] = {"shm", "tcp", "faulty-shm", "faulty-tcp"};
    for (int i = 0; i < 4; i++)
        run(over[i], NULL);
}

TEST(test_links_open_on_first_use_between_hosts)
{
    run("auto", (const char *const[]){"a", "b", "a", "b", "b", "a"});
}

/* ---- striping ----------------------------------------------------------------------------------------- */

#define LANES_OF_THREE 0xe /* bits 1 to 3, see peer.h */

/* Without the lock: the progress thread may just be opening one. What is read is perhaps old, never torn. */
__attribute__((no_sanitize("thread"))) static bool has_lanes(const struct mesh *mesh, unsigned lanes)
{
    bool all = true;
    for (int i = 0; i < mesh->peer_count; i++)
        all &= !mesh->peers[i].neighbour || mesh->peers[i].lanes == lanes;
    return all;
}

enum { NUMBERS = 9973 }; /* each piece that moves at once starts at another one */

static void check_multiples(const int32_t *data, int64_t count, int factor)
{
    size_t width = sizeof *data;
    int64_t checked = repeats(data, NUMBERS * width, (size_t)count * width) ? NUMBERS : count;
    for (int64_t i = 0; i < checked; i++)
        CHECK(data[i] == (int32_t)(i % NUMBERS) * factor, "[%lld] is %d", (long long)i, (int)data[i]);
}

/* The sum of this rank's own numbers, different in each place. */
static void sum_many(struct member *member, int32_t set, int members, const char *name)
{
    int64_t count = 3 << 20;
    int32_t *data = malloc((size_t)count * sizeof *data);
    CHECK(data, "out of memory");
    for (int32_t i = 0; i < NUMBERS; i++)
        data[i] = i * (member->rank + 1);
    repeat(data, NUMBERS * sizeof *data, (size_t)count * sizeof *data);
    hvd_tensor tensor = tensor_of(data, HVD_INT32, &count, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    request.process_set = set;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    check_multiples(data, count, members * (members + 1) / 2);
    free(data);
}

static void stripe(struct member *member)
{
    static const int32_t some[] = {0, 1};
    const unsigned *lanes = member->argument;
    const struct mesh *mesh = member->context->world->mesh;
    int32_t set;
    bool all = false;
    for (int i = 0; i < 100 && !all; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        sum_many(member, 0, member->size, name);
        float missing = lanes && !has_lanes(mesh, *lanes);
        finish(submit_sum(member, "missing", &missing, 1, 0));
        all = missing == 0;
    }
    CHECK(all, "rank %d has not all lanes", member->rank);
    CHECK_OK(hvd_process_set_add(member->context, some, 2, &set, &check_status));
    for (int i = 0; i < 3 && member->rank < 2; i++)
        sum_many(member, set, 2, "of two");
    check_allreduce_works(member, "end");
}

#define THREE_SOCKETS SETTINGS("sockets_per_peer", "3")

TEST(test_striped_links)
{
    unsigned lanes = LANES_OF_THREE;
    for (int size = 2; size <= 3; size++)
        group_run(&(struct group_options){.transport = "tcp", THREE_SOCKETS}, size, stripe, &lanes);
    group_run(
        &(struct group_options){.transport = "tcp", SETTINGS("sockets_per_peer", "3", "encryption", "1")}, 2,
        stripe, &lanes);
}

/* A lane that can't be opened is left out. */
TEST(test_striped_links_that_split_and_delay)
{
    group_run(&(struct group_options){.transport = "faulty-tcp", THREE_SOCKETS}, 3, stripe, NULL);
}

/* Between ranks that share an interface nothing is striped unless that is asked for. */
TEST(test_links_are_not_striped)
{
    unsigned none = 0;
    group_run(&(struct group_options){.transport = "tcp"}, 2, stripe, &none);
}
