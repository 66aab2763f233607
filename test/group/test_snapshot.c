/* test_snapshot.c - ranks keep copies of an equal state: versions that grow, on one host and on several, read
 * by ranks that saved them and by ones that are new, and what ends a wait. */
#include "group.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAST = 5, PARTS = 3, SIZES = 8 };

static uint8_t byte_of(int64_t version, size_t i)
{
    return (uint8_t)((size_t)version * 31 + i % 251);
}

/* A state of three parts, the second of which grows beyond the pieces in which memory is kept. */
static void make_state(hvd_memory parts[PARTS], int64_t version)
{
    const size_t bytes[] = {7, (size_t)version * 1900001, 64};
    size_t offset = 0;
    for (int part = 0; part < PARTS; part++) {
        parts[part] = (hvd_memory){malloc(bytes[part]), bytes[part]};
        CHECK(parts[part].data, "out of memory");
        for (size_t i = 0; i < bytes[part]; i++)
            ((uint8_t *)parts[part].data)[i] = byte_of(version, offset++);
    }
}

static void free_state(hvd_memory parts[PARTS])
{
    for (int part = 0; part < PARTS; part++)
        free(parts[part].data);
}

/* What differs from rank to rank, in its size as well. */
static void make_own(int64_t own[SIZES], int64_t version, int rank)
{
    for (int i = 0; i <= rank; i++)
        own[i] = version * SIZES + rank;
}

static void save(const struct member *member, hvd_snapshot *snapshot, int64_t version)
{
    hvd_memory parts[PARTS];
    int64_t own[SIZES];
    make_state(parts, version);
    make_own(own, version, member->rank);
    hvd_memory own_parts[] = {{own, 1}, {(char *)own + 1, (size_t)(member->rank + 1) * sizeof *own - 1}};
    CHECK_OK(
        hvd_snapshot_save(snapshot, member->context, version, parts, PARTS, own_parts, 2, &check_status));
    CHECK_OK(hvd_snapshot_wait(snapshot, member->context, &check_status));
    free_state(parts);
}

/* It is that of one rank, and `rank` unless that is -1. */
static void check_own(hvd_snapshot *snapshot, int64_t version, int rank)
{
    size_t bytes, own;
    int64_t expected[SIZES], read[SIZES];
    CHECK(hvd_snapshot_version(snapshot, &bytes, &own) == version, "another version");
    int found = (int)(own / sizeof *read) - 1;
    CHECK(found >= 0 && found < SIZES && (rank < 0 || found == rank), "%zu bytes of a rank's own", own);
    make_own(expected, version, found);
    CHECK_OK(hvd_snapshot_read(snapshot, version, bytes, read, own, &check_status));
    CHECK(memcmp(expected, read, own) == 0, "not what rank %d has saved", found);
    CHECK(hvd_snapshot_read(snapshot, version, bytes + 1, read, own, NULL) == HVD_INVALID_ARGUMENT,
          "there is more");
}

static void check_whole(hvd_snapshot *snapshot, int64_t version)
{
    size_t bytes;
    int64_t found = hvd_snapshot_version(snapshot, &bytes, NULL);
    CHECK(found == version, "version %lld is whole, not %lld", (long long)found, (long long)version);
    CHECK(bytes == 7 + (size_t)version * 1900001 + 64, "%zu bytes", bytes);
    uint8_t *read = malloc(bytes);
    CHECK(read, "out of memory");
    CHECK_OK(hvd_snapshot_read(snapshot, version, 0, read, bytes / 2, &check_status));
    CHECK_OK(
        hvd_snapshot_read(snapshot, version, bytes / 2, read + bytes / 2, bytes - bytes / 2, &check_status));
    for (size_t i = 0; i < bytes; i++)
        CHECK(read[i] == byte_of(version, i), "byte %zu of version %lld", i, (long long)version);
    free(read);
}

static hvd_snapshot *make_snapshot(void)
{
    hvd_snapshot *snapshot;
    CHECK_OK(hvd_snapshot_create(&snapshot, &check_status));
    CHECK(hvd_snapshot_version(snapshot, NULL, NULL) == -1, "an empty one has a version");
    return snapshot;
}

/* ---- saving -------------------------------------------------------------------------------------------- */

