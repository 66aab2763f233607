/* test_elastic.c - processes of an elastic job and their starter: reports, news, notices, and epochs that
 * begin while others are ready or have lost a member. Threads are the processes. */
#include "group.h"

#include "base/clock.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SECONDS 120.0 /* of one wait */

/* ---- the starter --------------------------------------------------------------------------------------- */

struct driver {
    hvd_rendezvous *rendezvous;
    hvd_watch *watch;
    char address[32];
};

static void driver_open(struct driver *driver)
{
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &driver->rendezvous, &check_status));
    CHECK_OK(hvd_rendezvous_watch_slots(driver->rendezvous, "elastic", &driver->watch, &check_status));
    snprintf(driver->address, sizeof driver->address, "127.0.0.1:%d",
             hvd_rendezvous_port(driver->rendezvous));
}

static void driver_close(struct driver *driver)
{
    hvd_watch_close(driver->watch);
    hvd_rendezvous_stop(driver->rendezvous);
}

/* Waits for these reports, "slot report" each, in any order. */
static void expect(struct driver *driver, const char *const *reports, int count)
{
    unsigned seen = 0;
    while (seen != (1U << count) - 1) {
        hvd_entry entry = {.struct_size = sizeof entry};
        char text[64];
        int i = 0;
        CHECK_OK(hvd_watch_next(driver->watch, SECONDS, &entry, &check_status));
        snprintf(text, sizeof text, "%s %.*s", entry.key, (int)entry.length, (const char *)entry.value);
        if (strstr(text, " entered"))
            continue;
        while (i < count && strcmp(reports[i], text) != 0)
            i++;
        CHECK(i < count, "'%s' was reported", text);
        seen |= 1U << i;
    }
}

static void expect_one(struct driver *driver, const char *reported)
{
    expect(driver, &reported, 1);
}

/* Waits until the processes of so many slots have ended. Earlier reports may be missing. */
static void expect_ends(struct driver *driver, const char *earlier, int count)
{
    while (count > 0) {
        hvd_entry entry = {.struct_size = sizeof entry};
        CHECK_OK(hvd_watch_next(driver->watch, SECONDS, &entry, &check_status));
        CHECK(entry.length == 0 || !strncmp(entry.value, earlier, entry.length) ||
                  !strncmp(entry.value, "entered", entry.length),
              "%s reports %.*s", entry.key, (int)entry.length, (const char *)entry.value);
        count -= entry.length == 0;
    }
}

static void send_news(struct driver *driver, hvd_news news)
{
    news.struct_size = sizeof news;
    CHECK_OK(hvd_rendezvous_send_news(driver->rendezvous, "elastic", &news, &check_status));
}

/* Begins an epoch: slots[i] is rank i. */
static void begin(struct driver *driver, int epoch, const char *const *slots, int size)
{
    hvd_assignment assignments[4] = {0};
    for (int rank = 0; rank < size; rank++)
        assignments[rank] = (hvd_assignment){slots[rank], rank, NULL};
    CHECK_OK(hvd_rendezvous_assign(driver->rendezvous, "elastic", epoch, assignments, size, &check_status));
    for (int rank = 0; rank < size; rank++)
        send_news(driver, (hvd_news){.slot = slots[rank], .epoch = epoch, .rank = rank, .size = size});
}

/* ---- a process ----------------------------------------------------------------------------------------- */

struct slot {
    const char *name;
    struct driver *driver;
    void (*life)(struct slot *slot);
    pthread_t thread;
    hvd_config *config;
    hvd_epochs *epochs;
};

static void *live(void *argument)
{
    struct slot *slot = argument;
    const char *const settings[] = {"rendezvous", slot->driver->address,
                                    "secret",     "test secret",
                                    "job",        "elastic",
                                    "slot",       slot->name,
                                    "size",       "9",
                                    "rank",       "7",
                                    NULL};
    slot->config = hvd_config_create();
    CHECK(slot->config, "out of memory");
    for (const char *const *setting = settings; *setting; setting += 2)
        CHECK_OK(hvd_config_set(slot->config, setting[0], setting[1], &check_status));
    CHECK_OK(hvd_epochs_open(slot->config, &slot->epochs, &check_status));
    slot->life(slot);
    hvd_epochs_close(slot->epochs);
    hvd_config_free(slot->config);
    return NULL;
}

