/* test_links.c - links between ranks that are no neighbours in the tree or the rings: there are none until an
 * operation needs them, of the world or of a set, and then it has them, over every transport. */
#define member coordinator_member /* group.h has another struct of this name */
#include "engine/context.h"
#undef member
#include "group.h"
#include "transport/peer.h"

#include <pthread.h>
#include <stdio.h>
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