static void save_versions(struct member *member)
{
    hvd_snapshot *snapshot = make_snapshot();
    CHECK_OK(hvd_snapshot_join(snapshot, member->context, &check_status));
    for (int64_t version = 1; version <= LAST; version++) {
        save(member, snapshot, version);
        check_whole(snapshot, version);
        check_own(snapshot, version, hvd_get_placement(member->context).local_rank == 0 ? member->rank : -1);
    }
    check_allreduce_works(member, "saved"); /* a rank that leaves ends the waits of all others */
    hvd_snapshot_free(snapshot);
}

GROUP_TEST(test_versions_grow, save_versions, 1, 5, .transport = "auto")

TEST(test_two_hosts)
{
    const char *const hosts[] = {"a", "b", "a", "b", "b"};
    group_run(&(struct group_options){.transport = "auto", .hosts = hosts}, 5, save_versions, NULL);
}

TEST(test_alone)
{
    struct member nobody = {0};
    hvd_snapshot *snapshot = make_snapshot();
    for (int64_t version = 0; version <= LAST; version++) {
        save(&nobody, snapshot, version);
        check_whole(snapshot, version);
    }
    hvd_memory part = {&nobody, 1};
    ASSERT_FAILS(hvd_snapshot_save(snapshot, NULL, LAST, &part, 1, NULL, 0, &check_status),
                 HVD_INVALID_ARGUMENT, "5 is not a later one");
    ASSERT_FAILS(hvd_snapshot_read(snapshot, LAST - 2, 0, &nobody, 1, &check_status), HVD_INVALID_ARGUMENT,
                 "version 3 of the state are not in this host's copy");
    ASSERT_FAILS(hvd_snapshot_read(snapshot, LAST, SIZE_MAX, &nobody, 2, &check_status), HVD_INVALID_ARGUMENT,
                 "are not in this host's copy");
    hvd_snapshot_free(snapshot);
    hvd_snapshot_free(NULL);
}

/* A process that is given the descriptor reads what is whole, also when those that saved it have ended. */
TEST(test_opened_by_its_descriptor)
{
    struct member nobody = {0};
    hvd_snapshot *snapshot = make_snapshot(), *opened;
    for (int64_t version = 1; version <= 2; version++)
        save(&nobody, snapshot, version);
    int descriptor = dup(hvd_snapshot_descriptor(snapshot));
    hvd_snapshot_free(snapshot);
    CHECK_OK(hvd_snapshot_open(descriptor, &opened, &check_status));
    close(descriptor);
    check_whole(opened, 2);
    check_own(opened, 2, 0);
    hvd_memory part = {&nobody, 1};
    ASSERT_FAILS(hvd_snapshot_save(opened, NULL, 3, &part, 1, NULL, 0, &check_status), HVD_INVALID_ARGUMENT,
                 "can only be read");
    hvd_snapshot_free(opened);
    ASSERT_FAILS(hvd_snapshot_open(STDERR_FILENO, &opened, &check_status), HVD_INVALID_ARGUMENT,
                 "is not the memory of a snapshot");
    ASSERT_FAILS(hvd_snapshot_open(-1, &opened, &check_status), HVD_INVALID_ARGUMENT, "descriptor -1");
}

TEST(test_short_ones_follow_each_other)
{
    hvd_snapshot *snapshot = make_snapshot();
    for (int64_t version = 0; version < 3000; version++) {
        hvd_memory part = {&version, sizeof version};
        CHECK_OK(hvd_snapshot_save(snapshot, NULL, version, &part, 1, NULL, 0, &check_status));
        CHECK_OK(hvd_snapshot_wait(snapshot, NULL, &check_status));
        int64_t read = -1;
        CHECK_OK(hvd_snapshot_read(snapshot, version, 0, &read, sizeof read, &check_status));
        CHECK(read == version, "%lld", (long long)read);
    }
    hvd_snapshot_free(snapshot);
}

/* What is being copied when a snapshot is freed, or joins, is not needed any longer. */
static void leave_while_copying(struct member *member)
{
    hvd_snapshot *snapshot = make_snapshot();
    hvd_memory parts[PARTS];
    make_state(parts, LAST);
    for (int64_t i = 0; i < 3; i++) {
        CHECK_OK(hvd_snapshot_join(snapshot, member->context, &check_status));
        CHECK_OK(
            hvd_snapshot_save(snapshot, member->context, LAST + i, parts, PARTS, NULL, 0, &check_status));
    }
    hvd_snapshot_free(snapshot);
    check_allreduce_works(member, "freed");
    free_state(parts);
}