static void start(struct slot *slot, const char *name, struct driver *driver, void (*life)(struct slot *))
{
    *slot = (struct slot){.name = name, .driver = driver, .life = life};
    CHECK(pthread_create(&slot->thread, NULL, live, slot) == 0, "no thread");
}

static hvd_code enter(struct slot *slot, int epoch, hvd_context **context, hvd_status *status)
{
    char number[16];
    snprintf(number, sizeof number, "%d", epoch);
    CHECK_OK(hvd_config_set(slot->config, "epoch", number, &check_status));
    return hvd_init(slot->config, context, status);
}

static hvd_context *must_enter(struct slot *slot, int epoch, int size)
{
    hvd_context *context;
    CHECK_OK(enter(slot, epoch, &context, &check_status));
    struct member member = {.context = context, .rank = hvd_get_placement(context).rank, .size = size};
    CHECK(hvd_get_placement(context).size == size, "size %d", hvd_get_placement(context).size);
    check_allreduce_works(&member, "enters");
    return context;
}

static hvd_code wait_for(struct slot *slot, int after, double seconds, hvd_epoch *next, hvd_status *status)
{
    const hvd_epoch_question question = {
        .struct_size = sizeof question, .after = after, .holds_state = 1, .lost_rank = 2};
    return hvd_epoch_wait(slot->epochs, &question, seconds, next, status);
}

static int must_wait(struct slot *slot, int after, int size)
{
    hvd_epoch next = {.struct_size = sizeof next};
    CHECK_OK(wait_for(slot, after, SECONDS, &next, &check_status));
    CHECK(next.size == size, "the next epoch has size %d, not %d", next.size, size);
    return next.number;
}

static void wait_for_notice(struct slot *slot, int epoch, int notice)
{
    for (int64_t end = clock_after(SECONDS); hvd_epoch_notice(slot->epochs, epoch) != notice; usleep(1000))
        CHECK(clock_now() < end, "slot %s: notice %d", slot->name, hvd_epoch_notice(slot->epochs, epoch));
}

/* ---- shrink, grow, end --------------------------------------------------------------------------------- */

static void leave_early(struct slot *slot)
{
    hvd_shutdown(must_enter(slot, 0, 3));
}

static void survive(struct slot *slot)
{
    hvd_context *context = must_enter(slot, 0, 3);
    hvd_status status;
    hvd_request request = request_of(HVD_BARRIER, "never", NULL);
    CHECK(hvd_run(context, &request, NULL, &status) == HVD_SHUT_DOWN, "%s", status.text);
    hvd_shutdown(context);
    int epoch = must_wait(slot, 0, 2);
    context = must_enter(slot, epoch, 2);
    wait_for_notice(slot, epoch, HVD_NOTICE_ADDED);
    /* The next epoch is planned, but this one lasts. */
    int32_t ranks[] = {0, 1}, set;
    CHECK(hvd_epoch_notice(slot->epochs, 0) == HVD_NOTICE_LOST, "an epoch that is over");
    CHECK_OK(hvd_process_set_add(context, ranks, 2, &set, &check_status));
    hvd_shutdown(context);
    hvd_shutdown(must_enter(slot, must_wait(slot, epoch, 3), 3));
    CHECK_OK(hvd_epoch_done(slot->epochs, &check_status));
}

static void end_at_once(struct slot *slot)
{
    (void)slot;
}

static void arrive(struct slot *slot)
{
    hvd_shutdown(must_enter(slot, must_wait(slot, -1, 3), 3));
    CHECK_OK(hvd_epoch_done(slot->epochs, &check_status));
}

