/* test_verdict.c - the sentence of `horovodrun --status` for jobs in every state that pages can show. */
#include "../../launch/job_views.h"
#include "../../launch/verdict.h"
#include "test.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, HOSTS = 2 };

#define NOW (100 * CLOCK_SECOND)

struct scene {
    struct rank_view ranks[RANKS];
    struct page_request requests[RANKS][2];
    struct job_view_host hosts[HOSTS];
    struct job_view_origin elastic; /* what the launcher knows of an elastic job */
};

/* All ranks run, and have used Horovod 20 s ago. */
static void start(struct scene *scene)
{
    *scene = (struct scene){.hosts = {{.name = "a", .answers = true}, {.name = "b", .answers = true}}};
    for (int i = 0; i < RANKS; i++) {
        struct rank_view *rank = &scene->ranks[i];
        rank->seen = true;
        rank->seconds = 0.1;
        rank->process = 10 + i;
        strcpy(rank->page.identity.host, i < RANKS / 2 ? "a" : "b");
        rank->system.state = 'S';
        rank->page.identity.rank = i;
        rank->page.identity.size = RANKS;
        rank->page.state = PAGE_OPEN;
        rank->page.progress = NOW - 20 * CLOCK_SECOND;
        rank->page.set_count = 1;
        rank->page.sets[0].size = RANKS;
        rank->page.requests = scene->requests[i];
    }
}

/* Rank `i` waits in this request since `seconds`. */
static struct page_request *submit(struct scene *scene, int i, const char *title, int seconds)
{
    struct page_summary *page = &scene->ranks[i].page;
    struct page_request *request = &scene->requests[i][page->request_count++];
    snprintf(request->title, sizeof request->title, "%s", title);
    request->number = (uint64_t)page->request_count;
    request->submitted = NOW - seconds * CLOCK_SECOND;
    page->threads[0] =
        (struct page_thread){.id = 10 + i, .record = request->number, .since = request->submitted};
    page->thread_count = 1;
    return request;
}

/* Fails unless the view of the scene's job has this verdict. */
static void says(const struct scene *scene, enum verdict expected, const char *words)
{
    struct job_views job_views;
    struct job_view_origin origin = scene->elastic;
    origin.taken = NOW;
    origin.hosts = scene->hosts;
    origin.host_count = HOSTS;
    struct rank_view *views = calloc(RANKS, sizeof *views);
    for (int i = 0; views && i < RANKS; i++) {
        struct page_summary *page = &views[i].page;
        views[i] = scene->ranks[i];
        page->requests = calloc(2, sizeof *page->requests);
        assert_non_null(page->requests);
        memcpy(page->requests, scene->requests[i], sizeof scene->requests[i]);
        if (page->reporter_count) {
            page->reporters = calloc(1, sizeof *page->reporters);
            assert_non_null(page->reporters);
            *page->reporters = *scene->ranks[i].page.reporters;
        }
    }
    ASSERT_OK(job_views_make(views, RANKS, &origin, &job_views, &check_status));
    assert_int_equal(job_views.count, 1);
    assert_string_equal(job_views.list->text, words);
    assert_int_equal(job_views.list->verdict, expected);
    job_views_free(&job_views);
}

TEST(test_a_late_rank)
{
    struct scene scene;
    start(&scene);
    for (int i = 0; i < RANKS; i++)
        if (i != 2)
            submit(&scene, i, "allreduce.grad", 14 + i);
    scene.ranks[2].system.state = 'R';
    says(&scene, VERDICT_LATE,
         "rank 2 (host b) runs its own program; ranks 0, 1, 3 wait for it in allreduce.grad, for 17 s");
    scene.ranks[2].system.state = 'D';
    says(
        &scene, VERDICT_LATE,
        "rank 2 (host b) waits for a disk or a network file in its own program; ranks 0, 1, 3 wait for it in "
        "allreduce.grad, for 17 s");
}

TEST(test_late_ranks)
{
    struct scene scene;
    start(&scene);
    submit(&scene, 3, "broadcast.x", 2);
    says(&scene, VERDICT_LATE,
         "ranks 0-2 are late, and rank 0 (host a) sleeps in its own program; rank 3 waits for them in "
         "broadcast.x, "
         "for 2 "
         "s");
}

