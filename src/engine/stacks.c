/* stacks.c - see stacks.h. A question is answered in up to three stages:
 *
 *   1. A bounded call asks the source (hvd_set_stack_source), which may wait for the interpreter's lock.
 *   2. If there is no source, or no answer in time, a signal interrupts the program's thread.
 *   3. Another bounded call adds what needs a lock of the loader or a disk: names of C functions, and lines
 * of the program's files. The answer is there before, without them.
 *
 * Calls that hang are left behind, so the thread itself never does. What is static belongs to the process:
 * contexts in one process take turns. */
#include "engine/stacks.h"

#include "base/clock.h"
#include "base/platform_process.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/bounded_call.h"
#include "engine/stack_signal.h"
#include "watch/page_stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The answer is there after 1.13 s at the latest. */
#define LOOK_PAUSE   (3 * CLOCK_SECOND / 1000)
#define SOURCE_TIME  (3 * CLOCK_SECOND / 10)
#define SIGNAL_TIME  (4 * CLOCK_SECOND / 10)
#define DETAILS_TIME (4 * CLOCK_SECOND / 10)

enum { LOOKS = 10, ADDRESSES = 48, THREADS = PAGE_CALLERS + 1, LONGEST_LINE = 1024, LONGEST_TEXT = 160 };

struct found {
    const char *how;
    pid_t program;                 /* the thread that comes first */
    struct platform_thread before; /* what it does, from before the stages: a signal ends some system calls */
    char frames[PAGE_STACK_TEXT];
    size_t length;
    void *addresses[ADDRESSES]; /* the C stack of that thread */
    int count;
    char answer[PAGE_STACK_TEXT];
    size_t used;
};

/* Held while a question is answered. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int users; /* contexts that are open */
static hvd_stack_source source;
static struct found found;

/* Of a bounded call while it runs, then of the thread that has the turn. */
static struct {
    hvd_stack_source source;
    int32_t threads[THREADS];
    int32_t count;
    char text[PAGE_STACK_TEXT];
    size_t length;
} asked;
static struct found detailed;

/* ---- the answer ---------------------------------------------------------------------------------------- */

/* Adds a line if it fits as a whole. Whatever its fields hold, names of files above all, it is one line, and
 * moves no cursor of a terminal. */
__attribute__((format(printf, 2, 3))) static void put_line(struct found *to, const char *format, ...)
{
    va_list arguments;
    size_t room = sizeof to->answer - to->used;
    va_start(arguments, format);
    int length = vsnprintf(to->answer + to->used, room, format, arguments);
    va_end(arguments);
    if (length <= 0 || (size_t)length >= room)
        return;
    for (char *at = to->answer + to->used, *end = at + length - 1; at < end; at++)
        *at = ((unsigned char)*at < ' ' && *at != '\t') || *at == '\x7f' ? '?' : *at;
    to->used += (size_t)length;
}

static void drop_tabs(char *field)
{
    for (; *field; field++)
        *field = *field == '\t' ? ' ' : *field;
}

static void put_thread(struct found *to, pid_t id, const char *name)
{
    struct platform_thread thread = to->before;
    if (id != to->program)
        platform_thread(id, &thread);
    drop_tabs(thread.object);
    put_line(to, "T\t%d\t%c\t%s\t%s\t%s\n", (int)id, thread.state ? thread.state : '?', thread.call,
             thread.object, name);
}

/* Reads a line of a file of the program. It may be gone, or be another one by now: that is no error. */
static void read_line(const char *path, int number, char text[LONGEST_TEXT])
{
    struct stat info;
    char *line = NULL;
    size_t room = 0;
    text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    FILE *file = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? fdopen(fd, "r") : NULL;
    if (!file) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while (number > 0 && getline(&line, &room, file) >= 0)
        number--;
    if (number == 0 && line) {
        line[strcspn(line, "\r\n")] = '\0';
        snprintf(text, LONGEST_TEXT, "%s", line + strspn(line, " \t\f"));
    }
    drop_tabs(text);
    free(line);
    fclose(file);
}

/* A line of the source: "P file line function". */
static void put_frame(struct found *to, char *line, bool details)
{
    char text[LONGEST_TEXT] = "", *rest = line;
    strsep(&rest, "\t");
    const char *file = strsep(&rest, "\t"), *number = strsep(&rest, "\t");
    if (!number || !rest)
        return;
    drop_tabs(rest);
    if (details)
        read_line(file, atoi(number), text);
    put_line(to, "P\t%s\t%d\t%s\t%s\n", file, atoi(number), rest, text);
}

