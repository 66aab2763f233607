/* test_coordinator.c - the coordinators of a few ranks, message by message. The simulator (test/simulate)
 * does the same with chance; here every step is chosen. */
#include "base/status.h"
#include "coordinate/coordinator.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 200, MESSAGES = 1024, REQUESTS = 2048, DATA = 32, REPORTERS = 4 };

struct message {
    int from, to;
    size_t length;
    uint8_t *bytes;
};

struct rank {
    int number;
    struct coordinator *coordinator;
    char log[4096]; /* "a+b " for a batch of a and b, "!c " for a request that ended unrun */
    hvd_status end; /* of the last such request */
    uint64_t batches[REQUESTS];
    int running, closed;
    struct lateness late[REPORTERS];
    int64_t negotiated; /* the last time */
};

/* Host of two, host of one, ...: rank 0 <- 1, 2; rank 2 <- 3 when there are four. */
static struct rank ranks[RANKS];
static struct topology topology;
static int size;
static struct message messages[MESSAGES];
static int message_count;
static size_t longest_message, sent_bytes;
static struct pending *requests[REQUESTS];
static bool submits_apart, logs_rows;
static int request_count;
static int64_t now;
static unsigned cut[RANKS]; /* by sender: a bit for each rank below 32 that nothing from it reaches */

static bool has_rank(unsigned set, int rank)
{
    return rank < 32 && set >> rank & 1;
}

/* ---- outputs ------------------------------------------------------------------------------------------- */

static void on_send(void *owner, int to, const uint8_t *bytes, size_t length)
{
    const struct rank *rank = owner;
    if (has_rank(cut[rank->number], to))
        return;
    assert_true(message_count < MESSAGES);
    uint8_t *copy = malloc(length);
    memcpy(copy, bytes, length);
    messages[message_count++] = (struct message){rank->number, to, length, copy};
    longest_message = length > longest_message ? length : longest_message;
    sent_bytes += length;
}

/* Every rank is connected to every other. */
static void on_flood(void *owner, int except, const uint8_t *bytes, size_t length, bool fatal)
{
    (void)fatal;
    for (int to = 0; to < size; to++) {
        if (to != except && to != ((const struct rank *)owner)->number)
            on_send(owner, to, bytes, length);
    }
}

static void on_silent(void *owner, const struct silence *silence, hvd_status *cause)
{
    char text[128] = "no hosts";
    if (silence->lost.count)
        rank_set_text(&silence->lost, text, sizeof text);
    for (int i = 0; i < silence->pair_count; i++)
        snprintf(text + (i ? strlen(text) : 0), 16, "%s%d and %d", i ? ", " : "hosts ", silence->pairs[i][0],
                 silence->pairs[i][1]);
    status_set(cause, HVD_TIMED_OUT, "rank %d%s: %s", ((const struct rank *)owner)->number,
               silence->cut_off ? " is cut off" : "", text);
}

static void write_log(struct rank *rank, const char *text)
{
    size_t used = strlen(rank->log);
    snprintf(rank->log + used, sizeof rank->log - used, "%.8s", text);
}

/* Eager data: the digits of ranks in the order in which they are combined; those of a subtree
 * that was combined already stand in brackets. */
static void on_contribute(void *owner, const struct pending *request, uint8_t *data)
{
    memset(data, 0, request->eager_bytes);
    snprintf((char *)data, DATA, "%d", ((const struct rank *)owner)->number);
}

static void on_combine(void *owner, const struct signature_summary *what, uint8_t *sum, const uint8_t *other)
{
    (void)owner;
    char both[2 * DATA];
    assert_int_equal(what->bytes, DATA);
    snprintf(both, sizeof both, "%s%s%s%s", (const char *)sum, other[1] ? "(" : "", (const char *)other,
             other[1] ? ")" : "");
    memcpy(sum, both, DATA);
}

static uint64_t on_rows(void *owner, const struct pending *request, int index)
{
    (void)owner;
    return logs_rows ? ((const uint64_t *)request->owner)[index] : 0;
}

/* ":5,7", by place and number, or ":?". */
static void write_rows(struct rank *rank, const struct batch *batch)
{
    struct signature_summary what;
    const struct runs *rows = batch->members[0].rows;
    assert_true(signature_summarize(batch->members[0].signature, &what));
    int count = size * (what.operation == HVD_ALLTOALL ? size : what.tensors);
    if (!operation_makes_results(what.operation) || operation_reduces(what.operation)) {
        assert_null(rows);
        return;
    }
    write_log(rank, rows ? ":" : ":?");
    assert_true(!rows || runs_check(rows->bytes, rows->length, (uint64_t)count));
    struct runs_reader reader = rows ? runs_reader_of(rows->bytes, rows->length) : (struct runs_reader){0};
    for (int i = 0; rows && i < count; i++) {
        size_t used = strlen(rank->log);
        snprintf(rank->log + used, sizeof rank->log - used, "%s%llu", i ? "," : "",
                 (unsigned long long)runs_get(&reader));
    }
}

static void write_result(struct rank *rank, const struct batch *batch)
{
    size_t used = strlen(rank->log);
    snprintf(rank->log + used, sizeof rank->log - used, "%s=%s ",
             batch->requests[0] ? batch->requests[0]->name : "-", (const char *)batch->result);
    assert_int_equal(batch->count, 1);
}

static void on_run(void *owner, const struct batch *batch)
{
    struct rank *rank = owner;
    if (batch->result) {
        write_result(rank, batch);
        return;
    }
    assert_int_equal(batch->choice.backend, 1);
    assert_int_equal(batch->choice.algorithm, 3);
    assert_int_equal(batch->choice.piece_exponent, 20);
    for (int i = 0; i < batch->count; i++) {
        write_log(rank, i ? "+" : "");
        write_log(rank, batch->requests[i] ? batch->requests[i]->name : "-");
    }
    if (logs_rows)
        write_rows(rank, batch);
    write_log(rank, " ");
    rank->batches[rank->running++] = batch->sequence;
}

static void on_turn(void *owner, int set)
{
    struct rank *rank = owner;
    size_t used = strlen(rank->log);
    snprintf(rank->log + used, sizeof rank->log - used, "%d ", set);
}

static void on_found(void *owner, int number, hvd_operation operation, uint32_t mark)
{
    struct rank *rank = owner;
    size_t used = strlen(rank->log);
    snprintf(rank->log + used, sizeof rank->log - used, "?%d of %s %u ", number, operation_name(operation),
             (unsigned)mark);
}

static void on_finish(void *owner, struct pending *request, const hvd_status *status)
{
    struct rank *rank = owner;
    write_log(rank, "!");
    write_log(rank, request->name);
    write_log(rank, " ");
    status_copy(&rank->end, status);
}

static void on_joined(void *owner, struct pending *request, int last_rank)
{
    struct rank *rank = owner;
    char text[16];
    snprintf(text, sizeof text, "%s=%d ", request->name, last_rank);
    write_log(rank, text);
}

static void on_stalled(void *owner, const char *name, int64_t waited, const struct rank_set *missing)
{
    struct rank *rank = owner;
    char ranks_text[64];
    const char *digits = strchr(rank_set_text(missing, ranks_text, sizeof ranks_text), ' ') + 1;
    size_t used = strlen(rank->log);
    snprintf(rank->log + used, sizeof rank->log - used, "%s?%s ", name, digits);
    assert_true(waited >= 1000);
}

static struct choice on_choose(void *owner, const struct signature_summary *what, uint64_t bytes,
                               bool rows_unknown)
{
    (void)owner;
    (void)what;
    (void)bytes;
    (void)rows_unknown;
    return (struct choice){.backend = 1, .algorithm = 3, .piece_exponent = 20};
}

static void on_late(void *owner, int reporter, int rank, const struct lateness *lateness)
{
    (void)rank;
    if (reporter < REPORTERS)
        ((struct rank *)owner)->late[reporter] = *lateness;
}

static void on_negotiated(void *owner, int64_t time)
{
    ((struct rank *)owner)->negotiated = time;
}

static void on_closed(void *owner)
{
    ((struct rank *)owner)->closed++;
}

/* ---- the world ----------------------------------------------------------------------------------------- */

static const struct coordinator_config usual = {.fusion_threshold = 1000, .cache_capacity = 100};
static struct coordinator_config config;

/* hosts: by rank. */
static void open_layout(const int *hosts, int number)
{
    ASSERT_OK(topology_init(&topology, hosts, number, &check_status));
    size = number;
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank){.number = r};
        config.output = (struct coordinator_output){
            .owner = &ranks[r],
            .send = on_send,
            .flood = on_flood,
            .silent = on_silent,
            .contribute = on_contribute,
            .combine = on_combine,
            .rows = on_rows,
            .run = on_run,
            .turn = on_turn,
            .found = on_found,
            .finish = on_finish,
            .joined = on_joined,
            .stalled = on_stalled,
            .choose = on_choose,
            .closed = on_closed,
            .late = on_late,
            .negotiated = on_negotiated,
        };
        ASSERT_OK(tree_node_init(&config.tree, &topology, r, 2, &check_status));
        ASSERT_OK(coordinator_create(&config, &ranks[r].coordinator, &check_status));
    }
}

/* Hosts of the given sizes, e.g. "2,1", one after the other; the last one has the rest. */
static void open_ranks(const char *sizes, int number)
{
    static int hosts[RANKS];
    for (int rank = 0, host = 0; rank < number; host++) {
        int here = *sizes ? (int)strtol(sizes, (char **)&sizes, 10) : number - rank;
        sizes += *sizes == ',';
        while (here-- > 0)
            hosts[rank++] = host;
    }
    open_layout(hosts, number);
}

/* Also what a test has changed of the configuration. */
static int close_ranks(void **state)
{
    (void)state;
    for (int r = 0; r < size; r++)
        coordinator_destroy(ranks[r].coordinator);
    topology_free(&topology);
    for (int i = 0; i < message_count; i++)
        free(messages[i].bytes);
    for (int i = 0; i < request_count; i++) {
        free(requests[i]->signature.bytes);
        free(requests[i]);
    }
    size = message_count = request_count = 0;
    logs_rows = false;
    memset(cut, 0, sizeof cut);
    config = usual;
    longest_message = sent_bytes = 0;
    now = 0;
    return 0;
}

const struct test_hooks test_hooks = {.before_all = close_ranks, .after_each = close_ranks};

