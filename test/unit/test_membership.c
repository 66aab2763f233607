/* test_membership.c - which processes are the ranks of a job: each test feeds inputs, and compares the
 * actions that follow with a text. */
#include "membership/membership.h"
#include "membership/state.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)

static struct membership *machine;
static int64_t now;
static char seen[4096];

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...)
{
    size_t length = strlen(seen);
    va_list arguments;
    if (length)
        seen[length++] = ';';
    va_start(arguments, format);
    vsnprintf(seen + length, sizeof seen - length, format, arguments);
    va_end(arguments);
}

static void put_epoch(void)
{
    char text[256] = "";
    int epoch, size;
    const struct membership_rank *ranks = membership_ranks(machine, &epoch, &size);
    for (int rank = 0; rank < size; rank++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d%s", ranks[rank].slot,
                 ranks[rank].newcomer ? "+" : "");
    put("epoch %d:%s", epoch, text);
}

/* Appends all actions that are due to `seen`. Preparing a host succeeds at once. */
static void drain(void)
{
    static const char *const steps[] = {"keep", "own", "term", "kill"};
    static const char *const whys[] = {"removed", "host out", "leaves", "hung", "cut off", "over"};
    struct membership_action action;
    int prepared[16], count = 0;
    while (membership_next(machine, &action)) {
        switch (action.kind) {
        case MEMBERSHIP_PREPARE:
            put("prepare %s", membership_host_name(machine, action.host));
            prepared[count++] = action.host;
            break;
        case MEMBERSHIP_RELEASE:
            put("release %s", membership_host_name(machine, action.host));
            break;
        case MEMBERSHIP_EPOCH:
            put_epoch();
            break;
        case MEMBERSHIP_START:
            put("start %d %s.%d", action.slot, membership_host_name(machine, action.host), action.seat);
            break;
        case MEMBERSHIP_END:
            put("end %d %s %s", action.slot, steps[action.step], whys[action.why]);
            break;
        case MEMBERSHIP_NOTICE:
            put("notice %d%s%s%s", action.epoch, action.change & MEMBERSHIP_LESS ? " less" : "",
                action.change & MEMBERSHIP_MORE ? " more" : "",
                action.change & MEMBERSHIP_LOST ? " lost" : "");
            break;
        case MEMBERSHIP_SAY:
            put("say %s", action.text);
            break;
        case MEMBERSHIP_FINISH:
            put("finish %d slot %d %s%s%s", action.exit_code, action.slot, steps[action.step],
                action.text[0] ? ": " : "", action.text);
        }
    }
    for (int i = 0; i < count; i++)
        membership_host_prepared(machine, now, prepared[i]);
    if (count)
        drain();
}

static void expect_at(const char *expected, int line)
{
    drain();
    if (strcmp(seen, expected) != 0)
        fail_msg("line %d:\n  expected %s\n  seen     %s", line, expected, seen);
    seen[0] = 0;
}
#define EXPECT(text) expect_at(text, __LINE__)

/* Advances the clock, and calls the state machine at each of its deadlines. */
static void pass(double seconds)
{
    int64_t end = now + (int64_t)(seconds * (double)SECOND);
    while (membership_deadline(machine) <= end) {
        now = membership_deadline(machine) > now ? membership_deadline(machine) : now;
        membership_tick(machine, now);
        drain();
    }
    now = end;
}

/* "a:2,b:1" */
static void discover(const char *list)
{
    char names[8][16];
    struct membership_host hosts[8];
    int count = 0, length;
    while (sscanf(list, "%15[^:]:%d%n", names[count], &hosts[count].slots, &length) == 2) {
        hosts[count].name = names[count];
        count++;
        list += length;
        list += *list == ',';
    }
    membership_discovered(machine, now, hosts, count);
}

static struct membership_config elastic(int start, int min, int max)
{
    return (struct membership_config){.start = start,
                                      .min = min,
                                      .max = max,
                                      .prepare = 5 * SECOND,
                                      .settle = SECOND / 20,
                                      .rejoin = 30 * SECOND,
                                      .silent = 5 * SECOND,
                                      .gather = 10 * SECOND,
                                      .timeout = 600 * SECOND,
                                      .reset_limit = -1,
                                      .restarts = 3};
}

static void open_job(struct membership_config config, const char *hosts)
{
    membership_free(machine);
    machine = membership_new(&config);
    assert_non_null(machine);
    now = 1000 * SECOND;
    seen[0] = 0;
    discover(hosts);
}

