/* prepare.c - what comes before ranks run on other hosts: the environment and the command go to all agents,
 * which check them; all faults are reported together; names of one host become one; the rendezvous; the
 * start. */
#include "messages.h"
#include "remote.h"

#include "base/clock.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FUNCTION_PIECE 65536

/* ---- preparing ----------------------------------------------------------------------------------------- */

static void send_prepare(struct remote *remote)
{
    const struct job *job = remote->job;
    struct environment environment = {0};
    hvd_status status;
    struct preparation preparation = {.setup = job->options->host_setup, .command = job->options->command};
    if (environment_for_hosts(&environment, job, &status))
        remote_fail(remote, 1, "%s", status.text);
    preparation.environment = environment.entries;
    memcpy(preparation.folder, job->remotes->folder, sizeof preparation.folder);
    if (preparation.environment) {
        size_t begin = frame_begin(&remote->frames, FRAME_PREPARE);
        preparation_put(&preparation, &remote->frames.stream.out);
        frame_end(&remote->frames, begin);
    }
    environment_free(&environment);
}

void prepare_take_ready(struct remote *remote, struct wire_reader *body)
{
    char release[64];
    if (!wire_get_string(body, release, sizeof release) || strcmp(release, hvd_version()) != 0) {
        remote_fail(remote, 1,
                    "its horovodrun is of release %s, this one of %s; install the same release on all hosts",
                    release, hvd_version());
        return;
    }
    wire_get_string(body, remote->identity, sizeof remote->identity);
    wire_get_string(body, remote->launcher_address, sizeof remote->launcher_address);
    wire_get_string(body, remote->address, sizeof remote->address);
    if (!wire_done(body))
        remote_fail(remote, 1, "what its agent sends is malformed");
    remote->state = REMOTE_READY;
    if (!remote->job->options->verbose) /* banners */
        remote->said.length = 0;
    remote_pass_on_errors(remote);
    send_prepare(remote);
}

void prepare_take_prepared(struct remote *remote, struct wire_reader *body)
{
    char text[FAULT_LIMIT];
    int exit_code = (int)wire_get_u32(body);
    wire_get_string(body, text, sizeof text);
    if (exit_code || body->failed)
        remote_fail(remote, exit_code ? exit_code : 1, "%s", text);
    remote->state = REMOTE_PREPARED;
}

