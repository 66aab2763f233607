/* timeline.h - writes the events of requests as a Chrome trace (docs/timeline.md). Events go through a
 * bounded queue to a thread of its own, which sleeps while there are none. */
#ifndef HVD_WATCH_TIMELINE_H
#define HVD_WATCH_TIMELINE_H

#include "watch/event.h"

#include <stdbool.h>

struct timeline;

/* `rank` stands in messages. Nothing is recorded yet. */
hvd_code timeline_create(int rank, struct timeline **timeline, hvd_status *status);

/* Any thread. Records into this file from now on; what ran before is closed first. The text of an error names
 * the file. */
hvd_code timeline_start(struct timeline *timeline, const char *path, bool mark_cycles, hvd_status *status);

/* Any thread. When it returns, the file is complete with all events recorded before. Fine when nothing runs.
 */
void timeline_stop(struct timeline *timeline);

/* Called with the progress lock held. Copies the event; never waits for the file. */
void timeline_notice(struct timeline *timeline, const struct event *event);

/* Stops. No event may be recorded any more; NULL is fine. */
void timeline_destroy(struct timeline *timeline);

#endif
