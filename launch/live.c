/* live.c - see live.h. Browsers that ask at the same time have one look in common, which is good for a
 * second. */
#include "live.h"
#include "document.h"
#include "say.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void reply_unavailable(struct http_call *call)
{
    static const char text[] = "No rank can be seen yet.\n";
    http_reply(call, HTTP_UNAVAILABLE, text, sizeof text - 1);
}

static void reply_status(const struct sampler *sampler, struct http_call *call)
{
    if (sampler->status)
        http_reply(call, HTTP_OK, sampler->status, strlen(sampler->status));
    else
        reply_unavailable(call);
}

static void on_looked(struct sampler *sampler, void *owner)
{
    struct live *live = owner;
    for (int i = 0; i < live->count; i++)
        reply_status(sampler, live->calls[i]);
    live->count = 0;
}

void live_init(struct live *live, struct sampler *sampler)
{
    live->sampler = sampler;
    sampler->looked = on_looked;
    sampler->owner = live;
}

void live_say(struct live *live, const char *host, int port, bool local, const char *token)
{
    struct table *table = live->sampler->table;
    const char *user = getenv("USER");
    char name[256] = "";
    const char *file = table->options->metrics_token_file;
    if (file) /* its token is nothing for a log */
        say(table, "live page: http://%s:%d/?token= and the token in %s", host, port, file);
    else
        say(table, "live page: http://%s:%d/?token=%s", host, port, token);
    if (local && !gethostname(name, sizeof name - 1))
        say(table, "to open it on another machine, run there: ssh -N -L %d:%s:%d %s%s%s", port, host, port,
            user ? user : "", user ? "@" : "", name);
}

/* Replies with what `write` writes. */
static void reply_text(struct http_call *call, void (*write)(const void *what, FILE *file), const void *what)
{
    char *text = NULL;
    size_t length;
    FILE *file = open_memstream(&text, &length);
    if (file)
        write(what, file);
    if (file && !fclose(file))
        http_reply(call, HTTP_OK, text, length);
    else
        reply_unavailable(call);
    free(text);
}

static void write_page(const void *what, FILE *file)
{
    document_write(file, what);
}

void live_answer_page(const struct live *live, struct http_call *call)
{
    sampler_renew(live->sampler);
    reply_text(call, write_page, NULL);
}

static void write_course(const void *what, FILE *file)
{
    course_write(what, file);
}

void live_answer_course(const struct live *live, struct http_call *call)
{
    sampler_renew(live->sampler);
    reply_text(call, write_course, live->sampler->course);
}

void live_answer_status(struct live *live, struct http_call *call)
{
    struct sampler *sampler = live->sampler;
    sampler_renew(sampler);
    if (clock_now() < sampler->looked_at + CLOCK_SECOND || !sampler_look(sampler))
        reply_status(sampler, call);
    else
        live->calls[live->count++] = call;
}
