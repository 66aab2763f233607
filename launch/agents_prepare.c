/* agents_prepare.c - prepares the hosts of a job, all at the same time, and reports the faults of all of them
 * together. Entries that name one host are merged. One thread, the loop's. */
#include "agents_prepare.h"
#include "environment.h"
#include "say.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FUNCTION_PIECE 65536

/* ---- one host ------------------------------------------------------------------------------------------ */

/* A node has a command line and an environment of its own. */
static void send_prepare(struct remote *remote)
{
    const struct table *table = remote->table;
    if (remote->is_node) {
        frame_send(&remote->frames, FRAME_PREPARE_NODE);
        return;
    }
    struct environment environment = {0};
    hvd_status status;
    struct preparation preparation = {.setup = table->options->host_setup,
                                      .command = table->options->command};
    if (environment_for_hosts(&environment, table->options, &status)) {
        remote_fail(remote, 1, "%s", status.text);
    } else {
        preparation.environment = environment.entries;
        memcpy(preparation.folder, table->agents->folder, sizeof preparation.folder);
        if (table->elastic) {
            memcpy(preparation.rendezvous, table->rendezvous_address, sizeof preparation.rendezvous);
            memcpy(preparation.secret, table->secret, sizeof preparation.secret);
        }
        size_t begin = frame_begin(&remote->frames, FRAME_PREPARE);
        preparation_put(&preparation, &remote->frames.stream.out);
        frame_end(&remote->frames, begin);
    }
    environment_free(&environment);
}

void agents_prepare_host(struct remote *remote, struct wire_reader *body)
{
    if (!remote_get_release(remote, body))
        return;
    wire_get_string(body, remote->identity, sizeof remote->identity);
    wire_get_string(body, remote->launcher_address, sizeof remote->launcher_address);
    wire_get_string(body, remote->address, sizeof remote->address);
    if (!wire_done(body))
        remote_fail(remote, 1, "what its agent sends is malformed");
    remote->state = REMOTE_READY;
    if (!remote->table->options->verbose) /* they are banners */
        remote->said.length = 0;
    remote_show_errors(remote);
    send_prepare(remote);
}

void agents_prepare_answer(struct remote *remote, struct wire_reader *body)
{
    char text[FAULT_LIMIT];
    int exit_code = (int)wire_get_u32(body);
    wire_get_string(body, text, sizeof text);
    if (exit_code || body->failed)
        remote_fail(remote, exit_code ? exit_code : 1, "%s", text);
    remote->state = REMOTE_PREPARED;
}

/* Sends what the connection has room for. */
static void send_function(struct remote *remote)
{
    const struct agents *agents = remote->table->agents;
    uint8_t bytes[FUNCTION_PIECE];
    while (remote->function_sent < agents->function_size && frames_idle(&remote->frames)) {
        ssize_t count = pread(remote->table->function, bytes, sizeof bytes, remote->function_sent);
        if (count <= 0) {
            remote_fail(remote, 1, "can't read the function: %s", count ? strerror(errno) : "it is cut");
            return;
        }
        size_t begin = frame_begin(&remote->frames, FRAME_FUNCTION);
        wire_put_raw(&remote->frames.stream.out, bytes, (size_t)count);
        frame_end(&remote->frames, begin);
        remote->function_sent += count;
    }
}

static void check_deadline(struct remote *remote)
{
    const struct table *table = remote->table;
    if (clock_now() <= remote->deadline)
        return;
    remote_fail(
        remote, 1,
        remote->is_node ? "it has not answered within %g s (--start-timeout); is it up?"
                        : "it has not answered within %g s (--start-timeout); is it up, and can ssh log in "
                          "without a question?%s",
        table->settings->start_timeout_seconds, table->options->host_setup ? " Does --host-setup end?" : "");
}

/* ---- all hosts ----------------------------------------------------------------------------------------- */

/* Returns true while a host is still to be prepared. A faulty host is not waited for. */
static bool preparing(struct table *table)
{
    const struct agents *agents = table->agents;
    for (int i = 0; i < agents->count; i++) {
        struct remote *remote = agents->list[i];
        if (remote->state < REMOTE_PREPARED)
            check_deadline(remote);
        if (!*remote->fault &&
            (remote->state < REMOTE_PREPARED || remote->function_sent < agents->function_size))
            return true;
    }
    return false;
}

/* Names the entry as the user has given it: two entries of one name differ in user or port. */
static void say_fault(const struct remote *remote, const char *effect)
{
    const struct host *host = remote_host(remote);
    char port[16] = "";
    if (host->port)
        snprintf(port, sizeof port, " port %d", host->port);
    say(remote->table, "host %s%s%s%s: %s%s", host->user, *host->user ? "@" : "", host->name, port,
        remote->fault, effect);
}

bool agents_prepare_one(struct remote *remote)
{
    if (remote->state < REMOTE_PREPARED)
        check_deadline(remote);
    else if (remote->state == REMOTE_PREPARED)
        send_function(remote);
    return remote->state == REMOTE_PREPARED && !*remote->fault &&
           remote->function_sent >= remote->table->agents->function_size;
}

void agents_prepare_complain(const struct remote *remote)
{
    say_fault(remote, "; the job goes on without it, and it is tried again");
}

/* Reports the faults of all hosts. Returns horovodrun's exit code, 0 if there are none. */
static int report_faults(struct table *table)
{
    int exit_code = 0;
    for (int i = 0; i < table->agents->count; i++) {
        const struct remote *remote = table->agents->list[i];
        if (!*remote->fault)
            continue;
        say_fault(remote, "");
        exit_code = exit_code ? exit_code : remote->fault_code;
    }
    return exit_code;
}

/* Merges entries that name one host, except nodes, and ends the agents of those that get no ranks. */
static hvd_code merge_hosts(struct table *table, hvd_status *status)
{
    struct agents *agents = table->agents;
    for (int i = 0; i < agents->count; i++) {
        for (int j = i + 1; j < agents->count; j++) {
            struct remote *earlier = agents->list[i], *later = agents->list[j];
            if (earlier->host < 0 || later->host < 0 || later->is_node ||
                strcmp(earlier->identity, later->identity) != 0)
                continue;
            hosts_merge(table->hosts, earlier->host, later->host);
            later->host = -1;
            for (int k = j + 1; k < agents->count; k++)
                agents->list[k]->host -= agents->list[k]->host >= 0;
        }
    }
    TRY(hosts_layout(table->hosts, table->size, status));
    for (int i = 0; i < agents->count; i++) {
        struct remote *remote = agents->list[i];
        if (remote->host < 0 || !remote_host(remote)->ranks)
            remote_end(remote);
    }
    return HVD_OK;
}

void agents_prepare_turn(struct table *table)
{
    struct agents *agents = table->agents;
    struct event event = {.kind = EVENT_PREPARED};
    hvd_status status;
    for (int i = 0; i < agents->count; i++) {
        if (agents->list[i]->state == REMOTE_PREPARED)
            send_function(agents->list[i]);
    }
    if (agents->assigning)
        check_deadline(agents->list[0]);
    else if (preparing(table))
        return;
    event.exit_code = report_faults(table);
    if (!event.exit_code && agents->assigning)
        return;
    if (!event.exit_code && merge_hosts(table, &status)) {
        say(table, "%s", status.text);
        event.exit_code = 1;
    }
    if (event.exit_code)
        event.kind = EVENT_HOST_FAILED;
    table->happened(table, &event);
}