/* Takes the message number `at` out of the queue and gives it to whom it is for. */
static void deliver(int at)
{
    struct message message = messages[at];
    memmove(&messages[at], &messages[at + 1], (size_t)(--message_count - at) * sizeof message);
    coordinator_receive(ranks[message.to].coordinator, message.from, message.bytes, message.length, now);
    free(message.bytes);
}

static int find_message(int from, int to)
{
    for (int i = 0; i < message_count; i++) {
        if (messages[i].from == from && messages[i].to == to)
            return i;
    }
    fail_msg("no message from %d to %d", from, to);
    return -1;
}

static void flush(int rank)
{
    coordinator_flush(ranks[rank].coordinator, now);
}

/* Until no message is left. */
static void settle(void)
{
    do {
        while (message_count)
            deliver(0);
        for (int r = size - 1; r >= 0; r--)
            flush(r);
    } while (message_count);
}

static void finish_batches(void)
{
    for (int r = 0; r < size; r++) {
        while (ranks[r].running)
            coordinator_batch_done(ranks[r].coordinator, ranks[r].batches[--ranks[r].running]);
    }
}

static void run_all(void)
{
    for (int i = 0; i < 100; i++) {
        settle();
        finish_batches();
    }
}

static struct signature encode(const hvd_request *request)
{
    uint32_t length;
    assert_int_equal(signature_measure(request, &length, NULL), HVD_OK);
    return signature_encode(request, NULL, malloc(length), length);
}

static const uint64_t *submitted_rows; /* of the next request; they must stay until it has run */

static hvd_code submit_request(int rank, const char *name, const hvd_request *request, hvd_status *status)
{
    assert_true(request_count < REQUESTS);
    struct pending *pending = calloc(1, sizeof *pending);
    requests[request_count++] = pending;
    pending->name = name;
    pending->signature = encode(request);
    pending->apart = submits_apart;
    pending->owner = (void *)submitted_rows;
    return coordinator_submit(ranks[rank].coordinator, pending, now, status);
}

/* Of one tensor of float32. */
static hvd_code submit_tensor(int rank, const char *name, int64_t elements, hvd_request request,
                              hvd_status *status)
{
    hvd_tensor tensor = {&tensor, &elements, 1, HVD_FLOAT32, HVD_CPU, 0};
    request.struct_size = sizeof request;
    request.count = 1;
    request.inputs = &tensor;
    return submit_request(rank, name, &request, status);
}

static hvd_code submit_elements(int rank, const char *name, int64_t elements, int priority,
                                hvd_status *status)
{
    hvd_request request = {.reduction = HVD_SUM, .priority = priority};
    return submit_tensor(rank, name, elements, request, status);
}

static void submit(int rank, const char *name, int64_t elements)
{
    ASSERT_OK(submit_elements(rank, name, elements, 0, &check_status));
}

static void submit_everywhere(const char *name, int64_t elements)
{
    for (int r = 0; r < size; r++)
        submit(r, name, elements);
}

static void barrier_everywhere(const char *name)
{
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_BARRIER};
    for (int r = 0; r < size; r++)
        ASSERT_OK(submit_request(r, name, &request, &check_status));
}

static void check_log(const char *expected)
{
    for (int r = 0; r < size; r++) {
        assert_string_equal(ranks[r].log, expected);
        ranks[r].log[0] = '\0';
    }
}

/* ---- readiness and order ------------------------------------------------------------------------------- */

TEST(nothing_runs_before_all_asked)
{
    open_ranks("2,2", 4);
    for (int r = 0; r < 4; r++) {
        check_log("");
        submit(r, "a", 3);
        settle();
    }
    check_log("a ");
    assert_int_equal(coordinator_pending_count(ranks[3].coordinator), 0);
}

TEST(one_order_for_all)
{
    config.fusion_threshold = 0;
    open_ranks("2,2", 4);
    for (int r = 0; r < 4; r++) {
        submit(r, r % 2 ? "a" : "b", 3);
        settle();
        submit(r, r % 2 ? "b" : "a", 3);
    }
    run_all();
    assert_int_equal(strlen(ranks[0].log), 4);
    for (int r = 1; r < 4; r++)
        assert_string_equal(ranks[r].log, ranks[0].log);
}

/* Turns are as the ranks' own batches: all of them see both in one order. */
TEST(turns_have_the_order_of_decisions)
{
    config.fusion_threshold = 0;
    open_ranks("2,2,1", 5);
    for (int round = 0; round < 3; round++) {
        coordinator_ask_turn(ranks[4].coordinator, 7);
        submit_everywhere("a", 3);
        coordinator_ask_turn(ranks[round].coordinator, 5);
        coordinator_ask_turn(ranks[3].coordinator, 7);
        run_all();
    }
    int letters[3] = {0};
    for (const char *at = ranks[0].log; *at; at++)
        letters[*at == '5' ? 0 : *at == '7' ? 1 : 2] += *at != ' ';
    assert_int_equal(letters[0], 3);
    assert_int_equal(letters[1], 6);
    for (int r = 1; r < 5; r++)
        assert_string_equal(ranks[r].log, ranks[0].log);
}

TEST(no_turn_comes_after_the_close)
{
    open_ranks("2,2", 4);
    coordinator_leave(ranks[0].coordinator);
    settle();
    coordinator_ask_turn(ranks[3].coordinator, 7);
    settle();
    for (int r = 0; r < 4; r++) {
        assert_string_equal(ranks[r].log, "");
        assert_int_equal(ranks[r].closed, 1);
    }
}

/* The request "a" has run when a rank finds a NaN in its input: all receive that before "b" runs. */
static void find_after(uint32_t eager_threshold, int finder)
{
    config.eager_threshold = eager_threshold;
    open_ranks("2,2,1", 5);
    submit_everywhere("a", DATA / 4);
    for (int r = 0; r < size; r++) {
        struct pending named = {.name = "a"};
        *coordinator_mark(ranks[r].coordinator, &named) = (uint32_t)r;
    }
    run_all();
    coordinator_found(ranks[finder].coordinator, requests[finder]);
    submit_everywhere("b", DATA / 4);
    run_all();
    for (int r = 0; r < size; r++) {
        char expected[64];
        const char *data = eager_threshold ? "=01(23)4" : "";
        snprintf(expected, sizeof expected, "a%s ?%d of allreduce %d b%s ", data, finder, r, data);
        assert_string_equal(ranks[r].log, expected);
    }
    close_ranks(NULL);
}

TEST(a_finding_comes_before_what_depends_on_it)
{
    for (int finder = 0; finder < 5; finder++) {
        find_after(0, finder);
        find_after(DATA, finder);
    }
}

/* Those of all ranks are no longer than one message may be. */
TEST(of_many_findings_the_first_are_passed_on)
{
    open_ranks("2,2,1", 5);
    submit_everywhere("a", 3);
    run_all();
    for (int i = 0; i < 10000; i++)
        coordinator_found(ranks[i % 5].coordinator, requests[i % 5]);
    run_all();
    assert_true(longest_message < 5000);
    for (int r = 0; r < size; r++) {
        assert_string_equal(ranks[r].log, ranks[0].log);
        assert_non_null(strstr(ranks[r].log, "?0 of allreduce 0"));
    }
}

TEST(a_job_of_one_rank)
{
    open_ranks("", 1);
    submit(0, "a", 3);
    flush(0);
    check_log("a ");
    finish_batches();
    coordinator_leave(ranks[0].coordinator);
    flush(0);
    assert_int_equal(ranks[0].closed, 1);
    assert_int_equal(message_count, 0);
}

TEST(a_second_time_costs_an_id)
{
    open_ranks("2,2", 4);
    submit_everywhere("a_rather_long_name_for_a_tensor", 3);
    run_all();
    size_t first = sent_bytes;
    sent_bytes = 0;
    submit_everywhere("a_rather_long_name_for_a_tensor", 3);
    run_all();
    /* Up: kind, seen, report, id; down: kind, number, batch of one. Three edges. */
    assert_int_equal(sent_bytes, 3 * (9 + 9) + 3 * (9 + 16));
    assert_true(sent_bytes < first / 2);
}

TEST(long_messages_are_split)
{
    enum { NAMES = 500 };
    static char names[NAMES][REQUEST_NAME_LIMIT];
    config.fusion_threshold = 1 << 30;
    open_ranks("3", 3);
    for (int n = 0; n < NAMES; n++) {
        memset(names[n], 'x', REQUEST_NAME_LIMIT - 1);
        names[n][n % 1000] = (char)('a' + n / 1000);
    }
    hvd_tensor tensors[200];
    int64_t shape[HVD_MAX_DIMENSIONS];
    for (int i = 0; i < HVD_MAX_DIMENSIONS; i++)
        shape[i] = 1;
    for (int i = 0; i < 200; i++)
        tensors[i] = (hvd_tensor){tensors, shape, HVD_MAX_DIMENSIONS, HVD_INT32, HVD_CPU, 0};
    hvd_request request = {
        .struct_size = sizeof request, .count = 200, .inputs = tensors, .reduction = HVD_SUM};
    for (int r = 0; r < 3; r++) {
        for (int n = 0; n < NAMES; n++)
            ASSERT_OK(submit_request(r, names[n], &request, &check_status));
    }
    run_all();
    for (int r = 0; r < 3; r++)
        assert_int_equal(coordinator_pending_count(ranks[r].coordinator), 0);
    assert_in_range(longest_message, 16 << 10, 64 << 10);
}

/* ---- batches ------------------------------------------------------------------------------------------- */

/* Two long batches and a short one occupy the root, so that what follows piles up. */
static void occupy(void)
{
    barrier_everywhere("x");
    barrier_everywhere("y");
    submit_everywhere("z", 1);
    settle();
    check_log("x y z ");
}

TEST(ready_requests_pile_up_and_fuse)
{
    open_ranks("2,1", 3);
    occupy();
    submit_everywhere("a", 100); /* 400 bytes */
    submit_everywhere("b", 200); /* 800: does not fit any more */
    submit_everywhere("c", 150); /* 600: fits */
    submit_everywhere("d", 1);
    settle();
    check_log("");
    run_all();
    check_log("a+c b+d ");
}

TEST(a_short_one_passes_long_ones)
{
    config.fusion_threshold = 1 << 20;
    open_ranks("2,1", 3);
    submit_everywhere("a", 200000); /* two do not fit into one batch */
    submit_everywhere("b", 200000);
    submit_everywhere("c", 200000);
    settle();
    check_log("a b ");
    submit_everywhere("s", 16384); /* 64 KiB: just short */
    settle();
    check_log("s ");
    submit_everywhere("t", 1);
    settle();
    check_log(""); /* one short one at a time */
    run_all();
    check_log("c+t ");
}