/* Starts a job of epoch 0, whose actions are checked elsewhere, and whose programs have all been entered. */
static void open_running(struct membership_config config, const char *hosts, int slots)
{
    open_job(config, hosts);
    drain();
    for (int slot = 0; slot < slots; slot++)
        membership_waits(machine, now, slot, &(struct membership_wait){.after = -1, .lost_rank = -1});
    drain();
    assert_non_null(strstr(seen, "epoch 0:"));
    seen[0] = 0;
}

static void waits_for(int slot, int after, int lost)
{
    membership_waits(machine, now, slot,
                     &(struct membership_wait){.after = after, .holds_state = true, .lost_rank = lost});
}

static void ready(int slot)
{
    membership_waits(machine, now, slot, &(struct membership_wait){.after = -1, .lost_rank = -1});
}

static void ends(int slot, int exit_code)
{
    membership_ended(machine, now, slot, exit_code, exit_code > 128 ? exit_code - 128 : 0);
    membership_gone(machine, now, slot);
}

static int free_machine(void **state)
{
    (void)state;
    membership_free(machine);
    machine = NULL;
    return 0;
}

const struct test_hooks test_hooks = {.after_each = free_machine};

/* ---- the first epoch ----------------------------------------------------------------------------------- */

TEST(test_the_first_epoch_waits_for_enough_seats)
{
    open_job(elastic(3, 2, 4), "a:2");
    EXPECT("prepare a");
    pass(31);
    EXPECT("say waiting for slots: 2 of the 3 that the job needs");
    discover("a:2,b:3");
    EXPECT("prepare b;epoch 0: 0+ 1+ 2+ 3+;start 0 a.0;start 1 a.1;start 2 b.0;start 3 b.1");
}

TEST(test_a_job_without_seats_ends)
{
    open_job(elastic(2, 2, 4), "");
    pass(599);
    seen[0] = 0;
    pass(2);
    EXPECT("finish 75 slot -1 term: the job needs 2 slots and has had 0 for 600 s; see --min-np and "
           "--elastic-timeout");
}

TEST(test_hosts_that_cannot_be_prepared_are_tried_again)
{
    struct membership_action action;
    open_job(elastic(1, 1, 1), "a:1");
    assert_true(membership_next(machine, &action) && action.kind == MEMBERSHIP_PREPARE);
    membership_host_failed(machine, now, action.host);
    EXPECT("");
    pass(1);
    EXPECT("prepare a;epoch 0: 0+;start 0 a.0");
}

/* Starts a job whose hosts do not answer yet. */
static void open_unprepared(struct membership_config config, const char *hosts)
{
    struct membership_action action;
    open_job(config, hosts);
    while (membership_next(machine, &action))
        assert_int_equal(action.kind, MEMBERSHIP_PREPARE);
}

TEST(test_a_host_that_does_not_answer)
{
    open_unprepared(elastic(2, 1, 4), "a:2,b:2");
    pass(4);
    membership_host_prepared(machine, now, 0);
    pass(4.9);
    EXPECT("");
    pass(0.2);
    EXPECT("epoch 0: 0+ 1+;start 0 a.0;start 1 a.1");
    pass(100);
    membership_host_prepared(machine, now, 1);
    EXPECT("start 2 b.0;start 3 b.1");
}

TEST(test_the_first_epoch_is_smaller_without_a_host)
{
    open_unprepared(elastic(4, 3, 4), "a:2,b:2,c:1");
    membership_host_prepared(machine, now, 0);
    pass(20);
    EXPECT(""); /* below the minimum */
    membership_host_failed(machine, now, 1);
    membership_host_prepared(machine, now, 2);
    pass(0.9);
    EXPECT("");
    pass(4.2);
    EXPECT("prepare b;epoch 0: 0+ 1+ 2+ 3+;start 0 a.0;start 1 a.1;start 2 b.0;start 3 b.1");
    open_unprepared(elastic(4, 3, 4), "a:2,b:2,c:1");
    membership_host_prepared(machine, now, 0);
    membership_host_prepared(machine, now, 2);
    pass(5);
    EXPECT("epoch 0: 0+ 1+ 2+;start 0 a.0;start 1 a.1;start 2 c.0");
}

