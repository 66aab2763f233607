/* test_subset.c - a job of some ranks: the place of each in it. */
#include "engine/identity.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static void put(struct settings *settings, const char *key, const char *value)
{
    ASSERT_OK(settings_set(settings, setting_by_key(key), value, key, &check_status));
}

static hvd_code apply(struct settings *settings, int size, int rank, const char *ranks, hvd_status *status)
{
    ASSERT_OK(settings_init(settings, &check_status));
    settings->size = size;
    settings->rank = rank;
    put(settings, "local_rank", "1");
    put(settings, "cross_size", "1");
    put(settings, "job", "job");
    put(settings, "ranks", ranks);
    return subset_apply(settings, status);
}

TEST(every_rank_finds_its_place)
{
    static const struct {
        int size, rank;
        const char *ranks;
        int new_rank, new_size;
    } cases[] = {
        {3, 0, "0,2", 0, 2}, {3, 2, "0,2", 1, 2},        {3, 1, "1", 0, 1},
        {3, 0, "2,0", 1, 2}, {10, 5, "0,1,4,5,8", 3, 5}, {9, 8, "8,6,0,1", 0, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings s;
        ASSERT_OK(apply(&s, cases[i].size, cases[i].rank, cases[i].ranks, &check_status));
        assert_int_equal(s.rank, cases[i].new_rank);
        assert_int_equal(s.size, cases[i].new_size);
        /* The launcher's values are those of its own world. */
        assert_int_equal(s.local_rank, -1);
        assert_int_equal(s.cross_size, -1);
        settings_free(&s);
    }
}

TEST(jobs_differ_by_their_list)
{
    static const char *const lists[] = {"0,1", "1,0", "0", "0,1,2"};
    struct settings settings[4], again;
    for (int i = 0; i < 4; i++) {
        ASSERT_OK(apply(&settings[i], 4, 0, lists[i], &check_status));
        assert_memory_equal(settings[i].job, "job-", 4);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(settings[i].job, settings[j].job);
    }
    ASSERT_OK(apply(&again, 4, 1, "0,1", &check_status));
    assert_string_equal(again.job, settings[0].job);
    settings_free(&again);
    for (int i = 0; i < 4; i++)
        settings_free(&settings[i]);
}

TEST(no_list_changes_nothing)
{
    struct settings settings;
    ASSERT_OK(apply(&settings, 4, 3, "", &check_status));
    assert_int_equal(settings.rank, 3);
    assert_string_equal(settings.job, "job");
    assert_int_equal(settings.local_rank, 1);
    settings_free(&settings);
}

TEST(bad_lists_are_refused)
{
    static const struct {
        const char *ranks, *problem;
    } cases[] = {
        {"1,2", "rank 0 of the world is not in the list of ranks '1,2'"},
        {"0,0", "rank 0 stands twice"},
        {"0,4", "'0,4' is no list of ranks of a world of 4"},
        {"0,-1", "is no list of ranks"},
        {"0,x", "is no list of ranks"},
        {"0 1", "is no list of ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings settings;
        ASSERT_FAILS(apply(&settings, 4, 0, cases[i].ranks, &check_status), HVD_INVALID_ARGUMENT,
                     cases[i].problem);
        settings_free(&settings);
    }
}
