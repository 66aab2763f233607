/* prepare.c - what comes before ranks run on other hosts: the environment and the command go to all agents,
 * which check them; all faults are reported together; names of one host become one; the rendezvous; the
 * start. */
#include "remote.h"

#include "base/clock.h"
#include "base/status.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- preparing ----------------------------------------------------------------------------------------- */

static bool is_given_as_option(const struct job *job, const char *entry)
{
    for (int i = 0; i < setting_count; i++) {
        size_t length = strlen(setting_table[i].environment);
        if (job->options->values[i] && strncmp(entry, setting_table[i].environment, length) == 0 &&
            entry[length] == '=')
            return true;
    }
    return false;
}

/* Every name once; options over what is inherited. */
static void put_environment(struct wire_writer *body, const struct job *job)
{
    uint32_t count = 0;
    size_t place = body->length;
    wire_put_u32(body, 0);
    for (char **entry = environ; *entry; entry++) {
        if (environment_is_of_a_host(*entry) || is_given_as_option(job, *entry))
            continue;
        wire_put_string(body, *entry);
        count++;
    }
    for (int i = 0; i < setting_count; i++) {
        char text[8192];
        if (!job->options->values[i])
            continue;
        snprintf(text, sizeof text, "%s=%s", setting_table[i].environment, job->options->values[i]);
        wire_put_string(body, text);
        count++;
    }
    if (!body->failed)
        memcpy(body->bytes + place, &count, sizeof count);
}

static void send_prepare(struct remote *remote)
{
    const struct job *job = remote->job;
    struct wire_writer *body = &remote->to.waiting;
    char folder[PATH_MAX] = "/";
    uint32_t words = 0;
    while (job->options->command[words])
        words++;
    size_t begin = frame_begin(&remote->to, FRAME_PREPARE);
    wire_put_u8(body, job->options->host_setup != NULL);
    wire_put_string(body, getcwd(folder, sizeof folder) ? folder : "/");
    wire_put_string(body, job->settings->network_interface);
    put_environment(body, job);
    wire_put_u32(body, words);
    for (uint32_t i = 0; i < words; i++)
        wire_put_string(body, job->options->command[i]);
    frame_end(&remote->to, begin);
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

/* ---- the start ----------------------------------------------------------------------------------------- */

/* All of them, before anything is started. */
static void report_faults(struct job *job)
{
    int exit_code = 0;
    for (int i = 0; i < job->remotes->count; i++) {
        const struct remote *remote = &job->remotes->list[i];
        if (!*remote->fault)
            continue;
        job_say(job, "host %s: %s", remote->host->name, remote->fault);
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
    struct sink *to = &job->remotes->list[0].to;
    size_t begin = frame_begin(to, FRAME_SERVE);
    wire_put_string(&to->waiting, job->secret);
    wire_put_string(&to->waiting, rendezvous_hint(job->remotes));
    frame_end(to, begin);
    job->remotes->serving = true;
}

static void send_start(struct remote *remote)
{
    const struct job *job = remote->job;
    struct wire_writer *body = &remote->to.waiting;
    int host = (int)(remote->host - job->hosts->list);
    size_t begin = frame_begin(&remote->to, FRAME_START);
    wire_put_string(body, job->id);
    wire_put_string(body, job->secret);
    wire_put_string(body, job->rendezvous_address);
    wire_put_string(body, remote->host->name);
    wire_put_u32(body, (uint32_t)job->size);
    wire_put_u8(body, job->options->verbose);
    wire_put_u32(body, (uint32_t)remote->host->ranks);
    for (int i = 0; i < job->size; i++) {
        const struct slot *slot = &job->hosts->slots[i];
        if (slot->host != host)
            continue;
        wire_put_u32(body, (uint32_t)slot->rank);
        wire_put_u32(body, (uint32_t)slot->local_rank);
        wire_put_u32(body, (uint32_t)slot->local_size);
        wire_put_u32(body, (uint32_t)slot->cross_rank);
        wire_put_u32(body, (uint32_t)slot->cross_size);
    }
    frame_end(&remote->to, begin);
    remote->state = REMOTE_STARTED;
}

static hvd_code open_ranks(struct job *job, hvd_status *status)
{
    hvd_code code = HVD_OK;
    for (int i = 0; !code && i < job->count; i++) {
        struct rank *rank = &job->ranks[i];
        rank->remote = true;
        rank->gone = false;
        code = rank_open_copies(rank, status);
        if (!code)
            code = output_open_fed(&rank->out, status);
        if (!code)
            code = output_open_fed(&rank->err, status);
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
        job_say(job,
                "host %s: can't serve the rendezvous there: %s; --network-interface can name another "
                "interface",
                remote->host->name, fault);
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

void prepare_advance(struct job *job)
{
    struct remotes *remotes = job->remotes;
    bool faulty = false;
    hvd_status status;
    for (int i = 0; i < remotes->count; i++) {
        struct remote *remote = &remotes->list[i];
        if (!*remote->fault && remote->state < REMOTE_PREPARED && clock_now() > remotes->deadline)
            remote_fail(remote, 1,
                        "it has not answered within %g s (--start-timeout); is it up, and can ssh log in "
                        "without a question?",
                        job->settings->start_timeout_seconds);
        if (!*remote->fault && remote->state < REMOTE_PREPARED)
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