TEST(test_hosts_that_are_not_needed_are_not_awaited)
{
    open_unprepared(elastic(2, 1, 2), "a:2,b:2");
    membership_host_prepared(machine, now, 1);
    pass(3);
    EXPECT(""); /* the user has named a first */
    membership_host_prepared(machine, now, 0);
    EXPECT("epoch 0: 0+ 1+;start 0 a.0;start 1 a.1");
    open_unprepared(elastic(2, 1, 2), "a:2,b:2");
    membership_host_prepared(machine, now, 0);
    EXPECT("epoch 0: 0+ 1+;start 0 a.0;start 1 a.1");
}

/* ---- losses -------------------------------------------------------------------------------------------- */

TEST(test_survivors_go_on_once_all_wait)
{
    open_running(elastic(3, 1, 3), "a:3", 3);
    ends(1, 137);
    EXPECT("notice 0 lost");
    waits_for(0, 0, 1);
    EXPECT("");
    waits_for(2, 0, 1);
    pass(0.04);
    EXPECT(""); /* more losses may follow */
    pass(0.01);
    EXPECT("epoch 1: 0 2");
    pass(1); /* on the only host the process is replaced */
    EXPECT("start 3 a.1");
    pass(5);
    EXPECT("");
    ready(3);
    EXPECT("notice 1 more");
    waits_for(0, 1, -1);
    waits_for(2, 1, -1);
    EXPECT("notice 1 more lost;epoch 2: 0 2 3+");
}

TEST(test_a_failed_rank_takes_its_host_out)
{
    open_running(elastic(4, 1, 4), "a:2,b:2", 4);
    ends(1, 1);
    EXPECT("end 0 own host out;notice 0 lost");
    waits_for(2, 0, 1);
    waits_for(3, 0, 1);
    pass(1);
    EXPECT("epoch 1: 2 3");
    ends(0, 0);
    EXPECT("release a");
    pass(10000);
    EXPECT("");
}

TEST(test_a_host_returns_after_its_pause)
{
    struct membership_config config = elastic(2, 1, 2);
    config.pause[0] = 10 * SECOND;
    config.pause[1] = 100 * SECOND;
    open_running(config, "a:1,b:1", 2);
    ends(0, 1);
    waits_for(1, 0, 0);
    pass(1);
    EXPECT("notice 0 lost;release a;epoch 1: 1");
    pass(18);
    EXPECT("");
    pass(12);
    EXPECT("prepare a;start 2 a.0");
}

TEST(test_a_failed_process_is_started_again_if_asked_for)
{
    struct membership_config config = elastic(2, 1, 2);
    config.restart = true;
    config.restarts = 1;
    open_running(config, "a:1,b:1", 2);
    ends(0, 1);
    waits_for(1, 0, 0);
    pass(2);
    EXPECT("notice 0 lost;epoch 1: 1;start 2 a.0");
    ends(2, 1);
    pass(100);
    EXPECT("release a"); /* twice within ten minutes */
}

/* ---- spares, and processes that are asked to leave -------------------------------------------------------
 */

TEST(test_a_spare_takes_a_lost_place_at_once)
{
    struct membership_config config = elastic(2, 1, 2);
    config.spares = 1;
    config.restart = true;
    open_running(config, "a:4", 2);
    ready(2); /* it was started with the others */
    pass(20);
    EXPECT(""); /* nobody is interrupted */
    ends(1, 137);
    waits_for(0, 0, 1);
    pass(0.1);
    EXPECT("notice 0 lost;start 3 a.3;epoch 1: 0 2+");
}

TEST(test_one_that_is_asked_to_leave)
{
    open_running(elastic(3, 2, 3), "a:4", 3);
    membership_leaves(machine, now, 1);
    EXPECT("notice 0 less;start 3 a.3"); /* the seat is not used again */
    membership_leaves(machine, now, 1);
    membership_leaves(machine, now, 99);
    EXPECT("");
    for (int slot = 0; slot < 3; slot++)
        waits_for(slot, 0, -1);
    pass(1);
    EXPECT("notice 0 less lost;epoch 1: 0 2;end 1 own leaves");
    ends(1, 0);
    pass(100);
    EXPECT("");
    discover("a:1");
    discover("a:4"); /* offered anew */
    pass(100);
    assert_null(strstr(seen, "say"));
    seen[0] = 0;
}