static void submit_one(int rank, const char *name, hvd_reduction reduction, int grouped)
{
    hvd_request request = {.reduction = reduction, .grouped = grouped};
    ASSERT_OK(submit_tensor(rank, name, 3, request, &check_status));
}

TEST(groups_may_stay_alone)
{
    for (int alone = 0; alone < 2; alone++) {
        config.groups_alone = alone;
        open_ranks("", 2);
        submit_everywhere("a", 3);
        for (int r = 0; r < 2; r++)
            submit_one(r, "g", HVD_SUM, 1);
        submit_everywhere("b", 3);
        run_all();
        check_log(alone ? "a+b g " : "a+g+b ");
        close_ranks(state);
    }
}

TEST(adasums_may_stay_alone)
{
    for (int alone = 0; alone < 2; alone++) {
        config.adasum_alone = alone;
        open_ranks("", 2);
        for (int r = 0; r < 2; r++) {
            submit_one(r, "a", HVD_ADASUM, 0);
            submit_one(r, "b", HVD_ADASUM, 1);
            submit_one(r, "c", HVD_SUM, 0);
            submit_one(r, "d", HVD_SUM, 0);
        }
        run_all();
        check_log(alone ? "a b c+d " : "a+b c+d ");
        close_ranks(state);
    }
}

TEST(one_too_large_runs_by_itself)
{
    open_ranks("2,1", 3);
    occupy();
    submit_everywhere("a", 100000);
    submit_everywhere("b", 1);
    barrier_everywhere("c");
    submit_everywhere("d", 1);
    run_all();
    check_log("a b+d c ");
}

TEST(without_fusion_all_run_alone)
{
    config.fusion_threshold = 0;
    open_ranks("2,1", 3);
    occupy();
    submit_everywhere("a", 0);
    submit_everywhere("b", 1);
    run_all();
    check_log("a b ");
}

TEST(limits_change_between_flushes)
{
    open_ranks("2,1", 3);
    occupy();
    for (int i = 0; i < 6; i++)
        submit_everywhere((const char *[]){"a", "b", "c", "d", "e", "f"}[i], 100);
    settle();
    coordinator_tune(ranks[0].coordinator, 800, 0);
    for (int i = 0; i < 2; i++) {
        finish_batches();
        settle();
    }
    check_log("a+b c+d ");
    coordinator_tune(ranks[0].coordinator, 0, 0);
    run_all();
    check_log("e f ");
}

TEST(what_is_urgent_runs_first)
{
    config.fusion_threshold = 0;
    open_ranks("2,1", 3);
    occupy();
    static const char *const names[] = {"a", "b", "c", "d"};
    static const int priorities[] = {-1, 5, 0, 5};
    for (int i = 0; i < 4; i++) {
        for (int r = 0; r < size; r++)
            ASSERT_OK(submit_elements(r, names[i], 1, priorities[i], &check_status));
    }
    run_all();
    check_log("b d c a ");
}

/* Requests that run alone and others, short and long ones, have one order; requests that fit are fused across
 * those that run alone. */
TEST(what_runs_alone_keeps_its_place)
{
    config.fusion_threshold = 1 << 20;
    open_ranks("", 1);
    occupy();
    barrier_everywhere("b1");
    submit_everywhere("s1", 3);
    submit_everywhere("l1", 20000);
    barrier_everywhere("b2");
    submit_everywhere("s2", 3);
    submit_everywhere("l2", 20000);
    run_all();
    check_log("b1 s1+s2 l1+l2 b2 ");
}

/* For one rank is enough. What is urgent may pass only what is ready behind it. */
TEST(what_runs_apart_overtakes_nothing)
{
    config.fusion_threshold = 1 << 20;
    for (int apart = 0; apart < 4; apart++) {
        open_ranks("2,2", 4);
        occupy();
        submit_everywhere("long", 20000);
        for (int r = 0; r < size; r++) {
            submits_apart = r == apart;
            ASSERT_OK(submit_elements(r, "a", 1, 5, &check_status));
            submits_apart = false;
        }
        submit_everywhere("b", 1);
        submit_everywhere("c", 1);
        for (int r = 0; r < size; r++) {
            submits_apart = r == apart;
            ASSERT_OK(submit_elements(r, "d", 1, 9, &check_status));
            submits_apart = false;
        }
        for (int r = 0; r < size; r++)
            ASSERT_OK(submit_elements(r, "e", 1, 9, &check_status));
        run_all();
        check_log("long a b+c d e ");
        close_ranks(NULL);
    }
}

TEST(the_root_waits_for_the_cycle_time)
{
    config.cycle_time = 50;
    open_ranks("2,1", 3);
    assert_int_equal(coordinator_next_flush(ranks[0].coordinator), INT64_MAX);
    now = 1000;
    submit_everywhere("a", 1);
    settle();
    now = 1049;
    submit_everywhere("b", 1);
    settle();
    check_log("");
    assert_int_equal(coordinator_next_flush(ranks[0].coordinator), 1050);
    assert_int_equal(coordinator_next_flush(ranks[1].coordinator), INT64_MAX);
    now = 1050;
    settle();
    check_log("a+b ");
    assert_int_equal(coordinator_next_flush(ranks[0].coordinator), INT64_MAX);
}

/* ---- the cache ----------------------------------------------------------------------------------------- */

TEST(a_change_of_shape_on_all_ranks_runs)
{
    open_ranks("2,2", 4);
    for (int64_t elements = 1; elements < 5; elements++) {
        submit_everywhere("a", elements);
        run_all();
        check_log("a ");
    }
}

TEST(any_capacity_works)
{
    for (uint32_t capacity = 0; capacity < 4; capacity++) {
        config.cache_capacity = capacity;
        open_ranks("2,2", 4);
        for (int round = 0; round < 5; round++) {
            submit_everywhere("a", 1);
            submit_everywhere("b", 1);
            submit_everywhere("c", 1);
            run_all();
        }
        assert_int_equal(strlen(ranks[3].log), 5 * 6);
        close_ranks(NULL);
    }
}

/* Rank 1 sends the id of a, while the decision that ends this id is on its way to it. */
TEST(an_id_may_cross_its_eviction)
{
    config.cache_capacity = 1;
    open_ranks("3", 3);
    submit_everywhere("a", 1);
    run_all();
    submit_everywhere("b", 1);
    for (int r = 1; r < 3; r++) {
        flush(r);
        deliver(find_message(r, 0));
    }
    flush(0); /* assigns an id to b, runs it, evicts a */
    submit(1, "a", 1);
    flush(1);
    deliver(find_message(1, 0));
    settle();
    submit(0, "a", 1);
    submit(2, "a", 1); /* has seen the eviction, so it sends the name */
    run_all();
    check_log("a b a ");
}

/* As before, but the shape on rank 2 has changed: ids and names count in one entry. */
TEST(an_id_meets_another_form)
{
    open_ranks("3", 3);
    submit_everywhere("a", 1);
    run_all();
    submit(0, "a", 1);
    submit(1, "a", 1);
    submit(2, "a", 2);
    run_all();
    check_log("a !a ");
    check_text(ranks[1].end.text, "ranks 0-1 have [1], rank 2 has [2]");
}

/* ---- mismatches --------------------------------------------------------------------------------------- */

TEST(a_mismatch_ends_one_round_everywhere)
{
    open_ranks("2,2", 4);
    for (int round = 0; round < 3; round++) {
        for (int r = 0; r < 4; r++)
            submit(r, ".grad", r == 2 ? 4 : 3);
        run_all();
        for (int r = 0; r < 4; r++) {
            assert_int_equal(ranks[r].end.code, HVD_MISMATCH);
            check_text(ranks[r].end.text, "allreduce \"grad\": the ranks disagree on the shape of tensor 0: "
                                          "ranks 0-1, 3 have [3], rank 2 has [4]");
            ASSERT_OK(coordinator_health(ranks[r].coordinator, &check_status));
        }
        submit_everywhere(".grad", 3);
        run_all();
    }
    check_log("!.grad .grad !.grad .grad !.grad .grad ");
}

TEST(several_respects_are_named)
{
    open_ranks("2,2", 4);
    submit(0, "a", 3);
    submit(1, "a", 4);
    submit(2, "a", 5);
    ASSERT_OK(submit_elements(3, "a", 3, 7, &check_status));
    run_all();
    check_text(ranks[3].end.text,
               "the ranks disagree on the shape of tensor 0: rank 0 has [3], rank 1 has [4], "
               "rank 2 has [5]; and on the priority: rank 0 has 0, rank 3 has 7. ");
}

/* Ranks 0, 2, 4 on one host, 1, 3, 5 on the other: 0 <- 2, 4, 1; 1 <- 3, 5. */
static const int cyclic[] = {0, 1, 0, 1, 0, 1};

TEST(ranks_of_a_host_need_not_be_neighbours)
{
    open_layout(cyclic, 6);
    for (int r = 0; r < 6; r++)
        submit(r, "a", r == 2 || r == 3 ? 4 : 3);
    run_all();
    check_text(ranks[5].end.text, "ranks 0-1, 4-5 have [3], ranks 2-3 have [4]");
    submit_everywhere("a", 3);
    run_all();
    check_log("!a a ");
    for (int r = 0; r < 6; r++)
        if (r != 3)
            submit(r, "b", 3);
    coordinator_leave(ranks[3].coordinator);
    run_all();
    check_text(ranks[0].end.text, "rank 3 has left the job");
}

TEST(many_variants_are_cut)
{
    static const int hosts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    open_layout(hosts, 16);
    for (int r = 0; r < 16; r++)
        submit(r, "a", 1 + r);
    run_all();
    check_log("!a ");
    check_text(ranks[15].end.text,
               "on the shape of tensor 0: rank 0 has [1], rank 1 has [2], rank 2 has [3]");
    check_text(ranks[15].end.text, ", and so on. ");
}

TEST(a_name_in_flight_is_refused)
{
    open_ranks("2", 2);
    submit(0, "a", 3);
    ASSERT_FAILS(submit_elements(0, "a", 3, 0, &check_status), HVD_DUPLICATE_NAME,
                 "\"a\" is in flight on rank 0");
    submit(1, "a", 3);
    settle();
    check_log("a ");
    submit(0, "a", 3); /* decided: the name is free again, though its batch still runs */
}