/* Its ranks wait for the next epoch. */
TEST(test_the_ranks_of_an_elastic_job_change)
{
    struct scene scene;
    start(&scene);
    scene.elastic = (struct job_view_origin){.id = "", .changing = NOW - 12 * CLOCK_SECOND, .least = 2};
    scene.ranks[1].process = 0;
    says(&scene, VERDICT_LATE, "the ranks have been changing for 12 s: rank 1 is gone");
    scene.ranks[0].page.state = scene.ranks[2].page.state = PAGE_FAILED;
    strcpy(scene.ranks[0].page.cause, "lost rank 1");
    says(&scene, VERDICT_LATE,
         "the ranks have been changing for 12 s: rank 1 is gone, and ranks 0, 2 wait for rank 3, which "
         "sleeps in its "
         "own program");
    scene.ranks[3].page.state = PAGE_LEFT;
    says(&scene, VERDICT_LATE,
         "the ranks have been changing for 12 s: rank 1 is gone, and ranks 0, 2, 3 wait for the next epoch");
    scene.elastic.least = 4;
    says(&scene, VERDICT_LATE,
         "the ranks have been changing for 12 s: rank 1 is gone, and ranks 0, 2, 3 wait for other processes: "
         "the job "
         "needs 4 ranks");
    scene.elastic = (struct job_view_origin){.id = "", .epoch = 1, .epoch_began = NOW - CLOCK_SECOND};
    scene.ranks[1].process = 9;
    scene.ranks[1].page.state = PAGE_LEFT;
    says(&scene, VERDICT_LATE, "the ranks have been changing for 1 s: ranks 0-3 wait for the next epoch");
    scene.hosts[1].answers = false;
    scene.hosts[1].silent = 7;
    says(&scene, VERDICT_BROKEN, "host b (ranks 2, 3) does not answer for 7 s");
}

TEST(test_a_moment_is_no_delay)
{
    struct scene scene;
    start(&scene);
    submit(&scene, 3, "broadcast.x", 0);
    says(&scene, VERDICT_HEALTHY,
         "nothing is under way, and the last operation ended 20 s ago: every rank is in its own program");
    scene.ranks[1].page.all.succeeded = 30;
    scene.ranks[1].ended_before = 20;
    says(&scene, VERDICT_HEALTHY, "healthy: 100 operations/s, and no rank waits for long");
    scene.ranks[0].ended_before = 7; /* a new epoch has begun, whose counters start at 0 */
    says(&scene, VERDICT_HEALTHY, "healthy: 100 operations/s, and no rank waits for long");
    scene.ranks[1].page.steps = (struct page_steps){
        .count = 9, .number = 1203, .last = NOW - CLOCK_SECOND, .median = 74 * CLOCK_SECOND / 1000};
    says(&scene, VERDICT_HEALTHY, "healthy: step 1203, 13.5 steps/s (74 ms), and no rank waits for long");
    struct page_reporter reporter = {.rank = 2, .total = CLOCK_SECOND, .share = 0.013};
    scene.ranks[0].page.reporters = &reporter;
    scene.ranks[0].page.reporter_count = 1;
    says(&scene, VERDICT_HEALTHY,
         "healthy: step 1203, 13.5 steps/s (74 ms), no rank is late by more than 2 %");
    scene.ranks[0].page.reporters = NULL;
    scene.ranks[0].page.reporter_count = 0;
    scene.ranks[1].page.steps.last = NOW - 11 * CLOCK_SECOND; /* now it does something else */
    says(&scene, VERDICT_HEALTHY, "healthy: 100 operations/s, and no rank waits for long");
    scene.ranks[1].ended_before = 30;
    scene.ranks[1].page.progress = NOW - 3 * CLOCK_SECOND;
    says(&scene, VERDICT_HEALTHY, "healthy: the last operation ended 3.0 s ago");
    for (int i = 0; i < RANKS; i++)
        scene.ranks[i].page.progress = 0;
    says(&scene, VERDICT_HEALTHY, "no rank has used Horovod yet");
    scene.ranks[2].page.identity.opened = NOW - 12 * CLOCK_SECOND;
    scene.ranks[2].times.runnable = 11 * CLOCK_SECOND; /* other programs start as well */
    says(&scene, VERDICT_HEALTHY, "no rank has used Horovod yet (started 12 s ago)");
    scene.ranks[0].page.progress = NOW - CLOCK_SECOND;
    says(&scene, VERDICT_LATE, "rank 2 waits for a processor for 92 % of the time");
}

