/* test_topology.c - ranks that pretend to be on several hosts: every rank finds the same places, operations
 * are right wherever the ranks of a host are, and what differs between ranks is an error on all of them. */
#include "group.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6 };

/* local rank, local size, cross rank, cross size; by rank */
typedef int32_t places[RANKS][4];

static const char *const contiguous[] = {"a", "a", "b", "c", "c", "c"};
static const places of_contiguous = {{0, 2, 0, 3}, {1, 2, 0, 2}, {0, 1, 1, 3},
                                     {0, 3, 2, 3}, {1, 3, 1, 2}, {2, 3, 0, 1}};
static const char *const cyclic[] = {"a", "b", "a", "b", "a", "b"};
static const places of_cyclic = {{0, 3, 0, 2}, {0, 3, 1, 2}, {1, 3, 0, 2},
                                 {1, 3, 1, 2}, {2, 3, 0, 2}, {2, 3, 1, 2}};
static const char *const uneven[] = {"c", "b", "a", "c", "a", "a"};
static const places of_uneven = {{0, 2, 0, 3}, {0, 1, 1, 3}, {0, 3, 2, 3},
                                 {1, 2, 0, 2}, {1, 3, 1, 2}, {2, 3, 0, 1}};

static const struct layout {
    const char *const *hosts;
    const places *expected;
    int homogeneous;
} layouts[] = {{contiguous, &of_contiguous, 0}, {cyclic, &of_cyclic, 1}, {uneven, &of_uneven, 0}};

static void check_place(struct member *member)
{
    const struct layout *layout = member->argument;
    const int32_t *expected = (*layout->expected)[member->rank];
    hvd_placement place = hvd_get_placement(member->context);
    CHECK(place.local_rank == expected[0] && place.local_size == expected[1] &&
              place.cross_rank == expected[2] && place.cross_size == expected[3] &&
              place.homogeneous == layout->homogeneous,
          "rank %d: local %d of %d, cross %d of %d, homogeneous %d", member->rank, place.local_rank,
          place.local_size, place.cross_rank, place.cross_size, place.homogeneous);
}

/* An allgather is in the order of ranks, and a broadcast comes from its root. */
static void check_order(struct member *member, int32_t set, int size)
{
    int32_t value = member->rank + 10;
    int64_t shape[] = {1};
    hvd_tensor tensor = tensor_of(&value, HVD_INT32, shape, 1), gathered;
    hvd_request request = request_of(HVD_ALLGATHER, "gather", &tensor);
    request.process_set = set;
    CHECK_OK(hvd_run(member->context, &request, &gathered, &check_status));
    const int32_t *values = gathered.data;
    CHECK(gathered.shape[0] == size, "%d rows", (int)gathered.shape[0]);
    for (int i = 1; i < size; i++)
        CHECK(values[i - 1] < values[i], "rank %d: %d before %d", member->rank, values[i - 1], values[i]);
    hvd_free(gathered.data);
    request = request_of(HVD_BROADCAST, "from the last", &tensor);
    request.process_set = set;
    request.root = RANKS - 1;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    CHECK(value == RANKS + 9, "rank %d: %d came from the root", member->rank, value);
}

/* Too long for all distances at once; but rank 1, which gives nothing, goes through them that way. */
static void check_exchange(struct member *member)
{
    enum { COLUMNS = 20000 };
    static _Thread_local int32_t values[RANKS * COLUMNS];
    int rank = member->rank;
    int64_t shape[] = {rank == 1 ? 0 : RANKS, COLUMNS};
    hvd_tensor tensor = tensor_of(values, HVD_INT32, shape, 2), results[2];
    hvd_request request = request_of(HVD_ALLTOALL, "exchange", &tensor);
    for (int i = 0; i < RANKS * COLUMNS; i++)
        values[i] = i + rank;
    CHECK_OK(hvd_run(member->context, &request, results, &check_status));
    CHECK(results[0].shape[0] == RANKS - 1, "rank %d: %d rows", rank, (int)results[0].shape[0]);
    const int32_t *row = results[0].data;
    for (int from = 0; from < RANKS; from++)
        for (int i = 0; from != 1 && i < COLUMNS; i++, row++)
            CHECK(*row == rank * COLUMNS + i + from, "rank %d: [%d] from %d is %d", rank, i, from, *row);
    hvd_free(results[0].data);
    hvd_free(results[1].data);
}

/* Long enough for a ring. The sum of all ranks' rows, whole and each rank's row of it. */
static void check_rings(struct member *member)
{
    enum { COLUMNS = 20000 };
    static _Thread_local int32_t values[RANKS * COLUMNS];
    int64_t shape[] = {RANKS, COLUMNS};
    hvd_tensor tensor = tensor_of(values, HVD_INT32, shape, 2), scattered;
    hvd_request request = request_of(HVD_REDUCESCATTER, "rows", &tensor);
    for (int i = 0; i < RANKS * COLUMNS; i++)
        values[i] = i + member->rank;
    CHECK_OK(hvd_run(member->context, &request, &scattered, &check_status));
    request = request_of(HVD_ALLREDUCE, "whole", &tensor);
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    const int32_t *row = scattered.data;
    for (int i = 0; i < RANKS * COLUMNS; i++) {
        int expected = RANKS * i + RANKS * (RANKS - 1) / 2;
        CHECK(values[i] == expected, "rank %d: [%d] is %d", member->rank, i, values[i]);
        CHECK(i / COLUMNS != member->rank || row[i % COLUMNS] == expected, "rank %d: row [%d] is %d",
              member->rank, i % COLUMNS, row[i % COLUMNS]);
    }
    hvd_free(scattered.data);
}