TEST(test_lose_one_and_add_another)
{
    struct driver driver;
    struct slot slots[5];
    driver_open(&driver);
    begin(&driver, 0, (const char *const[]){"a", "b", "c"}, 3);
    start(&slots[0], "a", &driver, leave_early);
    start(&slots[1], "b", &driver, survive);
    start(&slots[2], "c", &driver, survive);
    expect(&driver, (const char *const[]){"a ", "b waits 0 1 2", "c waits 0 1 2"}, 3);
    begin(&driver, 2, (const char *const[]){"c", "b"}, 2);
    start(&slots[3], "d", &driver, arrive);
    expect_one(&driver, "d ready");
    for (int rank = 0; rank < 2; rank++)
        send_news(
            &driver,
            (hvd_news){
                .slot = rank ? "b" : "c", .epoch = 2, .rank = rank, .size = 2, .notice = HVD_NOTICE_ADDED});
    expect(&driver, (const char *const[]){"b waits 2 1 2", "c waits 2 1 2"}, 2);
    begin(&driver, 3, (const char *const[]){"c", "b", "d"}, 3);
    for (int i = 0; i < 4; i++)
        pthread_join(slots[i].thread, NULL);
    start(&slots[4], "e", &driver, end_at_once);
    pthread_join(slots[4].thread, NULL);
    /* The ends of the others were seen before that of e: the starter finds nevertheless that they are done.
     */
    expect(&driver, (const char *const[]){"b done", "c done", "d done", "e "}, 4);
    driver_close(&driver);
}

/* ---- an epoch that loses a member before it has met ---------------------------------------------------- */

static int is_lost(void *argument)
{
    return hvd_epoch_notice(argument, 0) & HVD_NOTICE_LOST;
}

static void meet_nobody(struct slot *slot)
{
    hvd_context *context;
    hvd_status status;
    hvd_config_set_interrupt(slot->config, is_lost, slot->epochs);
    hvd_code code = enter(slot, 0, &context, &status);
    CHECK(code == HVD_INTERRUPTED, "%s: %s", hvd_code_name(code), status.text);
    hvd_config_set_interrupt(slot->config, NULL, NULL);
    int epoch = must_wait(slot, 0, 1);
    CHECK(epoch == 3, "epoch %d", epoch);
    hvd_shutdown(must_enter(slot, epoch, 1));
}

TEST(test_a_lost_epoch_ends_init)
{
    struct driver driver;
    struct slot slot;
    driver_open(&driver);
    begin(&driver, 0, (const char *const[]){"a", "b"}, 2);
    start(&slot, "b", &driver, meet_nobody);
    send_news(&driver, (hvd_news){.slot = "b", .epoch = 0, .rank = 1, .size = 2, .notice = HVD_NOTICE_LOST});
    expect_one(&driver, "b waits 0 1 2");
    /* The process may have missed an epoch that began, and was lost, meanwhile. */
    send_news(&driver, (hvd_news){.slot = "b", .epoch = 1, .rank = 1, .size = 2, .notice = HVD_NOTICE_LOST});
    expect_one(&driver, "b waits 1 1 -1");
    begin(&driver, 3, (const char *const[]){"b"}, 1);
    expect_ends(&driver, "", 1);
    pthread_join(slot.thread, NULL);
    driver_close(&driver);
}

/* ---- what a wait returns ------------------------------------------------------------------------------- */

static void be_sent_away(struct slot *slot)
{
    hvd_status status;
    hvd_epoch next = {.struct_size = sizeof next};
    hvd_code code;
    for (int i = 0; i < 3; i++) {
        code = wait_for(slot, -1, 0.001, &next, &status);
        CHECK(code == HVD_TIMED_OUT, "%s: %s", hvd_code_name(code), status.text);
    }
    send_news(slot->driver,
              (hvd_news){.slot = slot->name, .kind = HVD_NEWS_OUT, .reason = "host x has failed"});
    code = wait_for(slot, -1, SECONDS, &next, &status);
    CHECK(code == HVD_REFUSED && strstr(status.text, "host x has failed"), "%s: %s", hvd_code_name(code),
          status.text);
    CHECK(hvd_epoch_notice(slot->epochs, 0) == HVD_NOTICE_LOST, "an epoch that goes on without it");
}

static void come_too_late(struct slot *slot)
{
    hvd_status status;
    hvd_epoch next = {.struct_size = sizeof next};
    send_news(slot->driver, (hvd_news){.slot = slot->name, .kind = HVD_NEWS_OVER});
    hvd_code code = wait_for(slot, -1, SECONDS, &next, &status);
    CHECK(code == HVD_SHUT_DOWN && strstr(status.text, "the job has ended"), "%s: %s", hvd_code_name(code),
          status.text);
}

