/* discovery.c - runs the discovery script, one at a time, each in a session of its own and with a time limit.
 * A script that fails, hangs or prints nonsense is reported once; then the hosts that it named last stay. One
 * thread, the loop's. */
#include "discovery.h"
#include "child.h"
#include "say.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/socket.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_MILLISECONDS 1000
#define LIMIT_SECONDS      30.0
#define OUTPUT_SECONDS     1.0 /* for output that a child of the script holds open */
#define OUTPUT_LIMIT       ((size_t)4 << 20)

/* Reports what is wrong with the script, unless it was the same the last time. */
static void complain(struct discovery *discovery, const char *text, const char *effect)
{
    if (strcmp(discovery->said, text) != 0)
        say(discovery->table, "%s%s", text, effect);
    snprintf(discovery->said, sizeof discovery->said, "%s", text);
}

/* This run has found nothing. */
static void fail(struct discovery *discovery, const char *text)
{
    complain(discovery, text, discovery->succeeded ? "; the hosts that it named last stay" : "");
    if (!discovery->succeeded)
        discovery->failed(discovery);
}

/* ---- what the script has printed ------------------------------------------------------------------------
 */

/* Reads all lines; the first one that makes no sense is described in `wrong`. */
static void read_lines(const struct discovery *discovery, char *text, struct hosts *hosts, hvd_status *wrong)
{
    const struct options *options = discovery->table->options;
    char source[64], *rest = NULL;
    int number = 0;
    wrong->code = HVD_OK;
    for (char *line = text; line; line = rest) {
        hvd_status status;
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = '\0';
        snprintf(source, sizeof source, "the host discovery script, line %d", ++number);
        if (hosts_add_line(hosts, line, options->slots_per_host, source, &status) && !wrong->code)
            *wrong = status;
    }
}

/* What one run leaves out may be a mistake of it: slots are removed only when two in a row do not name them.
 * New ones count at once. */
static hvd_code add_last_hosts(struct hosts *hosts, const struct hosts *last, hvd_status *status)
{
    for (int i = 0; i < hosts->count; i++) {
        const struct host *earlier = hosts_find(last, &hosts->list[i]);
        if (earlier && earlier->slots > hosts->list[i].slots)
            hosts->list[i].slots = earlier->slots;
    }
    for (int i = 0; i < last->count; i++) {
        if (!hosts_find(hosts, &last->list[i]))
            TRY(hosts_append(hosts, &last->list[i], status));
    }
    return HVD_OK;
}

/* Takes the place of what the run before has named. */
static void deliver(struct discovery *discovery, struct hosts *hosts)
{
    struct hosts all = {.apart = true};
    hvd_status status;
    hvd_code code = HVD_OK;
    for (int i = 0; i < hosts->count && !code; i++)
        code = hosts_append(&all, &hosts->list[i], &status);
    if (!code)
        code = add_last_hosts(&all, &discovery->last, &status);
    if (code) {
        fail(discovery, status.text);
        hosts_free(hosts);
    } else {
        discovery->succeeded = true;
        hosts_free(&discovery->last);
        discovery->last = *hosts;
        discovery->found(discovery, &all);
    }
    hosts_free(&all);
}

static void take_hosts(struct discovery *discovery)
{
    struct wire_writer *text = &discovery->text;
    struct hosts hosts = {.apart = true};
    hvd_status wrong;
    wire_put_u8(text, 0);
    if (text->failed || memchr(text->bytes, 0, text->length) != text->bytes + text->length - 1) {
        fail(discovery, text->failed ? "out of memory for the hosts of the discovery script"
                                     : "the host discovery script has printed a NUL byte");
        return;
    }
    read_lines(discovery, (char *)text->bytes, &hosts, &wrong);
    if (wrong.code)
        complain(discovery, wrong.text, "; its other lines count");
    else
        discovery->said[0] = '\0';
    deliver(discovery, &hosts);
}

/* ---- the process ----------------------------------------------------------------------------------------
 */