static void work(struct member *member)
{
    static const int32_t ranks[] = {1, 2, 3, 5};
    int32_t set;
    check_place(member);
    check_order(member, 0, RANKS);
    check_allreduce_works(member, "sum");
    check_rings(member);
    check_exchange(member);
    CHECK_OK(hvd_process_set_add(member->context, ranks, 4, &set, &check_status));
    if (member->rank != 0 && member->rank != 4)
        check_order(member, set, 4);
    check_allreduce_works(member, "sum after");
    CHECK_OK(hvd_process_set_remove(member->context, set, &check_status));
}

TEST(test_ranks_find_their_places)
{
    static const char *const transports[] = {"auto", "tcp"};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (int t = 0; t < 2; t++) {
            struct group_options options = {.transport = transports[t],
                                            .hosts = layouts[l].hosts,
                                            .settings = (const char *const[]){"tree_fanout", "2", NULL}};
            group_run(&options, RANKS, work, (void *)&layouts[l]);
        }
}

/* Without the setting the system identifies the host, so all ranks of a group share one. */
static void check_one_host(struct member *member)
{
    hvd_placement place = hvd_get_placement(member->context);
    CHECK(place.local_rank == member->rank && place.local_size == member->size, "local %d of %d",
          place.local_rank, place.local_size);
    CHECK(place.cross_rank == 0 && place.cross_size == 1 && place.homogeneous, "cross %d of %d",
          place.cross_rank, place.cross_size);
}

GROUP_TEST(test_the_system_says_which_host, check_one_host, 1, 3, EVERY_TRANSPORT)

GROUP_TEST(test_numbers_of_the_starter_are_checked, check_one_host, 4, 4, .transport = "shm",
           SETTINGS("local_size", "4", "cross_rank", "0"))

/* ---- what differs ------------------------------------------------------------------------------------ */

struct joiner {
    const char *address;
    int rank;
    const char *const *settings; /* of this rank alone */
    const char *words;
    pthread_t thread;
};

static void set_number(hvd_config *config, const char *key, int value)
{
    char number[16];
    snprintf(number, sizeof number, "%d", value);
    CHECK_OK(hvd_config_set(config, key, number, &check_status));
}

static void *fail_to_join(void *argument)
{
    const struct joiner *joiner = argument;
    hvd_config *config = hvd_config_create();
    hvd_context *context;
    hvd_status status;
    set_number(config, "rank", joiner->rank);
    set_number(config, "size", 3);
    CHECK_OK(hvd_config_set(config, "rendezvous", joiner->address, &check_status));
    CHECK_OK(hvd_config_set(config, "secret", "test secret", &check_status));
    for (const char *const *setting = joiner->settings; setting && *setting; setting += 2)
        CHECK_OK(hvd_config_set(config, setting[0], setting[1], &check_status));
    hvd_code code = hvd_init(config, &context, &status);
    CHECK(code, "rank %d joined", joiner->rank);
    CHECK(strstr(status.text, joiner->words), "rank %d: %s", joiner->rank, status.text);
    hvd_config_free(config);
    return NULL;
}

/* Ranks 0 and 2 as usual, rank 1 with settings of its own. */
static void check_difference(const char *const *settings, const char *words)
{
    hvd_rendezvous *rendezvous;
    char address[32];
    struct joiner joiners[3];
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &rendezvous, &check_status));
    snprintf(address, sizeof address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    for (int rank = 0; rank < 3; rank++) {
        joiners[rank] = (struct joiner){address, rank, rank == 1 ? settings : NULL, words, 0};
        CHECK(pthread_create(&joiners[rank].thread, NULL, fail_to_join, &joiners[rank]) == 0, "no thread");
    }
    for (int rank = 0; rank < 3; rank++)
        pthread_join(joiners[rank].thread, NULL);
    hvd_rendezvous_stop(rendezvous);
}

TEST(test_differences_name_ranks_and_values)
{
    check_difference((const char *const[]){"size", "5", NULL}, "rank 1 has HOROVOD_SIZE=5, but rank 0 has 3");
    check_difference((const char *const[]){"tree_fanout", "2", NULL},
                     "rank 1 has HOROVOD_TREE_FANOUT=2, but rank 0 has 16");
    check_difference((const char *const[]){"host_id", "b", NULL},
                     "rank 1 has HOROVOD_HOST_ID=b, but rank 0 has none");
    check_difference((const char *const[]){"local_rank", "0", NULL},
                     "rank 1 has HOROVOD_LOCAL_RANK=0, but it is 1: local rank 1 of 3 on a host whose first "
                     "rank is rank 0");
    check_difference((const char *const[]){"cross_size", "3", NULL},
                     "rank 1 has HOROVOD_CROSS_SIZE=3, but it is 1");
}

/* The error is in time, and that of each present rank names the missing ones. */
TEST(test_missing_ranks_are_named)
{
    hvd_rendezvous *rendezvous;
    char address[32];
    static const char *const settings[] = {"start_timeout_seconds", "2", NULL};
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &rendezvous, &check_status));
    snprintf(address, sizeof address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    struct joiner alone[] = {{address, 2, settings, "ranks 0-1 have not joined within 2 s", 0},
                             {address, 0, settings, "rank 1 has not joined within 2 s", 0}};
    for (int i = 0; i < 2; i++)
        fail_to_join(&alone[i]);
    hvd_rendezvous_stop(rendezvous);
}