static void put_address(struct found *to, const void *address, bool details)
{
    Dl_info info = {0};
    if (!details || !dladdr(address, &info) || !info.dli_fname) {
        put_line(to, "C\t%p\t\n", address);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    const char *library = slash ? slash + 1 : info.dli_fname;
    if (info.dli_sname)
        put_line(to, "C\t%s\t%s\n", info.dli_sname, library);
    else
        put_line(to, "C\t+0x%zx\t%s\n", (size_t)((const char *)address - (const char *)info.dli_fbase),
                 library);
}

/* Return addresses are behind their call, which may be the last instruction of its function. */
static void put_addresses(struct found *to, bool details)
{
    for (int i = 0; i < to->count; i++)
        put_address(to, (const char *)to->addresses[i] - (i > 0), details);
}

static void compose(struct found *to, bool details)
{
    int threads = 0;
    to->used = 0;
    put_line(to, "S\t%s\n", to->how);
    for (const char *at = to->frames, *end = at + to->length; at < end;) {
        char line[LONGEST_LINE], *name;
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        snprintf(line, sizeof line, "%.*s", (int)((stop ? stop : end) - at), at);
        at = stop ? stop + 1 : end;
        if (line[0] == 'P') {
            put_frame(to, line, details);
        } else if (line[0] == 'T' && (name = strrchr(line, '\t')) && name > line + 1) {
            if (threads++ == 1)
                put_addresses(to, details);
            put_thread(to, atoi(line + 2), name + 1);
        }
    }
    if (!threads)
        put_thread(to, to->program, "");
    if (threads < 2)
        put_addresses(to, details);
}

static void run_details(void)
{
    compose(&detailed, true);
}

static struct bounded_call add_details = {.run = run_details};

/* ---- what the program does ----------------------------------------------------------------------------- */

/* Returns true if the thread had a processor for at least half of the time in which it did not wait for one.
 */
static bool runs_mostly(const struct platform_thread *first, const struct platform_thread *last, int64_t time)
{
    int64_t ran = (int64_t)(last->running - first->running);
    return ran >= time - ran - (int64_t)(last->runnable - first->runnable);
}

/* Looks at the program's thread several times: a loop that sleeps runs now and then, and one that computes
 * may be asleep for a moment. Returns false if there is no such thread. */
static bool watch_program(const struct stacks *stacks, pid_t id, struct platform_thread *does)
{
    struct platform_thread first, now, asleep = {0};
    if (!platform_thread(id, &first))
        return false;
    int64_t start = clock_now(), time = 0;
    now = first;
    if (first.state != 'R')
        asleep = first;
    for (int i = 0; i < LOOKS && !atomic_load(&stacks->stop); i++) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_PAUSE}, NULL);
        time = clock_now() - start; /* before the look, which may take long if the machine is busy */
        if (!platform_thread(id, &now))
            return false;
        asleep = now.state != 'R' ? now : asleep;
    }
    bool runs = !asleep.state || (now.running && runs_mostly(&first, &now, time));
    *does = runs ? (struct platform_thread){.state = 'R'} : asleep;
    return true;
}

/* ---- stages -------------------------------------------------------------------------------------------- */

static void run_source(void)
{
    asked.length = asked.source.write(asked.threads, asked.count, asked.text, sizeof asked.text);
}

static struct bounded_call ask_source = {.run = run_source};

static bool take_by_source(struct stacks *stacks)
{
    if (!source.write || !bounded_call_wait(&ask_source, 0, &stacks->stop))
        return false;
    asked.source = source;
    asked.threads[0] = found.program;
    asked.count = 1;
    for (int i = 0; i < PAGE_CALLERS; i++) {
        int32_t thread = (int32_t)atomic_load(&stacks->page->head.callers[i].thread);
        if (thread && thread != found.program)
            asked.threads[asked.count++] = thread;
    }
    if (!bounded_call_run(&ask_source, SOURCE_TIME, &stacks->stop) || !asked.length)
        return false;
    found.how = "asked";
    found.length = asked.length < sizeof found.frames ? asked.length : sizeof found.frames;
    memcpy(found.frames, asked.text, found.length);
    return true;
}

