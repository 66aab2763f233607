/* page_stack.h - one question and its answer through the page of a rank: what is your stack? Another process
 * of the same user sends it by counting a word of the page up; a thread of the rank, which sleeps in that
 * word, writes the answer beside it. Any number of processes may do so; all get the newest answer.
 *
 * The answer is lines that end with '\n', their fields separated by tabs. The fields hold no other control
 * character:
 * - S how: the first line; "asked" (the program's threads went on meanwhile), "signal" (a signal interrupted
 *   the thread), or "nothing"
 * - T thread state call object name: a thread; `call` is the system call in which it is blocked, `object` the
 *   file of that call; "" where nothing is known
 * - P file line function text: a frame of Python of that thread, the innermost first
 * - C function library: a frame of C of that thread, the innermost first
 */
#ifndef HVD_WATCH_PAGE_STACK_H
#define HVD_WATCH_PAGE_STACK_H

#include "watch/page.h"

/* ---- the rank ------------------------------------------------------------------------------------------ */

/* One thread of the rank calls them, except the last one. */

void page_stack_open(struct page *page);
void page_stack_close(struct page *page);
/* Sleeps until there is a question other than `last`; returns it, or `last` after page_stack_wake. */
unsigned page_stack_wait(struct page *page, unsigned last);
/* Writes an answer; `whole` says that none follows to this question. */
void page_stack_answer(struct page *page, unsigned question, const char *text, size_t length, bool whole);
/* Ends a sleep. Any thread. */
void page_stack_wake(struct page *page);

/* ---- its peer ------------------------------------------------------------------------------------------ */

/* Sends the question to the rank whose page this is. HVD_UNSUPPORTED: it does not listen. */
hvd_code page_stack_request(int fd, unsigned *question, hvd_status *status);
/* Copies the answer, PAGE_STACK_TEXT bytes at most; also one of which more may follow if `early`. Returns its
 * length, or 0 if there is none yet. */
size_t page_stack_read(int fd, unsigned question, bool early, char *text);

#endif