TEST(test_branches)
{
    struct scene scene;
    start(&scene);
    for (int i = 0; i < RANKS; i++)
        submit(&scene, i, i == 1 ? "allreduce.val" : "allreduce.loss", i == 1 ? 9 : 5);
    says(&scene, VERDICT_LATE,
         "ranks 0, 2, 3 wait in allreduce.loss, but rank 1 in allreduce.val: the programs took different "
         "branches");
    scene.ranks[1].page.thread_count = 0; /* it goes on, and will wait later */
    says(&scene, VERDICT_LATE,
         "ranks 0, 2, 3 are late, and rank 0 (host a) waits in allreduce.loss; rank 1 waits for them in "
         "allreduce.val, "
         "for 9 s");
    scene.requests[1][0].submitted = NOW - 3 * CLOCK_SECOND;
    says(&scene, VERDICT_LATE,
         "rank 1 (host a) sleeps in its own program; ranks 0, 2, 3 wait for it in allreduce.loss, for 5 s");
}

TEST(test_a_stopped_rank_explains_all)
{
    struct scene scene;
    start(&scene);
    submit(&scene, 0, "allreduce.grad", 9);
    submit(&scene, 2, "allreduce.grad", 9);
    scene.ranks[1].system.state = 'T';
    says(&scene, VERDICT_BROKEN,
         "rank 1 (pid 11) is stopped, by SIGSTOP or a debugger; kill -CONT 11 lets it go on; 2 ranks wait "
         "for it "
         "in allreduce.grad");
}

TEST(test_ends_and_failures)
{
    struct scene scene;
    start(&scene);
    scene.ranks[3].page.state = PAGE_FAILED;
    strcpy(scene.ranks[3].page.cause, "rank 2 is lost");
    says(&scene, VERDICT_BROKEN, "rank 3 has failed: rank 2 is lost");
    scene.ranks[2].process = 0;
    says(&scene, VERDICT_BROKEN, "the process of rank 2 has ended without leaving the job");
    scene.ranks[2].page.state = PAGE_STARTED; /* its program has not used Horovod */
    scene.ranks[3].process = 0;
    says(&scene, VERDICT_BROKEN, "rank 3 has failed: rank 2 is lost");
    scene.ranks[2].page.state = PAGE_LEFT;
    scene.ranks[3].process = 13;
    scene.ranks[3].page.state = PAGE_OPEN;
    scene.ranks[3].page.progress = NOW;
    says(&scene, VERDICT_HEALTHY, "healthy: the last operation ended 0.0 s ago");
}

TEST(test_init)
{
    struct scene scene;
    start(&scene);
    for (int i = 0; i < RANKS; i++)
        scene.ranks[i].page.state = i < 2 ? PAGE_JOINING : PAGE_STARTED;
    says(&scene, VERDICT_LATE, "ranks 0, 1 wait in init for ranks 2, 3, which have not got there");
    scene.ranks[2].page.child = 12;
    says(&scene, VERDICT_LATE, "ranks 0, 1 wait in init for ranks 2, 3, which have not got there");
    scene.ranks[2].process = 0;
    says(&scene, VERDICT_BROKEN, "ranks 0, 1 wait in init for rank 2, which has ended without calling it");
    scene.ranks[0].page.identity.opened = scene.ranks[1].page.identity.opened = NOW - 3 * CLOCK_SECOND;
    scene.ranks[2].process = 12;
    says(&scene, VERDICT_HEALTHY, /* they are there for a moment only */
         "nothing is under way, and the last operation ended 20 s ago: every rank is in its own program");
    scene.ranks[2].process = 0;
    scene.ranks[0].page.identity.opened = 0;
    scene.ranks[0].page.state = scene.ranks[1].page.state = PAGE_STARTED;
    says(&scene, VERDICT_HEALTHY, /* a program may end without Horovod */
         "nothing is under way, and the last operation ended 20 s ago: every rank is in its own program");
    scene.ranks[2].process = 12;
    for (int i = 0; i < RANKS; i++)
        scene.ranks[i].page.state = PAGE_JOINING;
    says(&scene, VERDICT_LATE, "ranks 0-3 wait in init, which all ranks have reached");
    scene.ranks[0].page.identity.size = RANKS + 1;
    says(&scene, VERDICT_LATE,
         "ranks 0-3 wait in init for ranks that have no page here (on another host, not started, or ended)");
}

