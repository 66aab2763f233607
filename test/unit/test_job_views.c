/* test_job_views.c - views of several jobs, epochs and processes become one view of the job for each job, and
 * what is printed of it. */
#include "../../launch/job_views.h"
#include "../../launch/status_json.h"
#include "../../launch/status_text.h"
#include "test.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOW  (1000 * CLOCK_SECOND)
#define MOST 1000

struct scene {
    struct rank_view *views;
    int count;
};

static struct scene start(void)
{
    struct scene scene = {.views = calloc(MOST, sizeof *scene.views)};
    assert_non_null(scene.views);
    return scene;
}

static struct rank_view *add(struct scene *scene, const char *job, const char *host, int rank, int epoch)
{
    struct rank_view *view = &scene->views[scene->count++];
    *view = (struct rank_view){.seen = true, .process = 1000 + rank, .system.state = 'S'};
    strcpy(view->page.identity.job, job);
    strcpy(view->page.identity.host, host);
    view->page.identity.rank = rank;
    view->page.identity.size = 4;
    view->page.identity.epoch = epoch;
    view->page.identity.opened = NOW - 100 * CLOCK_SECOND;
    view->page.state = PAGE_OPEN;
    view->page.set_count = 1;
    view->page.sets[0].size = 4;
    return view;
}

static void wait_in(struct rank_view *view, const char *title, int64_t since)
{
    struct page_summary *page = &view->page;
    page->requests = calloc(1, sizeof *page->requests);
    assert_non_null(page->requests);
    strcpy(page->requests->title, title);
    page->requests->number = 1;
    page->requests->submitted = since;
    page->request_count = page->thread_count = 1;
    page->threads[0] = (struct page_thread){.id = 1, .record = 1, .since = since};
}

static struct job_views job_views_of(struct scene *scene, struct job_view_origin origin)
{
    struct job_views job_views;
    origin.taken = NOW;
    ASSERT_OK(job_views_make(scene->views, scene->count, &origin, &job_views, &check_status));
    return job_views;
}

TEST(test_one_job_view_for_each_job)
{
    struct scene scene = start();
    add(&scene, "two", "a", 1, 0);
    add(&scene, "one", "b", 1, 3);
    add(&scene, "one", "a", 0, 3);
    add(&scene, "one", "a", 0, 2);                                                  /* an earlier epoch */
    add(&scene, "one", "a", 0, 3)->page.identity.opened = NOW - 200 * CLOCK_SECOND; /* an earlier process */
    scene.views[2].page.steps = (struct page_steps){.count = 5, .number = 5, .samples = 32};
    scene.views[1].page.progress = NOW - 7;
    struct job_views job_views = job_views_of(&scene, (struct job_view_origin){0});
    assert_int_equal(job_views.count, 2);
    const struct job_view *one = &job_views.list[0];
    assert_string_equal(one->id, "one");
    assert_int_equal(one->count, 2);
    assert_int_equal(one->size, 4);
    assert_int_equal(one->epoch, 3);
    assert_int_equal(one->ranks[1].page.identity.rank, 1);
    assert_int_equal(one->host_count, 2);
    assert_string_equal(one->hosts[0].name, "a");
    assert_int_equal(one->hosts[0].ranks, 1);
    assert_int_equal(one->started, NOW - 100 * CLOCK_SECOND);
    assert_int_equal(one->steps.count, 5);
    assert_int_equal(one->progress, NOW - 7);
    assert_false(one->whole);
    assert_string_equal(job_views.list[1].id, "two");
    job_views_free(&job_views);
}

