/* test_page.c - what the pages of ranks that are threads say while operations run, wait and fail. */
#include "group.h"

#include "base/clock.h"
#include "watch/page_waitings.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PAGES = 64, LONGEST = 60 };

struct pages {
    struct page_summary list[MOST_PAGES];
    int count;
};

/* Reads the pages that this process has open, in the order of their ranks. */
static void read_pages(struct pages *pages)
{
    struct page_copies *copies = page_copies_create();
    CHECK(copies, "out of memory");
    pages->count = 0;
    for (int fd = 3; fd < 4096 && pages->count < MOST_PAGES; fd++) {
        struct stat info;
        hvd_status status;
        struct page_summary page;
        if (fstat(fd, &info) || info.st_size != (off_t)PAGE_BYTES ||
            page_read(fd, copies, clock_now(), &page, &status))
            continue;
        int at = pages->count++;
        for (; at && pages->list[at - 1].identity.rank > page.identity.rank; at--)
            pages->list[at] = pages->list[at - 1];
        pages->list[at] = page;
    }
    page_copies_free(copies);
}

static void free_pages(struct pages *pages)
{
    for (int i = 0; i < pages->count; i++)
        page_summary_free(&pages->list[i]);
}

static atomic_int go; /* counts the tests' steps */

static void wait_for(int step)
{
    while (atomic_load(&go) < step)
        usleep(1000);
}

static const struct page_request *request_on(const struct page_summary *page, const char *title)
{
    for (int i = 0; i < page->request_count; i++) {
        if (strcmp(page->requests[i].title, title) == 0)
            return &page->requests[i];
    }
    return NULL;
}

/* Returns true if all ranks but the last wait for it in this request. */
static bool names_the_last(const struct pages *pages, const char *title)
{
    struct page_waitings waitings;
    bool right = false;
    CHECK_OK(page_waitings_find(pages->list, pages->count, &waitings, &check_status));
    for (int i = 0; i < waitings.count; i++) {
        const struct page_waiting *waiting = &waitings.list[i];
        right = right || (strcmp(waiting->request->title, title) == 0 && waiting->missing == 1 &&
                          waiting->waits == pages->count - 1 && waiting->hidden == 0 &&
                          waiting->parts[pages->count - 1] == PART_MISSING);
    }
    page_waitings_free(&waitings);
    return right;
}

static void watch_until_named(const char *title, int size)
{
    int64_t deadline = clock_now() + LONGEST * CLOCK_SECOND;
    bool named = false;
    while (!named) {
        struct pages pages;
        CHECK(clock_now() < deadline, "no page says that %s waits for the last rank", title);
        read_pages(&pages);
        named = pages.count == size && names_the_last(&pages, title);
        free_pages(&pages);
    }
}

/* The last rank is late, once in each of two process sets. */
static void be_late(struct member *member)
{
    bool last = member->rank == member->size - 1;
    int32_t set = 0;
    check_allreduce_works(member, "before");
    for (int step = 1; step <= 2; step++) {
        float value = 1;
        char title[32];
        if (step == 2) {
            int32_t ranks[MOST_PAGES];
            for (int i = 0; i < member->size; i++)
                ranks[i] = i;
            CHECK_OK(hvd_process_set_add(member->context, ranks, member->size, &set, &check_status));
        }
        snprintf(title, sizeof title, "allreduce.late%d", step);
        if (last)
            wait_for(step);
        hvd_handle *handle = submit_sum(member, title + sizeof "allreduce." - 1, &value, 1, set);
        if (member->rank == 0) {
            watch_until_named(title, member->size);
            atomic_store(&go, step);
        }
        finish(handle);
        CHECK(value == (float)member->size, "got %g", value);
    }
}

static void late_rank(const char *transport)
{
    atomic_store(&go, 0);
    group_run(&(struct group_options){.transport = transport}, 3, be_late, NULL);
}

TEST(the_late_rank_is_named_over_shm)
{
    late_rank("shm");
}

TEST(the_late_rank_is_named_over_tcp)
{
    late_rank("tcp");
}

