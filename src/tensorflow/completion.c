/* completion.c - keeps TensorFlow's callback beyond the kernel's call. A callback is kept in the kernel's
 * thread and run once, in any thread. TensorFlow passes the address of a std::function<void()> that is a
 * by-value parameter of its own: it is on the stack and is destroyed when the kernel's call returns, so it is
 * moved from there exactly as libstdc++ does. A callback on the heap, as a later version may have, is not
 * moved. */
#include "tensorflow/completion.h"

#include <pthread.h>
#include <string.h>

enum { MARK = 0x48564421 };

static _Thread_local bool called;

static void note_call(const void *object)
{
    called = *(const uint64_t *)object == MARK;
}

static bool manage_nothing(void *target, const void *source, int what)
{
    (void)target;
    (void)source;
    (void)what;
    return false;
}

bool completion_works(void)
{
    struct tf_function probe = {.object = {MARK}, .manage = manage_nothing, .invoke = note_call};
    if (!tf.NewAsyncKernelBuilder || !tf.RunAsyncOpKernelDoneCallback)
        return false;
    called = false;
    tf.RunAsyncOpKernelDoneCallback(&probe);
    return called;
}

/* Returns true if the address is on this thread's stack, also if the bounds of the stack are unknown. */
static bool on_own_stack(const void *address)
{
    static _Thread_local uintptr_t lowest, end;
    if (!end) {
        pthread_attr_t attributes;
        void *start;
        size_t size;
        end = UINTPTR_MAX;
        if (pthread_getattr_np(pthread_self(), &attributes))
            return true;
        if (!pthread_attr_getstack(&attributes, &start, &size)) {
            lowest = (uintptr_t)start;
            end = lowest + size;
        }
        pthread_attr_destroy(&attributes);
    }
    return (uintptr_t)address >= lowest && (uintptr_t)address < end;
}

struct completion completion_keep(struct tf_function *done)
{
    struct completion completion = {.lasting = done};
    if (on_own_stack(done)) {
        completion = (struct completion){.moved = *done};
        memset(done, 0, sizeof *done);
    }
    return completion;
}

void completion_run(struct completion *completion)
{
    struct tf_function *function = completion->lasting ? completion->lasting : &completion->moved;
    tf.RunAsyncOpKernelDoneCallback(function);
    if (!completion->lasting)
        function->manage(function, function, TF_FUNCTION_DESTROY);
}
