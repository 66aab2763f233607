/* test_sampler.c - when the sampler looks at a job, and when it pauses. The monitor is a stand-in, which
 * shows a job of one rank. */
#include "../../launch/processes.h"
#include "../../launch/sampler.h"
#include "test.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define MINUTE (60 * CLOCK_SECOND)

static struct {
    monitor_done_fn *done; /* of the look that is under way; NULL: none is */
    void *argument;
    int looks;
} pretended;

hvd_code monitor_request(struct monitor *monitor, enum stacks stacks, monitor_done_fn *done, void *argument,
                         hvd_status *status)
{
    (void)monitor;
    (void)stacks;
    (void)status;
    pretended.done = done;
    pretended.argument = argument;
    pretended.looks++;
    return HVD_OK;
}

/* The next turn of the timer, and the answer to a look that it has started. */
static void turn(struct table *table, uv_run_mode mode)
{
    uv_run(&table->loop, mode);
    if (!pretended.done)
        return;
    struct rank_view *view = calloc(1, sizeof *view);
    struct job_view_origin origin = {.taken = clock_now()};
    struct job_views job_views;
    assert_non_null(view);
    *view = (struct rank_view){.seen = true, .process = 1, .page.identity.size = 1};
    strcpy(view->page.identity.job, "job");
    strcpy(view->page.identity.host, "a");
    ASSERT_OK(job_views_make(view, 1, &origin, &job_views, &check_status));
    pretended.done(&job_views, pretended.argument);
    pretended.done = NULL;
    job_views_free(&job_views);
}

void monitor_forget(struct monitor *monitor, const void *argument)
{
    (void)monitor;
    (void)argument;
}

static void open_sampler(struct sampler *sampler, struct table *table)
{
    memset(&pretended, 0, sizeof pretended);
    assert_int_equal(uv_loop_init(&table->loop), 0);
    ASSERT_OK(sampler_open(sampler, table, &check_status));
}

static void close_sampler(struct sampler *sampler)
{
    uv_loop_t *loop = &sampler->table->loop;
    sampler_close(sampler);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

/* Before the last look. */
static void assert_shows_a_gap(const struct course *course)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    course_write(course, file);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(text, ", true]], \"verdicts\""));
    free(text);
}

/* The first look is after a second. */
TEST(test_it_pauses_until_the_next_request)
{
    struct options options = {0};
    struct table table = {.options = &options, .most = 1};
    struct sampler sampler = {0};
    open_sampler(&sampler, &table);
    turn(&table, UV_RUN_ONCE);
    assert_int_equal(pretended.looks, 1);
    sampler.requested_at = clock_now() - MINUTE;
    turn(&table, UV_RUN_ONCE);
    assert_int_equal(pretended.looks, 1);
    assert_true(sampler.paused);
    sampler.started -= 10 * MINUTE; /* that much later */
    sampler_renew(&sampler);
    turn(&table, UV_RUN_NOWAIT);
    assert_int_equal(pretended.looks, 2);
    assert_false(sampler.paused);
    assert_shows_a_gap(sampler.course);
    close_sampler(&sampler);
}

TEST(test_a_report_needs_all_looks)
{
    struct options options = {.report = "report.html"};
    struct table table = {.options = &options, .most = 1};
    struct sampler sampler = {0};
    open_sampler(&sampler, &table);
    sampler.requested_at = clock_now() - MINUTE;
    turn(&table, UV_RUN_ONCE);
    assert_int_equal(pretended.looks, 1);
    assert_false(sampler.paused);
    close_sampler(&sampler);
}

TEST(test_a_job_without_a_sampler_has_none_to_renew)
{
    sampler_renew(NULL);
}
