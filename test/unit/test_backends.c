/* test_backends.c - which row gets a collective, and when: choice, order across rows, refusals, abort. */
#include "test.h"

#include "backend/backend.h"
#include "base/status.h"
#include "rendezvous/client.h"

#include <stdio.h>
#include <string.h>

/* A row that the test controls. */
struct fake {
    uint64_t least;                 /* bytes that it takes */
    enum backend_progress progress; /* what it returns while a collective is in flight */
    struct collective_queue under_way;
    int calls;
    bool finishes;
};

static struct fake fakes[2];
static char log_text[256];

static hvd_code open_first(const struct backend_opening *opening, void **state, int *descriptor,
                           hvd_status *status)
{
    (void)opening, (void)descriptor, (void)status;
    *state = &fakes[0];
    return HVD_OK;
}

static hvd_code open_second(const struct backend_opening *opening, void **state, int *descriptor,
                            hvd_status *status)
{
    (void)opening, (void)descriptor, (void)status;
    *state = &fakes[1];
    return HVD_OK;
}

static hvd_code open_missing(const struct backend_opening *opening, void **state, int *descriptor,
                             hvd_status *status)
{
    (void)opening, (void)state, (void)descriptor;
    status_set(status, HVD_SYSTEM, "libmissing.so.2: no such file");
    return HVD_OK;
}

static void close_fake(void *state)
{
    assert_null(((struct fake *)state)->under_way.head);
}

static bool supports(const void *state, const struct backend_query *query, struct choice *choice)
{
    choice->algorithm = 7;
    return query->bytes >= ((const struct fake *)state)->least;
}

static hvd_code start(void *state, struct collective *collective, hvd_status *status)
{
    struct fake *fake = state;
    if (collective->choice.piece_exponent == 99)
        return status_set(status, HVD_SYSTEM, "no credits");
    collective_queue_push(&fake->under_way, collective);
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%d%c ", (int)(fake - fakes), (char)collective->root);
    return HVD_OK;
}

static enum backend_progress make_progress(void *state, bool *moved)
{
    struct fake *fake = state;
    fake->calls++;
    for (struct collective *c; fake->finishes && (c = collective_queue_pop(&fake->under_way)); *moved = true)
        c->done(c, &(hvd_status){.code = HVD_OK});
    return fake->under_way.head ? fake->progress : BACKEND_DONE;
}

static void abort_fake(void *state, const hvd_status *cause)
{
    struct fake *fake = state;
    for (struct collective *c; (c = collective_queue_pop(&fake->under_way));)
        c->done(c, cause);
}

#define FAKE(row_name, open_fn, ordered)                                                                     \
    {                                                                                                        \
        .name = row_name, .one_order = ordered, .open = open_fn, .close = close_fake, .supports = supports,  \
        .start = start, .progress = make_progress, .abort = abort_fake                                       \
    }
static const struct backend first = FAKE("first", open_first, false),
                            second = FAKE("second", open_second, false),
                            missing = FAKE("missing", open_missing, false),
                            ordered = FAKE("ordered", open_first, true);

static struct backends backends;

static bool turns_open;
static int turns_asked, turns_given, turns_used;

static void ask_turn(void *owner)
{
    (void)owner;
    turns_asked++;
}

static bool has_turn(const void *owner)
{
    (void)owner;
    return turns_used < turns_given;
}

static void use_turn(void *owner)
{
    (void)owner;
    turns_used++;
}

static void open_rows(const struct backend *const *table, int set)
{
    static const int ranks[] = {3, 5};
    struct backend_opening opening = {.set = set, .rank = 1, .size = 2, .ranks = ranks};
    if (turns_open)
        opening.turns = (struct turn_source){ask_turn, has_turn, use_turn, NULL};
    fakes[0] = fakes[1] = (struct fake){.progress = BACKEND_PENDING};
    fakes[0].least = 1000;
    log_text[0] = '\0';
    ASSERT_OK(backends_open(&backends, table, &opening, &check_status));
}

static const struct backend *const two_rows[] = {&first, &second, NULL};

