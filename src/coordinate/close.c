/* close.c - the shutdown handshake and the end by a fault. Under the progress lock. */
#include "coordinate/close.h"

#include "base/fault.h"
#include "base/status.h"
#include "coordinate/late.h"

static void end_requests(struct coordinator *c)
{
    const struct coordinator_output *output = &c->config.output;
    struct pending *join = c->join;
    /* Members of a batch that failed while they were taken have left the list of requests already. */
    for (size_t i = 0; i < c->member_count; i++) {
        if (c->members[i])
            output->finish(output->owner, c->members[i], &c->cause);
    }
    c->member_count = 0;
    c->join = NULL;
    c->pending -= join != NULL;
    if (join)
        output->finish(output->owner, join, &c->cause);
    while (c->oldest)
        output->finish(output->owner, entry_take_request(c, c->oldest->entry), &c->cause);
    entry_list_clear(&c->complete);
    ready_clear(c);
    late_end(c);
}

void close_begin(struct coordinator *c, int leaver)
{
    c->state = STATE_CLOSING;
    int rank = name_at(&c->config, leaver);
    if (c->config.process_set)
        status_set(
            &c->cause, HVD_SHUT_DOWN,
            "process set %d was removed (or rank %d has left the job); operations that had not started on "
            "all its ranks by then can't run any more",
            c->config.process_set, rank);
    else
        status_set(
            &c->cause, HVD_SHUT_DOWN,
            "rank %d has left the job (shutdown or exit); operations that had not started on all ranks "
            "by then can't run any more",
            rank);
    status_blame(&c->cause, HVD_CAUSE_LEFT, rank, NULL);
    end_requests(c);
}

void close_end(struct coordinator *c)
{
    const uint8_t acknowledgement = MESSAGE_SHUTDOWN_ACK;
    send_to_children(c, &acknowledgement, sizeof acknowledgement);
    c->state = STATE_CLOSED;
    c->config.output.closed(c->config.output.owner);
}

static bool subtree_is_done(const struct coordinator *c)
{
    for (int i = 0; i < c->config.tree.child_count; i++) {
        if (!c->children[i].done)
            return false;
    }
    return c->running == 0;
}

hvd_code close_advance(struct coordinator *c, hvd_status *status)
{
    int parent = c->config.tree.parent;
    if (c->state == STATE_OPEN && c->leaver >= 0 && !c->leave_sent && !is_root(c)) {
        c->leave_sent = true;
        c->out.length = 0;
        wire_put_u8(&c->out, MESSAGE_LEAVE);
        wire_put_u32(&c->out, (uint32_t)c->leaver);
        TRY(send_out(c, parent, status));
    }
    if (c->state != STATE_CLOSING || !subtree_is_done(c))
        return HVD_OK;
    if (is_root(c)) {
        close_end(c);
        return HVD_OK;
    }
    c->state = STATE_SHUTDOWN;
    c->out.length = 0;
    wire_put_u8(&c->out, MESSAGE_SHUTDOWN_DONE);
    return send_out(c, parent, status);
}

/* A rank may shut down without the handshake before its side of this set is open: where no batch runs, the
 * set closes in order. */
void fail(struct coordinator *c, int except, const hvd_status *cause)
{
    const struct coordinator_output *output = &c->config.output;
    bool leaves = cause->code == HVD_SHUT_DOWN;
    if (c->state == STATE_FAILED || c->state == STATE_CLOSED)
        return;
    c->state = leaves && !c->running ? STATE_CLOSED : STATE_FAILED;
    status_copy(&c->cause, cause);
    /* Running batches miss that rank, so for their requests this is a fault. */
    if (leaves && c->running)
        c->cause.code = HVD_PEER_LOST;
    struct wire_writer message = {0}; /* a caller may be using `out` */
    wire_put_u8(&message, MESSAGE_ABORT);
    cause_put(&message, cause);
    if (!message.failed)
        output->flood(output->owner, except < 0 ? -1 : rank_at(&c->config, except), message.bytes,
                      message.length, !leaves);
    wire_writer_free(&message);
    end_requests(c);
    if (c->state == STATE_CLOSED)
        output->closed(output->owner);
}