/* A blocking caller sleeps in its request, which the page says; afterwards all requests have ended. */
static void sleep_in_request(struct member *member)
{
    float values[2] = {1, 1};
    if (member->rank == 1) {
        int64_t deadline = clock_now() + LONGEST * CLOCK_SECOND;
        bool seen = false;
        while (!seen) {
            struct pages pages;
            CHECK(clock_now() < deadline, "no page says that a thread sleeps");
            read_pages(&pages);
            CHECK(pages.count == 2, "%d pages", pages.count);
            const struct page_request *request = request_on(&pages.list[0], "allreduce.asleep");
            seen = request && !request->decided && pages.list[0].thread_count == 1 &&
                   pages.list[0].threads[0].record == request->number;
            free_pages(&pages);
        }
    }
    finish(submit_sum(member, "asleep", &values[0], 1, 0));
    for (int i = 0; i < 100; i++)
        finish(submit_sum(member, i % 2 ? "odd" : "even", &values[i % 2], 1, 0));
    check_allreduce_works(member, "end");
    struct pages pages;
    read_pages(&pages);
    const struct page_summary *own = &pages.list[member->rank];
    CHECK(own->identity.rank == member->rank && own->state == PAGE_OPEN, "rank %d", own->identity.rank);
    CHECK(own->all.succeeded == 102, "%d requests", (int)own->all.succeeded);
    CHECK(own->request_count == 0 && own->thread_count == 0, "%d in flight", own->request_count);
    CHECK(own->steps.count == 50, "%llu steps", (unsigned long long)own->steps.count);
    CHECK(strcmp(own->last.title, "allreduce.end") == 0, "%s", own->last.title);
    CHECK(own->last.submitted <= own->last.decided && own->last.decided <= own->last.ended,
          "the times are out of order");
    free_pages(&pages);
    check_allreduce_works(member, "all have looked");
}

TEST(a_sleeping_caller_is_seen)
{
    group_run(&(struct group_options){.transport = "shm"}, 2, sleep_in_request, NULL);
}

/* A binding may generate names that are no numbers, such as lines of the program. */
static void submit_lines(struct member *member)
{
    static const char *const names[] = {"train.py:12#3", "noname.mxnet.7"};
    static const char *const titles[] = {"allreduce.train.py:12#3", "allreduce.noname.7"};
    float values[2] = {1, 1};
    hvd_handle *handles[2];
    if (member->rank == 1)
        wait_for(1);
    for (int i = 0; i < 2; i++) {
        int64_t one = 1;
        hvd_tensor tensor = tensor_of(&values[i], HVD_FLOAT32, &one, 1);
        hvd_request request = request_of(HVD_ALLREDUCE, names[i], &tensor);
        request.generated = 1;
        CHECK_OK(hvd_submit(member->context, &request, &handles[i], &check_status));
        if (member->rank == 0)
            watch_until_named(titles[i], member->size);
    }
    atomic_store(&go, 1);
    finish(handles[0]);
    finish(handles[1]);
}

TEST(generated_names)
{
    atomic_store(&go, 0);
    group_run(&(struct group_options){.transport = "shm"}, 2, submit_lines, NULL);
}

/* A request that is held back, since another operation of its name is not decided, uses the name's place, not
 * those of other names. */
static void hold_often(struct member *member)
{
    float values[2] = {1, 1}, other = 1;
    int64_t one = 1;
    hvd_handle *first = member->rank ? NULL : submit_sum(member, "first", &other, 1, 0);
    for (int i = 0; i < 4 * PAGE_NAMES; i++) {
        values[0] = values[1] = 1;
        hvd_handle *earlier = submit_sum(member, "again", &values[0], 1, 0);
        hvd_tensor tensor = tensor_of(&values[1], HVD_FLOAT32, &one, 1);
        hvd_request request = request_of(HVD_BROADCAST, "again", &tensor);
        hvd_handle *held;
        CHECK_OK(hvd_submit(member->context, &request, &held, &check_status));
        finish(earlier);
        finish(held);
    }
    if (member->rank == 0)
        watch_until_named("allreduce.first", member->size);
    check_allreduce_works(member, "seen");
    finish(first ? first : submit_sum(member, "first", &other, 1, 0));
}

TEST(held_requests_share_a_name)
{
    group_run(&(struct group_options){.transport = "shm"}, 2, hold_often, NULL);
}

/* Without the coordinator's memory of names each request has a name of its own, and still the right one. */
TEST(names_without_a_cache)
{
    atomic_store(&go, 0);
    group_run(&(struct group_options){.transport = "shm", SETTINGS("cache_capacity", "0")}, 3, be_late, NULL);
}