/* A test's collective; `root` is its letter in the log. */
struct work {
    struct collective collective;
    int done;
    hvd_status status;
};

static void note_done(struct collective *collective, const hvd_status *status)
{
    struct work *work = collective->owner;
    work->done++;
    work->status = *status;
}

static void start_work(struct work *work, char letter, int row, bool exclusive)
{
    *work = (struct work){.collective = {.operation = HVD_ALLREDUCE,
                                         .root = letter,
                                         .size = 2,
                                         .exclusive = exclusive,
                                         .choice = {.backend = (uint8_t)row},
                                         .done = note_done,
                                         .owner = work}};
    backends_start(&backends, &work->collective);
}

TEST(test_choice)
{
    static const struct backend *const rows[] = {&missing, &first, &second, NULL};
    open_rows(rows, 0);
    struct choice small = backends_choose(&backends, &(struct backend_query){.bytes = 999});
    struct choice large = backends_choose(&backends, &(struct backend_query){.bytes = 1000});
    assert_int_equal(small.backend, 2);
    assert_int_equal(large.backend, 1);
    assert_int_equal(large.algorithm, 7);
    assert_string_equal(backends_algorithm_name(&backends, large), "first");
    assert_string_equal(backends_algorithm_name(&backends, (struct choice){.backend = 77}), "unknown");
    backends_close(&backends);
}

/* Without an order of all sets such a row is left out. */
TEST(test_one_order_needs_turns)
{
    static const struct backend *const rows[] = {&ordered, &second, NULL};
    for (int has_turns = 0; has_turns < 2; has_turns++) {
        turns_open = has_turns;
        open_rows(rows, 4);
        struct choice choice = backends_choose(&backends, &(struct backend_query){.bytes = 1000});
        assert_int_equal(choice.backend, has_turns ? 0 : 1);
        backends_close(&backends);
    }
    turns_open = false;
}

/* Each collective of such a row asks for a turn at once and waits for it, with all behind it. */
TEST(test_turns)
{
    static const struct backend *const rows[] = {&ordered, &second, NULL};
    struct work works[4];
    turns_open = true;
    turns_asked = turns_given = turns_used = 0;
    open_rows(rows, 4);
    for (int i = 0; i < 4; i++)
        start_work(&works[i], (char)('a' + i), i == 1, false);
    assert_int_equal(turns_asked, 3);
    assert_false(backends_progress(&backends));
    assert_false(backends_are_ready(&backends));
    turns_given = 1;
    assert_true(backends_are_ready(&backends));
    assert_true(backends_progress(&backends));
    assert_string_equal(log_text, "0a 1b ");
    assert_false(backends_are_ready(&backends));
    turns_given = 3;
    assert_true(backends_progress(&backends));
    assert_string_equal(log_text, "0a 1b 0c 0d ");
    assert_int_equal(turns_used, 3);
    fakes[0].finishes = fakes[1].finishes = true;
    while (backends_progress(&backends))
        ;
    assert_true(backends_idle(&backends));
    backends_close(&backends);
    turns_open = false;
}

/* Each row runs several; one that is exclusive has all rows to itself. */
TEST(test_order_across_rows)
{
    struct work works[6];
    open_rows(two_rows, 0);
    for (int i = 0; i < 6; i++)
        start_work(&works[i], (char)('a' + i), i % 2, i == 3);
    assert_false(backends_idle(&backends));
    assert_true(backends_are_ready(&backends));
    assert_true(backends_progress(&backends));
    assert_string_equal(log_text, "0a 1b 0c ");
    assert_false(backends_are_ready(&backends));
    fakes[0].finishes = true;
    assert_true(backends_progress(&backends));
    assert_false(backends_progress(&backends));
    assert_string_equal(log_text, "0a 1b 0c "); /* b is under way */
    fakes[1].finishes = true;
    assert_true(backends_progress(&backends));
    assert_true(backends_are_ready(&backends));
    fakes[1].finishes = false;
    assert_true(backends_progress(&backends));
    assert_string_equal(log_text, "0a 1b 0c 1d ");
    fakes[1].finishes = true;
    assert_true(backends_progress(&backends));
    assert_true(backends_progress(&backends));
    assert_string_equal(log_text, "0a 1b 0c 1d 0e 1f ");
    assert_true(backends_idle(&backends));
    for (int i = 0; i < 6; i++)
        assert_int_equal(works[i].done, 1);
    backends_close(&backends);
}