TEST(test_one_that_is_needed_stays_until_another_one_comes)
{
    open_running(elastic(2, 2, 2), "a:2", 2);
    membership_leaves(machine, now, 1);
    pass(10);
    EXPECT("");
    discover("a:3");
    EXPECT("start 2 a.2");
    ready(2);
    EXPECT("notice 0 less more");
    waits_for(0, 0, -1);
    waits_for(1, 0, -1);
    pass(0.1);
    EXPECT("notice 0 less more lost;epoch 1: 0 2+;end 1 own leaves");
}

TEST(test_a_host_that_is_asked_to_leave)
{
    open_running(elastic(3, 1, 3), "a:2,b:1", 3);
    membership_host_leaves(machine, now, 0);
    membership_host_leaves(machine, now, 7);
    for (int slot = 0; slot < 3; slot++)
        waits_for(slot, 0, -1);
    pass(1);
    EXPECT("notice 0 less;notice 0 less lost;epoch 1: 2;end 0 own leaves;end 1 own leaves");
    ends(0, 0);
    ends(1, 0);
    pass(100);
    EXPECT("");
}

TEST(test_seats_that_a_leaving_host_did_not_offer)
{
    open_running(elastic(2, 1, 2), "a:1,b:2", 2);
    discover("a:1,b:1");
    membership_host_leaves(machine, now, 1);
    EXPECT("notice 0 less");
    discover("a:1,b:2");
    EXPECT("start 2 b.1");
}

/* What has ended long ago takes no room, and is searched no longer. */
TEST(test_ten_thousand_replacements)
{
    struct membership_config config = elastic(2, 1, 2);
    config.restart = true;
    config.restarts = 1000000;
    open_running(config, "a:2", 2);
    for (int slot = 1; slot <= 10000; slot++) {
        int epoch, size;
        membership_ranks(machine, &epoch, &size);
        ends(slot, 137);
        waits_for(0, epoch, 1);
        pass(700);
        ready(slot + 1);
        waits_for(0, epoch + 1, -1);
        drain();
        seen[0] = 0;
        assert_int_equal(membership_ranks(machine, &epoch, &size)[1].slot, slot + 1);
        assert_true(machine->slot_count <= 3);
    }
    ready(5000); /* late reports of it have no effect */
    ends(5000, 1);
    EXPECT("");
}

/* As a failed one, but its host is not to blame. */
TEST(test_a_process_that_leaves_by_itself)
{
    struct membership_config config = elastic(2, 1, 2);
    config.restarts = 1;
    open_running(config, "a:1,b:1", 2);
    ends(1, 0);
    EXPECT("notice 0 lost");
    pass(0.9);
    EXPECT("");
    pass(0.2);
    EXPECT("start 2 b.0");
    ready(2);
    waits_for(0, 0, 1);
    pass(0.1);
    EXPECT("epoch 1: 0 2+");
    ends(2, 0);
    pass(500);
    EXPECT("say slot 0 of b has failed 2 times and is no longer used;notice 1 lost");
}

TEST(test_a_job_whose_seats_are_used_up)
{
    struct membership_config config = elastic(2, 2, 2);
    config.restarts = 1;
    config.listed = true;
    open_running(config, "a:2", 2);
    ends(1, 3);
    waits_for(0, 0, 1);
    pass(2);
    EXPECT("notice 0 lost;start 2 a.1");
    ends(2, 4);
    pass(0.1);
    EXPECT("say slot 1 of a has failed 2 times and is no longer used;finish 3 slot 1 term: the job needs 2 "
           "slots, and there are only 1");
}

TEST(test_a_job_that_can_never_start)
{
    struct membership_config config = elastic(3, 2, 3);
    config.listed = true;
    open_job(config, "a:2");
    EXPECT("prepare a;finish 75 slot -1 term: the job needs 3 slots, and there are only 2");
}

TEST(test_a_job_ends_with_its_last_member)
{
    open_running(elastic(3, 1, 3), "a:3", 3);
    ends(1, 3);
    waits_for(0, 0, 1);
    waits_for(2, 0, 1);
    pass(0.1);
    EXPECT("notice 0 lost;epoch 1: 0 2");
    ends(2, 137);
    ends(0, 9);
    EXPECT("notice 1 lost;finish 137 slot 2 term: no rank is left that holds the state of the training");
}

