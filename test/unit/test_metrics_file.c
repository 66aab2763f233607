/* test_metrics_file.c - a file system that does not answer keeps nobody who uses a metrics file. */
#include "../../launch/metrics_file.h"
#include "../../launch/replace_file.h"
#include "test.h"

#include "base/clock.h"
#include "base/status.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the rest */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs;
static int writes, ended; /* that were begun, and of these ended */
static hvd_code outcome;
static char last[64];

/* Instead of that of the launcher. */
hvd_code replace_file(const char *what, const char *path, const char *text, size_t length, hvd_status *status)
{
    (void)what;
    (void)path;
    pthread_mutex_lock(&lock);
    writes++;
    pthread_cond_broadcast(&changed);
    while (hangs)
        pthread_cond_wait(&changed, &lock);
    memcpy(last, text, length);
    last[length] = '\0';
    ended++;
    pthread_cond_broadcast(&changed);
    hvd_code code = outcome ? status_set(status, outcome, "it failed") : HVD_OK;
    pthread_mutex_unlock(&lock);
    return code;
}

static void set_hangs(bool value)
{
    pthread_mutex_lock(&lock);
    hangs = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Waits until a count of writes has this value; the first one is that of metrics_file_open. */
static void wait_for(const int *count, int value)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    pthread_mutex_lock(&lock);
    while (*count < value && !pthread_cond_timedwait(&changed, &lock, &until))
        ;
    assert_int_equal(*count, value);
    pthread_mutex_unlock(&lock);
}

/* Returns the outcome of the last text, once it is known. */
static hvd_code wait_for_outcome(struct metrics_file *file)
{
    hvd_status status;
    int64_t deadline = clock_now() + 20 * CLOCK_SECOND;
    while (metrics_file_outcome(file, &status) == HVD_TIMED_OUT && clock_now() < deadline)
        usleep(1000);
    return status.code;
}

static struct metrics_file *open_file(const char *path)
{
    struct metrics_file *file;
    hvd_status status;
    writes = ended = 0;
    outcome = HVD_OK;
    assert_int_equal(metrics_file_open("--metrics-file", path, "zero", 4, &file, &status), HVD_OK);
    assert_int_equal(writes, 1);
    assert_string_equal(last, "zero");
    return file;
}

TEST(test_texts_are_written_and_errors_returned)
{
    char path[] = "/tmp/metrics.XXXXXX";
    hvd_status status;
    close(mkstemp(path));
    struct metrics_file *file = open_file(path);
    assert_int_equal(metrics_file_write(file, "one", 3, &status), HVD_OK);
    assert_int_equal(wait_for_outcome(file), HVD_OK);
    assert_string_equal(last, "one");
    outcome = HVD_REFUSED;
    assert_int_equal(metrics_file_write(file, "two", 3, &status), HVD_OK);
    assert_int_equal(wait_for_outcome(file), HVD_REFUSED);
    assert_int_equal(metrics_file_close(file, false, &status), HVD_OK);
    assert_int_not_equal(access(path, F_OK), 0);
}

TEST(test_a_file_that_is_kept_has_the_last_text)
{
    char path[] = "/tmp/metrics.XXXXXX";
    hvd_status status;
    close(mkstemp(path));
    struct metrics_file *file = open_file(path);
    assert_int_equal(metrics_file_write(file, "one", 3, &status), HVD_OK);
    assert_int_equal(metrics_file_close(file, true, &status), HVD_OK);
    assert_string_equal(last, "one");
    assert_int_equal(unlink(path), 0);
}

/* What is at the path stays: this job has not written it. */
TEST(test_a_path_that_is_wrong)
{
    char path[] = "/tmp/metrics.XXXXXX";
    struct metrics_file *file;
    hvd_status status;
    close(mkstemp(path));
    outcome = HVD_REFUSED;
    assert_int_equal(metrics_file_open("--metrics-file", path, "zero", 4, &file, &status), HVD_REFUSED);
    assert_string_equal(status.text, "it failed");
    assert_int_equal(unlink(path), 0);
}

TEST(test_a_file_system_that_never_answers)
{
    struct metrics_file *file;
    hvd_status status;
    writes = ended = 0;
    outcome = HVD_OK;
    set_hangs(true);
    int64_t begun = clock_now();
    assert_int_equal(
        metrics_file_open("--metrics-discovery", "/nowhere/horovod.json", "zero", 4, &file, &status),
        HVD_TIMED_OUT);
    assert_string_equal(status.text,
                        "--metrics-discovery: the file system of /nowhere/horovod.json does not answer");
    assert_true(clock_now() - begun < 30 * CLOCK_SECOND);
    set_hangs(false);
    wait_for(&ended, 1); /* the other tests have the same disk */
}

TEST(test_a_file_system_that_does_not_answer)
{
    hvd_status status;
    struct metrics_file *file = open_file("/nowhere/metrics");
    set_hangs(true);
    assert_int_equal(metrics_file_write(file, "one", 3, &status), HVD_OK);
    wait_for(&writes, 2);
    int64_t begun = clock_now();
    assert_int_equal(metrics_file_write(file, "two", 3, &status), HVD_TIMED_OUT);
    assert_string_equal(status.text, "--metrics-file: the file system of /nowhere/metrics does not answer");
    assert_int_equal(metrics_file_close(file, false, &status), HVD_TIMED_OUT);
    assert_string_equal(status.text,
                        "--metrics-file: can't remove /nowhere/metrics: its file system does not answer");
    assert_true(clock_now() - begun < 20 * CLOCK_SECOND);
    set_hangs(false);
    wait_for(&ended, 2); /* the other tests have the same disk */
}

/* The second text is dropped, the third one is not. */
TEST(test_a_file_system_that_answers_again)
{
    hvd_status status;
    struct metrics_file *file = open_file("/nowhere/metrics");
    set_hangs(true);
    assert_int_equal(metrics_file_write(file, "one", 3, &status), HVD_OK);
    assert_int_equal(metrics_file_write(file, "two", 3, &status), HVD_TIMED_OUT);
    set_hangs(false);
    assert_int_equal(wait_for_outcome(file), HVD_OK);
    assert_string_equal(last, "one");
    assert_int_equal(metrics_file_write(file, "three", 5, &status), HVD_OK);
    assert_int_equal(wait_for_outcome(file), HVD_OK);
    assert_string_equal(last, "three");
    assert_int_equal(metrics_file_close(file, false, &status), HVD_OK);
}