GROUP_TEST(test_abandoned, leave_while_copying, 1, 3, .transport = "auto")

/* ---- the next epoch ------------------------------------------------------------------------------------ */

static hvd_snapshot *kept[8];

/* In its second life a job has a process that is new on the host, the last rank. */
static void live_twice(struct member *member)
{
    hvd_snapshot **own = &kept[member->rank];
    bool second = *own != NULL, joins = member->rank == member->size - 1;
    if (second && joins)
        hvd_snapshot_free(*own);
    if (!second || joins)
        *own = make_snapshot();
    CHECK_OK(hvd_snapshot_join(*own, member->context, &check_status));
    if (second && member->size > 1)
        check_whole(*own, 2);
    check_allreduce_works(member, "read");
    for (int64_t version = 1; version <= 2; version++)
        save(member, *own, second ? 2 + version : version);
    check_allreduce_works(member, "saved");
    if (second) {
        hvd_snapshot_free(*own);
        *own = NULL;
    }
}

GROUP_TEST(test_copy_outlives_an_epoch, live_twice, 1, 4, .transport = "auto", .lives = 2)

/* ---- what ends a wait ---------------------------------------------------------------------------------- */

static void save_other_parts(struct member *member)
{
    hvd_snapshot *snapshot = make_snapshot();
    hvd_status status;
    hvd_memory parts[PARTS];
    make_state(parts, 1);
    CHECK_OK(hvd_snapshot_join(snapshot, member->context, &check_status));
    int count = member->rank ? PARTS : PARTS - 1;
    CHECK_OK(hvd_snapshot_save(snapshot, member->context, 1, parts, count, NULL, 0, &check_status));
    hvd_code code = hvd_snapshot_wait(snapshot, member->context, &status);
    CHECK(code == HVD_MISMATCH && strstr(status.text, "other parts"), "%s", status.text);
    code = hvd_snapshot_save(snapshot, member->context, 2, parts, count, NULL, 0, &status);
    CHECK(code == HVD_MISMATCH, "%s", status.text);
    CHECK(hvd_snapshot_version(snapshot, NULL, NULL) == -1, "it is whole");
    check_allreduce_works(member, "mismatch");
    hvd_snapshot_free(snapshot);
    free_state(parts);
}

GROUP_TEST(test_other_parts, save_other_parts, 2, 3, .transport = "auto")

static void lose_one(struct member *member)
{
    hvd_snapshot *snapshot = make_snapshot();
    hvd_status status;
    hvd_memory parts[PARTS];
    make_state(parts, 2);
    CHECK_OK(hvd_snapshot_join(snapshot, member->context, &check_status));
    save(member, snapshot, 1);
    check_allreduce_works(member, "saved");
    if (member->rank) { /* rank 0 leaves */
        CHECK_OK(hvd_snapshot_save(snapshot, member->context, 2, parts, PARTS, NULL, 0, &check_status));
        hvd_code code = hvd_snapshot_wait(snapshot, member->context, &status);
        CHECK(code == HVD_SHUT_DOWN && status.lost_rank >= 0, "%s: %s", hvd_code_name(code), status.text);
        check_whole(snapshot, 1);
    }
    hvd_snapshot_free(snapshot);
    free_state(parts);
}

GROUP_TEST(test_a_rank_leaves, lose_one, 2, 4, .transport = "auto")

static void wait_in_vain(struct member *member)
{
    hvd_snapshot *snapshot = make_snapshot();
    hvd_status status;
    hvd_memory part = {snapshot, 1};
    CHECK_OK(hvd_snapshot_join(snapshot, member->context, &check_status));
    if (member->rank == 0) {
        CHECK_OK(hvd_snapshot_save(snapshot, member->context, 1, &part, 1, NULL, 0, &check_status));
        hvd_code code = hvd_snapshot_wait(snapshot, member->context, &status);
        CHECK(code == HVD_TIMED_OUT && status.lost_rank == 1, "%s: %s", hvd_code_name(code), status.text);
    }
    check_allreduce_works(member, "timed out");
    hvd_snapshot_free(snapshot);
}

TEST(test_a_rank_does_not_save)
{
    group_run(&(struct group_options){.transport = "auto", SETTINGS("timeout_seconds", "4")}, 2, wait_in_vain,
              NULL);
}