TEST(test_a_slot_is_out)
{
    struct driver driver;
    struct slot slots[2];
    driver_open(&driver);
    start(&slots[0], "a", &driver, be_sent_away);
    start(&slots[1], "b", &driver, come_too_late);
    expect_ends(&driver, "ready", 2);
    for (int i = 0; i < 2; i++)
        pthread_join(slots[i].thread, NULL);
    driver_close(&driver);
}

/* The last news that made sense stay; the next ones count again. */
static void read_malformed_news(struct slot *slot)
{
    static const char *const malformed[] = {"", "\1", "\2 and no news"};
    hvd_epoch next = {.struct_size = sizeof next};
    hvd_status status;
    hvd_news news = {.slot = slot->name, .epoch = 1, .size = 1, .notice = HVD_NOTICE_ADDED};
    send_news(slot->driver, news);
    CHECK(must_wait(slot, -1, 1) == 1, "another epoch");
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        CHECK_OK(hvd_rendezvous_put(slot->driver->rendezvous, "elastic/slots", 0, "news/a", malformed[i],
                                    strlen(malformed[i]), &check_status));
        for (int again = 0; again < 2; again++) {
            hvd_code code = wait_for(slot, 1, SECONDS, &next, &status);
            CHECK(code == HVD_MISMATCH && strstr(status.text, "the news for slot 'a' are malformed"),
                  "%s: %s", hvd_code_name(code), status.text);
        }
        CHECK(hvd_epoch_notice(slot->epochs, 1) == HVD_NOTICE_ADDED, "the notice is forgotten");
    }
    news.epoch = 2;
    send_news(slot->driver, news);
    int64_t end = clock_after(SECONDS); /* the malformed ones may be on their way still */
    while (wait_for(slot, 1, SECONDS, &next, &status) == HVD_MISMATCH)
        CHECK(clock_now() < end, "%s", status.text);
    CHECK(next.number == 2, "%s", status.text);
}

TEST(test_malformed_news)
{
    struct driver driver;
    struct slot slot;
    driver_open(&driver);
    start(&slot, "a", &driver, read_malformed_news);
    pthread_join(slot.thread, NULL);
    driver_close(&driver);
}

/* ---- many epochs --------------------------------------------------------------------------------------- */

enum { RESETS = 200, SETTLED = 20 };

static void live_often(struct slot *slot)
{
    for (int epoch = 0; epoch < RESETS; epoch = must_wait(slot, epoch, 2))
        hvd_shutdown(must_enter(slot, epoch, 2));
}

struct usage {
    int files, threads;
    size_t bytes;
};

static struct usage measure(void)
{
    struct mallinfo2 heap = mallinfo2();
    return (struct usage){count_entries("/proc/self/fd"), count_entries("/proc/self/task"),
                          heap.uordblks + heap.hblkhd};
}

/* What a thread and a connection take is free some time after their end. */
static void check_usage(const struct usage *settled)
{
    int64_t deadline = clock_after(SECONDS);
    for (struct usage now = measure();
         now.files > settled->files || now.threads > settled->threads || now.bytes > settled->bytes + 65536;
         now = measure()) {
        CHECK(clock_now() < deadline,
              "%d files, %d threads and %zu bytes after %d resets; %d, %d and %zu after %d", now.files,
              now.threads, now.bytes, RESETS, settled->files, settled->threads, settled->bytes, SETTLED);
        usleep(1000);
    }
}

/* A process may leave and join again as often as it likes: what it uses stays the same. */
TEST(test_many_resets_use_no_more)
{
    struct driver driver;
    struct slot slots[2];
    struct usage settled = {0};
    const char *const names[] = {"a", "b"};
    driver_open(&driver);
    begin(&driver, 0, names, 2);
    start(&slots[0], "a", &driver, live_often);
    start(&slots[1], "b", &driver, live_often);
    for (int epoch = 0; epoch < RESETS; epoch++) {
        char reports[2][32];
        for (int i = 0; i < 2; i++)
            snprintf(reports[i], sizeof reports[i], "%s waits %d 1 2", names[i], epoch);
        expect(&driver, (const char *const[]){reports[0], reports[1]}, 2);
        if (epoch == SETTLED)
            settled = measure();
        if (epoch == RESETS - 1)
            check_usage(&settled);
        begin(&driver, epoch + 1, names, 2);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(slots[i].thread, NULL);
        CHECK_OK(hvd_rendezvous_forget_slot(driver.rendezvous, "elastic", names[i], &check_status));
    }
    driver_close(&driver);
}