TEST(test_a_lost_host)
{
    open_running(elastic(4, 1, 4), "a:2,b:2", 4);
    membership_host_lost(machine, now, 0, false);
    waits_for(2, 0, 0);
    waits_for(3, 0, 0);
    pass(1);
    EXPECT("notice 0 lost;epoch 1: 2 3");
    membership_host_lost(machine, now, 1, true);
    EXPECT("finish 75 slot -1 term: no rank is left that holds the state of the training");
}

/* The newcomer was a member, but has never received the state. */
TEST(test_an_epoch_needs_the_state)
{
    open_running(elastic(1, 1, 2), "a:1", 1);
    discover("a:1,b:1");
    EXPECT("prepare b;start 1 b.0");
    ready(1);
    waits_for(0, 0, -1);
    EXPECT("notice 0 more;notice 0 more lost;epoch 1: 0 1+");
    membership_host_lost(machine, now, 0, false);
    membership_waits(machine, now, 1, &(struct membership_wait){.after = 1, .lost_rank = 0});
    pass(1);
    EXPECT("notice 1 lost;finish 75 slot -1 term: no rank is left that holds the state of the training");
}

static void waits_without_state(int slot, int after)
{
    membership_waits(machine, now, slot, &(struct membership_wait){.after = after, .lost_rank = -1});
}

/* The first epoch is lost before its ranks have agreed on a state: all have what the program starts with. */
TEST(test_a_loss_before_there_is_a_state)
{
    open_running(elastic(3, 1, 3), "a:3", 3);
    ends(1, 137);
    waits_without_state(0, 0);
    waits_without_state(2, 0);
    pass(2);
    EXPECT("notice 0 lost;epoch 1: 0 2;start 3 a.1");
    ready(3);
    pass(20);
    waits_for(0, 1, -1);
    waits_for(2, 1, -1);
    pass(1);
    EXPECT("notice 1 more;notice 1 more lost;epoch 2: 0 2 3+");
    ends(0, 137);
    ends(2, 137);
    waits_without_state(3, 2);
    pass(1);
    EXPECT("notice 2 lost;finish 137 slot 0 term: no rank is left that holds the state of the training");
}

TEST(test_a_rank_that_hangs_is_ended)
{
    open_running(elastic(3, 1, 3), "a:3", 3);
    ends(1, 137);
    waits_for(0, 0, 1);
    pass(29);
    EXPECT("notice 0 lost;start 3 a.1;say all wait for process 2 for 15 s; it is ended after 30 s, see "
           "--rejoin-seconds");
    pass(2);
    EXPECT("end 2 term hung;epoch 1: 0");
}

/* SIGTERM does not end a stopped process. */
TEST(test_a_rank_that_all_have_lost_is_killed)
{
    open_running(elastic(3, 1, 3), "a:3", 3);
    waits_for(0, 0, 2);
    waits_for(1, 0, 2);
    pass(4);
    EXPECT("notice 0 lost");
    pass(2);
    EXPECT("end 2 kill hung;epoch 1: 0 1");
}

/* It computes, and does not know yet that another one was lost. */
TEST(test_a_rank_that_is_busy_comes_back)
{
    open_running(elastic(4, 1, 4), "a:4", 4);
    ends(3, 137);
    waits_for(0, 0, 3);
    waits_for(1, 0, 2);
    pass(20);
    waits_for(2, 0, 3);
    pass(1);
    EXPECT("notice 0 lost;start 4 a.3;say all wait for process 2 for 15 s; it is ended after 30 s, see "
           "--rejoin-seconds;epoch 1: 0 1 2");
}

TEST(test_a_program_that_still_loads_is_not_hung)
{
    open_job(elastic(2, 1, 2), "a:2");
    ready(0);
    drain();
    seen[0] = 0;
    ends(0, 1);
    EXPECT("notice 0 lost");
    pass(60);
    EXPECT("start 2 a.0");
    ready(1); /* it had not been in epoch 0 */
    EXPECT("epoch 1: 1");
}

/* ---- the network --------------------------------------------------------------------------------------- */

TEST(test_ranks_that_lose_each_other_meet_again)
{
    open_running(elastic(3, 1, 3), "a:1,b:1,c:1", 3);
    for (int epoch = 0; epoch < 2; epoch++) {
        waits_for(0, epoch, 2);
        waits_for(1, epoch, 2);
        waits_for(2, epoch, 0);
        pass(1);
        drain();
    }
    EXPECT("notice 0 lost;epoch 1: 0 1 2;notice 1 lost;epoch 2: 0 1 2");
    waits_for(0, 2, 2);
    waits_for(1, 2, 2);
    waits_for(2, 2, 0);
    pass(1);
    EXPECT("notice 2 lost;end 2 term cut off;epoch 3: 0 1");
}

