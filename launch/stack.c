/* stack.c - see stack.h. */
#include "stack.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 16, THREADS_SHOWN = 3, LONGEST_PATH = 40 };

/* ---- parsing ------------------------------------------------------------------------------------------- */

/* Returns the next field of a line, "" after the last one. */
static const char *next_field(char **rest)
{
    char *field = *rest ? strsep(rest, "\t") : NULL;
    return field ? field : "";
}

static void parse_thread(struct stack *stack, char *rest)
{
    if (stack->thread_count == STACK_THREADS)
        return;
    struct stack_thread *thread = &stack->threads[stack->thread_count++];
    thread->id = atoi(next_field(&rest));
    thread->state = *next_field(&rest);
    thread->call = next_field(&rest);
    thread->object = next_field(&rest);
    thread->name = next_field(&rest);
}

/* Frames of C follow those of Python. */
static void parse_frame(struct stack *stack, bool python, char *rest)
{
    struct stack_thread *thread = stack->thread_count ? &stack->threads[stack->thread_count - 1] : NULL;
    if (!thread || stack->frame_count == STACK_FRAMES || (python && thread->c_count))
        return;
    struct stack_frame *frame = &stack->frames[stack->frame_count++];
    if (python) {
        frame->file = next_field(&rest);
        frame->line = atoi(next_field(&rest));
        frame->function = next_field(&rest);
        frame->text = next_field(&rest);
    } else {
        frame->function = next_field(&rest);
        frame->file = next_field(&rest);
        frame->text = "";
    }
    const struct stack_frame **first = python ? &thread->python : &thread->c;
    int *count = python ? &thread->python_count : &thread->c_count;
    if (!*count)
        *first = frame;
    ++*count;
}

static enum stack_how parse_how(const char *how)
{
    if (strcmp(how, "asked") == 0)
        return STACK_ASKED;
    return strcmp(how, "signal") == 0 ? STACK_SIGNAL : STACK_NOTHING;
}

struct stack *stack_parse(const char *text, size_t length)
{
    struct stack *stack = length > 2 && memcmp(text, "S\t", 2) == 0 ? calloc(1, sizeof *stack) : NULL;
    if (!stack)
        return NULL;
    length = length < PAGE_STACK_TEXT ? length : PAGE_STACK_TEXT;
    for (size_t i = 0; i < length; i++) {
        bool fine = (text[i] >= ' ' && text[i] <= '~') || text[i] == '\t' || text[i] == '\n';
        stack->answer[i] = stack->text[i] = fine ? text[i] : '?';
    }
    for (char *rest = stack->text, *line; (line = strsep(&rest, "\n"));) {
        char kind = *line && line[1] == '\t' ? *line : '\0';
        if (kind == 'S')
            stack->how = parse_how(line + 2);
        else if (kind == 'T')
            parse_thread(stack, line + 2);
        else if (kind == 'P' || kind == 'C')
            parse_frame(stack, kind == 'P', line + 2);
    }
    return stack;
}

const char *stack_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool is_of_the_program(const char *file)
{
    static const char *const installed[] = {"/site-packages/", "/dist-packages/", "/lib/python", "<frozen "};
    for (size_t i = 0; i < sizeof installed / sizeof *installed; i++) {
        if (strstr(file, installed[i]))
            return false;
    }
    return true;
}

const struct stack_frame *stack_place(const struct stack *stack)
{
    const struct stack_thread *thread = stack && stack->thread_count ? stack->threads : NULL;
    for (int i = 0; thread && i < thread->python_count; i++) {
        if (is_of_the_program(thread->python[i].file))
            return &thread->python[i];
    }
    return thread && thread->python_count ? thread->python : NULL;
}

/* ---- printing ------------------------------------------------------------------------------------------ */

/* The last folders of a path say more than the first ones. */
static const char *shorten(const char *path)
{
    const char *end = strlen(path) > LONGEST_PATH ? path + strlen(path) - LONGEST_PATH : path;
    const char *slash = end > path ? strchr(end, '/') : NULL;
    return slash ? slash + 1 : end;
}

static void write_frame(const struct stack_frame *frame, FILE *file)
{
    char place[LONGEST_PATH + 16];
    const char *path = shorten(frame->file);
    if (!frame->line) {
        fprintf(file, "  %-44s  %s\n", frame->function, path);
        return;
    }
    snprintf(place, sizeof place, "%s%s:%d", path > frame->file ? ".../" : "", path, frame->line);
    fprintf(file, "  %-44s  %-20s  %s\n", place, frame->function, frame->text);
}

static void write_thread(const struct stack *stack, const struct stack_thread *thread, const char *rank,
                         FILE *file)
{
    static const char *const how[] = {
        [STACK_NOTHING] = ", no frames", [STACK_ASKED] = "", [STACK_SIGNAL] = ", interrupted"};
    fprintf(file, "\nrank %s, thread %d%s%s%s%s, state %c%s%s%s%s\n", rank, thread->id,
            *thread->name ? " (" : "", thread->name, *thread->name ? ")" : "", how[stack->how], thread->state,
            *thread->call ? ", in " : "", thread->call, *thread->object ? " of " : "", thread->object);
    int shown = thread->python_count < SHOWN ? thread->python_count : SHOWN;
    for (int i = 0; i < shown; i++)
        write_frame(&thread->python[i], file);
    if (thread->python_count > shown)
        fprintf(file, "  ... and %d more\n", thread->python_count - shown);
    for (int i = 0; i < thread->c_count && i < SHOWN; i++)
        write_frame(&thread->c[i], file);
}

void stack_write(const struct stack *stack, const char *rank, FILE *file)
{
    for (int i = 0; stack && i < stack->thread_count && i < THREADS_SHOWN; i++)
        write_thread(stack, &stack->threads[i], rank, file);
}
