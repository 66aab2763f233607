/* test_metrics.c - the text that a scraper gets for jobs in several states. */
#include "../../launch/metrics.h"
#include "test.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4 };

struct scene {
    struct job_view job_view;
    struct rank_view ranks[RANKS];
    struct job_view_host hosts[2];
    struct job_view_link links[2];
    const struct changes *changes;
    struct metrics_past past;
    char *text;
};

/* Two ranks on each of the hosts a and b, which have run for 100 s. */
static void start(struct scene *scene)
{
    *scene = (struct scene){.job_view = {.size = RANKS,
                                         .count = RANKS,
                                         .ranks = scene->ranks,
                                         .hosts = scene->hosts,
                                         .host_count = 2,
                                         .taken = 100 * CLOCK_SECOND,
                                         .taken_at = 1764208100 * CLOCK_SECOND,
                                         .started = 1 * CLOCK_SECOND,
                                         .progress = 99 * CLOCK_SECOND + CLOCK_SECOND / 2,
                                         .steps.count = 7,
                                         .samples = 96}};
    scene->links[0] = (struct job_view_link){0, 1, 5000, 3, 98 * CLOCK_SECOND, 2 * CLOCK_SECOND};
    scene->links[1] = (struct job_view_link){1, 0, 4000, 0, 7 * CLOCK_SECOND, 0};
    scene->job_view.links = scene->links;
    scene->job_view.link_count = 2;
    strcpy(scene->job_view.id, "a61c0f3e");
    strcpy(scene->job_view.name, "train");
    for (int i = 0; i < RANKS; i++) {
        struct rank_view *rank = &scene->ranks[i];
        const char *host = i < 2 ? "a" : "b";
        strcpy(scene->hosts[i / 2].name, host);
        strcpy(rank->page.identity.host, host);
        rank->page.identity.rank = i;
        rank->page.identity.local_rank = i % 2;
        rank->page.state = PAGE_OPEN;
        rank->seen = true;
        rank->process = 10 + i;
        rank->system.state = 'S';
        rank->memory_bytes = 1000;
        rank->engine_ns = (uint64_t)i * CLOCK_SECOND / 2;
        rank->page.all.nonfinite = i == 2 ? 5 : 0;
        rank->page.parameter_checks = 12;
        rank->page.divergences = 1;
        rank->late_ns = i * CLOCK_SECOND;
        rank->late_count = (uint64_t)i * 10;
        rank->times = (struct rank_view_times){3 * CLOCK_SECOND, 1 * CLOCK_SECOND, 2 * CLOCK_SECOND};
        rank->page.all.wait_ns = 1930000000;
        rank->page.negotiations[1] = 10;
        rank->page.negotiations[PAGE_NEGOTIATIONS - 1] = 1;
        rank->page.negotiation_total = 30 * CLOCK_SECOND;
        rank->page.operations[HVD_ALLREDUCE] =
            (struct page_counts){.submitted = 161, .failed = 1, .batches = 5, .bytes = UINT64_C(1) << 52};
    }
}

static void write_text(struct scene *scene, int limit)
{
    size_t length;
    free(scene->text);
    FILE *file = open_memstream(&scene->text, &length);
    metrics_write(file, &scene->job_view, scene->changes, limit, &scene->past);
    fclose(file);
}

static void end(struct scene *scene)
{
    free(scene->text);
    metrics_past_free(&scene->past);
}

/* Fails unless the whole line is in the text. */
static void has(const struct scene *scene, const char *line)
{
    char whole[512];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    if (!strstr(scene->text, whole))
        fail_msg("no line '%s' in\n%s", line, scene->text);
}

static void has_no(const struct scene *scene, const char *words)
{
    if (strstr(scene->text, words))
        fail_msg("'%s' in\n%s", words, scene->text);
}

