/* activity.c - see activity.h. Packages that load data are recognized by their folder, calls by their name.
 */
#include "activity.h"

#include "base/status.h"

#include <string.h>

enum { TEXT_SHOWN = 80 };

static const char *const texts[] = {
    [ACTIVITY_UNKNOWN] = "is in its own program",
    [ACTIVITY_DATA] = "is in the data loader",
    [ACTIVITY_DISK] = "waits for a disk or a network file",
    [ACTIVITY_FILE] = "waits to read",
    [ACTIVITY_OPEN] = "waits to open a file",
    [ACTIVITY_PIPE] = "waits for a pipe",
    [ACTIVITY_CONNECTION] = "waits for a connection",
    [ACTIVITY_QUEUE] = "waits for a queue",
    [ACTIVITY_LOCK] = "waits for a lock",
    [ACTIVITY_PROCESS] = "waits for another process",
    [ACTIVITY_SLEEP] = "sleeps",
    [ACTIVITY_COMPUTE] = "computes",
};
_Static_assert(sizeof texts / sizeof *texts == ACTIVITY_COUNT, "one text each");

/* Folders below site-packages or dist-packages. */
static const char *const loaders[] = {"torch/utils/data/",
                                      "torchvision/datasets/",
                                      "torchvision/io/",
                                      "torchaudio/",
                                      "tensorflow/python/data/",
                                      "tensorflow_datasets/",
                                      "mxnet/gluon/data/",
                                      "mxnet/io/",
                                      "mxnet/recordio",
                                      "grain/",
                                      "datasets/",
                                      "webdataset/",
                                      "streaming/",
                                      "petastorm/",
                                      "ffcv/",
                                      "nvidia/dali/",
                                      "h5py/",
                                      "lmdb/",
                                      "zarr/",
                                      "pyarrow/",
                                      "PIL/",
                                      "imageio/",
                                      "cv2/",
                                      "keras/src/trainers/data_adapters/"};

static const struct {
    const char *call;
    enum activity activity;
} calls[] = {
    {"open", ACTIVITY_OPEN},
    {"openat", ACTIVITY_OPEN},
    {"futex", ACTIVITY_LOCK},
    {"flock", ACTIVITY_LOCK},
    {"nanosleep", ACTIVITY_SLEEP},
    {"clock_nanosleep", ACTIVITY_SLEEP},
    {"wait4", ACTIVITY_PROCESS},
    {"waitid", ACTIVITY_PROCESS},
    {"poll", ACTIVITY_CONNECTION},
    {"ppoll", ACTIVITY_CONNECTION},
    {"select", ACTIVITY_CONNECTION},
    {"pselect6", ACTIVITY_CONNECTION},
    {"epoll_wait", ACTIVITY_CONNECTION},
    {"epoll_pwait", ACTIVITY_CONNECTION},
    {"accept", ACTIVITY_CONNECTION},
    {"accept4", ACTIVITY_CONNECTION},
    {"connect", ACTIVITY_CONNECTION},
    {"recvfrom", ACTIVITY_CONNECTION},
    {"recvmsg", ACTIVITY_CONNECTION},
    {"sendto", ACTIVITY_CONNECTION},
    {"sendmsg", ACTIVITY_CONNECTION},
};

static bool is_loader(const char *file)
{
    const char *package = strstr(file, "-packages/");
    for (size_t i = 0; package && i < sizeof loaders / sizeof *loaders; i++) {
        if (strncmp(package + strlen("-packages/"), loaders[i], strlen(loaders[i])) == 0)
            return true;
    }
    return false;
}

static bool in_loader(const struct stack_thread *thread)
{
    for (int i = 0; i < thread->python_count; i++) {
        if (is_loader(thread->python[i].file))
            return true;
    }
    return false;
}

/* Returns true if the program has called a queue, and that has not returned. */
static bool in_queue(const struct stack *stack)
{
    const struct stack_frame *place = stack_place(stack);
    for (const struct stack_frame *frame = stack->threads->python; frame && frame < place; frame++) {
        const char *name = stack_file_name(frame->file);
        if (strcmp(name, "queue.py") == 0 || strcmp(name, "queues.py") == 0)
            return true;
    }
    return false;
}

/* Of a system call in which the thread is blocked. */
static enum activity of_call(const struct stack_thread *thread)
{
    if (strncmp(thread->call, "read", 4) == 0 || strncmp(thread->call, "pread", 5) == 0 ||
        strncmp(thread->call, "write", 5) == 0) {
        if (strncmp(thread->object, "socket:", 7) == 0)
            return ACTIVITY_CONNECTION;
        return *thread->object == '/' ? ACTIVITY_FILE : ACTIVITY_PIPE;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(thread->call, calls[i].call) == 0)
            return calls[i].activity;
    }
    return ACTIVITY_UNKNOWN;
}

enum activity activity_of(const struct stack *stack)
{
    const struct stack_thread *thread = stack && stack->thread_count ? stack->threads : NULL;
    if (!thread)
        return ACTIVITY_UNKNOWN;
    if (in_loader(thread))
        return ACTIVITY_DATA;
    if (thread->state == 'D')
        return ACTIVITY_DISK;
    if (thread->state == 'R')
        return ACTIVITY_COMPUTE;
    return in_queue(stack) ? ACTIVITY_QUEUE : of_call(thread);
}

bool activity_holds_lock(const struct stack *stack)
{
    return stack && stack->how == STACK_SIGNAL && stack->thread_count && stack->threads->python_count;
}

static bool is_of_the_system(const char *library)
{
    return strncmp(library, "libc.", 5) == 0 || strncmp(library, "libc-", 5) == 0 ||
           strncmp(library, "ld-", 3) == 0 || strncmp(library, "libpthread", 10) == 0;
}

/* The innermost function that is not of the system. */
static const struct stack_frame *find_c_place(const struct stack_thread *thread)
{
    for (int i = 0; i < thread->c_count; i++) {
        if (!is_of_the_system(thread->c[i].file))
            return &thread->c[i];
    }
    return NULL;
}

static void append_place(const struct stack *stack, bool brief, char *text, size_t capacity)
{
    const struct stack_frame *place = stack_place(stack), *c_place = find_c_place(stack->threads);
    if (place) {
        append_text(text, capacity, "%s%s:%d", brief ? " " : ": ", stack_file_name(place->file), place->line);
        if (!brief)
            append_text(text, capacity, " in %s", place->function);
        if (!brief && *place->text)
            append_text(text, capacity, ": %.*s", TEXT_SHOWN, place->text);
    } else if (c_place && brief) {
        append_text(text, capacity, " %s", c_place->function);
    } else if (c_place) {
        append_text(text, capacity, ": %s of %s", c_place->function, c_place->file);
    }
}

void activity_append(const struct stack *stack, bool brief, char *text, size_t capacity)
{
    enum activity activity = activity_of(stack);
    append_text(text, capacity, "%s", texts[activity]);
    if (!stack || !stack->thread_count)
        return;
    if (activity == ACTIVITY_FILE)
        append_text(text, capacity, " %s",
                    brief ? stack_file_name(stack->threads->object) : stack->threads->object);
    if (!brief && activity_holds_lock(stack))
        append_text(text, capacity, ", in C code that keeps Python's lock");
    append_place(stack, brief, text, capacity);
}
