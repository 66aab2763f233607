/* host_pages.h - finds and reads the pages of the ranks of this host, and asks ranks for their stacks. One
 * thread.
 *
 * Only for its stack a rank is asked: pages are open files of the processes that write them, and of the
 * launcher or agent that has made them. */
#ifndef HVD_LAUNCH_HOST_PAGES_H
#define HVD_LAUNCH_HOST_PAGES_H

#include "rank_view.h"

#define PAGES_PAUSE_MILLISECONDS 100 /* between two looks, from which rates follow */

struct host_pages;

struct host_pages *host_pages_create(void); /* NULL: out of memory */
void host_pages_free(struct host_pages *pages);

/* Adds all pages of this user's processes. */
void host_pages_find(struct host_pages *pages);
/* Adds a page that this process has open; the descriptor stays the caller's. Returns false if memory or
 * descriptors are out. */
bool host_pages_add(struct host_pages *pages, int fd);

/* The first look reads counters only; the second one, a moment later, reads all. The first one returns true
 * if the ranks of all pages have joined their jobs. */
bool host_pages_glance(struct host_pages *pages);
void host_pages_read(struct host_pages *pages);

/* Forgets the ranks of jobs whose id starts so. */
void host_pages_forget(struct host_pages *pages, const char *job);

/* Asks for stacks, after the second look; `job`: only ranks of jobs whose id starts so, or NULL. The answers
 * arrive within PAGES_ANSWER_MILLISECONDS, from ranks that are not stopped meanwhile. */
enum stacks {
    STACKS_NONE,
    STACKS_LATE, /* of each job up to 8 ranks that have been in their own program for a while, and one for
                  * each request that others wait in */
    STACKS_ALL
};
void host_pages_request(struct host_pages *pages, enum stacks stacks, const char *job);
/* Takes the answers that are there; `last`: also incomplete ones. Returns true if none is missing. */
bool host_pages_answers(struct host_pages *pages, bool last);
#define PAGES_ANSWER_MILLISECONDS 1200
#define PAGES_TICK_MILLISECONDS   10 /* between two questions whether they are there */

/* Passes a descriptor of each page to `visit`. */
void host_pages_visit(const struct host_pages *pages, void (*visit)(int fd, void *argument), void *argument);

/* Returns the views of the pages that could be read, and their number; the caller owns them, and frees the
 * list. NULL: there is none, or memory is out. */
struct rank_view *host_pages_views(struct host_pages *pages, int *count);

/* Returns why a page was not read: it is of another version. NULL: there was none. */
const char *host_pages_of_others(const struct host_pages *pages);

#endif