/* What is forgotten is not found by a watch that is opened later. */
TEST(test_a_slot_is_forgotten)
{
    struct driver driver;
    struct slot slot;
    hvd_watch *watch;
    hvd_entry entry = {.struct_size = sizeof entry};
    hvd_status status;
    driver_open(&driver);
    start(&slot, "a", &driver, be_sent_away);
    expect_ends(&driver, "ready", 1);
    pthread_join(slot.thread, NULL);
    CHECK_OK(hvd_rendezvous_watch_slots(driver.rendezvous, "elastic", &watch, &check_status));
    CHECK_OK(hvd_watch_next(watch, SECONDS, &entry, &check_status));
    hvd_watch_close(watch);
    for (int again = 0; again < 2; again++)
        CHECK_OK(hvd_rendezvous_forget_slot(driver.rendezvous, "elastic", "a", &check_status));
    CHECK_OK(hvd_rendezvous_watch_slots(driver.rendezvous, "elastic", &watch, &check_status));
    CHECK(hvd_watch_next(watch, 0, &entry, &status) == HVD_TIMED_OUT, "%s is still there", entry.key);
    hvd_watch_close(watch);
    driver_close(&driver);
}

static atomic_bool must_end;

static void on_sigterm(int signal)
{
    (void)signal;
    atomic_store(&must_end, true);
}

static void outlive_the_starter(struct slot *slot)
{
    hvd_status status;
    hvd_epoch next = {.struct_size = sizeof next};
    hvd_code code = wait_for(slot, -1, SECONDS, &next, &status);
    CHECK(code == HVD_PEER_LOST, "%s: %s", hvd_code_name(code), status.text);
    CHECK(hvd_epoch_notice(slot->epochs, 0) == 0, "a notice");
    code = hvd_epoch_done(slot->epochs, &status);
    CHECK(code == HVD_PEER_LOST, "%s: %s", hvd_code_name(code), status.text);
    int64_t deadline = clock_after(SECONDS);
    while (!atomic_load(&must_end) && clock_now() < deadline)
        usleep(1000);
    CHECK(atomic_load(&must_end), "no SIGTERM");
}

TEST(test_the_starter_ends)
{
    struct driver driver;
    struct slot slot;
    driver_open(&driver);
    struct sigaction before, sigterm = {.sa_handler = on_sigterm};
    sigaction(SIGTERM, &sigterm, &before);
    start(&slot, "a", &driver, outlive_the_starter);
    expect_one(&driver, "a ready");
    driver_close(&driver);
    pthread_join(slot.thread, NULL);
    sigaction(SIGTERM, &before, NULL);
}

TEST(test_wrong_news_and_configs_are_refused)
{
    struct driver driver;
    hvd_status status;
    hvd_epochs *epochs;
    hvd_config *config = hvd_config_create();
    hvd_news wrong[] = {
        {.slot = "a", .epoch = 1, .rank = 2, .size = 2},
        {.slot = "a", .epoch = -1, .size = 1},
        {.slot = "a", .size = 1, .notice = 64},
        {.slot = "", .size = 1},
        {.slot = "a", .size = 1, .kind = 9},
    };
    driver_open(&driver);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].struct_size = sizeof wrong[i];
        CHECK(hvd_rendezvous_send_news(driver.rendezvous, "elastic", &wrong[i], &status) ==
                  HVD_INVALID_ARGUMENT,
              "news %d were taken", (int)i);
    }
    CHECK(config && hvd_epochs_open(config, &epochs, &status) == HVD_INVALID_ARGUMENT &&
              strstr(status.text, "belongs to no elastic job"),
          "%s", status.text);
    hvd_config_free(config);
    driver_close(&driver);
}
