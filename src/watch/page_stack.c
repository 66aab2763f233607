/* page_stack.c - see page_stack.h. The rank reads only `asked`: what others write into the page can't harm
 * it.
 */
#include "watch/page_stack.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/platform_memory.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the rank ------------------------------------------------------------------------------------------ */

void page_stack_open(struct page *page)
{
    atomic_store(&page->stack.listens, 1);
}

void page_stack_close(struct page *page)
{
    atomic_store(&page->stack.listens, 0);
}

unsigned page_stack_wait(struct page *page, unsigned last)
{
    futex_wait_shared(&page->stack.requested, last, CLOCK_NEVER);
    return atomic_load(&page->stack.requested);
}

void page_stack_wake(struct page *page)
{
    atomic_fetch_add(&page->stack.requested, 1);
    futex_wake_shared(&page->stack.requested);
}

void page_stack_answer(struct page *page, unsigned question, const char *text, size_t length, bool whole)
{
    struct page_stack *stack = &page->stack;
    length = length < PAGE_STACK_TEXT ? length : PAGE_STACK_TEXT;
    atomic_fetch_add(&stack->changes, 1);
    page_set_words(stack->text, text, (length + 7) / 8 * 8);
    atomic_store(&stack->length, (unsigned)length);
    atomic_store(&stack->begun, question);
    atomic_fetch_add(&stack->changes, 1);
    if (whole)
        atomic_store(&stack->answered, question);
}

/* ---- its peer ------------------------------------------------------------------------------------------ */

hvd_code page_stack_request(int fd, unsigned *question, hvd_status *status)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int writable = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct page *page = writable >= 0 ? platform_memory_map(writable, PAGE_BYTES) : NULL;
    int error = errno;
    if (writable >= 0)
        close(writable);
    if (!page)
        return status_set_errno(status, error, "can't ask a rank for its stack");
    bool listens = atomic_load(&page->stack.listens);
    if (listens) {
        *question = atomic_fetch_add(&page->stack.requested, 1) + 1;
        futex_wake_shared(&page->stack.requested);
    }
    platform_memory_unmap(page, PAGE_BYTES);
    return listens ? HVD_OK : status_set(status, HVD_UNSUPPORTED, "the rank answers no questions");
}

/* Counters of questions wrap around. */
static bool reached(unsigned number, unsigned question)
{
    return (int)(number - question) >= 0;
}

size_t page_stack_read(int fd, unsigned question, bool early, char *text)
{
    struct page_stack before, stack, after;
    off_t at = offsetof(struct page, stack);
    ssize_t head = offsetof(struct page_stack, text);
    if (pread(fd, &before, (size_t)head, at) != head || pread(fd, &stack, sizeof stack, at) != sizeof stack ||
        pread(fd, &after, (size_t)head, at) != head)
        return 0;
    unsigned changes = atomic_load(&stack.changes);
    if (changes % 2 || atomic_load(&before.changes) != changes || atomic_load(&after.changes) != changes)
        return 0;
    if (!reached(atomic_load(&stack.begun), question) ||
        (!early && !reached(atomic_load(&before.answered), question)))
        return 0;
    size_t length = atomic_load(&stack.length);
    length = length < PAGE_STACK_TEXT ? length : PAGE_STACK_TEXT;
    memcpy(text, stack.text, length);
    return length;
}