TEST(impossible_requests_are_refused)
{
    static char name[REQUEST_NAME_LIMIT + 1];
    open_ranks("2", 2);
    memset(name, 'x', REQUEST_NAME_LIMIT);
    ASSERT_FAILS(submit_elements(0, name, 1, 0, &check_status), HVD_INVALID_ARGUMENT, "1024 bytes");
    int64_t shape[] = {1};
    hvd_tensor tensor = {shape, shape, 1, HVD_INT64, HVD_CPU, 0};
    hvd_request request = {
        .struct_size = sizeof request, .operation = HVD_BROADCAST, .count = 1, .inputs = &tensor, .root = 2};
    ASSERT_FAILS(submit_request(0, "a", &request, &check_status), HVD_INVALID_ARGUMENT, "root rank 2");
    assert_int_equal(coordinator_pending_count(ranks[0].coordinator), 0);
}

/* ---- leaving ------------------------------------------------------------------------------------------ */

TEST(a_leave_ends_what_is_not_decided)
{
    open_ranks("2,2", 4);
    submit_everywhere("a", 1);
    settle();
    submit(0, "b", 1);
    submit(3, "c", 1);
    coordinator_leave(ranks[3].coordinator);
    ASSERT_FAILS(submit_elements(3, "d", 1, 0, &check_status), HVD_SHUT_DOWN, "has left the job");
    settle();
    assert_string_equal(ranks[0].log, "a !b ");
    assert_string_equal(ranks[3].log, "a !c ");
    for (int r = 0; r < 4; r++) {
        assert_int_equal(ranks[r].closed, 0); /* a still runs */
        ASSERT_FAILS(coordinator_health(ranks[r].coordinator, &check_status), HVD_SHUT_DOWN,
                     "rank 3 has left the job (shutdown or exit)");
        ASSERT_FAILS(submit_elements(r, "e", 1, 0, &check_status), HVD_SHUT_DOWN, "rank 3 has left the job");
    }
    for (int r = 0; r < 3; r++)
        coordinator_batch_done(ranks[r].coordinator, ranks[r].batches[0]);
    settle();
    assert_int_equal(ranks[0].closed, 0);
    coordinator_batch_done(ranks[3].coordinator, ranks[3].batches[0]);
    settle();
    for (int r = 0; r < 4; r++)
        assert_int_equal(ranks[r].closed, 1);
}

TEST(all_may_leave_at_once)
{
    open_ranks("2,2,1", 5);
    submit_everywhere("a", 1);
    run_all();
    for (int r = 0; r < 5; r++) {
        coordinator_leave(ranks[r].coordinator);
        coordinator_leave(ranks[r].coordinator);
    }
    settle();
    for (int r = 0; r < 5; r++)
        assert_int_equal(ranks[r].closed, 1);
}

TEST(after_shutdown_done_a_lost_parent_is_no_fault)
{
    hvd_status lost = {.code = HVD_PEER_LOST, .text = "rank 0 is gone"};
    open_ranks("1,1,1,1", 4); /* 0 <- 1, 2; 2 <- 3 */
    coordinator_leave(ranks[1].coordinator);
    flush(1);
    deliver(find_message(1, 0));
    flush(0);
    deliver(find_message(0, 2));
    deliver(find_message(2, 3));
    flush(3);
    deliver(find_message(3, 2));
    flush(2);
    find_message(2, 0); /* SHUTDOWN_DONE */
    coordinator_abort(ranks[2].coordinator, 1, &lost, now);
    assert_int_equal(ranks[2].closed, 0);
    coordinator_abort(ranks[2].coordinator, 0, &lost, now);
    assert_int_equal(ranks[2].closed, 1);
    deliver(find_message(2, 3));
    assert_int_equal(ranks[3].closed, 1);
}

/* ---- faults ------------------------------------------------------------------------------------------- */

TEST(a_lost_peer_ends_everything_everywhere)
{
    hvd_status lost = {.code = HVD_PEER_LOST, .text = "rank 3 was killed"},
               later = {.code = HVD_PEER_LOST, .text = "something else"}, status;
    open_ranks("2,2", 4); /* 0 <- 1, 2; 2 <- 3 */
    for (int r = 0; r < 3; r++)
        submit(r, "a", 1);
    settle();
    coordinator_abort(ranks[2].coordinator, 3, &lost, now);
    coordinator_abort(ranks[2].coordinator, 0, &later, now);
    assert_int_equal(message_count, 2); /* to ranks 0 and 1, once */
    settle();
    for (int r = 0; r < 3; r++) {
        assert_string_equal(ranks[r].log, "!a ");
        assert_int_equal(ranks[r].end.code, HVD_PEER_LOST);
        assert_string_equal(ranks[r].end.text, "rank 3 was killed");
        assert_int_equal(coordinator_health(ranks[r].coordinator, NULL), HVD_PEER_LOST);
        assert_int_equal(submit_elements(r, "b", 1, 0, &status), HVD_PEER_LOST);
        assert_string_equal(status.text, "rank 3 was killed");
    }
}

/* Nothing passes from one set of ranks to another; nor back, since nothing is acknowledged. */
static void cut_between(unsigned from, unsigned to)
{
    for (int r = 0; r < RANKS; r++)
        cut[r] |= (has_rank(from, r) ? to : 0) | (has_rank(to, r) ? from : 0);
}

/* All are given turns until these ranks have got that cause. */
static void check_silence(unsigned of, const char *cause)
{
    hvd_status status;
    settle();
    for (now = 1100; now <= 1300; now += 10)
        settle();
    for (int r = 0; r < size; r++) {
        if (!has_rank(of, r))
            continue;
        assert_int_equal(coordinator_health(ranks[r].coordinator, &status), HVD_TIMED_OUT);
        assert_string_equal(status.text, cause);
    }
}

static void open_silence(const char *sizes, int number)
{
    config.settling_time = 100;
    open_ranks(sizes, number);
    now = 1000;
}

/* Everywhere the same ranks are known when the root ends the job. */
TEST(silent_ranks_are_settled_on)
{
    open_silence("2,2,2", 6); /* 0 <- 1, 2, 4; 2 <- 3; 4 <- 5 */
    cut_between(0x0c, 0x33);
    coordinator_silent(ranks[0].coordinator, 2);
    settle();
    now = 1050;
    coordinator_silent(ranks[4].coordinator, 3);
    settle();
    assert_true(coordinator_next_flush(ranks[0].coordinator) == 1150);
    assert_true(coordinator_next_flush(ranks[5].coordinator) == 1333);
    check_silence(0x33, "rank 0: ranks 2-3");
}

/* A rank that connects no host is not found. */
TEST(a_host_none_of_whose_ranks_answers_is_lost)
{
    open_silence("3,3,3", 9);
    cut_between(0x38, 0x1c7);
    coordinator_silent(ranks[0].coordinator, 3);
    check_silence(0x1c7, "rank 0: ranks 3-5");
}

TEST(a_stopped_rank_is_not_its_host)
{
    open_silence("2,2,2", 6);
    cut_between(0x04, 0x3b);
    coordinator_silent(ranks[3].coordinator, 2);
    coordinator_silent(ranks[0].coordinator, 2);
    check_silence(0x3b, "rank 0: rank 2");
}

static void check_pair(const char *sizes, int number, int one, int other, const char *cause)
{
    open_silence(sizes, number);
    cut_between(1U << one, 1U << other);
    coordinator_silent(ranks[one].coordinator, other);
    check_silence((1U << number) - 1, cause);
}

/* Both reach the third host, which is not named, though each of its peers is reported. */
TEST(two_hosts_that_do_not_hear_each_other_are_named)
{
    open_silence("1,1,1", 3);
    cut_between(0x2, 0x4);
    coordinator_silent(ranks[1].coordinator, 2);
    coordinator_silent(ranks[2].coordinator, 1);
    check_silence(0x7, "rank 0: hosts 1 and 2");
}

TEST(one_report_of_a_pair_is_enough)
{
    check_pair("1,1,1", 3, 1, 2, "rank 0: hosts 1 and 2");
}

TEST(the_root_of_a_pair_ends_the_job)
{
    check_pair("1,1,1,1", 4, 3, 0, "rank 0: hosts 0 and 3");
}

TEST(two_pairs_are_both_named)
{
    open_silence("1,1,1,1", 4);
    cut_between(0x1, 0x2);
    cut_between(0x4, 0x8);
    for (int r = 0; r < 4; r++)
        coordinator_silent(ranks[r].coordinator, r ^ 1);
    check_silence(0xf, "rank 0: hosts 0 and 1, 2 and 3");
}

/* Each half names the other: the hosts as wholes, though only some of their ranks were peers. */
TEST(halves_of_a_network_name_each_other)
{
    open_silence("2,2,2,2", 8);
    cut_between(0x0f, 0xf0);
    coordinator_silent(ranks[0].coordinator, 4);
    coordinator_silent(ranks[0].coordinator, 6);
    coordinator_silent(ranks[0].coordinator, 7);
    coordinator_silent(ranks[3].coordinator, 4);
    coordinator_silent(ranks[4].coordinator, 0);
    coordinator_silent(ranks[4].coordinator, 3);
    coordinator_silent(ranks[6].coordinator, 0);
    coordinator_silent(ranks[7].coordinator, 0);
    check_silence(0x0f, "rank 0: ranks 4-7");
    check_silence(0xf0, "rank 4: ranks 0-3");
}

static void find_two_broken_paths(bool silent, const char *cause)
{
    config.settling_time = 100;
    open_ranks("2,2,2", 6);
    now = 1000;
    coordinator_broken(ranks[5].coordinator, "path b is broken");
    coordinator_broken(ranks[0].coordinator, "path a is broken");
    if (silent) {
        cut_between(0x0c, 0x33);
        coordinator_silent(ranks[1].coordinator, 2);
    }
    settle();
    now = 1100;
    flush(0);
    settle();
    for (int r = 0; r < 6; r += r == 1 && silent ? 3 : 1) {
        hvd_status status;
        assert_int_equal(coordinator_health(ranks[r].coordinator, &status), HVD_TIMED_OUT);
        assert_string_equal(status.text, cause);
    }
}

/* Two ranks find one before either has seen the other. */
TEST(broken_paths_are_one_cause)
{
    find_two_broken_paths(false, "path a is broken");
}

TEST(silent_ranks_are_a_better_cause_than_a_broken_path)
{
    find_two_broken_paths(true, "rank 0: ranks 2-3");
}