TEST(test_what_a_launcher_adds)
{
    struct scene scene = start();
    const struct job_view_host hosts[] = {{.name = "b", .silent = 12}, {.name = "c", .answers = true}};
    struct job_view_origin origin = {
        .id = "one", .name = "train", .started = NOW - 5, .hosts = hosts, .host_count = 2};
    add(&scene, "one", "a", 0, 0);
    *add(&scene, "one", "b", 1, 0) =
        (struct rank_view){.page.identity = {.job = "one", .host = "b", .rank = 1}}; /* not seen */
    struct job_views job_views = job_views_of(&scene, origin);
    assert_int_equal(job_views.count, 1);
    assert_true(job_views.list->whole);
    assert_string_equal(job_views.list->name, "train");
    assert_int_equal(job_views.list->started, NOW - 5);
    assert_true(job_views.list->hosts[0].answers);
    assert_false(job_views.list->hosts[1].answers);
    assert_true(job_views.list->hosts[1].silent == 12);
    assert_int_equal(job_views.list->verdict, VERDICT_BROKEN);
    job_views_free(&job_views);
}

/* A host that has sent only some of its ranks may have sent one that is known as well. */
TEST(test_a_rank_that_was_seen_comes_before_one_that_was_not)
{
    for (int seen_first = 0; seen_first < 2; seen_first++) {
        struct scene scene = start();
        add(&scene, "one", "a", 0, 0)->seen = seen_first;
        add(&scene, "one", "a", 0, 0)->seen = !seen_first;
        struct job_views job_views = job_views_of(&scene, (struct job_view_origin){0});
        assert_int_equal(job_views.list->count, 1);
        assert_true(job_views.list->ranks->seen);
        job_views_free(&job_views);
    }
}

TEST(test_no_job)
{
    struct scene scene = {0};
    struct job_views job_views = job_views_of(&scene, (struct job_view_origin){0});
    assert_int_equal(job_views.count, 0);
    job_views_free(&job_views);
}

TEST(test_lists_of_ranks)
{
    struct scene scene = start();
    char text[33];
    uint8_t chosen[40] = {1, 1, 0, 1};
    for (int i = 0; i < 40; i++) {
        add(&scene, "one", "a", i, 0);
        chosen[i] = i < 4 ? chosen[i] : (uint8_t)(i % 2);
    }
    struct job_views job_views = job_views_of(&scene, (struct job_view_origin){0});
    assert_int_equal(job_view_ranks(job_views.list, chosen, 1, text, sizeof text), 21);
    assert_string_equal(text, "0, 1, ..."); /* too long a list is cut, but counted */
    memset(chosen + 4, 0, sizeof chosen - 4);
    assert_int_equal(job_view_ranks(job_views.list, chosen, 1, text, sizeof text), 3);
    memset(chosen, 1, sizeof chosen);
    assert_int_equal(job_view_ranks(job_views.list, chosen, 1, text, sizeof text), 40);
    assert_string_equal(text, "0-39");
    job_views_free(&job_views);
}

static const char stack[] =
    "S\tsignal\nT\t71\tS\tread\tpipe:[5]\t\nP\t/x/site-packages/torch/utils/data/deep/fetch.py\t54\tfetch\t\n"
    "P\t/data/train.py\t88\tmain\tfor x in \"loader\":\nC\tread\tlibc.so.6\nT\t72\tS\tfutex\t\tThread-1\n"
    "P\ta.py\t1\twait\t\n";