/* Their program fails by itself, at the same place each time. */
TEST(test_ranks_that_reset_for_ever)
{
    open_running(elastic(2, 1, 2), "a:2", 2);
    for (int epoch = 0; epoch < 9; epoch++) {
        waits_for(0, epoch, -1);
        waits_for(1, epoch, -1);
        seen[0] = 0;
        drain();
        pass(0.1);
    }
    EXPECT("notice 8 lost;epoch 9: 0 1");
    waits_for(0, 9, -1);
    waits_for(1, 9, -1);
    pass(0.1);
    EXPECT("notice 9 lost;finish 1 slot -1 term: the same ranks have started again 10 times within a minute, "
           "though none was lost: they fail at the same place each time");
}

TEST(test_resets_that_are_rare)
{
    open_running(elastic(2, 1, 2), "a:2", 2);
    for (int epoch = 0; epoch < 20; epoch++) {
        seen[0] = 0;
        waits_for(0, epoch, -1);
        waits_for(1, epoch, -1);
        drain();
        pass(7);
    }
    EXPECT("notice 19 lost;epoch 20: 0 1");
}

TEST(test_an_old_question_is_no_wait)
{
    open_running(elastic(2, 1, 2), "a:2", 2);
    waits_for(0, 0, 1);
    waits_for(1, 0, 0);
    pass(1);
    EXPECT("notice 0 lost;epoch 1: 0 1");
    waits_for(0, 0, 1);
    pass(100);
    EXPECT("");
}

/* ---- changes ------------------------------------------------------------------------------------------- */

TEST(test_newcomers_of_one_change_join_together)
{
    open_running(elastic(1, 1, 9), "a:1", 1);
    discover("a:1,b:2");
    EXPECT("prepare b;start 1 b.0;start 2 b.1");
    ready(2);
    pass(9);
    EXPECT("");
    ready(1);
    EXPECT("notice 0 more");
    waits_for(0, 0, -1);
    EXPECT("notice 0 more lost;epoch 1: 0 1+ 2+");
}

TEST(test_a_slow_newcomer_is_not_waited_for)
{
    open_running(elastic(1, 1, 9), "a:1", 1);
    discover("a:1,b:2");
    EXPECT("prepare b;start 1 b.0;start 2 b.1");
    ready(2);
    pass(9);
    EXPECT("");
    pass(2);
    EXPECT("notice 0 more");
    waits_for(0, 0, -1);
    EXPECT("notice 0 more lost;epoch 1: 0 2+");
    ready(1);
    EXPECT("notice 1 more");
}

TEST(test_a_newcomer_that_dies_costs_nothing)
{
    open_running(elastic(1, 1, 9), "a:1", 1);
    discover("a:1,b:1");
    EXPECT("prepare b;start 1 b.0");
    ends(1, 1);
    EXPECT("release b");
}

TEST(test_members_stay_before_newcomers)
{
    open_running(elastic(3, 1, 3), "a:3", 3);
    ends(0, 1);
    waits_for(1, 0, 0);
    pass(2);
    ready(3);
    seen[0] = 0;
    waits_for(2, 0, 0);
    EXPECT("epoch 1: 1 2 3+");
}

TEST(test_a_removed_host_leaves_at_the_next_epoch)
{
    open_running(elastic(4, 2, 4), "a:2,b:2", 4);
    discover("b:2");
    EXPECT("notice 0 less");
    for (int slot = 0; slot < 4; slot++)
        waits_for(slot, 0, -1);
    EXPECT("notice 0 less lost;epoch 1: 2 3;end 0 own removed;end 1 own removed");
    ends(0, 0);
    EXPECT("");
    ends(1, 0);
    EXPECT("release a");
}

TEST(test_the_highest_seats_go)
{
    open_running(elastic(4, 2, 4), "a:2,b:2", 4);
    discover("a:1,b:2");
    EXPECT("notice 0 less");
    for (int slot = 0; slot < 4; slot++)
        waits_for(slot, 0, -1);
    EXPECT("notice 0 less lost;epoch 1: 0 2 3;end 1 own removed");
}

