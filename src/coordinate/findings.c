/* findings.c - see findings.h. */
#include "coordinate/findings.h"

#include "base/status.h"

#include <string.h>

void findings_add(struct coordinator *c, hvd_operation operation, const char *name)
{
    if (c->state == STATE_OPEN && c->findings.length < FINDINGS_LIMIT / 2)
        finding_put(&c->findings,
                    &(struct finding){c->config.tree.place, operation, name, (uint32_t)strlen(name)});
    if (c->findings.failed) /* without memory the findings are dropped */
        wire_reset(&c->findings);
}

hvd_code findings_receive(struct coordinator *c, int child, const struct report *report, hvd_status *status)
{
    struct wire_reader reader = wire_reader_of(report->findings, report->findings_bytes);
    int first = c->config.tree.children[child], last = tree_child_last(&c->config.tree, child);
    struct finding finding;
    while (!wire_done(&reader)) {
        if (!finding_get(&reader, first, last, &finding))
            return status_set(status, HVD_REFUSED, "a malformed finding");
        if (c->findings.length < FINDINGS_LIMIT / 2)
            finding_put(&c->findings, &finding);
    }
    if (c->findings.failed)
        wire_reset(&c->findings);
    return HVD_OK;
}

void findings_report(struct coordinator *c)
{
    if (c->findings.length)
        report_put_findings(&c->out, &c->findings);
    c->findings.length = 0;
}

void findings_decide(struct coordinator *c)
{
    decision_put_findings(&c->out, &c->findings);
    c->findings.length = 0;
}

hvd_code findings_apply(struct coordinator *c, const struct decision *decision, hvd_status *status)
{
    const struct coordinator_output *output = &c->config.output;
    struct wire_reader reader = wire_reader_of(decision->findings, decision->findings_bytes);
    struct finding finding;
    while (!wire_done(&reader)) {
        if (!finding_get(&reader, 0, c->config.tree.topology->size - 1, &finding))
            return status_set(status, HVD_REFUSED, "a malformed finding after decision %llu",
                              (unsigned long long)c->seen);
        const struct entry *entry = map_get(&c->table.names, finding.name, finding.name_length);
        if (output->found)
            output->found(output->owner, rank_at(&c->config, finding.place), finding.operation,
                          entry ? entry->mark : 0);
    }
    return HVD_OK;
}
