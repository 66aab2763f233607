/* exporter.c - answers scrapes by views of the job, and writes the same text into a file. One thread, the
 * loop's.
 *
 * Scrapes that arrive at the same time have one view of the job in common, and its text is good for a second:
 * so nobody makes the launcher work more than once a second, however often he asks. */
#include "exporter.h"
#include "document.h"
#include "http.h"
#include "json.h"
#include "live.h"
#include "metrics.h"
#include "metrics_file.h"
#include "monitor.h"
#include "say.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/crypto.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TOKEN_BYTES       128
#define TOKEN_DIGITS      32
#define FRESH             CLOCK_SECOND
#define FILE_MILLISECONDS 10000
#define FILE_FIRST        1000 /* milliseconds; until then ranks start */
#define FILE_MOMENT       3000 /* after which a write has mostly ended, and an error is said */

struct exporter {
    struct table *table;
    struct live live;
    struct http *http;
    uv_timer_t timer;          /* for the file */
    struct metrics_file *file; /* NULL: there is none, as the next one */
    struct metrics_file *discovery;
    bool file_failed; /* the last time, which was reported */
    char token[TOKEN_BYTES];
    char cookie[32];
    struct http_call *scrapes[HTTP_CONNECTIONS]; /* that wait for a view of a job */
    int scrape_count;
    bool file_waits, looking;
    struct metrics_past past;
    char *text; /* of the last view of the job; NULL: there was none */
    size_t length;
    int64_t taken; /* clock_now's */
};

/* ---- views of jobs ------------------------------------------------------------------------------------- */

static void render(struct exporter *exporter, const struct job_view *job_view)
{
    const struct options *options = exporter->table->options;
    FILE *file = open_memstream(&exporter->text, &exporter->length);
    if (!file)
        return;
    metrics_write(file, job_view, exporter->table->changes,
                  options->metrics_ranks ? (int)options->metrics_ranks : METRICS_RANKS, &exporter->past);
    if (fclose(file)) {
        free(exporter->text);
        exporter->text = NULL;
    }
    exporter->taken = clock_now();
}

static void report_file(struct exporter *exporter, hvd_code failed, const hvd_status *status)
{
    if (failed && !exporter->file_failed)
        say(exporter->table, "%s; the job continues", status->text);
    exporter->file_failed = failed;
}

static void reply(const struct exporter *exporter, struct http_call *call)
{
    static const char sorry[] = "No rank can be seen yet.\n";
    if (exporter->text)
        http_reply(call, HTTP_OK, exporter->text, exporter->length);
    else
        http_reply(call, HTTP_UNAVAILABLE, sorry, sizeof sorry - 1);
}

static void on_job_views(const struct job_views *job_views, void *argument)
{
    struct exporter *exporter = argument;
    hvd_status status;
    const struct job_view *job_view = job_views_largest(job_views);
    exporter->looking = false;
    free(exporter->text);
    exporter->text = NULL;
    if (job_view)
        render(exporter, job_view);
    for (int i = 0; i < exporter->scrape_count; i++)
        reply(exporter, exporter->scrapes[i]);
    exporter->scrape_count = 0;
    if (exporter->file_waits && exporter->text)
        report_file(exporter, metrics_file_write(exporter->file, exporter->text, exporter->length, &status),
                    &status);
    exporter->file_waits = false;
}

void exporter_show(struct table *table, const struct job_views *job_views)
{
    struct exporter *exporter = table->exporter;
    if (!exporter)
        return;
    exporter->file_waits = exporter->file != NULL;
    on_job_views(job_views, exporter);
}

/* Returns false if no look can be taken. */
static bool look(struct exporter *exporter)
{
    hvd_status status;
    if (!exporter->looking)
        exporter->looking =
            !monitor_request(exporter->table->monitor, STACKS_NONE, on_job_views, exporter, &status);
    return exporter->looking;
}

static void answer_metrics(struct http_call *call, void *owner)
{
    struct exporter *exporter = owner;
    sampler_renew(exporter->table->sampler);
    bool fresh = exporter->text && clock_now() < exporter->taken + FRESH;
    if (fresh || !look(exporter))
        reply(exporter, call);
    else
        exporter->scrapes[exporter->scrape_count++] = call;
}