void prepare_send_function(struct remote *remote)
{
    const struct remotes *remotes = remote->job->remotes;
    uint8_t bytes[FUNCTION_PIECE];
    while (remote->function_sent < remotes->function_size && frames_idle(&remote->frames)) {
        ssize_t count = pread(remote->job->function, bytes, sizeof bytes, remote->function_sent);
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

/* ---- the start ----------------------------------------------------------------------------------------- */

/* As the user has given it: two entries of one name differ in user or port. */
static const char *name_of_entry(const struct host *host, char *text, size_t capacity)
{
    *text = '\0';
    append_text(text, capacity, "%s%s%s", host->user, *host->user ? "@" : "", host->name);
    if (host->port)
        append_text(text, capacity, " port %d", host->port);
    return text;
}

/* All of them, before anything is started. */
static void report_faults(struct job *job)
{
    int exit_code = 0;
    for (int i = 0; i < job->remotes->count; i++) {
        const struct remote *remote = &job->remotes->list[i];
        if (!*remote->fault)
            continue;
        char name[sizeof remote->host->name + sizeof remote->host->user + 16];
        job_say(job, "host %s: %s", name_of_entry(remote->host, name, sizeof name), remote->fault);
        exit_code = exit_code ? exit_code : remote->fault_code;
    }
    job_decide(job, exit_code);
}

/* Entries that name one host become one; those that got no ranks are not needed any more. */
static hvd_code merge_hosts(struct job *job, hvd_status *status)
{
    struct remotes *remotes = job->remotes;
    for (int i = 0; i < remotes->count; i++) {
        for (int j = i + 1; j < remotes->count; j++) {
            struct remote *earlier = &remotes->list[i], *later = &remotes->list[j];
            if (!earlier->host || !later->host || strcmp(earlier->identity, later->identity) != 0)
                continue;
            hosts_merge(job->hosts, (int)(earlier->host - job->hosts->list),
                        (int)(later->host - job->hosts->list));
            later->host = NULL;
            for (int k = j + 1; k < remotes->count; k++)
                remotes->list[k].host -= remotes->list[k].host != NULL;
        }
    }
    hvd_code code = hosts_layout(job->hosts, job->size, status);
    for (int i = 0; !code && i < remotes->count; i++) {
        struct remote *remote = &remotes->list[i];
        if (remote->host && remote->host->ranks)
            remotes->of_host[remote->host - job->hosts->list] = remote;
        else
            remote_end(remote);
    }
    return code;
}

/* Where the others reach the first host: as its sshd was reached, or as the others see this host, if it is
 * the first. The agent finds an address itself if there is none here. */
static const char *rendezvous_hint(const struct remotes *remotes)
{
    const struct remote *first = &remotes->list[0];
    int active = 0;
    for (int i = 0; i < remotes->count; i++)
        active += remotes->list[i].state == REMOTE_PREPARED;
    if (active == 1)
        return "127.0.0.1";
    for (int i = 1; first->host->local && i < remotes->count; i++) {
        if (remotes->list[i].state == REMOTE_PREPARED)
            return remotes->list[i].launcher_address;
    }
    return first->address;
}

static void send_serve(struct job *job)
{
    struct frames *to = &job->remotes->list[0].frames;
    size_t begin = frame_begin(to, FRAME_SERVE);
    wire_put_string(&to->stream.out, job->secret);
    wire_put_string(&to->stream.out, rendezvous_hint(job->remotes));
    frame_end(to, begin);
    job->remotes->serving = true;
}

static void send_start(struct remote *remote)
{
    const struct job *job = remote->job;
    const struct host *host = remote->host;
    struct start start = {.size = job->size, .verbose = job->options->verbose, .count = host->ranks};
    memcpy(start.id, job->id, sizeof start.id);
    memcpy(start.secret, job->secret, sizeof start.secret);
    memcpy(start.rendezvous, job->rendezvous_address, sizeof start.rendezvous);
    memcpy(start.host, host->name, sizeof start.host);
    start.slots = job->hosts->slots; /* those of a host follow each other */
    while (start.slots->host != (int)(host - job->hosts->list))
        start.slots++;
    size_t begin = frame_begin(&remote->frames, FRAME_START);
    start_put(&start, &remote->frames.stream.out);
    frame_end(&remote->frames, begin);
    remote->state = REMOTE_STARTED;
}

/* All or none: a rank that is not gone is waited for. */
static hvd_code open_ranks(struct job *job, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        code = rank_open_copies(rank, status);
        for (int j = 0; !code && j < (job->options->task ? OUTPUTS : OUTPUT_RESULT); j++)
            code = output_open_fed(&rank->outputs[j], status);
    }
    for (int i = 0; i < job->count; i++) {
        if (code)
            job_close_outputs(&job->ranks[i]);
        else
            job->ranks[i].gone = false;
    }
    return code;
}

void prepare_take_serving(struct remote *remote, struct wire_reader *body)
{
    struct job *job = remote->job;
    hvd_status status;
    char fault[FAULT_LIMIT] = "malformed answer";
    if (!wire_get_string(body, job->rendezvous_address, sizeof job->rendezvous_address) ||
        !wire_get_string(body, fault, sizeof fault) || *fault) {
        job_say(job, "host %s: can't serve the rendezvous there: %s", remote->host->name, fault);
        job_decide(job, 1);
        return;
    }
    if (open_ranks(job, &status)) {
        job_say(job, "%s", status.text);
        job_decide(job, 1);
        return;
    }
    report_job(job);
    for (int i = 0; i < job->remotes->count; i++) {
        if (job->remotes->list[i].state == REMOTE_PREPARED)
            send_start(&job->remotes->list[i]);
    }
    job->remotes->started = true;
    input_open(job);
}

static void check_deadline(struct remote *remote)
{
    const struct job *job = remote->job;
    if (clock_now() > job->remotes->deadline)
        remote_fail(remote, 1,
                    "it has not answered within %g s (--start-timeout); is it up, and can ssh log in "
                    "without a question?%s",
                    job->settings->start_timeout_seconds,
                    job->options->host_setup ? " Does --host-setup end?" : "");
}

/* Until the first host serves the rendezvous others may still be lost. */
static void watch_serving(struct job *job)
{
    const struct remotes *remotes = job->remotes;
    bool faulty = false;
    check_deadline(&remotes->list[0]);
    for (int i = 0; i < remotes->count; i++)
        faulty = faulty || *remotes->list[i].fault;
    if (faulty)
        report_faults(job);
}

void prepare_advance(struct job *job)
{
    struct remotes *remotes = job->remotes;
    bool faulty = false;
    hvd_status status;
    if (remotes->serving) {
        watch_serving(job);
        return;
    }
    for (int i = 0; i < remotes->count; i++) {
        struct remote *remote = &remotes->list[i];
        if (remote->state < REMOTE_PREPARED)
            check_deadline(remote);
        if (!*remote->fault &&
            (remote->state < REMOTE_PREPARED || remote->function_sent < remotes->function_size))
            return;
        faulty = faulty || *remote->fault;
    }
    if (faulty) {
        report_faults(job);
    } else if (merge_hosts(job, &status)) {
        job_say(job, "%s", status.text);
        job_decide(job, 1);
    } else {
        send_serve(job);
    }
}
