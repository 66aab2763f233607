/* test_clocks.c - by how much the clocks of hosts differ: from questions and answers, and from what ranks
 * have recorded of the same batches. */
#include "../../launch/clocks.h"
#include "test.h"

#include <string.h>

TEST(test_the_shortest_look_counts)
{
    struct clock_look look = {0};
    clock_look_add(&look, 1000, 5600, 2000); /* between 3600 and 4600 */
    assert_int_equal(look.ahead, 4100);
    clock_look_add(&look, 3000, 7050, 3100);
    assert_int_equal(look.ahead, 4000);
    clock_look_add(&look, 4000, 9999, 4900);
    assert_int_equal(look.ahead, 4000);
    clock_look_add(&look, 10000000, 15000000, 10000900); /* half a trip of 450 against 50 and 500 of drift */
    assert_int_equal(look.ahead, 4999550);
}

TEST(test_answers_that_make_no_sense)
{
    struct clock_look look = {0};
    clock_look_add(&look, 0, 5, 10);
    clock_look_add(&look, 20, 5, 10);
    clock_look_add(&look, 5, INT64_MAX, 10);
    clock_look_add(&look, 5, -1, 10);
    assert_int_equal(look.sent + look.trip + look.ahead, 0);
    clock_look_add(&look, 5, 7, 5); /* a trip without time is the best one */
    clock_look_add(&look, 1, 100, 3);
    assert_int_equal(look.ahead, 2);
}

/* ---- causality ----------------------------------------------------------------------------------------- */

enum { RANKS = 3, BATCHES = 4 };

struct scene {
    struct history_request requests[RANKS][BATCHES];
    struct history histories[RANKS];
    struct clock_rank ranks[RANKS];
    int64_t ahead[RANKS]; /* of three hosts */
};

/* In each batch rank i submits i * 10 after its begin; the decision arrives 100 after it, 5 later at others
 * than rank 0. `by`: how much the clocks are ahead in truth. */
static void start(struct scene *scene, const int64_t by[RANKS])
{
    *scene = (struct scene){0};
    for (int i = 0; i < RANKS; i++) {
        for (int j = 0; j < BATCHES; j++) {
            int64_t begin = 1000 * (j + 1) + by[i];
            scene->requests[i][j] = (struct history_request){
                .submitted = begin + 80 + 10 * i, .decided = begin + (i ? 105 : 100), .batch = (uint64_t)j};
        }
        scene->histories[i] = (struct history){.list = scene->requests[i], .count = BATCHES};
        scene->ranks[i] = (struct clock_rank){.host = i, .history = &scene->histories[i]};
    }
}

static void correct(struct scene *scene)
{
    ASSERT_OK(clocks_correct(scene->ranks, RANKS, scene->ahead, RANKS, &check_status));
}

TEST(test_right_clocks_stay)
{
    struct scene scene;
    const int64_t by[RANKS] = {0, 1000000, -500};
    start(&scene, by);
    memcpy(scene.ahead, by, sizeof by);
    correct(&scene);
    assert_memory_equal(scene.ahead, by, sizeof by);
}

TEST(test_decisions_arrive_after_they_were_sent)
{
    struct scene scene;
    start(&scene, (int64_t[]){0, 1000000, 0});
    scene.ahead[1] = 1000400; /* then rank 1 would have learned of decisions before rank 0 had submitted */
    scene.ahead[2] = -777;    /* and rank 2 would have submitted after they were made */
    correct(&scene);
    assert_in_range(scene.ahead[1], 1000000, 1000025);
    assert_in_range(scene.ahead[2] + 1000, 990, 1025);
    assert_int_equal(scene.ahead[0], 0);
}

TEST(test_clocks_that_were_never_asked)
{
    struct scene scene;
    start(&scene, (int64_t[]){0, 123456789, -123456789});
    correct(&scene);
    assert_in_range(scene.ahead[1], 123456779, 123456814);
    assert_in_range(-scene.ahead[2], 123456739, 123456839);
}

TEST(test_requests_that_show_nothing)
{
    struct scene scene;
    start(&scene, (int64_t[]){0, 0, 0});
    for (int j = 0; j < BATCHES; j++) {
        scene.requests[1][j].decided = 0;     /* never decided */
        scene.requests[2][j].process_set = 9; /* of ranks that have no part in the others' batches */
    }
    scene.ahead[1] = 5;
    scene.ahead[2] = 99999;
    correct(&scene);
    assert_int_equal(scene.ahead[1], 5);
    assert_int_equal(scene.ahead[2], 99999);
}