TEST(a_host_that_nobody_answers_is_cut_off)
{
    open_silence("2,2,2", 6);
    cut_between(0x0c, 0x33);
    coordinator_silent(ranks[2].coordinator, 0);
    coordinator_silent(ranks[2].coordinator, 1);
    coordinator_silent(ranks[3].coordinator, 4);
    check_silence(0x0c, "rank 2 is cut off: ranks 0-1, 4-5");
}

TEST(a_fault_after_a_leave_is_reported)
{
    hvd_status lost = {.code = HVD_PEER_LOST, .text = "rank 1 was killed"}, status;
    open_ranks("3", 3);
    submit_everywhere("a", 1);
    settle();
    coordinator_leave(ranks[2].coordinator);
    settle();
    assert_int_equal(coordinator_health(ranks[2].coordinator, NULL), HVD_SHUT_DOWN);
    coordinator_abort(ranks[0].coordinator, 1, &lost, now);
    settle();
    assert_int_equal(coordinator_health(ranks[2].coordinator, &status), HVD_PEER_LOST);
    assert_int_equal(ranks[2].closed, 0);
}

TEST(a_shutdown_without_a_message_ends_it_in_order)
{
    hvd_status down = {.code = HVD_SHUT_DOWN, .text = "rank 0 has shut down"};
    open_ranks("3", 3);
    submit(1, "a", 1);
    coordinator_leave(ranks[2].coordinator);
    coordinator_abort(ranks[0].coordinator, -1, &down, now);
    settle();
    assert_string_equal(ranks[1].log, "!a ");
    for (int r = 0; r < 3; r++) {
        assert_int_equal(coordinator_health(ranks[r].coordinator, NULL), HVD_SHUT_DOWN);
        assert_int_equal(ranks[r].closed, 1);
    }
}

TEST(who_shuts_down_while_a_batch_runs_is_a_fault)
{
    hvd_status down = {.code = HVD_SHUT_DOWN, .text = "rank 0 has shut down"}, status;
    open_ranks("2", 2);
    submit_everywhere("a", 1);
    settle();
    coordinator_abort(ranks[0].coordinator, -1, &down, now);
    settle();
    assert_int_equal(coordinator_health(ranks[1].coordinator, &status), HVD_PEER_LOST);
    assert_string_equal(status.text, "rank 0 has shut down");
    assert_int_equal(ranks[1].closed, 0);
}

static void check_garbage(int to, int from, const char *bytes, size_t length, const char *why)
{
    char who[128];
    open_ranks("2,2", 4);
    submit(to, "a", 1);
    coordinator_receive(ranks[to].coordinator, from, (const uint8_t *)bytes, length, now);
    settle();
    snprintf(who, sizeof who, "rank %d sent rank %d %s", from, to, why);
    for (int r = 0; r < 4; r++) {
        ASSERT_FAILS(coordinator_health(ranks[r].coordinator, &check_status), HVD_REFUSED, who);
    }
    assert_string_equal(ranks[to].log, "!a ");
    close_ranks(NULL);
}

/* A message starts with its kind, then the number of decisions seen or of the first decision. */
#define BEGIN_REPORT    "\1\0\0\0\0\0\0\0\0"
#define BEGIN_DECISIONS "\5\1\0\0\0\0\0\0\0"
#define ZEROS_32        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
#define COUNTERS        ZEROS_32 ZEROS_32 ZEROS_32 ZEROS_32 /* of unnamed requests */

