/* execute.c - the executor: one track for each channel, advanced in turn, and the queue of collectives that
 * have finished. The thread that makes progress. `done` is the only call back to the owner; it may start
 * collectives or abort, so finished collectives are queued and reported after all tracks have advanced. */
#include "coll/execute.h"

#include "base/status.h"
#include "coll/track.h"

#include <assert.h>
#include <stdlib.h>

struct executor {
    link_lookup_fn lookup;
    void *owner;
    struct collective_queue finished; /* their `done` has not been called yet */
    struct track **tracks;            /* by channel; NULL: not used yet */
    int count;
    bool aborted;
};

hvd_code executor_create(link_lookup_fn lookup, void *owner, struct executor **executor, hvd_status *status)
{
    struct executor *created = calloc(1, sizeof *created);
    if (!created)
        return status_no_memory(status);
    created->lookup = lookup;
    created->owner = owner;
    *executor = created;
    return HVD_OK;
}

void executor_destroy(struct executor *executor)
{
    if (!executor)
        return;
    assert(executor_idle(executor));
    for (int i = 0; i < executor->count; i++)
        if (executor->tracks[i])
            track_free(executor->tracks[i]);
    free(executor->tracks);
    free(executor);
}

static bool tracks_reserve(struct executor *executor, int count)
{
    if (count <= executor->count)
        return true;
    struct track **tracks = realloc(executor->tracks, (size_t)count * sizeof *tracks);
    if (!tracks)
        return false;
    for (int i = executor->count; i < count; i++)
        tracks[i] = NULL;
    executor->tracks = tracks;
    executor->count = count;
    return true;
}

static struct track *track_of(struct executor *executor, int channel)
{
    if (!tracks_reserve(executor, channel + 1))
        return NULL;
    struct track **track = &executor->tracks[channel];
    if (!*track && (*track = calloc(1, sizeof **track)))
        **track = (struct track){.channel = channel,
                                 .lookup = executor->lookup,
                                 .owner = executor->owner,
                                 .finished = &executor->finished,
                                 .busy_end = &(*track)->busy};
    return *track;
}

void executor_start(struct executor *executor, struct collective *collective)
{
    assert(!executor->aborted);
    struct track *track = track_of(executor, collective->channel);
    if (track) {
        collective_queue_push(&track->waiting, collective);
        return;
    }
    status_no_memory(&collective->status);
    collective_queue_push(&executor->finished, collective);
}

static bool finished_report(struct executor *executor)
{
    bool any = false;
    for (struct collective *collective; (collective = collective_queue_pop(&executor->finished));
         any = true) {
        static const hvd_status ok = {.code = HVD_OK};
        hvd_status failure;
        bool fails = collective->status.code;
        if (fails)
            failure = collective->status; /* done may free the collective */
        collective->done(collective, fails ? &failure : &ok);
    }
    return any;
}

bool executor_progress(struct executor *executor)
{
    bool moved = false;
    for (int i = 0; i < executor->count; i++)
        if (executor->tracks[i] && !track_idle(executor->tracks[i]))
            moved |= track_progress(executor->tracks[i]);
    return finished_report(executor) || moved;
}

bool executor_idle(const struct executor *executor)
{
    for (int i = 0; i < executor->count; i++)
        if (executor->tracks[i] && !track_idle(executor->tracks[i]))
            return false;
    return !executor->finished.head;
}

bool executor_is_ready(const struct executor *executor)
{
    for (int i = 0; i < executor->count; i++)
        if (executor->tracks[i] && track_is_ready(executor->tracks[i]))
            return true;
    return executor->finished.head;
}

void executor_abort(struct executor *executor, const hvd_status *cause)
{
    executor->aborted = true;
    for (int i = 0; i < executor->count; i++)
        if (executor->tracks[i])
            track_abort(executor->tracks[i], cause);
    finished_report(executor);
}