/* One member stays until a newcomer has received the state. */
TEST(test_all_hosts_are_exchanged)
{
    open_running(elastic(2, 2, 2), "a:2", 2);
    discover("b:2");
    EXPECT("prepare b;start 2 b.0;start 3 b.1");
    ready(2);
    ready(3);
    EXPECT("notice 0 less more");
    waits_for(0, 0, -1);
    waits_for(1, 0, -1);
    EXPECT("notice 0 less more lost;epoch 1: 0 2+;end 1 own removed;notice 1 less more");
    waits_for(0, 1, -1);
    waits_for(2, 1, -1);
    EXPECT("notice 1 less more lost;epoch 2: 2 3+;end 0 own removed");
}

TEST(test_too_few_would_be_left)
{
    open_running(elastic(2, 2, 2), "a:1,b:1", 2);
    discover("a:1");
    pass(1000);
    EXPECT(""); /* they train on, for as long as the host lives */
}

TEST(test_one_seat_one_process)
{
    open_running(elastic(2, 1, 2), "a:2", 2);
    membership_ended(machine, now, 1, 1, 0);
    pass(100);
    EXPECT("notice 0 lost");
    membership_gone(machine, now, 1);
    EXPECT("start 2 a.1");
}

TEST(test_the_reset_limit)
{
    struct membership_config config = elastic(3, 1, 3);
    config.reset_limit = 1;
    open_running(config, "a:3", 3);
    ends(0, 1);
    waits_for(1, 0, 0);
    waits_for(2, 0, 0);
    pass(0.1);
    EXPECT("notice 0 lost;epoch 1: 1 2");
    ends(1, 1);
    waits_for(2, 1, 0);
    pass(0.1);
    EXPECT(
        "notice 1 lost;finish 1 slot -1 term: Horovod was shutdown because number of resets during elastic "
        "job exceeded limit: 1");
}

/* ---- the end ------------------------------------------------------------------------------------------- */

TEST(test_the_job_is_done)
{
    open_running(elastic(2, 1, 3), "a:2", 2);
    discover("a:2,b:1");
    EXPECT("prepare b;start 2 b.0");
    membership_done(machine, now, 1);
    EXPECT("end 2 term over");
    ends(1, 0);
    membership_done(machine, now, 0);
    EXPECT("");
    ends(0, 0);
    EXPECT("finish 0 slot -1 keep");
}

TEST(test_a_failure_after_the_function)
{
    open_running(elastic(2, 1, 2), "a:2", 2);
    membership_done(machine, now, 0);
    membership_done(machine, now, 1);
    ends(1, 4);
    ends(0, 0);
    EXPECT("finish 4 slot 1 term");
}

/* However few they are: the others have finished. */
TEST(test_a_loss_between_two_ends)
{
    open_running(elastic(3, 3, 3), "a:3", 3);
    membership_done(machine, now, 0);
    ends(1, 137);
    waits_for(2, 0, 1);
    pass(1);
    EXPECT("notice 0 lost;epoch 1: 2");
    membership_done(machine, now, 2);
    ends(0, 0);
    ends(2, 0);
    EXPECT("finish 0 slot -1 keep");
}

TEST(test_all_leave_without_a_result)
{
    open_running(elastic(2, 1, 2), "a:2", 2);
    ends(0, 0);
    ends(1, 0);
    EXPECT(
        "notice 0 lost;finish 1 slot -1 term: all ranks have ended, and none has reported that its work is "
        "complete");
}

TEST(test_programs_that_use_no_epochs)
{
    open_job(elastic(2, 1, 3), "a:2");
    drain();
    discover("a:2,b:1");
    drain();
    seen[0] = 0;
    ends(0, 0);
    EXPECT("end 2 term over"); /* a newcomer */
    ends(1, 0);
    EXPECT("finish 0 slot -1 keep");
}

/* None of them has reported anything, so each is done when it ends, however long the others take. */
TEST(test_an_early_end_of_a_program_that_uses_no_epochs)
{
    open_job(elastic(3, 3, 3), "a:1,b:1,c:1");
    drain();
    seen[0] = 0;
    ends(1, 0);
    pass(10000);
    EXPECT("");
    ends(0, 0);
    ends(2, 0);
    EXPECT("finish 0 slot -1 keep");
}

TEST(test_a_failure_of_a_program_that_uses_no_epochs)
{
    open_job(elastic(2, 1, 2), "a:2");
    drain();
    seen[0] = 0;
    ends(0, 0);
    ends(1, 3);
    EXPECT("finish 3 slot 1 term");
}

