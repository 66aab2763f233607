/* test_stacks.c - the thread of a rank that answers the question for its stack: what it says of C programs,
 * of a source that answers, waits or hangs, and what it leaves alone. */
#include "group.h"

#include "base/clock.h"
#include "watch/page_stack.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONGEST = 60, MOST_PAGES = 16 };

#ifdef __SANITIZE_THREAD__ /* it holds a signal back until the thread calls a function that it knows */
#define SIGNALS_ARE_LATE 1
#else
#define SIGNALS_ARE_LATE 0
#endif

static char text[PAGE_STACK_TEXT + 1]; /* of the newest answer */

/* ---- asking -------------------------------------------------------------------------------------------- */

/* Other threads open and close files meanwhile, so none is touched. */
static int find_pages(int pages[MOST_PAGES])
{
    int count = 0;
    for (int fd = 3; fd < 4096 && count < MOST_PAGES; fd++) {
        char path[64];
        struct stat info;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == (off_t)PAGE_BYTES)
            pages[count++] = fd;
    }
    return count;
}

/* Asks the rank whose page this is. */
static void ask_page(int page)
{
    unsigned question;
    size_t length = 0;
    int64_t deadline = clock_after(LONGEST);
    CHECK_OK(page_stack_request(page, &question, &check_status));
    while (!length) {
        CHECK(clock_now() < deadline, "no answer");
        usleep(1000);
        length = page_stack_read(page, question, false, text);
    }
    text[length] = '\0';
}

static void ask_only_page(void)
{
    int pages[MOST_PAGES];
    CHECK(find_pages(pages) == 1, "%s", text);
    ask_page(pages[0]);
}

static hvd_context *open_job(const char *capture)
{
    hvd_context *context;
    hvd_config *config = hvd_config_create();
    CHECK_OK(hvd_config_set(config, "stack_capture", capture, &check_status));
    CHECK_OK(hvd_init(config, &context, &check_status));
    hvd_config_free(config);
    return context;
}

static bool has(const char *words)
{
    return strstr(text, words) != NULL;
}

/* Asks until the answer begins like this: a thread that gets no processor for a while does not answer in
 * the time that a question has. */
static void ask_for(const char *beginning)
{
    int64_t deadline = clock_after(LONGEST);
    do {
        CHECK(clock_now() < deadline, "%s", text);
        ask_only_page();
    } while (strncmp(text, beginning, strlen(beginning)) != 0);
}

/* "T\t<id of this thread>\t" */
static const char *this_thread(void)
{
    static char line[32];
    snprintf(line, sizeof line, "T\t%ld\t", (long)syscall(SYS_gettid));
    return line;
}

static void (*handler_now(void))(int)
{
    struct sigaction action;
    CHECK(sigaction(HVD_STACK_SIGNAL, NULL, &action) == 0, "%s", text);
    return action.sa_handler;
}

/* ---- without a source ---------------------------------------------------------------------------------- */

TEST(test_functions_of_a_c_program)
{
    hvd_context *context = open_job("all");
    for (int i = 0; i < 3; i++) {
        ask_for("S\tsignal\n");
        CHECK(has(this_thread()), "%s", text);
        CHECK(has("\nC\t") && has("\tlibc.so.6\n") && has("test_stacks\n"), "%s", text);
    }
    hvd_shutdown(context);
    CHECK(handler_now() == SIG_DFL, "the handler stays");
}

TEST(test_never_by_a_signal)
{
    hvd_context *context = open_job("python");
    CHECK(handler_now() == SIG_DFL, "%s", text);
    ask_only_page();
    CHECK(strncmp(text, "S\tnothing\n", 10) == 0 && has(this_thread()) && !has("\nC\t"), "%s", text);
    hvd_shutdown(context);
}