TEST(test_other_hosts)
{
    struct scene scene;
    start(&scene);
    for (int i = 0; i < RANKS; i++) {
        scene.ranks[i].page.sets[0].size = RANKS + 2;
        submit(&scene, i, "allreduce.grad", 3);
    }
    says(&scene, VERDICT_LATE,
         "ranks 0-3 wait for ranks that can't be seen here (on another host, ended, or with a full page) in "
         "allreduce.grad, for 3 s");
    for (int i = 0; i < RANKS; i++)
        scene.ranks[i].page.sets[0].size = RANKS;
    says(&scene, VERDICT_LATE,
         "all ranks have submitted allreduce.grad, but do not learn of each other for 3 s: a network is "
         "slow, or a rank gets no processor");
    for (int i = 0; i < RANKS; i++)
        scene.ranks[i].load = (struct platform_load){.runnable = 2, .cores = 2};
    says(
        &scene, VERDICT_LATE,
        "all ranks have submitted allreduce.grad, but do not learn of each other for 3 s: a network is slow");
    scene.ranks[2].load.runnable = 5;
    says(&scene, VERDICT_LATE,
         "all ranks have submitted allreduce.grad, but do not learn of each other for 3 s: a network is "
         "slow, or a rank gets no processor: host b has 5 runnable threads on 2 cores");
}

TEST(test_data_that_move_for_long)
{
    struct scene scene;
    start(&scene);
    submit(&scene, 1, "allgather.big", 30)->decided = NOW - 25 * CLOCK_SECOND;
    says(&scene, VERDICT_LATE, "allgather.big moves its data for 25 s, and has not ended on rank 1");
}

/* ---- with stacks --------------------------------------------------------------------------------------- */

static struct stack *stack_of(const char *text)
{
    struct stack *stack = stack_parse(text, strlen(text));
    assert_non_null(stack);
    return stack;
}

/* Rank 1 is late with this stack; the sentence begins with `words`. */
static void is_late(const char *stack, const char *words)
{
    struct scene scene;
    char whole[JOB_VIEW_TEXT];
    start(&scene);
    for (int i = 0; i < RANKS; i++)
        if (i != 1)
            submit(&scene, i, "allreduce.grad", 14);
    scene.ranks[1].stack = stack_of(stack);
    snprintf(whole, sizeof whole, "rank 1 (host a) %s; ranks 0, 2, 3 wait for it in allreduce.grad, for 14 s",
             words);
    says(&scene, VERDICT_LATE, whole);
}

TEST(test_what_a_late_rank_does)
{
    is_late(
        "S\tasked\nT\t11\tS\tread\tpipe:[7]\tMainThread\nP\t/data/set.py\t43\t__getitem__\timg = "
        "open(path).read()\n"
        "P\t/x/site-packages/torch/utils/data/_utils/fetch.py\t54\tfetch\t\nP\t/data/train.py\t88\tmain\t\n",
        "is in the data loader: set.py:43 in __getitem__: img = open(path).read()");
    is_late(
        "S\tasked\nT\t11\tR\t\t\t\nP\t/x/lib/python3.11/random.py\t5\tchoice\t\nP\ttrain.py\t61\tloss_fn\t\n",
        "computes: train.py:61 in loss_fn");
    is_late("S\tsignal\nT\t11\tS\tclock_nanosleep\t\t\nP\ttrain.py\t7\tf\tg()\nC\tsleep\tlibc.so.6\n",
            "sleeps, in C code that keeps Python's lock: train.py:7 in f: g()");
    is_late("S\tsignal\nT\t11\tR\t\t\t\nC\tmemcpy\tlibc.so.6\nC\tsolve\tsolver\n",
            "computes: solve of solver");
    is_late("S\tasked\nT\t11\tS\tread\t/tmp/fifo\t\nP\ta.py\t1\t<module>\t\n",
            "waits to read /tmp/fifo: a.py:1 in <module>");
    is_late("S\tasked\nT\t11\tD\tread\t/net/x\t\nP\ta.py\t1\tf\t\n",
            "waits for a disk or a network file: a.py:1 in f");
    is_late("S\tasked\nT\t11\tS\tfutex\t\t\nP\t/x/lib/python3.11/threading.py\t5\twait\t\n"
            "P\t/x/lib/python3.11/queue.py\t5\tget\t\nP\ta.py\t1\tf\t\n",
            "waits for a queue: a.py:1 in f");
    is_late("S\tasked\nT\t11\tS\tfutex\t\t\nP\ta.py\t1\tf\t\nP\t/x/queue.py\t5\tcalls_f\t\n",
            "waits for a lock: a.py:1 in f");
    is_late("S\tnothing\nT\t11\tS\trecvfrom\tsocket:[5]\t\n", "waits for a connection");
    is_late("S\tnothing\n", "sleeps in its own program"); /* no thread is known: its state is */
}