/* A row without work is not called; one that must be polled reports it while it has work. */
TEST(test_what_the_driver_must_do)
{
    struct work work;
    open_rows(two_rows, 0);
    fakes[1].progress = BACKEND_POLL;
    start_work(&work, 'a', 1, false);
    backends_progress(&backends);
    assert_true(backends_poll(&backends));
    assert_false(backends_are_ready(&backends));
    fakes[1].progress = BACKEND_READY;
    assert_false(backends_progress(&backends));
    assert_false(backends_poll(&backends));
    assert_true(backends_are_ready(&backends));
    fakes[1].finishes = true;
    assert_true(backends_progress(&backends));
    assert_true(backends_idle(&backends));
    int calls = fakes[1].calls;
    assert_false(backends_progress(&backends));
    assert_int_equal(fakes[1].calls, calls);
    assert_int_equal(fakes[0].calls, 0);
    backends_close(&backends);
}

/* This rank can't run the row that the root has chosen: the text names both ranks and the row. */
TEST(test_refusals)
{
    static const struct backend *const rows[] = {&missing, &first, NULL};
    struct work works[3];
    open_rows(rows, 4);
    for (int i = 0; i < 3; i++)
        start_work(&works[i], 'x', i == 0 ? 0 : i == 1 ? 9 : 1, false);
    works[2].collective.choice.piece_exponent = 99;
    assert_true(backends_progress(&backends));
    assert_true(backends_idle(&backends));
    assert_string_equal(
        works[0].status.text,
        "rank 5 can't run the allreduce of process set 4 by back end missing, which rank 3 has "
        "chosen: libmissing.so.2: no such file; install it on all hosts, or on none");
    assert_string_equal(
        works[1].status.text,
        "rank 5 can't run the allreduce of process set 4 by back end number 9, which rank 3 has "
        "chosen: it has 2 of them; do the ranks run different versions?");
    assert_string_equal(works[2].status.text, "no credits");
    for (int i = 0; i < 3; i++)
        assert_int_equal(works[i].done, 1);
    backends_close(&backends);
}

/* The numbers of the host's algorithms are received from another process as well. */
TEST(test_host_refuses_numbers)
{
    static const struct backend *const rows[] = {&backend_host, NULL};
    static const struct settings settings = {.rank = 5, .allreduce_algorithm = "auto"};
    static const struct choice wrong[] = {{0, 255, 12}, {0, 0, 11}, {0, 0, 31}};
    static const int ranks[] = {5};
    struct backend_opening opening = {.size = 1, .ranks = ranks, .settings = &settings};
    ASSERT_OK(backends_open(&backends, rows, &opening, &check_status));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct work work;
        start_work(&work, 'x', 0, false);
        work.collective.choice = wrong[i];
        assert_true(backends_progress(&backends));
        assert_int_equal(work.status.code, HVD_REFUSED);
        assert_non_null(strstr(work.status.text, "rank 5 can't run the allreduce"));
        assert_non_null(backends_algorithm_name(&backends, wrong[i]));
    }
    backends_close(&backends);
}

TEST(test_abort)
{
    struct work works[3];
    hvd_status cause;
    open_rows(two_rows, 0);
    for (int i = 0; i < 3; i++)
        start_work(&works[i], (char)('a' + i), i % 2, i == 2);
    backends_progress(&backends);
    status_set(&cause, HVD_PEER_LOST, "rank 1 has died");
    backends_abort(&backends, &cause);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(works[i].done, 1);
        assert_string_equal(works[i].status.text, "rank 1 has died");
    }
    assert_string_equal(log_text, "0a 1b ");
    int calls = fakes[0].calls;
    assert_false(backends_progress(&backends)); /* links and descriptors fall silent */
    assert_int_equal(fakes[0].calls, calls + 1);
    assert_true(backends_idle(&backends));
    backends_close(&backends);
}