TEST(test_turned_off)
{
    int pages[MOST_PAGES];
    unsigned question;
    hvd_status status;
    hvd_context *context = open_job("none"), *none;
    CHECK(find_pages(pages) == 1, "%s", text);
    CHECK(page_stack_request(pages[0], &question, &status) == HVD_UNSUPPORTED, "%s", text);
    hvd_shutdown(context);
    hvd_config *config = hvd_config_create();
    CHECK_OK(hvd_config_set(config, "stack_capture", "some", &check_status));
    CHECK(hvd_init(config, &none, &status) == HVD_INVALID_ARGUMENT &&
              strstr(status.text, "all, python or none"),
          "%s", status.text);
    hvd_config_free(config);
}

static atomic_int caught;

static void catch (int number)
{
    (void)number;
    atomic_fetch_add(&caught, 1);
}

TEST(test_a_handler_of_the_program_is_left_alone)
{
    struct sigaction own = {.sa_handler = catch}, before;
    CHECK(sigaction(HVD_STACK_SIGNAL, &own, &before) == 0, "%s", text);
    hvd_context *context = open_job("all");
    ask_only_page();
    CHECK(strncmp(text, "S\tnothing\n", 10) == 0, "%s", text);
    CHECK(handler_now() == catch && atomic_load(&caught) == 0, "%s", text);
    hvd_shutdown(context);
    CHECK(handler_now() == catch, "%s", text);

    CHECK(sigaction(HVD_STACK_SIGNAL, &before, NULL) == 0, "%s",
          text); /* one that is installed later as well */
    context = open_job("all");
    CHECK(sigaction(HVD_STACK_SIGNAL, &own, NULL) == 0, "%s", text);
    ask_only_page();
    hvd_shutdown(context);
    CHECK(handler_now() == catch && atomic_load(&caught) == 0, "%s", text);
    CHECK(sigaction(HVD_STACK_SIGNAL, &before, NULL) == 0, "%s", text);
}

/* The answer has what is known without the thread. */
TEST(test_a_thread_that_blocks_the_signal)
{
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, HVD_STACK_SIGNAL);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    hvd_context *context = open_job("all");
    ask_only_page();
    CHECK(strncmp(text, "S\tnothing\n", 10) == 0 && has(this_thread()), "%s", text);
    hvd_shutdown(context);
    pthread_sigmask(SIG_SETMASK, &before, NULL); /* it is not pending: it would end this process */
}

/* ---- a thread that runs and sleeps ----------------------------------------------------------------------
 */

enum phase { RUNS = 1, SLEEPS };

#define STARVED (CLOCK_SECOND / 100) /* a run of 3 ms has waited for a processor */

static atomic_int phase;                 /* of the program's thread; 0: it is to end its loop */
static atomic_int_least64_t longest_run; /* since the asker has set it to 0 */
static char expected[64];

/* Whether the thread waited for a processor meanwhile: then it ran for longer than its 3 ms. */
static bool was_starved(void)
{
    while (atomic_load(&phase) == RUNS)
        usleep(100);
    return atomic_load(&longest_run) > STARVED;
}

/* Asks in moments in which the thread has just begun `argument`, what it does least. */
static void *ask_in_phase(void *argument)
{
    int wanted = *(const enum phase *)argument;
    int64_t deadline = clock_after(LONGEST);
    for (int i = 0; i < 5; i++) {
        do {
            CHECK(clock_now() < deadline, "%s, not %s", text, expected);
            while (atomic_load(&phase) == wanted)
                usleep(100);
            atomic_store(&longest_run, 0);
            while (atomic_load(&phase) != wanted)
                usleep(100);
            ask_only_page();
        } while (!has(expected) && (wanted == SLEEPS || was_starved()));
        CHECK(has(expected), "%s, not %s", text, expected);
    }
    atomic_store(&phase, 0);
    return NULL;
}

static int64_t processor_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * CLOCK_SECOND + time.tv_nsec;
}