static void take_by_signal(struct stacks *stacks)
{
    found.count =
        stack_signal_take(found.program, source.mark, found.addresses, ADDRESSES, SIGNAL_TIME, &stacks->stop);
    if (!found.count)
        return;
    found.how = "signal";
    if (!source.marked)
        return;
    int head = snprintf(found.frames, sizeof found.frames, "T\t%d\t\n", (int)found.program);
    size_t room = sizeof found.frames - (size_t)head;
    size_t length = source.marked(found.frames + head, room);
    found.length = (size_t)head + (length < room ? length : room);
}

static void answer(struct stacks *stacks, unsigned question)
{
    pthread_mutex_lock(&turn);
    found.how = "nothing";
    found.program = stacks->program;
    if (!watch_program(stacks, found.program, &found.before)) { /* the one that called hvd_init has ended */
        found.program = getpid();
        watch_program(stacks, found.program, &found.before);
    }
    found.length = 0;
    found.count = 0;
    if (!take_by_source(stacks) && stacks->signals)
        take_by_signal(stacks);
    compose(&found, false);
    page_stack_answer(stacks->page, question, found.answer, found.used, false);
    if (bounded_call_wait(&add_details, 0, &stacks->stop)) {
        detailed = found;
        if (bounded_call_run(&add_details, DETAILS_TIME, &stacks->stop)) {
            memcpy(found.answer, detailed.answer, detailed.used);
            found.used = detailed.used;
        }
    }
    page_stack_answer(stacks->page, question, found.answer, found.used, true);
    pthread_mutex_unlock(&turn);
}

static void *listen(void *argument)
{
    struct stacks *stacks = argument;
    unsigned last = stacks->last;
    while (!atomic_load(&stacks->stop)) {
        unsigned question = page_stack_wait(stacks->page, last);
        if (question != last && !atomic_load(&stacks->stop))
            answer(stacks, question);
        last = question;
    }
    return NULL;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

hvd_code stacks_open(struct stacks *stacks, const struct settings *settings, const struct page_writer *writer,
                     hvd_status *status)
{
    const char *capture = settings->stack_capture;
    stacks->signals = strcmp(capture, "all") == 0;
    stacks->page = writer->page;
    stacks->program = (pid_t)syscall(SYS_gettid);
    if (!stacks->signals && strcmp(capture, "python") != 0 && strcmp(capture, "none") != 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "HOROVOD_STACK_CAPTURE=%s must be all, python or none", capture);
    if (strcmp(capture, "none") == 0 || atomic_load(&writer->fd) < 0)
        return HVD_OK;
    stacks->last = atomic_load(&stacks->page->stack.requested);
    int error = thread_start_small(&stacks->thread, listen, stacks);
    if (error)
        return status_set_errno(status, error, "can't start the thread that answers `horovodrun --status`");
    stacks->runs = true;
    page_stack_open(stacks->page);
    pthread_mutex_lock(&turn);
    if (stacks->signals && users++ == 0)
        stack_signal_open();
    pthread_mutex_unlock(&turn);
    return HVD_OK;
}

void stacks_close(struct stacks *stacks)
{
    if (!stacks->runs)
        return;
    page_stack_close(stacks->page);
    atomic_store(&stacks->stop, true);
    page_stack_wake(stacks->page);
    pthread_join(stacks->thread, NULL);
    stacks->runs = false;
    pthread_mutex_lock(&turn);
    if (stacks->signals && --users == 0)
        stack_signal_close();
    pthread_mutex_unlock(&turn);
}

void stacks_forget(void)
{
    turn = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    users = 0;
    bounded_call_forget(&ask_source);
    bounded_call_forget(&add_details);
    stack_signal_forget();
}

hvd_code hvd_set_stack_source(const hvd_stack_source *given, hvd_status *status)
{
    static const atomic_bool never;
    if (given && given->struct_size < sizeof source)
        return status_set(status, HVD_INVALID_ARGUMENT, "struct_size of the stack source is %zu, not %zu",
                          given->struct_size, sizeof source);
    if (given && (!given->write || !given->mark != !given->marked))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "a stack source needs `write`, and `mark` and `marked` only together");
    pthread_mutex_lock(&turn);
    memset(&source, 0, sizeof source);
    if (given)
        source = *given;
    bool ended = bounded_call_wait(&ask_source, CLOCK_SECOND, &never);
    pthread_mutex_unlock(&turn);
    return ended ? status_ok(status)
                 : status_set(status, HVD_TIMED_OUT,
                              "the stack source is set, but `write` of the former one has not returned "
                              "within a second, and may still run");
}
