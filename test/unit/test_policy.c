/* test_policy.c - what an event means for a job whose ranks stay the same. */
#include "../../launch/policy.h"
#include "test.h"

#include <signal.h>

/* One row: whether the job was ending already, the event, and the decision. */
static const struct {
    const char *name;
    bool ending;
    struct event event;
    struct decision decision; /* its exit code counts if the job ends by it */
} cases[] = {
    {"a rank ends well", false, {.kind = EVENT_ENDED, .exit_code = 0}, {0}},
    {"the first failure ends the job",
     false,
     {.kind = EVENT_ENDED, .exit_code = 3},
     {.end = true, .cause = true, .exit_code = 3, .step = STEP_OWN}},
    {"so does a killed rank",
     false,
     {.kind = EVENT_ENDED, .exit_code = 137, .signal = SIGKILL},
     {.end = true, .cause = true, .exit_code = 137, .step = STEP_OWN}},
    {"a later failure changes nothing", true, {.kind = EVENT_ENDED, .exit_code = 3}, {0}},
    {"a command that is not found",
     false,
     {.kind = EVENT_NOT_STARTED, .exit_code = 127},
     {.end = true, .exit_code = 127, .step = STEP_TERM}},
    {"a start that fails otherwise",
     false,
     {.kind = EVENT_NOT_STARTED},
     {.end = true, .exit_code = 1, .step = STEP_TERM}},
    {"a start that fails in a job that is ending", true, {.kind = EVENT_NOT_STARTED}, {.step = STEP_TERM}},
    {"hosts that can't be prepared",
     false,
     {.kind = EVENT_HOST_FAILED, .exit_code = 126},
     {.end = true, .exit_code = 126, .step = STEP_NONE}},
    {"a lost host", false, {.kind = EVENT_HOST_LOST}, {.end = true, .exit_code = 1, .step = STEP_OWN}},
    {"a silent host must not be waited for",
     false,
     {.kind = EVENT_HOST_SILENT},
     {.end = true, .exit_code = 1, .step = STEP_TERM}},
    {"unless its ranks have their own time already", true, {.kind = EVENT_HOST_SILENT}, {.step = STEP_OWN}},
    {"a closed stdout",
     false,
     {.kind = EVENT_OUTPUT_FAILED, .exit_code = 128 + SIGPIPE},
     {.end = true, .exit_code = 128 + SIGPIPE, .step = STEP_TERM}},
    {"a closed stdout of a job that is ending", true, {.kind = EVENT_OUTPUT_FAILED, .exit_code = 1}, {0}},
    {"SIGINT",
     false,
     {.kind = EVENT_SIGNALLED, .signal = SIGINT},
     {.end = true, .exit_code = 128 + SIGINT, .step = STEP_OWN}},
    {"SIGTERM",
     false,
     {.kind = EVENT_SIGNALLED, .signal = SIGTERM},
     {.end = true, .exit_code = 128 + SIGTERM, .step = STEP_TERM}},
    {"SIGTERM to a job that is ending",
     true,
     {.kind = EVENT_SIGNALLED, .signal = SIGTERM},
     {.step = STEP_TERM}},
    {"the start goes on", false, {.kind = EVENT_PREPARED}, {0}},
    {"the ranks are assigned", false, {.kind = EVENT_ASSIGNED}, {0}},
};

TEST(test_static_jobs)
{
    struct process process = {.slot = 0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct process *list[] = {&process};
        struct table table = {.list = list, .count = 1, .size = 1, .ending = cases[i].ending};
        struct event event = cases[i].event;
        const struct decision *expected = &cases[i].decision;
        event.process = &process;
        struct decision decision = policy_static(&table, &event);
        print_message("%s\n", cases[i].name);
        assert_int_equal(decision.end, expected->end);
        assert_int_equal(decision.cause, expected->cause);
        assert_int_equal(decision.step, expected->step);
        if (expected->end)
            assert_int_equal(decision.exit_code, expected->exit_code);
    }
}

/* The table and its rows are only read: the same event gives the same decision. */
TEST(test_nothing_is_changed)
{
    struct process process = {.slot = 0, .running = true, .pid = 7}, before = process;
    struct process *list[] = {&process};
    struct table table = {.list = list, .count = 1, .size = 1};
    struct event event = {.kind = EVENT_ENDED, .process = &process, .exit_code = 3};
    for (int i = 0; i < 2; i++)
        assert_true(policy_static(&table, &event).cause);
    assert_memory_equal(&process, &before, sizeof before);
    assert_false(table.ending);
}