/* This thread runs and sleeps for so many milliseconds in turn, while another one asks. */
static void check_loop(int runs, int sleeps, enum phase asked, const char *does)
{
    pthread_t asker;
    hvd_context *context = open_job("python");
    snprintf(expected, sizeof expected, "%s%s", this_thread(), does);
    int before = SLEEPS;
    atomic_store(&phase, before);
    CHECK(!pthread_create(&asker, NULL, ask_in_phase, &asked), "no thread");
    while (atomic_compare_exchange_strong(&phase, &before, before == RUNS ? SLEEPS : RUNS)) {
        before = before == RUNS ? SLEEPS : RUNS;
        int64_t start = processor_time(), began = clock_now();
        while (before == RUNS && processor_time() - start < runs * CLOCK_SECOND / 1000)
            continue;
        if (before == RUNS && clock_now() - began > atomic_load(&longest_run))
            atomic_store(&longest_run, clock_now() - began);
        if (before == SLEEPS)
            nanosleep(&(struct timespec){.tv_nsec = sleeps * CLOCK_SECOND / 1000}, NULL);
    }
    pthread_join(asker, NULL);
    hvd_shutdown(context);
}

TEST(test_a_loop_that_sleeps_mostly)
{
    check_loop(3, 40, RUNS, "S\tclock_nanosleep\t");
}

TEST(test_a_loop_that_runs_mostly)
{
    check_loop(40, 2, SLEEPS, "R\t\t\t");
}

/* ---- with a source ------------------------------------------------------------------------------------- */

static atomic_bool hangs;
static atomic_int marks, writes;
static int program; /* a file */

static size_t write_frames(const int32_t *threads, int32_t count, char *to, size_t capacity)
{
    CHECK(count >= 1, "no thread is wanted");
    atomic_fetch_add(&writes, 1);
    while (atomic_load(&hangs))
        usleep(1000);
    return (size_t)snprintf(to, capacity,
                            "T\nT12\nT\t%d\tmain\nP\t/proc/self/fd/%d\t2\twrite_frames\n"
                            "P\tgone.py\t3\tf\nP\t\x1b[2J\r\x7f.py\t4\tg\th\n",
                            (int)threads[0], program);
}

static void mark(int number)
{
    CHECK(number == HVD_STACK_SIGNAL, "%s", text);
    atomic_fetch_add(&marks, 1);
}

static size_t read_marked(char *to, size_t capacity)
{
    snprintf(to, capacity, "P\tmarked.py\t7\tg\n");
    return SIZE_MAX / 2; /* it is wrong */
}

static const hvd_stack_source source = {sizeof source, write_frames, mark, read_marked};

TEST(test_frames_of_a_source)
{
    const char lines[] = "first\n\t if x:\ty() \nthird";
    program = memfd_create("program", MFD_CLOEXEC);
    CHECK(write(program, lines, strlen(lines)) == (ssize_t)strlen(lines), "%s", lines);
    CHECK_OK(hvd_set_stack_source(&source, &check_status));
    hvd_context *context = open_job("all");
    ask_for("S\tasked\n");
    CHECK(has(this_thread()) && has("\tmain\n"), "%s", text);
    CHECK(has("\twrite_frames\tif x: y() \n"), "%s", text);
    CHECK(has("P\t?[2J??.py\t4\tg h\t\n"), "%s", text);
    CHECK(has("P\tgone.py\t3\tf\t\n") && !has("\nC\t"), "%s", text);
    CHECK(atomic_load(&marks) == 0, "%s", text);
    close(program);
    CHECK_OK(hvd_set_stack_source(NULL, &check_status));
    ask_for("S\tsignal\n");
    CHECK(!has("gone.py") && has("\nC\t"), "%s", text);
    hvd_shutdown(context);
}