TEST(garbage_names_its_sender)
{
#define GARBAGE(to, from, bytes, why)                                                                        \
    {                                                                                                        \
        to, from, bytes, sizeof(bytes) - 1, why                                                              \
    }
    static const struct {
        int to, from;
        const char *bytes;
        size_t length;
        const char *why;
    } cases[] = {
        GARBAGE(0, 1, "", "a message of 0 bytes"),
        GARBAGE(0, 3, "\3", "a message that only neighbours in the tree send"),
        GARBAGE(0, 1, "\377", "a message that no child sends then"),
        GARBAGE(0, 1, "\1\0\0\0", "a report out of order"),                      /* cut */
        GARBAGE(0, 1, "\1\1\0\0\0\0\0\0\0", "a report out of order"),            /* has seen too much */
        GARBAGE(0, 1, BEGIN_REPORT "\1\5\0\0\0\0\0\0\0", "an unknown id"),       /* */
        GARBAGE(0, 1, BEGIN_REPORT "\2\1\0\0\0b\1\0\0\0x", ""),                  /* no signature */
        GARBAGE(0, 1, BEGIN_REPORT "\2\377\377\377\377", "a malformed report"),  /* a name beyond its limit */
        GARBAGE(0, 1, BEGIN_REPORT "\3\1\0\0\0", "a malformed report"),          /* a join without counters */
        GARBAGE(0, 1, BEGIN_REPORT "\3\2\0\0\0" COUNTERS, "a malformed report"), /* of another subtree */
        GARBAGE(0, 1, BEGIN_REPORT "\3\1\0\0\0" COUNTERS "\3\1\0\0\0" COUNTERS, "a second join"),
        GARBAGE(0, 2, BEGIN_REPORT "\3\2\0\0\0" COUNTERS "\3\2\0\0\0" COUNTERS, "a second join"),
        GARBAGE(0, 1, BEGIN_REPORT "\6\0\0\0\0", "a malformed report"), /* no findings */
        GARBAGE(0, 1, BEGIN_REPORT "\6\1\0\0\0x", "a malformed finding"),
        GARBAGE(0, 1, BEGIN_REPORT "\6\12\0\0\0\2\0\0\0\0\1\0\0\0a",
                "a malformed finding"), /* of another subtree */
        GARBAGE(0, 1, BEGIN_REPORT "\6\12\0\0\0\1\0\0\0\177\1\0\0\0a",
                "a malformed finding"),                            /* in no operation */
        GARBAGE(0, 1, "\2\2\0\0\0", "a malformed leave"),          /* of another subtree */
        GARBAGE(0, 1, "\3", "a message that no child sends then"), /* SHUTDOWN_DONE without a close */
        GARBAGE(0, 1, "\4", "a malformed"),
        GARBAGE(0, 1, BEGIN_DECISIONS, "a message that no child sends then"),
        GARBAGE(2, 0, "\4", "a message that no parent sends then"),
        GARBAGE(2, 0, "\5\2\0\0\0\0\0\0\0", "decisions out of order"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\2\1\0\0\0\0\0\0\0", "an eviction of the unknown id 1"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\3\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0", "a batch with the unknown id 1"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\4\1\0\0\0a\1\0\0\0x", "a failure that not every rank requested"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\4\1\0\0\0b\1\0\0\0x", "a failure that not every rank requested"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\5\1\0\0\0", "a malformed decision"), /* a join without counters */
        GARBAGE(2, 0, BEGIN_DECISIONS "\5\1\0\0\0" COUNTERS, "the end of a join before every rank has"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\6\4\0\0\0", "the leaving of a rank that is not in the set"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\7\1\0\0\0\0\0\0\0", "a malformed decision"), /* no result */
        GARBAGE(2, 0, BEGIN_DECISIONS "\7\1\0\0\0\0\0\0\0\1\0\0\0x", "a batch with the unknown id 1"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\10", "a malformed decision"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\11\1\0\0\0\0\0\0\0", "a malformed decision"), /* no rows */
        GARBAGE(2, 0, BEGIN_DECISIONS "\11\1\0\0\0\0\0\0\0\0\0\0\0", "numbers of rows for the unknown id 1"),
        GARBAGE(2, 0, BEGIN_DECISIONS "\12\0\0\0\0", "a malformed decision"), /* no findings */
        GARBAGE(2, 0, BEGIN_DECISIONS "\12\12\0\0\0\4\0\0\0\0\1\0\0\0a",
                "a malformed finding"), /* outside of the set */
        GARBAGE(0, 1, BEGIN_REPORT "\23\1\0\0\0" COUNTERS "\1\0\0\0x",
                "a malformed report"), /* a join with data */
        GARBAGE(0, 1, BEGIN_REPORT "\13\1\0\0\0" COUNTERS "\1\0\0\0x",
                "a malformed report"),                              /* a join with rows */
        GARBAGE(2, 0, "\6", "a message that no parent sends then"), /* SHUTDOWN_ACK before SHUTDOWN_DONE */
        GARBAGE(2, 0, "\7\0\0\0\0\0", "a malformed abort"),         /* for no reason */
        GARBAGE(2, 0, "\7\143\0\0\0\0", "a malformed abort"),       /* of no known code */
    };
#undef GARBAGE
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_garbage(cases[i].to, cases[i].from, cases[i].bytes, cases[i].length, cases[i].why);
}

/* ---- ranks that join ----------------------------------------------------------------------------------- */

static void join_rank(int rank)
{
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    ASSERT_OK(submit_request(rank, "j", &request, &check_status));
}

/* A tree of three levels: 0 over 1, 2 (with 3 below) and 4 (with 5 below). */
TEST(a_joined_subtree_is_not_waited_for)
{
    open_ranks("2,2,2", 6);
    submit(0, "a", 3);
    submit(1, "a", 3);
    submit(4, "a", 3);
    submit(5, "a", 3);
    run_all();
    check_log("");
    join_rank(3);
    run_all();
    check_log(""); /* rank 2 is still awaited */
    join_rank(2);
    run_all();
    assert_string_equal(ranks[0].log, "a ");
    assert_string_equal(ranks[2].log, "- ");
    assert_string_equal(ranks[3].log, "- ");
    for (int r = 0; r < 6; r++)
        ranks[r].log[0] = '\0';
    join_rank(5);
    join_rank(1);
    join_rank(4);
    run_all();
    check_log("");
    join_rank(0);
    run_all();
    check_log("j=0 ");
}

TEST(a_join_follows_what_was_asked_before)
{
    open_ranks("", 3);
    submit(2, "a", 3);
    join_rank(2);
    submit(0, "a", 3);
    submit(1, "a", 3);
    join_rank(0);
    join_rank(1);
    run_all();
    assert_string_equal(ranks[2].log, "a j=1 ");
    check_log("a j=1 ");
}

/* On rank 0 they share memory: they run in the order in which it has submitted them. */
TEST(a_join_completes_requests_in_their_order)
{
    const char *const names[] = {"b", "d", "a", "f", "c", "h", "g", "e"};
    open_ranks("", 3);
    for (int i = 0; i < 8; i++) {
        submits_apart = true;
        submit(0, names[i], 3);
        submits_apart = false;
        submit(2, names[i], 3);
    }
    run_all();
    join_rank(1);
    run_all();
    assert_string_equal(ranks[0].log, "b d a f c h g e ");
    assert_string_equal(ranks[2].log, "b d a f c h g e ");
}

TEST(joined_ranks_may_not_submit)
{
    open_ranks("", 2);
    hvd_status status = {0};
    join_rank(1);
    ASSERT_FAILS(submit_elements(1, "a", 3, 0, &check_status), HVD_INVALID_ARGUMENT, "rank 1 has joined");
    hvd_request request = {.struct_size = sizeof request, .operation = HVD_JOIN};
    assert_int_equal(submit_request(1, "j", &request, &status), HVD_INVALID_ARGUMENT);
    join_rank(0);
    run_all();
    check_log("j=1 "); /* in the order in which the root received them */
    submit_everywhere("a", 3);
    run_all();
    check_log("a ");
}

TEST(a_fault_ends_a_join)
{
    open_ranks("", 3);
    join_rank(2);
    run_all();
    hvd_status cause;
    status_set(&cause, HVD_PEER_LOST, "lost rank 0");
    coordinator_abort(ranks[1].coordinator, 0, &cause, now);
    run_all();
    assert_string_equal(ranks[2].log, "!j ");
    assert_int_equal(coordinator_pending_count(ranks[2].coordinator), 0);
}

static void submit_gather(int rank, const char *name)
{
    ASSERT_OK(submit_tensor(rank, name, rank, (hvd_request){.operation = HVD_ALLGATHER}, &check_status));
}

TEST(a_mismatch_among_those_who_go_on)
{
    open_ranks("2,2", 4);
    join_rank(3);
    join_rank(1);
    submit(0, "a", 3);
    run_all();
    check_log("");
    submit(2, "a", 4);
    run_all();
    for (int r = 0; r < 4; r++)
        assert_string_equal(ranks[r].log, r % 2 ? "" : "!a ");
    assert_int_equal(ranks[2].end.code, HVD_MISMATCH);
    check_text(ranks[2].end.text, "rank 0 has [3], rank 2 has [4]");
    submit(2, "a", 3);
    submit(0, "a", 3);
    run_all();
    assert_string_equal(ranks[0].log, "!a a ");
    assert_string_equal(ranks[3].log, "- ");
    assert_int_equal(coordinator_pending_count(ranks[3].coordinator), 1); /* the join */
}

TEST(interleaved_ranks_join)
{
    config.join_all = true;
    open_layout(cyclic, 6);
    join_rank(1);
    join_rank(2);
    for (int r = 0; r < 6; r++)
        if (r != 1 && r != 2)
            submit(r, "a", r == 5 ? 4 : 3);
    run_all();
    check_text(ranks[0].end.text, "ranks 0, 3-4 have [3], rank 5 has [4]");
    for (int r = 0; r < 6; r++)
        if (r != 1 && r != 2)
            join_rank(r);
    run_all();
}

TEST(what_needs_all_ranks_names_the_joined)
{
    for (int all = 0; all < 2; all++) {
        config.join_all = all;
        open_ranks("3", 3);
        join_rank(1);
        submit_gather(0, "g");
        submit_gather(2, "g");
        run_all();
        assert_string_equal(ranks[0].log, all ? "g " : "!g ");
        assert_string_equal(ranks[1].log, all ? "- " : "");
        assert_string_equal(ranks[2].log, all ? "g " : "!g ");
        if (!all)
            check_text(ranks[2].end.text, "rank 1 did so without it");
        close_ranks(NULL);
    }
}

/* Who submitted before it joined is no obstacle. */
TEST(a_join_spares_what_was_submitted_before)
{
    open_ranks("3", 3);
    submit_gather(1, "g");
    join_rank(1);
    run_all();
    submit_gather(0, "g");
    submit_gather(2, "g");
    run_all();
    check_log("g ");
}

TEST(a_leave_ends_a_join)
{
    open_ranks("2,2", 4);
    join_rank(3);
    join_rank(0);
    submit(2, "a", 1);
    run_all();
    coordinator_leave(ranks[1].coordinator);
    run_all();
    assert_string_equal(ranks[0].log, "!j ");
    assert_string_equal(ranks[1].log, "");
    assert_string_equal(ranks[2].log, "!a ");
    assert_string_equal(ranks[3].log, "!j ");
    check_text(ranks[3].end.text, "rank 1 has left the job");
    for (int r = 0; r < 4; r++) {
        assert_int_equal(coordinator_pending_count(ranks[r].coordinator), 0);
        assert_int_equal(ranks[r].closed, 1);
    }
}

static void submit_unnamed(int rank)
{
    static const char *const names[] = {"u0", "u1", "u2", "u3"};
    int64_t elements = 1;
    hvd_tensor tensor = {&tensor, &elements, 1, HVD_FLOAT32, HVD_CPU, 0};
    hvd_request request = {.struct_size = sizeof request, .count = 1, .inputs = &tensor};
    struct pending *pending = calloc(1, sizeof *pending);
    requests[request_count++] = pending;
    pending->name = names[coordinator_unnamed(ranks[rank].coordinator, HVD_ALLREDUCE)];
    pending->unnamed = true;
    pending->signature = encode(&request);
    ASSERT_OK(coordinator_submit(ranks[rank].coordinator, pending, now, &check_status));
}

/* Rank 3 of a tree of three levels makes one unnamed request, the others make three. */
TEST(unnamed_numbers_agree_after_a_join)
{
    open_ranks("2,2", 4);
    for (int r = 0; r < 4; r++)
        submit_unnamed(r);
    run_all();
    check_log("u0 ");
    join_rank(3);
    for (int i = 1; i < 3; i++) {
        for (int r = 0; r < 3; r++)
            submit_unnamed(r);
        run_all();
    }
    assert_string_equal(ranks[2].log, "u1 u2 ");
    assert_string_equal(ranks[3].log, "- - ");
    assert_int_equal(coordinator_unnamed(ranks[3].coordinator, HVD_ALLREDUCE), 1);
    for (int r = 0; r < 3; r++)
        join_rank(r);
    run_all();
    for (int r = 0; r < 4; r++) {
        assert_int_equal(coordinator_unnamed(ranks[r].coordinator, HVD_ALLREDUCE), 3);
        assert_int_equal(coordinator_unnamed(ranks[r].coordinator, HVD_BARRIER), 0);
        ranks[r].log[0] = '\0';
        submit_unnamed(r);
    }
    run_all();
    check_log("u3 ");
}

/* Of the second join nothing of the first one is left. */
TEST(ranks_may_join_again)
{
    open_ranks("2,2", 4);
    for (int round = 0; round < 3; round++) {
        join_rank(3);
        join_rank(2);
        submit(0, "a", 1);
        run_all();
        check_log("");
        submit(1, "a", 1);
        run_all();
        assert_string_equal(ranks[0].log, "a ");
        assert_string_equal(ranks[3].log, "- ");
        join_rank(0);
        run_all();
        for (int r = 0; r < 4; r++)
            ranks[r].log[0] = '\0';
        join_rank(1);
        run_all();
        check_log("j=1 ");
        submit_everywhere("b", 1);
        run_all();
        check_log("b ");
    }
}

TEST(many_joins_at_once_come_in_parts)
{
    open_ranks("1,199", 200);
    for (int r = 0; r < size; r++)
        join_rank(r);
    run_all();
    assert_int_equal(coordinator_pending_count(ranks[199].coordinator), 0);
    assert_in_range(longest_message, 16 << 10, 17 << 10);
}

/* ---- stalls -------------------------------------------------------------------------------------------- */

TEST(the_root_hears_who_is_missing)
{
    config.stall_time = 1000;
    config.stall_shutdown_time = 5000;
    now = 1;
    open_ranks("3,3,1", 7);
    assert_true(coordinator_next_flush(ranks[0].coordinator) == INT64_MAX); /* an idle job never wakes */
    submit(1, "a", 3);
    submit(4, "a", 3);
    run_all();
    assert_true(coordinator_next_flush(ranks[0].coordinator) < 1000);
    for (; now < 2500; now += 100)
        run_all();
    check_text(ranks[0].log, "allreduce.a?0, 2-3, 5-6 ");
    assert_string_equal(ranks[1].log, "");
    ranks[0].log[0] = '\0';
    for (; now < 5500; now += 100)
        run_all();
    for (int r = 0; r < 7; r++)
        assert_int_equal(coordinator_health(ranks[r].coordinator, &ranks[r].end), HVD_TIMED_OUT);
    check_text(ranks[4].end.text, "ranks 0, 2-3, 5-6");
}

TEST(a_stall_that_ends_is_forgotten)
{
    config.stall_time = 1000;
    now = 1;
    open_ranks("3,3", 6);
    submit(4, "a", 3);
    for (; now < 3000; now += 100)
        run_all();
    check_text(ranks[0].log, "allreduce.a?0-3, 5 ");
    for (int r = 0; r < 6; r++) {
        ranks[r].log[0] = '\0';
        if (r != 4)
            submit(r, "a", 3);
    }
    run_all();
    for (int r = 0; r < 6; r++) {
        check_text(ranks[r].log, "a ");
        ranks[r].log[0] = '\0';
    }
    for (; now < 9000; now += 100)
        run_all();
    check_log("");
    for (int r = 0; r < 6; r++)
        assert_true(coordinator_next_flush(ranks[r].coordinator) == INT64_MAX);
}

/* The ranks may have stood still together, as when their job is suspended. */
TEST(a_standstill_is_no_stall)
{
    config.stall_time = 1000;
    config.stall_shutdown_time = 5000;
    now = 1;
    open_ranks("3,3", 6);
    submit(4, "a", 3);
    for (; now < 500; now += 100)
        run_all();
    for (int i = 0; i < 3; i++) {
        now += 1000000;
        run_all();
        check_log("");
    }
    for (int64_t end = now + 1500; now < end; now += 100)
        run_all();
    check_text(ranks[0].log, "allreduce.a?0-3, 5 ");
    for (int r = 0; r < 6; r++)
        assert_int_equal(coordinator_health(ranks[r].coordinator, NULL), HVD_OK);
    for (int64_t end = now + 4000; now < end; now += 100)
        run_all();
    assert_int_equal(coordinator_health(ranks[0].coordinator, NULL), HVD_TIMED_OUT);
}

TEST(what_an_idle_node_hears_of_a_stall_counts)
{
    config.stall_time = 1000;
    now = 100000; /* the root has not looked at anything for long */
    open_ranks("2,2", 4);
    submit(3, "a", 3);
    for (; now <= 100300; now += 50)
        run_all();
    assert_true(coordinator_next_flush(ranks[0].coordinator) < INT64_MAX);
}

/* ---- lateness ------------------------------------------------------------------------------------------ */

static void check_late(int rank, int reporter, int64_t total, uint64_t count)
{
    assert_int_equal(ranks[rank].late[reporter].total, total);
    assert_int_equal(ranks[rank].late[reporter].count, count);
}

static void submit_and_settle(int rank, const char *name)
{
    submit(rank, name, 3);
    run_all();
}

/* From the second step on the reports are ids. */
TEST(one_pause_before_many_requests_counts_once)
{
    static const char *const names[] = {"a", "b", "c"};
    open_ranks("3", 3);
    for (int step = 0; step < 3; step++) {
        int64_t start = 1000 + 5000 * step;
        for (int i = 0; i < 3; i++) {
            now = start + 100 * i;
            submit_and_settle(0, names[i]);
            submit_and_settle(1, names[i]);
        }
        assert_true(ranks[0].late[2].total < 0); /* the clock runs */
        for (int i = 0; i < 3; i++) {
            now = start + 600 + 100 * i;
            submit_and_settle(2, names[i]);
        }
        check_late(0, 2, 800 * (step + 1), (uint64_t)step + 1);
        assert_int_equal(ranks[0].late[2].longest, 800);
        assert_int_equal(ranks[0].negotiated, 600);
    }
    check_late(0, 0, 0, 0);
    check_late(0, 1, 0, 0);
}

TEST(a_wait_for_two_ranks_is_not_blamed_on_one)
{
    open_ranks("3", 3);
    now = 1000;
    submit_and_settle(2, "a");
    now = 3000;
    submit_and_settle(0, "a");
    now = 3500;
    submit_and_settle(1, "a");
    check_late(0, 0, 0, 0);
    check_late(0, 1, 500, 1);
    check_late(0, 2, 0, 0);
    assert_int_equal(ranks[0].negotiated, 2500);
}

TEST(a_late_root_counts_itself_and_a_late_subtree_its_rank)
{
    open_ranks("1,2", 3);
    now = 1000;
    submit_and_settle(1, "a");
    submit_and_settle(2, "a");
    now = 1600;
    submit_and_settle(0, "a");
    check_late(0, 0, 600, 1);
    now = 5000;
    submit_and_settle(0, "a");
    submit_and_settle(1, "a");
    now = 5070;
    submit_and_settle(2, "a");
    check_late(0, 1, 70, 1); /* host 1 */
    check_late(1, 1, 70, 2); /* there: rank 2, in the first step for no time */
    check_late(1, 0, 0, 0);
    check_late(0, 0, 600, 1);
}

TEST(a_rank_that_has_joined_is_not_late)
{
    open_ranks("3", 3);
    now = 1000;
    join_rank(1);
    submit_and_settle(0, "a");
    check_late(0, 2, -1000, 1); /* all others have joined or submitted it */
    now = 1300;
    join_rank(2);
    run_all();
    check_text(ranks[0].log, "a ");
    check_late(0, 2, 300, 1);
    check_late(0, 1, 0, 0);
    now = 1400;
    join_rank(0);
    run_all();
    check_late(0, 0, 0, 0);
}

TEST(no_clock_runs_on_after_the_end)
{
    hvd_status cause = {.code = HVD_PEER_LOST};
    open_ranks("3", 3);
    now = 1000;
    submit_and_settle(0, "a");
    submit_and_settle(1, "a");
    now = 4000;
    coordinator_abort(ranks[0].coordinator, 2, &cause, now);
    check_late(0, 2, 3000, 1);
    now = 5000;
    run_all();
    check_late(0, 2, 3000, 1);
}

TEST(no_clock_runs_on_after_a_rank_has_left)
{
    open_ranks("3", 3);
    now = 1000;
    submit_and_settle(0, "a");
    submit_and_settle(1, "a");
    now = 4000;
    coordinator_leave(ranks[2].coordinator);
    run_all();
    check_late(0, 2, 3000, 1);
}

/* ---- data with the report ------------------------------------------------------------------------------ */

#define ELEMENTS (DATA / (int)sizeof(float))

/* A tree of three levels: 0 over 1 and 2, 3 below 2. */
static void open_eager(uint32_t threshold)
{
    config.eager_threshold = threshold;
    open_ranks("2,2", 4);
}

TEST(small_data_take_one_message_each_way)
{
    open_eager(DATA);
    for (int round = 0; round < 3; round++) { /* in full, then by the id */
        submit_everywhere("a", ELEMENTS);
        flush(3);
        deliver(find_message(3, 2));
        flush(2);
        deliver(find_message(2, 0));
        flush(1);
        deliver(find_message(1, 0));
        flush(0);
        assert_string_equal(ranks[0].log, "a=01(23) ");
        deliver(find_message(0, 1));
        deliver(find_message(0, 2));
        deliver(find_message(2, 3));
        assert_int_equal(message_count, 0);
        check_log("a=01(23) ");
    }
}

/* Whatever the order in which they come. */
TEST(small_data_are_combined_by_place)
{
    config.eager_threshold = DATA;
    open_layout((const int[]){0, 1, 2, 1, 0}, 5); /* places: 0 4 1 3 2, of hosts below the first */
    for (int last = 0; last < size; last++) {
        for (int r = 0; r < size; r++)
            submit((last + 1 + r) % size, "a", ELEMENTS);
        settle();
        check_log("a=04(13)2 ");
    }
}

TEST(what_is_not_small_goes_as_before)
{
    open_eager(2 * DATA - 1); /* in flight */
    submit_everywhere("a", ELEMENTS);
    submit_everywhere("b", ELEMENTS);
    submit_everywhere("c", ELEMENTS);
    settle();
    check_log("a=01(23) b+c ");
    finish_batches();
    submit_everywhere("d", 2 * ELEMENTS);
    settle();
    check_log("d ");
    finish_batches();
    submit_everywhere("b", ELEMENTS); /* nothing else is in flight now */
    settle();
    check_log("b=01(23) ");
}

/* Each rank may leave its data out. */
TEST(data_of_all_are_there_or_of_none)
{
    for (int other = 0; other < 4; other++) {
        open_eager(DATA);
        for (int r = 0; r < 4; r++) { /* the first one goes with its data */
            submit(r, r == other ? "b" : "a", ELEMENTS);
            submit(r, r == other ? "a" : "b", ELEMENTS);
        }
        settle();
        for (int r = 0; r < 4; r++)
            check_text(ranks[r].log, "+"); /* one batch of both, no result */
        close_ranks(NULL);
    }
}

TEST(other_requests_keep_their_data)
{
    hvd_request adasum = {.reduction = HVD_ADASUM}, broadcast = {.operation = HVD_BROADCAST};
    open_eager(DATA);
    for (int r = 0; r < size; r++) {
        ASSERT_OK(submit_tensor(r, "a", ELEMENTS, adasum, &check_status));
        ASSERT_OK(submit_tensor(r, "b", ELEMENTS, broadcast, &check_status));
    }
    run_all();
    check_log("a b ");
}

TEST(forms_that_differ_fail_with_data_too)
{
    for (int other = 0; other < 4; other++) {
        open_eager(2 * DATA);
        for (int r = 0; r < 4; r++)
            submit(r, "a", r == other ? 2 * ELEMENTS : ELEMENTS);
        settle();
        check_log("!a ");
        submit_everywhere("a", ELEMENTS);
        settle();
        check_log("a=01(23) ");
        close_ranks(NULL);
    }
}

static void submit_apart(int rank, const char *name)
{
    submits_apart = true;
    submit(rank, name, ELEMENTS);
    submits_apart = false;
}

/* On rank 3 "b" overwrites memory that "a" reads, or may do so: as it is decided first, it must run first. */
TEST(data_read_before_an_apart_request_do_not_count)
{
    open_eager(DATA);
    submit(3, "a", ELEMENTS);
    submit_apart(3, "b");
    for (int r = 0; r < 3; r++)
        submit_apart(r, "b");
    settle();
    check_log("b ");
    finish_batches();
    for (int r = 0; r < 3; r++)
        submit(r, "a", ELEMENTS);
    settle();
    check_log("a ");
    finish_batches();
    submit_everywhere("a", ELEMENTS);
    settle();
    check_log("a=01(23) ");
}

/* The same where rank 2 has reported "a" before it has seen the decision. */
TEST(data_that_cross_an_apart_request_do_not_count)
{
    open_eager(DATA);
    submit(3, "a", ELEMENTS);
    submit_apart(3, "b");
    flush(3);
    deliver(find_message(3, 2));
    for (int r = 0; r < 3; r++)
        submit(r, "b", ELEMENTS);
    flush(2);
    deliver(find_message(2, 0));
    flush(1);
    deliver(find_message(1, 0));
    flush(0);
    assert_string_equal(ranks[0].log, "b ");
    submit(2, "a", ELEMENTS);
    flush(2);
    submit(0, "a", ELEMENTS);
    submit(1, "a", ELEMENTS);
    finish_batches();
    settle();
    check_log("b a ");
}

TEST(joined_ranks_have_no_data)
{
    open_eager(DATA);
    join_rank(1);
    settle();
    submit(0, "a", ELEMENTS);
    submit(2, "a", ELEMENTS);
    submit(3, "a", ELEMENTS);
    settle();
    assert_string_equal(ranks[1].log, "-=0(23) ");
    assert_string_equal(ranks[3].log, "a=0(23) ");
    join_rank(2);
    join_rank(0);
    submit(3, "b", ELEMENTS);
    settle();
    for (int r = 0; r < 4; r++)
        check_text(ranks[r].log, r == 3 ? "b=3 " : "-=3 ");
}

TEST(data_must_have_the_length_of_the_request)
{
    open_eager(DATA);
    submit_everywhere("a", ELEMENTS);
    flush(1);
    int at = find_message(1, 0);
    /* The length stands before the data, at the end. */
    messages[at].bytes[messages[at].length - DATA - 4]--;
    messages[at].length--;
    settle();
    for (int r = 0; r < 4; r++) {
        ASSERT_FAILS(coordinator_health(ranks[r].coordinator, &check_status), HVD_REFUSED,
                     "rank 1 sent rank 0 data of another length than the request's");
    }
}

TEST(a_result_must_have_the_length_of_the_request)
{
    open_eager(DATA);
    submit_everywhere("a", ELEMENTS);
    for (int r = 3; r >= 0; r--) {
        while (message_count && messages[0].to == r)
            deliver(0);
        flush(r);
        while (message_count && r)
            deliver(0);
    }
    int at = find_message(0, 1);
    messages[at].bytes[messages[at].length - DATA - 4]--;
    messages[at].length--;
    settle();
    ASSERT_FAILS(coordinator_health(ranks[1].coordinator, &check_status), HVD_REFUSED,
                 "rank 0 sent rank 1 the result of a request that is another one");
    assert_string_equal(ranks[1].log, "!a ");
}

/* ---- numbers of rows ---------------------------------------------------------------------------------- */

/* An allgather of `count` tensors, or an alltoall, in which the rank has these rows. */
static void submit_rows(int rank, const char *name, hvd_operation operation, const uint64_t *rows, int count)
{
    static hvd_tensor tensors[2000];
    static char data;
    int64_t shape[] = {1}; /* the rows are not in the signature */
    for (int i = 0; i < count; i++)
        tensors[i] = (hvd_tensor){&data, shape, 1, HVD_INT32, HVD_CPU, 0};
    hvd_request request = {
        .struct_size = sizeof request, .operation = operation, .count = count, .inputs = tensors};
    logs_rows = true;
    submitted_rows = rows;
    ASSERT_OK(submit_request(rank, name, &request, &check_status));
    submitted_rows = NULL;
}

static void gather_everywhere(const uint64_t *rows)
{
    for (int r = 0; r < size; r++)
        submit_rows(r, "g", HVD_ALLGATHER, &rows[r], 1);
}

/* Bytes of what an allgather with these rows sends after the one before it. */
static size_t gather_bytes(const uint64_t *rows, const char *log)
{
    gather_everywhere(rows);
    sent_bytes = 0;
    run_all();
    check_log(log);
    return sent_bytes;
}

TEST(rows_that_repeat_cost_nothing)
{
    static const uint64_t rows[] = {5, 6, 7, 8};
    open_ranks("2,2", 4);
    gather_bytes(rows, "g:5,6,7,8 ");
    /* As what has no rows: kind, seen, report, id; kind, number, batch of one. Three edges. */
    assert_int_equal(gather_bytes(rows, "g:5,6,7,8 "), 3 * (9 + 9) + 3 * (9 + 16));
}

TEST(rows_that_differ_are_sent_by_those_above_them)
{
    open_ranks("2,2", 4);
    gather_bytes((const uint64_t[]){5, 6, 7, 8}, "g:5,6,7,8 ");
    /* Up from 3 and 2: the length and the list of their subtrees; down: kind, id, length and list. */
    assert_int_equal(gather_bytes((const uint64_t[]){5, 6, 7, 9}, "g:5,6,7,9 "),
                     3 * (9 + 9) + (4 + 1) + (4 + 2) + 3 * (9 + 16) + 3 * (1 + 8 + 4 + 4));
    /* The root's own; one run of four. */
    gather_bytes((const uint64_t[]){7, 7, 7, 9}, "g:7,7,7,9 ");
    assert_int_equal(gather_bytes((const uint64_t[]){7, 7, 7, 7}, "g:7,7,7,7 "),
                     3 * (9 + 9) + (4 + 1) + (4 + 2) + 3 * (9 + 16) + 3 * (1 + 8 + 4 + 2));
    assert_int_equal(gather_bytes((const uint64_t[]){8, 7, 7, 7}, "g:8,7,7,7 "),
                     3 * (9 + 9) + 3 * (9 + 16) + 3 * (1 + 8 + 4 + 3));
}

TEST(rows_are_listed_by_place)
{
    open_layout((const int[]){0, 1, 2, 1, 0}, 5); /* places: 0 4 1 3 2, of hosts below the first */
    gather_bytes((const uint64_t[]){10, 11, 12, 13, 14}, "g:10,14,11,13,12 ");
    gather_bytes((const uint64_t[]){10, 21, 12, 13, 14}, "g:10,14,21,13,12 ");
    gather_bytes((const uint64_t[]){0, INT64_MAX, 12, 13, 14}, "g:0,14,9223372036854775807,13,12 ");
}

TEST(every_rank_lists_the_rows_for_all_in_an_alltoall)
{
    static const uint64_t rows[3][3] = {{1, 2, 3}, {4, 4, 4}, {4, 5, 6}};
    open_ranks("2,1", 3);
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < 3; r++)
            submit_rows(r, "x", HVD_ALLTOALL, rows[(r + round) % 3], 1);
        run_all();
        check_log(round ? "x:4,4,4,4,5,6,1,2,3 " : "x:1,2,3,4,4,4,4,5,6 ");
    }
}