TEST(test_a_healthy_job)
{
    struct scene scene;
    start(&scene);
    write_text(&scene, RANKS);
    has(&scene, "# TYPE horovod_ranks gauge");
    has(&scene, "horovod_ranks 4");
    has(&scene, "horovod_ranks_silent 0");
    has(&scene, "horovod_job_start_time_seconds 1764208001");
    has(&scene, "horovod_last_progress_timestamp_seconds 1764208099.5");
    has(&scene, "horovod_steps_total 7");
    has(&scene, "horovod_link_sent_bytes_total{host=\"a\",peer=\"b\"} 5000");
    has(&scene, "horovod_link_busy_seconds_total{host=\"a\",peer=\"b\"} 98");
    has(&scene, "horovod_link_receiver_limited_seconds_total{host=\"a\",peer=\"b\"} 2");
    has(&scene, "horovod_link_retransmitted_segments_total{host=\"b\",peer=\"a\"} 0");
    has(&scene, "horovod_engine_cpu_seconds_total{rank=\"3\"} 1.5");
    has_no(&scene, "horovod_engine_cpu_seconds_total{rank=\"0\"}"); /* unknown */
    has(&scene, "horovod_samples_total 96");
    has(&scene, "horovod_nonfinite_tensors_total{rank=\"2\"} 5");
    has(&scene, "horovod_parameter_checks_total 12");
    has(&scene, "horovod_divergence_total 1");
    has(&scene, "horovod_late_seconds_total{rank=\"3\"} 3");
    has(&scene, "horovod_late_total{rank=\"3\"} 30");
    has(&scene, "horovod_program_seconds_total{rank=\"1\",state=\"runnable\"} 1");
    has(&scene, "horovod_stalled_seconds 0");
    has(&scene, "horovod_rank_info{rank=\"2\",host=\"b\",local_rank=\"0\",pid=\"12\"} 1");
    has(&scene, "horovod_rank_up{rank=\"3\"} 1");
    has(&scene, "horovod_wait_seconds_total{rank=\"0\"} 1.93");
    has(&scene, "horovod_requests_total{rank=\"0\",operation=\"allreduce\"} 161");
    has(&scene, "horovod_requests_failed_total{rank=\"0\",operation=\"allreduce\"} 1");
    has(&scene, "horovod_operation_bytes_total{rank=\"1\",operation=\"allreduce\"} 4503599627370496");
    has_no(&scene, "broadcast");
    has(&scene, "horovod_negotiation_seconds_bucket{le=\"0.0001\"} 0");
    has(&scene, "horovod_negotiation_seconds_bucket{le=\"10\"} 40");
    has(&scene, "horovod_negotiation_seconds_bucket{le=\"+Inf\"} 44");
    has(&scene, "horovod_negotiation_seconds_sum 120");
    has(&scene, "horovod_negotiation_seconds_count 44");
    end(&scene);
}

TEST(test_ranks_in_trouble)
{
    struct scene scene;
    start(&scene);
    scene.ranks[0].system.state = 'T';
    scene.ranks[1].process = 0;
    scene.ranks[2] = (struct rank_view){.page.identity = scene.ranks[2].page.identity};
    scene.ranks[3].page.state = PAGE_FAILED;
    write_text(&scene, RANKS);
    has(&scene, "horovod_ranks_silent 3");
    for (int i = 0; i < RANKS; i++) {
        char line[64];
        snprintf(line, sizeof line, "horovod_rank_up{rank=\"%d\"} 0", i);
        has(&scene, line);
    }
    has(&scene, "horovod_wait_seconds_total{rank=\"1\"} 1.93"); /* its page is still there */
    has_no(&scene, "wait_seconds_total{rank=\"2\"}");
    has_no(&scene, "program_seconds_total{rank=\"2\"");
    has_no(&scene, "resident_memory_bytes{rank=\"1\"}");
    end(&scene);
}