TEST(test_a_source_that_is_refused)
{
    hvd_stack_source older = source, half = source;
    hvd_status status;
    older.struct_size--;
    half.marked = NULL;
    CHECK_OK(hvd_set_stack_source(&source, &check_status));
    hvd_context *context = open_job("all");
    CHECK(hvd_set_stack_source(&older, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    CHECK(hvd_set_stack_source(&half, &status) == HVD_INVALID_ARGUMENT, "%s", status.text);
    ask_for("S\tasked\n");
    CHECK(has("gone.py"), "the former source is gone: %s", text);
    CHECK_OK(hvd_set_stack_source(NULL, &check_status));
    hvd_shutdown(context);
}

TEST(test_a_source_that_hangs)
{
    hvd_status status;
    CHECK_OK(hvd_set_stack_source(&source, &check_status));
    hvd_context *context = open_job("all");
    atomic_store(&hangs, true);
    for (int i = 1; i <= 2; i++) {
        ask_for("S\tsignal\n");
        CHECK(has(this_thread()), "%s", text);
        CHECK(has("P\tmarked.py\t7\tg\t\n") && has("\nC\t"), "%s", text);
        CHECK(atomic_load(&marks) >= i, "%s", text); /* also of a signal that came too late to be answered */
    }
    CHECK(hvd_set_stack_source(&source, &status) == HVD_TIMED_OUT, "%s", status.text);
    hvd_shutdown(context); /* it does not wait for the source */
    context = open_job("all");
    ask_for("S\tsignal\n");
    CHECK(has("marked.py"), "%s", text);
    atomic_store(&hangs, false);
    int64_t deadline = clock_after(LONGEST);
    while (!has("gone.py")) {
        CHECK(clock_now() < deadline, "%s", text);
        ask_only_page();
    }
    CHECK_OK(hvd_set_stack_source(NULL, &check_status));
    hvd_shutdown(context);
}

/* ---- several ------------------------------------------------------------------------------------------- */

static void ask_all(struct member *member)
{
    int pages[MOST_PAGES];
    check_allreduce_works(member, "before");
    if (member->rank == 0) {
        int64_t deadline = clock_after(LONGEST);
        bool known[MOST_PAGES] = {false};
        int count = find_pages(pages);
        CHECK(count == member->size, "%d pages", count);
        for (int i = 0, left = SIGNALS_ARE_LATE ? 1 : count; left; i = (i + 1) % count) {
            CHECK(clock_now() < deadline, "%d of %d have not answered", left, count);
            ask_page(pages[i]);
            left -= !known[i] && has("S\tsignal\n");
            known[i] = known[i] || has("S\tsignal\n");
        }
    }
    check_allreduce_works(member, "after");
}

GROUP_TEST(test_ranks_in_one_process, ask_all, 2, 4, .transport = "shm")

#ifndef __SANITIZE_THREAD__ /* it allows no thread in a child */
/* A fork while a question is answered; the child opens a job of its own. */
TEST(test_forks)
{
    CHECK_OK(hvd_set_stack_source(&source, &check_status));
    hvd_context *context = open_job("all");
    atomic_store(&hangs, true);
    int pages[MOST_PAGES], result;
    unsigned question;
    CHECK(find_pages(pages) == 1, "%s", text);
    int written = atomic_load(&writes);
    CHECK_OK(page_stack_request(pages[0], &question, &check_status));
    for (int64_t deadline = clock_after(LONGEST); atomic_load(&writes) == written; usleep(1000))
        CHECK(clock_now() < deadline, "the source is not asked");
    pid_t child = fork();
    CHECK(child >= 0, "%s", text);
    if (child == 0) {
        CHECK(find_pages(pages) == 0, "the child has the page");
        atomic_store(&hangs, false);
        hvd_context *own = open_job("all");
        ask_for("S\tasked\n");
        CHECK(has("gone.py"), "%s", text);
        hvd_shutdown(own);
        _exit(0);
    }
    CHECK(waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 0, "%s", text);
    atomic_store(&hangs, false);
    CHECK_OK(hvd_set_stack_source(NULL, &check_status));
    hvd_shutdown(context);
}
#endif