TEST(a_new_form_has_new_rows)
{
    static const uint64_t rows[] = {3, 4};
    open_ranks("2,2", 4);
    gather_bytes((const uint64_t[]){5, 6, 7, 8}, "g:5,6,7,8 ");
    for (int r = 0; r < 4; r++)
        submit_rows(r, "g", HVD_ALLGATHER, rows, 2);
    run_all();
    check_log("g:3,4,3,4,3,4,3,4 ");
    gather_bytes((const uint64_t[]){5, 6, 7, 8}, "g:5,6,7,8 ");
}

TEST(rows_survive_a_mismatch)
{
    static const uint64_t rows[] = {5, 6, 7, 8};
    open_ranks("2,2", 4);
    gather_bytes(rows, "g:5,6,7,8 ");
    for (int r = 0; r < 4; r++)
        submit_rows(r, "g", HVD_ALLGATHER, rows, r == 2 ? 2 : 1);
    run_all();
    check_log("!g ");
    gather_bytes(rows, "g:5,6,7,8 ");
}

TEST(long_lists_are_not_sent)
{
    enum { TENSORS = 2000 };
    static uint64_t rows[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        rows[i] = 1000 + (uint64_t)i;
    open_ranks("2,2", 4);
    for (int round = 0; round < 4; round++) {
        bool is_long = round < 2;
        sent_bytes = 0;
        for (int i = 0; i < TENSORS; i++)
            rows[i] = is_long ? 1000 + (uint64_t)i : 0;
        for (int r = 0; r < 4; r++)
            submit_rows(r, "g", HVD_ALLGATHER, rows, TENSORS);
        run_all();
        for (int r = 0; r < 4; r++) {
            check_text(ranks[r].log, is_long ? "g:? " : "g:0,0,0,0,0,");
            ranks[r].log[0] = '\0';
        }
        if (round == 1 || round == 3)
            assert_int_equal(sent_bytes, 3 * (9 + 9) + 3 * (9 + 16));
    }
    for (int i = 0; i < TENSORS; i++) /* they are known, and are no longer */
        rows[i] = (uint64_t)i * 7 + 1000;
    for (int r = 0; r < 4; r++)
        submit_rows(r, "g", HVD_ALLGATHER, rows, TENSORS);
    run_all();
    check_log("g:? ");
}

TEST(joined_ranks_have_no_rows)
{
    static const uint64_t rows[] = {5, 6, 7, 8};
    config.join_all = true;
    open_ranks("2,2", 4);
    gather_bytes(rows, "g:5,6,7,8 ");
    join_rank(3);
    run_all();
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < 3; r++)
            submit_rows(r, "g", HVD_ALLGATHER, &rows[r], 1);
        sent_bytes = 0;
        run_all();
        assert_string_equal(ranks[0].log, "g:5,6,7,0 ");
        assert_string_equal(ranks[3].log, "-:5,6,7,0 ");
        for (int r = 0; r < 4; r++)
            ranks[r].log[0] = '\0';
    }
    assert_int_equal(sent_bytes, 2 * (9 + 9) + 3 * (9 + 16)); /* the second time */
    join_rank(2);
    run_all();
    for (int r = 0; r < 2; r++)
        submit_rows(r, "g", HVD_ALLGATHER, &rows[r], 1);
    join_rank(0);
    join_rank(1);
    run_all();
    assert_string_equal(ranks[2].log, "-:5,6,0,0 j=1 ");
    for (int r = 0; r < 4; r++)
        ranks[r].log[0] = '\0';
    gather_bytes(rows, "g:5,6,7,8 ");
}