/* What is printed of four ranks, of which rank 1 is late. */
static char *printed(void (*write)(const struct job_view *job_view, FILE *file), int64_t waited)
{
    struct scene scene = start();
    char *text;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    for (int i = 0; i < 4; i++) {
        struct rank_view *view = add(&scene, "0123456789abcdef0123456789abcdef", i < 2 ? "a" : "b", i, 0);
        view->memory_bytes = 510000000;
        view->page.steps = (struct page_steps){1203, 64, 5203, NOW - waited, 74 * CLOCK_SECOND / 1000, true};
        view->page.progress = NOW - waited;
        view->times =
            (struct rank_view_times){.running = 60 * CLOCK_SECOND, .runnable = 3 * CLOCK_SECOND / 2};
        if (i != 1)
            wait_in(view, "allreduce.grad", NOW - waited);
        if (i == 0 && waited > CLOCK_SECOND) {
            view->page.reporters = calloc(1, sizeof *view->page.reporters);
            assert_non_null(view->page.reporters);
            view->page.reporters[view->page.reporter_count++] =
                (struct page_reporter){.rank = 1, .total = waited, .share = 0.14};
        }
        if (i == 1)
            view->stack = stack_parse(stack, strlen(stack));
    }
    struct job_view_origin origin = {.id = "0123456789abcdef0123456789abcdef",
                                     .name = "train",
                                     .started = NOW - 960 * CLOCK_SECOND,
                                     .taken_at = CLOCK_SECOND};
    struct job_views job_views = job_views_of(&scene, origin);
    write(job_views.list, file);
    fclose(file);
    job_views_free(&job_views);
    return text;
}

TEST(test_text)
{
    char *text = printed(status_text_write, 14 * CLOCK_SECOND);
    assert_string_equal(
        text,
        "rank 1 (host a) is in the data loader, in C code that keeps Python's lock: train.py:88 in main: for "
        "x in "
        "\"loader\":; ranks 0, 2, 3 wait for it in allreduce.grad, for 14 s\n"
        "\n"
        "job train (01234567)  4 ranks on 2 hosts  up 16 min  step 5203, none for 14 s (median step 74 ms)\n"
        "waiting  1 request for rank 1: allreduce.grad (14 s)\n"
        "\n"
        "rank     host     in Horovod   late  late/step     memory  state\n"
        "1        a               0 %   14 %      10 ms    0.51 GB  is in the data loader train.py:88   <- "
        "late\n"
        "0, 2, 3  2 hosts        14 %    0 %       0 ms    0.51 GB  waits in allreduce.grad\n"
        "\n"
        "rank 1, thread 71, interrupted, state S, in read of pipe:[5]\n"
        "  .../torch/utils/data/deep/fetch.py:54         fetch                 \n"
        "  /data/train.py:88                             main                  for x in \"loader\":\n"
        "  read                                          libc.so.6\n"
        "\n"
        "rank 1, thread 72 (Thread-1), interrupted, state S, in futex\n"
        "  a.py:1                                        wait                  \n");
    free(text);
}

TEST(test_nobody_is_late_for_a_moment)
{
    char *text = printed(status_text_write, CLOCK_SECOND / 100);
    assert_null(strstr(text, "<- late"));
    assert_null(strstr(text, "waiting"));
    assert_non_null(strstr(text, "step 5203, 13.5 steps/s (median step 74 ms)\n"));
    free(text);
}

