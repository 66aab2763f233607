/* sampler.h - looks at the job at intervals while it runs, and keeps what the live page and the report
 * show: its course and the last look. Without a report it pauses once nobody has requested the page, metrics
 * or status for a minute; the course then has a gap. In the launcher; one thread, the loop's. */
#ifndef HVD_LAUNCH_SAMPLER_H
#define HVD_LAUNCH_SAMPLER_H

#include "course.h"
#include "energy.h"
#include "monitor.h"

#include "membership/membership.h"

struct sampler {
    struct table *table;
    uv_timer_t timer;
    struct energy energy;
    struct course *course;
    struct course_rank *ranks; /* [size] for a look */
    int size;                  /* ranks beyond it are left out: an elastic job may have any number */
    char *status;              /* the last look as JSON (status_json.h); NULL: there was none */
    char *before_end;  /* the last one before the job was to end; NULL: it is not to end, or there was none */
    int64_t started;   /* the job, or this one: clock_now's, as the next one */
    int64_t looked_at; /* 0: not yet */
    int64_t stacks_at; /* when it has last requested stacks; 0: not yet */
    int64_t requested_at; /* when the page, metrics or status were last requested; at first the start */
    bool paused;          /* nobody has for a while */
    bool hangs;           /* at the last look a request had waited for long */
    bool explained;       /* `status` has the stacks of that */
    bool looking;         /* a look is under way, */
    bool with_stacks;     /* and has stacks */
    /* Called after each look; NULL: nobody needs it. */
    void (*looked)(struct sampler *sampler, void *owner);
    void *owner;
};

/* Starts to look; table->sampler is it from then on. */
hvd_code sampler_open(struct sampler *sampler, struct table *table, hvd_status *status);

/* An epoch of an elastic job begins with these ranks. */
void sampler_begin_epoch(struct sampler *sampler, int epoch, const struct membership_rank *ranks, int size);

/* The page, metrics or status are requested: looks continue, or start again. NULL is fine. */
void sampler_renew(struct sampler *sampler);

/* Looks now, unless a look is under way. Returns false if it can't. */
bool sampler_look(struct sampler *sampler);

/* The ranks have ended: looks at their pages once more, and no longer. Runs the loop. */
void sampler_finish(struct sampler *sampler);

void sampler_close(struct sampler *sampler); /* zeroed memory is fine; the loop must still run */

#endif