/* Rank 1 means the rows of the last batch, although its id has ended when the report arrives. */
TEST(rows_may_cross_the_eviction_of_their_id)
{
    static const uint64_t rows[] = {5, 6, 7};
    config.cache_capacity = 1;
    open_ranks("3", 3);
    gather_bytes(rows, "g:5,6,7 ");
    submit_everywhere("b", 1);
    for (int r = 1; r < 3; r++) {
        flush(r);
        deliver(find_message(r, 0));
    }
    flush(0); /* assigns an id to b, runs it, evicts g */
    submit_rows(1, "g", HVD_ALLGATHER, &rows[1], 1);
    flush(1);
    deliver(find_message(1, 0));
    settle();
    submit_rows(0, "g", HVD_ALLGATHER, &rows[0], 1);
    submit_rows(2, "g", HVD_ALLGATHER, &rows[1], 1); /* has seen the eviction, so it sends the name */
    run_all();
    check_log("b g:5,6,6 ");
}

static void check_spoiled_list(int changed, const char *why)
{
    static const uint64_t rows[] = {5, 6, 7, 8};
    open_ranks("2,2", 4);
    gather_everywhere(rows);
    flush(1);
    struct message *message = &messages[find_message(1, 0)];
    message->bytes[message->length - 1] = (uint8_t)changed; /* the list has one byte */
    settle();
    for (int r = 0; r < 4; r++)
        ASSERT_FAILS(coordinator_health(ranks[r].coordinator, &check_status), HVD_REFUSED, why);
    close_ranks(NULL);
}

TEST(rows_must_be_as_many_as_the_request_has)
{
    static const char why[] = "rank 1 sent rank 0 malformed numbers of rows";
    check_spoiled_list(2 * 5 + 1, why); /* a run without a length */
    check_spoiled_list(0x80, why);      /* a number that is cut */
}

TEST(only_requests_with_rows_have_any)
{
    open_ranks("2,2", 4);
    submit_everywhere("a", 1);
    flush(1);
    struct message *message = &messages[find_message(1, 0)];
    message->bytes = realloc(message->bytes, message->length + 5);
    memcpy(message->bytes + message->length, "\1\0\0\0\2", 5);
    message->bytes[9] |= 0x08;
    message->length += 5;
    settle();
    ASSERT_FAILS(coordinator_health(ranks[0].coordinator, &check_status), HVD_REFUSED,
                 "rank 1 sent rank 0 numbers of rows for an operation without any");
}