TEST(test_json)
{
    char *text = printed(status_json_write, 14 * CLOCK_SECOND);
    assert_non_null(strstr(text, "{\"version\": 1, \"time\": \"1970-01-01T00:00:01Z\", \"job\": {\"id\": "
                                 "\"0123456789abcdef0123456789abcdef\", \"name\": \"train\", \"size\": 4, "));
    assert_non_null(
        strstr(text, "\"last_step_seconds\": 14.000, \"steps\": 1203, \"step\": 5203, \"samples\": 256, "
                     "\"step_seconds\": 0.074, \"steps_per_second\": 13.5135}"));
    assert_non_null(
        strstr(text, "\"verdict\": {\"exit\": 3, \"kind\": \"late\", \"text\": \"rank 1 (host a) "));
    assert_non_null(strstr(text, "\"waits\": [0, 2, 3], \"missing\": [1], \"hidden\": 0}]"));
    assert_non_null(strstr(text, "{\"rank\": 1, \"host\": \"a\", \"local_rank\": 0, \"pid\": 1001, "
                                 "\"state\": \"program\", \"text\": \"is in the data loader train.py:88\", "
                                 "\"seconds\": null, "));
    assert_non_null(strstr(
        text,
        "\"late\": true, \"late_seconds\": 14.000, \"late_share\": 0.1400, \"late_ms_per_step\": 10.360, "
        "\"program\": {\"running\": 60.000, \"runnable\": 1.500, \"blocked\": 0.000}"));
    assert_non_null(
        strstr(text, "\"stack\": {\"interrupted\": true, \"call\": \"read\", \"python\": [{\"function\": "
                     "\"fetch\", "));
    assert_non_null(strstr(text, "{\"function\": \"main\", \"file\": \"/data/train.py\", \"line\": 88, "
                                 "\"text\": \"for x in \\\"loader\\\":\"}], "
                                 "\"c\": [{\"function\": \"read\", \"library\": \"libc.so.6\"}]}"));
    assert_non_null(strstr(text, "\"stack\": null"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);
}

TEST(test_many_different_ranks)
{
    struct scene scene = start();
    char title[32], *text;
    size_t length, lines = 0;
    for (int i = 0; i < 512; i++) {
        snprintf(title, sizeof title, "allreduce.%d", i);
        wait_in(add(&scene, "one", "a", i, 0), title, NOW);
    }
    struct job_views job_views = job_views_of(&scene, (struct job_view_origin){0});
    FILE *file = open_memstream(&text, &length);
    assert_non_null(file);
    status_text_write(job_views.list, file);
    fclose(file);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_true(lines < 270); /* those without a row of their own share one */
    free(text);
    job_views_free(&job_views);
}

enum { GRADIENTS = 161 }; /* of ResNet-50 */

static double processor_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

/* All ranks have submitted all gradients, except the last rank, which lacks every seventh. */
TEST(test_a_thousand_ranks_with_many_requests)
{
    struct scene scene = start();
    for (int i = 0; i < MOST; i++) {
        struct page_summary *page = &add(&scene, "one", "a", i, 0)->page;
        page->requests = calloc(GRADIENTS, sizeof *page->requests);
        assert_non_null(page->requests);
        for (int j = 0; j < GRADIENTS; j++) {
            struct page_request *request = &page->requests[page->request_count];
            if (i == MOST - 1 && j % 7 == 0)
                continue;
            snprintf(request->title, sizeof request->title, "allreduce.layer%d.%d.conv.weight", j / 10, j);
            request->submitted = NOW - 2 * CLOCK_SECOND + j;
            request->number = (uint64_t)++page->request_count;
        }
    }
    struct wire_writer body = {0};
    for (int i = 0; i < MOST; i++) {
        rank_view_put(&scene.views[i], NOW, &body);
        rank_view_free(&scene.views[i]);
    }
    double sent = processor_ms();
    struct wire_reader reader = {.bytes = body.bytes, .length = body.length};
    for (int i = 0; i < MOST; i++)
        assert_true(rank_view_get(&scene.views[i], NOW, &reader));
    double received = processor_ms();
    struct job_views job_views = job_views_of(&scene, (struct job_view_origin){0});
    print_message("%d ranks with %d requests each: received in %.1f ms, compared in %.1f ms\n", MOST,
                  GRADIENTS, received - sent, processor_ms() - received);
    wire_writer_free(&body);
    const struct page_waitings *waitings = &job_views.list->waitings;
    assert_int_equal(waitings->count, GRADIENTS);
    for (int j = 0; j < GRADIENTS; j++) {
        const struct page_waiting *waiting = &waitings->list[j];
        char title[PAGE_TITLE];
        snprintf(title, sizeof title, "allreduce.layer%d.%d.conv.weight", j / 10, j);
        assert_string_equal(waiting->request->title, title); /* the oldest first */
        assert_int_equal(waiting->missing, j % 7 == 0);
        assert_int_equal(waiting->waits, MOST - waiting->missing);
        assert_int_equal(waiting->parts[MOST - 1], j % 7 ? PART_WAITS : PART_MISSING);
    }
    assert_non_null(strstr(job_views.list->text, "rank 999 "));
    job_views_free(&job_views);
}