TEST(test_lines_of_branches)
{
    struct scene scene;
    start(&scene);
    for (int i = 0; i < RANKS; i++)
        submit(&scene, i, i == 1 ? "allreduce.val" : "allreduce.loss", i == 1 ? 9 : 5);
    scene.ranks[1].stack =
        stack_of("S\tasked\nT\t11\tS\tfutex\t\t\nP\t/x/site-packages/horovod/a.py\t3\trun\t\n"
                 "P\t/data/train.py\t93\tmain\t\n");
    scene.ranks[2].stack = stack_of("S\tasked\nT\t12\tS\tfutex\t\t\nP\t/data/train.py\t88\tmain\t\n");
    says(&scene, VERDICT_LATE,
         "ranks 0, 2, 3 wait in allreduce.loss (train.py:88), but rank 1 in allreduce.val (train.py:93): the "
         "programs took different branches");
}

TEST(test_states)
{
    struct scene scene;
    char text[256];
    start(&scene);
    submit(&scene, 0, "allreduce.grad", 1);
    verdict_state(&scene.ranks[0], text, sizeof text);
    assert_string_equal(text, "waits in allreduce.grad");
    scene.ranks[0].page.threads[0].record = 99; /* it has ended meanwhile */
    verdict_state(&scene.ranks[0], text, sizeof text);
    assert_string_equal(text, "waits in Horovod");
    scene.ranks[0].page.state = PAGE_LEFT;
    scene.ranks[0].process = 0;
    verdict_state(&scene.ranks[0], text, sizeof text);
    assert_string_equal(text, "has left the job");
}

TEST(test_hosts_that_do_not_answer)
{
    struct scene scene;
    start(&scene);
    submit(&scene, 0, "allreduce.grad", 12);
    submit(&scene, 1, "allreduce.grad", 12);
    for (int i = 2; i < RANKS; i++) {
        scene.ranks[i] = (struct rank_view){.page.identity.rank = i};
        strcpy(scene.ranks[i].page.identity.host, "b");
    }
    scene.hosts[1] = (struct job_view_host){.name = "b", .silent = 11.7};
    says(&scene, VERDICT_BROKEN,
         "host b (ranks 2, 3) does not answer for 12 s; 2 ranks wait in allreduce.grad");
    scene.hosts[1].silent = 0;
    says(&scene, VERDICT_BROKEN,
         "host b (ranks 2, 3) is connected, but has not reported its ranks in time; 2 ranks wait in "
         "allreduce.grad");
}

TEST(test_nan)
{
    struct scene scene;
    start(&scene);
    strcpy(scene.ranks[2].page.nan, "allreduce.fc1.bias");
    says(&scene, VERDICT_BROKEN, "NaN began on rank 2, in its input of allreduce.fc1.bias");
    scene.ranks[2].page.nan_step = 1203;
    strcpy(scene.ranks[0].page.nan, "allreduce.later");
    scene.ranks[0].page.nan_step = 1204;
    says(&scene, VERDICT_BROKEN, "NaN began on rank 2, in its input of allreduce.fc1.bias at step 1203");
    strcpy(scene.ranks[3].page.nan, "allreduce.fc1.bias");
    scene.ranks[3].page.nan_step = 1203;
    says(&scene, VERDICT_BROKEN,
         "NaN began on rank 2, in its input of allreduce.fc1.bias at step 1203, and in the same step on 1 "
         "other rank: all have computed it, a sum has overflowed, or a tensor of more than 16 KiB has "
         "brought it, whose rank "
         "--check-nonfinite all finds");
    scene.ranks[3].page.nan[0] = '\0';
    submit(&scene, 0, "allreduce.x", 14); /* whom the job waits for is more urgent */
    says(&scene, VERDICT_BROKEN,
         "ranks 1-3 are late, and rank 1 (host a) sleeps in its own program; rank 0 waits for them in "
         "allreduce.x, for 14 s; NaN began on rank 2, in its input of allreduce.fc1.bias at step 1203");
}

TEST(test_divergence)
{
    struct scene scene;
    start(&scene);
    strcpy(scene.ranks[1].page.nan, "allreduce.x");
    strcpy(scene.ranks[3].page.divergence, "parameters differ since step 1-100");
    says(&scene, VERDICT_BROKEN, "parameters differ since step 1-100");
}
