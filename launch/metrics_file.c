/* metrics_file.c - see metrics_file.h. */
#include "metrics_file.h"
#include "replace_file.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OPEN_SECONDS  5
#define CLOSE_SECONDS 3

struct metrics_file {
    pthread_t thread;
    const char *option;   /* that asks for the file, for texts */
    pthread_mutex_t lock; /* of the rest, except the path */
    pthread_cond_t changed;
    char *text; /* that is being written, or is to be; NULL: none is */
    size_t length;
    hvd_status outcome; /* of the last one */
    bool written;       /* it is this one's, and no longer what was there before */
    bool ends;          /* the file is to be removed, */
    bool keeps;         /* or kept, */
    bool ended;         /* and was */
    bool abandoned;     /* the thread frees this */
    char path[];
};

static struct timespec time_after(int seconds)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += seconds;
    return time;
}

static void release(struct metrics_file *file)
{
    pthread_cond_destroy(&file->changed);
    pthread_mutex_destroy(&file->lock);
    free(file->text);
    free(file);
}

/* Writes texts until the end, and the last one if the file is kept; with the lock. */
static void write_texts(struct metrics_file *file)
{
    while (!file->ends || (file->keeps && file->text)) {
        if (!file->text) {
            pthread_cond_wait(&file->changed, &file->lock);
            continue;
        }
        hvd_status status = {0};
        pthread_mutex_unlock(&file->lock);
        replace_file(file->option, file->path, file->text, file->length, &status);
        pthread_mutex_lock(&file->lock);
        status_copy(&file->outcome, &status);
        file->written = file->written || !status.code;
        free(file->text);
        file->text = NULL;
        pthread_cond_signal(&file->changed);
    }
}

static void *run(void *argument)
{
    struct metrics_file *file = argument;
    pthread_mutex_lock(&file->lock);
    write_texts(file);
    bool remove = file->written && !file->keeps;
    pthread_mutex_unlock(&file->lock);
    if (remove)
        unlink(file->path);
    pthread_mutex_lock(&file->lock);
    file->ended = true;
    bool abandoned = file->abandoned;
    pthread_cond_signal(&file->changed);
    pthread_mutex_unlock(&file->lock);
    if (abandoned)
        release(file);
    return NULL;
}

/* Leaves the thread to itself if it does not end in time: it frees the file then. */
static hvd_code end(struct metrics_file *file, bool keeps, hvd_status *status)
{
    const struct timespec until = time_after(CLOSE_SECONDS);
    pthread_mutex_lock(&file->lock);
    file->ends = true;
    file->keeps = keeps;
    pthread_cond_signal(&file->changed);
    while (!file->ended && !pthread_cond_timedwait(&file->changed, &file->lock, &until))
        ;
    bool ended = file->ended;
    file->abandoned = !ended;
    if (!ended) {
        status_set(status, HVD_TIMED_OUT, "%s: can't %s %s: its file system does not answer", file->option,
                   keeps ? "write" : "remove", file->path);
        pthread_detach(file->thread);
    }
    pthread_mutex_unlock(&file->lock);
    if (!ended)
        return HVD_TIMED_OUT;
    pthread_join(file->thread, NULL);
    release(file);
    return HVD_OK;
}

/* Returns the outcome of the first text. */
static hvd_code wait_for_first(struct metrics_file *file, hvd_status *status)
{
    const struct timespec until = time_after(OPEN_SECONDS);
    pthread_mutex_lock(&file->lock);
    while (file->text && !pthread_cond_timedwait(&file->changed, &file->lock, &until))
        ;
    pthread_mutex_unlock(&file->lock);
    return metrics_file_outcome(file, status);
}

hvd_code metrics_file_open(const char *option, const char *path, const char *text, size_t length,
                           struct metrics_file **out, hvd_status *status)
{
    pthread_condattr_t monotonic;
    struct metrics_file *file = calloc(1, sizeof *file + strlen(path) + 1);
    if (!file || !(file->text = malloc(length + 1))) {
        free(file);
        return status_no_memory(status);
    }
    memcpy(file->text, text, length);
    file->length = length;
    file->option = option;
    memcpy(file->path, path, strlen(path) + 1);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&file->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&file->lock, NULL);
    int error = thread_start(&file->thread, run, file);
    if (error) {
        release(file);
        return status_set_errno(status, error, "%s: can't start a thread", option);
    }
    hvd_code code = wait_for_first(file, status);
    if (code)
        end(file, false, NULL);
    else
        *out = file;
    return code;
}

hvd_code metrics_file_write(struct metrics_file *file, const char *text, size_t length, hvd_status *status)
{
    char *copy = malloc(length + 1);
    if (!copy)
        return status_no_memory(status);
    memcpy(copy, text, length);
    pthread_mutex_lock(&file->lock);
    bool busy = file->text != NULL;
    if (!busy) {
        file->text = copy;
        file->length = length;
        pthread_cond_signal(&file->changed);
    }
    pthread_mutex_unlock(&file->lock);
    if (busy)
        free(copy);
    return busy ? metrics_file_outcome(file, status) : HVD_OK;
}

hvd_code metrics_file_outcome(struct metrics_file *file, hvd_status *status)
{
    pthread_mutex_lock(&file->lock);
    if (file->text)
        status_set(status, HVD_TIMED_OUT, "%s: the file system of %s does not answer", file->option,
                   file->path);
    else
        status_copy(status, &file->outcome);
    pthread_mutex_unlock(&file->lock);
    return status->code;
}

hvd_code metrics_file_close(struct metrics_file *file, bool keeps, hvd_status *status)
{
    return end(file, keeps, status);
}