static void answer_page(struct http_call *call, void *owner)
{
    live_answer_page(&((struct exporter *)owner)->live, call);
}

static void answer_status(struct http_call *call, void *owner)
{
    live_answer_status(&((struct exporter *)owner)->live, call);
}

static void answer_course(struct http_call *call, void *owner)
{
    live_answer_course(&((struct exporter *)owner)->live, call);
}

static void on_timer(uv_timer_t *timer);

static void on_moment(uv_timer_t *timer)
{
    struct exporter *exporter = timer->data;
    hvd_status status;
    report_file(exporter, metrics_file_outcome(exporter->file, &status), &status);
    uv_timer_start(timer, on_timer, FILE_MILLISECONDS - FILE_MOMENT, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct exporter *exporter = timer->data;
    exporter->file_waits = look(exporter);
    uv_timer_start(timer, on_moment, FILE_MOMENT, 0);
}

/* ---- the start ----------------------------------------------------------------------------------------- */

/* A token that does not come from a file follows from the secret of the job, about which it reveals nothing.
 */
static void derive_token(struct exporter *exporter)
{
    static const char label[] = "horovod metrics token";
    uint8_t mac[CRYPTO_MAC_BYTES];
    const char *secret = exporter->table->secret;
    crypto_mac(secret, strlen(secret), label, sizeof label - 1, mac);
    for (size_t i = 0; i < TOKEN_DIGITS / 2; i++)
        snprintf(&exporter->token[2 * i], 3, "%02x", mac[i]);
}

static hvd_code read_token(struct exporter *exporter, const char *path, hvd_status *status)
{
    struct stat info;
    FILE *file = fopen(path, "re");
    if (!file || fstat(fileno(file), &info)) {
        int error = errno;
        if (file)
            fclose(file);
        return status_set_errno(status, error, "--metrics-token-file: can't read %s", path);
    }
    char *line = fgets(exporter->token, sizeof exporter->token, file);
    fclose(file);
    if (info.st_mode & S_IRWXO)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "--metrics-token-file %s: every user of this host may read it or replace it; chmod o= %s", path,
            path);
    size_t length = line ? strcspn(line, "\r\n") : 0;
    size_t plain =
        line ? strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=") : 0;
    if (length < 16 || length != plain || length == sizeof exporter->token - 1)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "--metrics-token-file %s: the first line must be a token of 16 to %zu letters, digits and "
            "-._~+/=",
            path, sizeof exporter->token - 2);
    line[length] = '\0';
    return HVD_OK;
}

/* The address by which others reach the server. */
static const char *shown_host(const struct exporter *exporter, char name[256])
{
    const char *address = exporter->table->options->metrics_address;
    if (!address)
        return "127.0.0.1";
    bool any = strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
    if (!any && strchr(address, ':'))
        snprintf(name, 256, "[%s]", address);
    else if (!any || gethostname(name, 255))
        snprintf(name, 256, "%s", address);
    return name;
}

static void say_where(struct exporter *exporter)
{
    char name[256] = "";
    const char *host = shown_host(exporter, name);
    bool shown = !http_is_local(exporter->http) && !exporter->table->options->metrics_token_file;
    say(exporter->table, "metrics are at http://%s:%d/metrics%s%s", host, http_port(exporter->http),
        shown ? ", with the header Authorization: Bearer " : "", shown ? exporter->token : "");
}

static hvd_code announce(struct exporter *exporter, const char *folder, hvd_status *status)
{
    struct table *table = exporter->table;
    char name[256] = "", program[64], target[300], path[PATH_MAX], *text = NULL;
    size_t length;
    snprintf(target, sizeof target, "%s:%d", shown_host(exporter, name), http_port(exporter->http));
    FILE *file = open_memstream(&text, &length);
    if (!file)
        return status_no_memory(status);
    fprintf(file, "[{\"targets\": [\"%s\"], \"labels\": {", target);
    json_put_text(file, "job_name",
                  table->attached ? table->attached
                                  : monitor_program(table->options->command, program, sizeof program));
    fputs("}}]\n", file);
    fclose(file);
    int used = snprintf(path, sizeof path, "%s/horovod-%s.json", folder, table->id);
    hvd_code code =
        used < PATH_MAX - 8
            ? metrics_file_open("--metrics-discovery", path, text, length, &exporter->discovery, status)
            : status_set(status, HVD_INVALID_ARGUMENT, "--metrics-discovery: the path is too long");
    free(text);
    return code;
}