TEST(test_an_end_before_the_first_program_is_entered)
{
    open_job(elastic(3, 1, 3), "a:3");
    drain();
    seen[0] = 0;
    ends(1, 0);
    pass(100);
    EXPECT("");
    ready(0);
    EXPECT("notice 0 lost;start 3 a.1");
    ready(2);
    pass(1);
    EXPECT("epoch 1: 0 2");
}

/* ---- Horovod's own rules --------------------------------------------------------------------------------
 */

TEST(test_the_last_host_is_left_out)
{
    struct membership_config config = elastic(4, 1, 4);
    config.drop_last = true;
    open_running(config, "a:2,b:2", 4);
    ends(0, 1);
    EXPECT("end 1 own host out;notice 0 lost");
    ends(2, 1);
    EXPECT("end 3 own host out;finish 1 slot 0 term: no rank is left that holds the state of the training");
}

TEST(test_members_wait_for_newcomers_that_start)
{
    struct membership_config config = elastic(2, 1, 3);
    config.grow_now = true;
    open_running(config, "a:2", 2);
    discover("a:2,b:2");
    EXPECT("prepare b;start 2 b.0");
    pass(0);
    EXPECT("notice 0 more");
    waits_for(0, 0, -1);
    waits_for(1, 0, -1);
    EXPECT("notice 0 more lost");
    pass(29);
    EXPECT("");
    ready(2);
    EXPECT("epoch 1: 0 1 2+");
}

TEST(test_members_do_not_wait_forever_for_newcomers)
{
    struct membership_config config = elastic(2, 1, 3);
    config.grow_now = true;
    open_running(config, "a:3", 3);
    ends(2, 1);
    pass(2);
    waits_for(0, 0, 2);
    waits_for(1, 0, 2);
    seen[0] = 0;
    pass(31);
    EXPECT("epoch 1: 0 1");
}

/* ---- jobs whose ranks stay the same -------------------------------------------------------------------- */

static void open_fixed(void)
{
    open_job((struct membership_config){.fixed = true, .start = 3, .min = 3, .max = 3, .timeout = INT64_MAX},
             "a:2,b:1");
    EXPECT("prepare a;prepare b;epoch 0: 0+ 1+ 2+;start 0 a.0;start 1 a.1;start 2 b.0");
}

TEST(test_the_first_failure_ends_a_fixed_job)
{
    open_fixed();
    ends(0, 0);
    EXPECT("");
    ends(2, 137);
    EXPECT("finish 137 slot 2 own");
    ends(1, 1);
    EXPECT("");
}

/* One row: the input, and the actions that follow in a job that runs and in one that is ending. */
TEST(test_inputs_of_a_fixed_job)
{
    static const struct {
        int host_lost; /* 1: its connection has ended; 2: it was silent */
        int not_started, stopped;
        enum membership_step step;
        const char *running, *ending;
    } rows[] = {
        {.host_lost = 1, .running = "finish 1 slot -1 own", .ending = "end -1 own over"},
        {.host_lost = 2, .running = "finish 1 slot -1 term", .ending = "end -1 own over"},
        {.not_started = 127, .running = "finish 127 slot -1 term", .ending = "end -1 term over"},
        {.not_started = 0, .running = "finish 1 slot -1 term", .ending = "end -1 term over"},
        {.stopped = 130,
         .step = MEMBERSHIP_OWN,
         .running = "finish 130 slot -1 own",
         .ending = "end -1 own over"},
        {.stopped = 143,
         .step = MEMBERSHIP_TERM,
         .running = "finish 143 slot -1 term",
         .ending = "end -1 term over"},
        {.stopped = 126, .step = MEMBERSHIP_KEEP, .running = "finish 126 slot -1 keep", .ending = ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int ending = 0; ending < 2; ending++) {
            open_fixed();
            if (ending) {
                ends(0, 5);
                EXPECT("finish 5 slot 0 own");
            }
            if (rows[i].host_lost)
                membership_host_lost(machine, now, 1, rows[i].host_lost == 2);
            else if (rows[i].stopped)
                membership_stop(machine, now, rows[i].stopped, rows[i].step);
            else
                membership_not_started(machine, now, 1, rows[i].not_started);
            EXPECT(ending ? rows[i].ending : rows[i].running);
        }
    }
}