static void finish(struct discovery *discovery)
{
    char outcome[64], text[DISCOVERY_TEXT];
    const char *script = discovery->table->options->discovery_script;
    discovery->pid = 0;
    output_close(&discovery->output);
    if (discovery->late) {
        snprintf(text, sizeof text, "the host discovery script '%s' did not end within %g s", script,
                 LIMIT_SECONDS);
    } else if (discovery->exit_code) {
        snprintf(text, sizeof text, "the host discovery script '%s' %s", script,
                 say_outcome(discovery->exit_code, discovery->signal, outcome, sizeof outcome));
    } else if (discovery->text.length >= OUTPUT_LIMIT) {
        snprintf(text, sizeof text, "the host discovery script '%s' prints more than %zu MB", script,
                 OUTPUT_LIMIT >> 20);
    } else {
        take_hosts(discovery);
        return;
    }
    fail(discovery, text);
}

static void keep_output(struct output *output, const void *bytes, size_t length)
{
    struct discovery *discovery = output->owner;
    if (discovery->text.length + length < OUTPUT_LIMIT)
        wire_put_raw(&discovery->text, bytes, length);
    else
        discovery->text.length = OUTPUT_LIMIT;
    output->credit += length;
    if (!length && discovery->ended && discovery->pid)
        finish(discovery);
}

bool discovery_child_ended(struct discovery *discovery, pid_t pid, int exit_code, int signal)
{
    if (!discovery->pid || discovery->ended || pid != discovery->pid)
        return false;
    kill(-pid, SIGKILL); /* what it has left behind */
    guard_remove(discovery->table->guard, pid);
    discovery->ended = true;
    discovery->exit_code = exit_code;
    discovery->signal = signal;
    discovery->deadline = clock_after(OUTPUT_SECONDS);
    if (!discovery->output.open)
        finish(discovery);
    return true;
}

static void start(struct discovery *discovery)
{
    int end = -1;
    char text[DISCOVERY_TEXT];
    hvd_status status;
    char *words[] = {"sh", "-c", (char *)discovery->table->options->discovery_script, NULL};
    struct child child = {
        .words = words, .files = {-1, -1, STDERR_FILENO}, .file_count = 3, .end_signal = SIGKILL};
    output_free(&discovery->output);
    discovery->output = (struct output){.index = OUTPUT_STDOUT,
                                        .file = -1,
                                        .forward = keep_output,
                                        .owner = discovery,
                                        .credit = OUTPUT_LINE_BYTES};
    discovery->text.length = 0;
    discovery->text.failed = false;
    discovery->ended = discovery->late = false;
    pid_t pid = output_open(&discovery->output, &discovery->table->loop, &end, &status) ? UV_EMFILE : 0;
    child.files[1] = end;
    if (!pid)
        pid = child_start(&child, discovery->table->guard);
    socket_close(&end);
    if (pid > 0) {
        discovery->pid = pid;
        discovery->deadline = clock_after(LIMIT_SECONDS);
        return;
    }
    output_close(&discovery->output);
    snprintf(text, sizeof text, "can't start the host discovery script: %s", uv_strerror(pid));
    fail(discovery, text);
}

static void on_timer(uv_timer_t *timer)
{
    struct discovery *discovery = timer->data;
    if (discovery->table->ending)
        return;
    if (!discovery->pid) {
        start(discovery);
    } else if (discovery->table->read_until > discovery->deadline) {
        discovery->late = !discovery->ended;
        if (discovery->ended)
            finish(discovery);
        else
            kill(-discovery->pid, SIGKILL);
    }
}

void discovery_open(struct discovery *discovery)
{
    uv_timer_init(&discovery->table->loop, &discovery->timer);
    discovery->timer.data = discovery;
    uv_timer_start(&discovery->timer, on_timer, 0, PAUSE_MILLISECONDS);
}

void discovery_close(struct discovery *discovery)
{
    if (discovery->pid && !discovery->ended)
        kill(-discovery->pid, SIGKILL);
}

void discovery_free(struct discovery *discovery)
{
    output_free(&discovery->output);
    wire_writer_free(&discovery->text);
    hosts_free(&discovery->last);
}