TEST(test_a_rank_that_has_left_is_no_trouble)
{
    struct scene scene;
    start(&scene);
    scene.ranks[0].page.state = PAGE_LEFT;
    scene.ranks[0].process = 0;
    write_text(&scene, RANKS);
    has(&scene, "horovod_ranks_silent 0");
    has(&scene, "horovod_rank_up{rank=\"0\"} 0");
    end(&scene);
}

TEST(test_many_ranks_are_added_up_by_host)
{
    struct scene scene;
    start(&scene);
    scene.ranks[3].system.state = 'T';
    write_text(&scene, RANKS - 1);
    has_no(&scene, "{rank=");
    has(&scene, "horovod_rank_up{host=\"a\"} 2");
    has(&scene, "horovod_rank_up{host=\"b\"} 1");
    has(&scene, "horovod_wait_seconds_total{host=\"b\"} 3.86");
    has(&scene, "horovod_requests_total{host=\"a\",operation=\"allreduce\"} 322");
    has(&scene, "horovod_late_seconds_total{host=\"b\"} 5");
    has(&scene, "horovod_late_total{host=\"b\"} 50");
    has(&scene, "horovod_program_seconds_total{host=\"b\",state=\"running\"} 6");
    has(&scene, "horovod_resident_memory_bytes{host=\"b\"} 2000");
    /* A host of which no rank is seen has a gap. */
    for (int i = 2; i < RANKS; i++)
        scene.ranks[i] = (struct rank_view){.page.identity = scene.ranks[i].page.identity};
    write_text(&scene, RANKS - 1);
    has(&scene, "horovod_rank_up{host=\"b\"} 0");
    has_no(&scene, "wait_seconds_total{host=\"b\"}");
    end(&scene);
}

TEST(test_labels_of_any_bytes)
{
    struct scene scene;
    start(&scene);
    strcpy(scene.job_view.name, "a\"b\\c\nd\xff\xc3\xa9{},=");
    write_text(&scene, RANKS);
    assert_non_null(strstr(scene.text, "name=\"a\\\"b\\\\c\\nd\xef\xbf\xbd\xc3\xa9{},=\""));
    end(&scene);
}

TEST(test_counters_never_fall)
{
    struct scene scene;
    start(&scene);
    write_text(&scene, RANKS);
    for (int i = 0; i < RANKS; i++) {
        scene.ranks[i].late_ns -= 1000;
        scene.ranks[i].late_count -= i > 0;
        scene.ranks[i].times.blocked -= 1000;
    }
    write_text(&scene, RANKS);
    has(&scene, "horovod_late_seconds_total{rank=\"3\"} 3");
    has(&scene, "horovod_late_total{rank=\"3\"} 30");
    has(&scene, "horovod_program_seconds_total{rank=\"1\",state=\"blocked\"} 2");
    /* The rank that has made most steps is no longer seen. */
    scene.job_view.steps.count--;
    scene.job_view.samples -= 24;
    scene.ranks[0] = (struct rank_view){.page.identity = scene.ranks[0].page.identity};
    write_text(&scene, RANKS);
    has(&scene, "horovod_steps_total 7");
    has(&scene, "horovod_samples_total 96");
    has(&scene, "horovod_negotiation_seconds_count 44");
    has(&scene, "horovod_negotiation_seconds_sum 120");
    /* Another process starts again. */
    scene.ranks[3].page.identity.process = 99;
    scene.ranks[3].late_ns = 0;
    write_text(&scene, RANKS);
    has(&scene, "horovod_late_seconds_total{rank=\"3\"} 0");
    has(&scene, "horovod_late_seconds_total{rank=\"2\"} 2");
    end(&scene);
}