static hvd_code check_options(const struct options *options, hvd_status *status)
{
    bool serves = options->metrics_port || options->metrics_discovery;
    const char *other = options->metrics_address      ? "address"
                        : options->metrics_token_file ? "token-file"
                                                      : NULL;
    if (other && !serves)
        return status_set(status, HVD_INVALID_ARGUMENT, "--metrics-%s needs --metrics-port", other);
    if (options->metrics_ranks && !serves && !options->metrics_file)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--metrics-ranks needs --metrics-port or --metrics-file");
    return HVD_OK;
}

static hvd_code serve(struct exporter *exporter, hvd_status *status)
{
    char name[256] = "";
    static const struct http_page pages[] = {
        {"/metrics", HTTP_PAGE_METRICS, METRICS_TYPE, "", answer_metrics},
        {"/", HTTP_PAGE_PRIVATE, "text/html; charset=utf-8", document_policy, answer_page},
        {"/status.json", HTTP_PAGE_PRIVATE, "application/json", "", answer_status},
        {"/course.json", HTTP_PAGE_PRIVATE, "application/json", "", answer_course},
        {0}};
    struct table *table = exporter->table;
    const struct options *options = table->options;
    if (options->metrics_token_file)
        TRY(read_token(exporter, options->metrics_token_file, status));
    else
        derive_token(exporter);
    snprintf(exporter->cookie, sizeof exporter->cookie, "horovod_%.8s", table->id);
    TRY(http_open(
        &exporter->http, &table->loop,
        &(struct http_options){.address = options->metrics_address ? options->metrics_address : "127.0.0.1",
                               .port = options->metrics_port > 0 ? (int)options->metrics_port : 0,
                               .token = exporter->token,
                               .cookie = exporter->cookie,
                               .pages = pages,
                               .owner = exporter},
        status));
    if (options->metrics_discovery)
        TRY(announce(exporter, options->metrics_discovery, status));
    live_init(&exporter->live, table->sampler);
    say_where(exporter);
    live_say(&exporter->live, shown_host(exporter, name), http_port(exporter->http),
             http_is_local(exporter->http), exporter->token);
    return HVD_OK;
}

hvd_code exporter_open(struct table *table, hvd_status *status)
{
    static const char begun[] = "# The first metrics of this job follow in a moment.\n";
    const struct options *options = table->options;
    TRY(check_options(options, status));
    if (!options->metrics_port && !options->metrics_discovery && !options->metrics_file)
        return HVD_OK;
    struct exporter *exporter = calloc(1, sizeof *exporter);
    if (!exporter)
        return status_no_memory(status);
    table->exporter = exporter;
    exporter->table = table;
    uv_timer_init(&table->loop, &exporter->timer);
    exporter->timer.data = exporter;
    if (options->metrics_port || options->metrics_discovery)
        TRY(serve(exporter, status));
    if (options->metrics_file) {
        TRY(metrics_file_open("--metrics-file", options->metrics_file, begun, sizeof begun - 1,
                              &exporter->file, status));
        uv_timer_start(&exporter->timer, on_timer, FILE_FIRST, 0);
    }
    return HVD_OK;
}

static void on_closed(uv_handle_t *timer)
{
    struct exporter *exporter = timer->data;
    free(exporter->text);
    metrics_past_free(&exporter->past);
    free(exporter);
}

static void close_file(struct table *table, struct metrics_file *file, bool keeps)
{
    hvd_status status;
    if (file && metrics_file_close(file, keeps, &status))
        say(table, "%s", status.text);
}

void exporter_close(struct table *table, bool keeps_files)
{
    struct exporter *exporter = table->exporter;
    if (!exporter)
        return;
    monitor_forget(table->monitor, exporter);
    http_close(exporter->http);
    uv_close((uv_handle_t *)&exporter->timer, on_closed);
    close_file(table, exporter->file, keeps_files);
    close_file(table, exporter->discovery, keeps_files);
}
