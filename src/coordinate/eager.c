/* eager.c - which requests carry their data in reports, and the reduction of those data. Under the progress
 * lock. */
#include "coordinate/eager.h"

#include "base/status.h"
#include "base/types.h"

#include <string.h>

/* Returns true if this node can reduce data of this form. */
static bool fits(const struct coordinator *c, const struct form *form)
{
    const struct signature_summary *summary = &form->summary;
    return summary->bytes && summary->bytes <= c->config.eager_threshold &&
           summary->operation == HVD_ALLREDUCE && summary->reduction != HVD_ADASUM &&
           summary->device_type == HVD_CPU && summary->types == 1U << summary->dtype &&
           reduction_takes(summary->reduction, summary->dtype);
}

void eager_submit(struct coordinator *c, struct entry *entry, const struct form *form,
                  struct pending *request)
{
    uint64_t bytes = form->summary.bytes;
    bool eager = !request->apart && fits(c, form) && bytes <= c->config.eager_threshold - c->eager_bytes;
    request->eager_bytes = eager ? (uint32_t)bytes : 0;
    c->eager_bytes += request->eager_bytes;
    entry->round->bare |= !eager;
}

hvd_code eager_receive(struct coordinator *c, int child, struct entry *entry, const struct report *report,
                       hvd_status *status)
{
    struct round *round = entry->round;
    /* An `apart` request of that rank may overwrite memory from which the data were read before it ran: such
     * data do not count, since accesses to memory are in the order of the decisions. */
    bool stale = c->children[child].seen < c->table.last_apart;
    round->bare |= !report->data || stale || !round->common || !fits(c, round->common);
    if (round->bare)
        return HVD_OK;
    if (report->data_bytes != round->common->summary.bytes)
        return status_set(status, HVD_REFUSED, "data of another length than the request's");
    round->part_bytes = report->data_bytes;
    if (!round->parts)
        round->parts = pool_alloc(&c->table.pool, round_parts_bytes(&c->table, round));
    if (!round->parts)
        return status_no_memory(status);
    memcpy(round->parts + (size_t)child * round->part_bytes, report->data, round->part_bytes);
    return HVD_OK;
}

bool eager_is_whole(const struct coordinator *c, const struct entry *entry)
{
    const struct round *round = entry->round;
    return round->common && !round->bare && !round->apart && round->opened == c->table.last_apart;
}

const uint8_t *eager_reduce(struct coordinator *c, const struct entry *entry)
{
    const struct coordinator_output *output = &c->config.output;
    const struct round *round = entry->round;
    bool any = round->mine;
    if (!eager_is_whole(c, entry))
        return NULL;
    if (any)
        output->contribute(output->owner, round->mine, c->eager_sum);
    for (int i = 0; i < c->config.tree.child_count; i++) {
        const uint8_t *part = round->parts + (size_t)i * round->part_bytes;
        if (!round_has_child(entry, i)) /* all of its ranks have joined */
            continue;
        if (any)
            output->combine(output->owner, &round->common->summary, c->eager_sum, part);
        else
            memcpy(c->eager_sum, part, round->part_bytes);
        any = true;
    }
    return c->eager_sum;
}