/* Returns the reporter that is this rank at its own node, once all nodes above it (`nodes`) wait for it
 * alone; or NULL. */
static const struct page_reporter *awaited(const struct pages *pages, int rank, int nodes)
{
    const struct page_reporter *found = NULL;
    for (int i = 0, count = nodes > 1 ? pages->count : 1; i < count; i++) {
        for (int j = 0; j < pages->list[i].reporter_count; j++) {
            const struct page_reporter *reporter = &pages->list[i].reporters[j];
            nodes -= reporter->waits;
            if (reporter->rank == rank && reporter->waits)
                found = reporter;
        }
    }
    return nodes ? NULL : found;
}

/* Of all reporters without the awaited ones: this rank, and the leaders of the subtrees that it is in. */
static int64_t lateness_of_others(const struct pages *pages, int nodes)
{
    int64_t total = 0;
    for (int i = 0, count = nodes > 1 ? pages->count : 1; i < count; i++) {
        for (int j = 0; j < pages->list[i].reporter_count; j++)
            total += pages->list[i].reporters[j].waits ? 0 : pages->list[i].reporters[j].total;
    }
    return total;
}

enum { PAUSE = 10, STEPS = 3, TENSORS = 20 }; /* milliseconds; steps; requests of each */

/* Once all others wait for this rank alone, all that passes is its lateness, and nobody else's. */
static void pause_while_awaited(struct member *member)
{
    struct pages pages;
    /* Rank 0 is the only node above the ranks of its host; other hosts may wait for ranks of theirs. */
    int nodes = member->host && strcmp(member->host, "a") != 0 ? 2 : 1;
    int64_t start = clock_now(), before = -1, others;
    while (before < 0) {
        CHECK(clock_now() - start < LONGEST * CLOCK_SECOND, "no page says that rank %d is waited for",
              member->rank);
        read_pages(&pages);
        const struct page_reporter *reporter = awaited(&pages, member->rank, nodes);
        before = reporter ? reporter->total : -1;
        others = lateness_of_others(&pages, nodes);
        free_pages(&pages);
    }
    usleep(PAUSE * 1000);
    read_pages(&pages);
    const struct page_reporter *reporter = awaited(&pages, member->rank, nodes);
    CHECK(reporter && reporter->total - before >= PAUSE * CLOCK_SECOND / 1000, "it is not counted");
    CHECK(reporter->total - before < clock_now() - start, "more is counted than has passed");
    CHECK(lateness_of_others(&pages, nodes) == others, "another rank is blamed");
    free_pages(&pages);
}

static void lose_time(struct member *member)
{
    float values[TENSORS] = {0};
    hvd_handle *handles[TENSORS];
    for (int step = 0; step < STEPS * member->size; step++) {
        if (step % member->size == member->rank)
            pause_while_awaited(member);
        for (int i = 0; i < TENSORS; i++) {
            char name[16];
            snprintf(name, sizeof name, "grad%d", i);
            handles[i] = submit_sum(member, name, &values[i], 1, 0);
        }
        for (int i = 0; i < TENSORS; i++)
            finish(handles[i]);
    }
    struct pages pages;
    uint64_t negotiated = 0;
    check_allreduce_works(member, "before the look");
    read_pages(&pages);
    for (int i = 0; i < PAGE_NEGOTIATIONS; i++)
        negotiated += pages.list[0].negotiations[i];
    CHECK(negotiated == (uint64_t)(TENSORS * STEPS * member->size + 1), "%d negotiations", (int)negotiated);
    CHECK(pages.list[0].negotiation_total >= STEPS * member->size * PAUSE * CLOCK_SECOND / 1000,
          "they took no time");
    free_pages(&pages);
    check_allreduce_works(member, "after the look");
}

TEST(lateness_is_of_the_late_rank)
{
    for (int size = 2; size <= 4; size++)
        group_run(&(struct group_options){.transport = "shm"}, size, lose_time, NULL);
}

TEST(lateness_is_of_the_late_rank_of_several_hosts)
{
    group_run(&(struct group_options){.transport = "tcp", .hosts = (const char *const[]){"a", "a", "b", "b"}},
              4, lose_time, NULL);
}
