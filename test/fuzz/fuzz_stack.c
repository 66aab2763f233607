/* fuzz_stack.c - any bytes as the answer of a rank to the question for its stack, and what is said of them.
 */
#include "activity.h"

#include <stdlib.h>
#include <string.h>

static void check_text(const char *text)
{
    for (; *text; text++) {
        if (*text < ' ' || *text > '~')
            abort();
    }
}

static void check_frames(const struct stack *stack, const struct stack_frame *frames, int count)
{
    if (count && (frames < stack->frames || frames + count > stack->frames + stack->frame_count))
        abort();
    for (int i = 0; i < count; i++) {
        check_text(frames[i].file);
        check_text(frames[i].function);
        check_text(frames[i].text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    char text[64] = "";
    struct stack *stack = stack_parse((const char *)bytes, length);
    if (!stack)
        return 0;
    for (int i = 0; i < stack->thread_count; i++) {
        const struct stack_thread *thread = &stack->threads[i];
        check_text(thread->call);
        check_text(thread->object);
        check_text(thread->name);
        check_frames(stack, thread->python, thread->python_count);
        check_frames(stack, thread->c, thread->c_count);
    }
    activity_append(stack, false, text, sizeof text);
    check_text(text);
    free(stack);
    return 0;
}
