/* stack.h - parses what a rank answers to the question for its stack (watch/page_stack.h). An answer is
 * foreign: what can't be printed is replaced, and lines that make no sense are left out. No state; any
 * thread.
 */
#ifndef HVD_LAUNCH_STACK_H
#define HVD_LAUNCH_STACK_H

#include "watch/page_stack.h"

#include <stdio.h>

enum { STACK_THREADS = 24, STACK_FRAMES = 256 };

enum stack_how {
    STACK_NOTHING, /* the rank has answered without frames */
    STACK_ASKED,   /* the program's threads went on meanwhile */
    STACK_SIGNAL   /* its thread was interrupted: it did not release Python's lock, or is no Python */
};

/* Of Python with a line, or of C with line 0, whose file is the library. */
struct stack_frame {
    const char *file, *function, *text;
    int line;
};

struct stack_thread {
    int id; /* 0: unknown */
    char state;
    const char *call, *object, *name;
    const struct stack_frame *python, *c; /* the innermost first */
    int python_count, c_count;
};

/* The first thread is the program's. Everything points into the struct, which is one piece of memory. */
struct stack {
    enum stack_how how;
    struct stack_thread threads[STACK_THREADS];
    int thread_count;
    struct stack_frame frames[STACK_FRAMES];
    int frame_count;
    char answer[PAGE_STACK_TEXT + 1]; /* as it can be parsed again */
    char text[PAGE_STACK_TEXT + 1];
};

/* NULL: out of memory, or no answer at all (0 bytes, or not one of this version). The caller frees it. */
struct stack *stack_parse(const char *text, size_t length);

/* The frame that says most: the innermost one of the program, not of Python or of an installed package, if
 * there is any. NULL: there is no frame of Python. */
const struct stack_frame *stack_place(const struct stack *stack);

/* The last part of a path. */
const char *stack_file_name(const char *path);

/* Writes the program's thread and a few others with their frames, for people. Nothing without a stack. */
void stack_write(const struct stack *stack, const char *rank, FILE *file);

#endif