/* What the job counts goes on, though the ranks count from 0 again. */
TEST(test_a_new_epoch)
{
    struct scene scene;
    const struct changes changes = {
        .resets = {[CHANGE_LOST] = 1}, .lost = 2, .added = 1, .interrupted = CLOCK_SECOND / 4};
    start(&scene);
    write_text(&scene, RANKS);
    assert_null(strstr(scene.text, "horovod_elastic"));
    has(&scene, "horovod_steps_total 7");
    has(&scene, "horovod_negotiation_seconds_count 44");
    scene.job_view.epoch = 1;
    scene.job_view.steps.count = 1;
    scene.changes = &changes;
    for (int i = 0; i < RANKS; i++)
        scene.ranks[i].page.negotiations[1] = 0;
    write_text(&scene, RANKS);
    has(&scene, "horovod_steps_total 8");
    has(&scene, "horovod_negotiation_seconds_count 48");
    has(&scene, "horovod_elastic_resets_total{cause=\"lost\"} 1");
    has(&scene, "horovod_elastic_resets_total{cause=\"mixed\"} 0");
    has(&scene, "horovod_elastic_ranks_lost_total 2");
    has(&scene, "horovod_elastic_ranks_added_total 1");
    has(&scene, "horovod_elastic_interrupted_seconds_total 0.25");
    scene.job_view.epoch = 0; /* pages of the epoch before are all that is seen for a moment */
    scene.job_view.steps.count = 7;
    write_text(&scene, RANKS);
    has(&scene, "horovod_steps_total 8");
    has(&scene, "horovod_negotiation_seconds_count 48");
    has(&scene, "horovod_epoch 1");
    assert_null(strstr(scene.text, "horovod_rank_up{"));
    scene.job_view.epoch = 1;
    scene.job_view.steps.count = 1;
    write_text(&scene, RANKS);
    has(&scene, "horovod_steps_total 8");
    assert_non_null(strstr(scene.text, "horovod_rank_up{"));
    end(&scene);
}

TEST(test_links)
{
    struct scene scene;
    struct job_view_link links[4] = {{0, 1, 100, 1, 9 * CLOCK_SECOND, 1 * CLOCK_SECOND},
                                     {0, 2, 200, 2, 5 * CLOCK_SECOND, 4 * CLOCK_SECOND}};
    struct job_view_host hosts[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    start(&scene);
    scene.job_view.links = links;
    scene.job_view.hosts = hosts;
    scene.job_view.host_count = 3;
    write_text(&scene, RANKS);
    has(&scene, "horovod_link_sent_bytes_total{host=\"a\",peer=\"c\"} 200");
    /* A connection was closed, a link is new. */
    links[0].bytes = 50;
    links[2] = (struct job_view_link){1, 0, 7, 0, 1, 1};
    scene.job_view.link_count = 3;
    write_text(&scene, RANKS);
    has(&scene, "horovod_link_sent_bytes_total{host=\"a\",peer=\"b\"} 100");
    has(&scene, "horovod_link_sent_bytes_total{host=\"b\",peer=\"a\"} 7");
    /* Too many: all links out of a host are one, as busy as the busiest. */
    write_text(&scene, 2);
    has(&scene, "horovod_link_sent_bytes_total{host=\"a\"} 250");
    has(&scene, "horovod_link_busy_seconds_total{host=\"a\"} 9");
    has(&scene, "horovod_link_receiver_limited_seconds_total{host=\"a\"} 1");
    has(&scene, "horovod_link_retransmitted_segments_total{host=\"a\"} 3");
    end(&scene);
}

TEST(test_a_stall)
{
    struct scene scene;
    struct page_waiting waiting = {.since = 86 * CLOCK_SECOND, .waits = 1, .missing = 2, .hidden = 1};
    start(&scene);
    scene.job_view.waitings = (struct page_waitings){.list = &waiting, .count = 1};
    write_text(&scene, RANKS);
    has(&scene, "horovod_stalled_seconds 14");
    has(&scene, "horovod_stalled_ranks 3");
    waiting.since = 100 * CLOCK_SECOND - CLOCK_SECOND / 2;
    write_text(&scene, RANKS);
    has(&scene, "horovod_stalled_seconds 0");
    has(&scene, "horovod_stalled_ranks 0");
    end(&scene);
}
