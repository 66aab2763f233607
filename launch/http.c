/* http.c - connections of the HTTP server. One thread, the loop's.
 *
 * A connection is read until its request is complete, waits for the answer, is written, and closed. While
 * there are HTTP_CONNECTIONS, the oldest one that still reads or writes makes room for a new one, once it had
 * a moment: so connections that only wait keep nobody out, however many there are. The timer runs only while
 * there are connections. */
#include "http.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/socket.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG           1024
#define TICK_MILLISECONDS 50
#define READ_LIMIT        (5 * CLOCK_SECOND)
#define WRITE_LIMIT       (10 * CLOCK_SECOND)
#define MOMENT            (CLOCK_SECOND / 20) /* that a connection has in any case */
#define HEAD_BYTES        1024
#define NAME_BYTES        256

enum stage { STAGE_READ, STAGE_ANSWER, STAGE_WRITE, STAGE_CLOSE };

struct http_call {
    struct http *http;
    struct http_call *next; /* opened after this one */
    uv_tcp_t socket;
    uv_write_t write;
    enum stage stage;
    int64_t since; /* the stage began */
    const struct http_page *page;
    bool link; /* the token was in the link */
    char *answer;
    struct http_request request;
};

struct http {
    uv_tcp_t listener;
    uv_timer_t timer;
    struct http_options options;
    struct http_access access;
    struct http_call *first, *last;
    int count;   /* connections that are not being closed */
    int handles; /* that the loop still has */
    int port;
    bool waits;           /* a connection is to be accepted once there is room */
    char own[NAME_BYTES]; /* the name of this host */
    const char *names[4]; /* ends with NULL */
};

/* ---- the end of a connection --------------------------------------------------------------------------- */

static void release(struct http *http)
{
    if (--http->handles == 0)
        free(http);
}

static void on_call_closed(uv_handle_t *handle)
{
    struct http_call *call = handle->data;
    struct http *http = call->http;
    free(call->answer);
    free(call);
    release(http);
}

static void call_close(struct http_call *call)
{
    struct http *http = call->http;
    struct http_call **place = &http->first, *before = NULL;
    for (; *place != call; place = &(*place)->next)
        before = *place;
    *place = call->next;
    if (http->last == call)
        http->last = before;
    http->count--;
    call->stage = STAGE_CLOSE;
    uv_close((uv_handle_t *)&call->socket, on_call_closed);
}

/* ---- the answer ---------------------------------------------------------------------------------------- */

static const char *reason_of(enum http_code code)
{
    switch (code) {
    case HTTP_OK:
        return "OK";
    case HTTP_BAD_REQUEST:
        return "Bad Request";
    case HTTP_UNAUTHORIZED:
        return "Unauthorized";
    case HTTP_FORBIDDEN:
        return "Forbidden";
    case HTTP_NOT_FOUND:
        return "Not Found";
    case HTTP_NOT_ALLOWED:
        return "Method Not Allowed";
    case HTTP_TOO_LARGE:
        return "Request Header Fields Too Large";
    default: /* HTTP_UNAVAILABLE */
        return "Service Unavailable";
    }
}

static void on_written(uv_write_t *write, int error)
{
    struct http_call *call = write->data;
    (void)error; /* whoever has asked may have left */
    if (call->stage == STAGE_WRITE)
        call_close(call);
}

/* Writes the headers; returns their length. */
static size_t write_head(const struct http_call *call, enum http_code code, size_t length,
                         char head[HEAD_BYTES])
{
    const struct http_options *options = &call->http->options;
    bool ok = code == HTTP_OK;
    int used = snprintf(head, HEAD_BYTES,
                        "HTTP/1.1 %d %s\r\n"
                        "Content-Type: %s\r\n"
                        "Content-Length: %zu\r\n"
                        "Connection: close\r\n"
                        "Cache-Control: no-store\r\n"
                        "X-Content-Type-Options: nosniff\r\n"
                        "Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'; "
                        "frame-ancestors 'none'%s%s\r\n"
                        "Referrer-Policy: no-referrer\r\n"
                        "Cross-Origin-Resource-Policy: same-origin\r\n",
                        (int)code, reason_of(code), ok ? call->page->type : "text/plain; charset=utf-8",
                        length, ok && *call->page->policy ? "; " : "", ok ? call->page->policy : "");
    if (ok && call->link)
        used += snprintf(head + used, HEAD_BYTES - (size_t)used,
                         "Set-Cookie: %s=%s; HttpOnly; SameSite=Strict; Path=/\r\n", options->cookie,
                         options->token);
    if (code == HTTP_UNAUTHORIZED)
        used += snprintf(head + used, HEAD_BYTES - (size_t)used, "WWW-Authenticate: Bearer\r\n");
    if (code == HTTP_NOT_ALLOWED)
        used += snprintf(head + used, HEAD_BYTES - (size_t)used, "Allow: GET\r\n");
    used += snprintf(head + used, HEAD_BYTES - (size_t)used, "\r\n");
    return (size_t)used;
}

void http_reply(struct http_call *call, enum http_code code, const char *body, size_t length)
{
    char head[HEAD_BYTES];
    size_t used = write_head(call, code, length, head);
    call->answer = malloc(used + length);
    if (!call->answer) {
        call_close(call);
        return;
    }
    memcpy(call->answer, head, used);
    memcpy(call->answer + used, body, length);
    call->stage = STAGE_WRITE;
    call->since = clock_now();
    call->write.data = call;
    uv_buf_t text = uv_buf_init(call->answer, (unsigned)(used + length));
    if (uv_write(&call->write, (uv_stream_t *)&call->socket, &text, 1, on_written))
        call_close(call);
}

static void reply_error(struct http_call *call, enum http_code code)
{
    static const char token[] =
        "This page needs the token: open the link that horovodrun printed at the start of the "
        "job.\nFrom another host, the host name in the link must be one of the names of this "
        "host, or its address.\n";
    static const char bearer[] =
        "Send the token: Authorization: Bearer TOKEN. horovodrun printed it at the start of "
        "the job, or reads it from the file of --metrics-token-file.\n";
    const char *text = code == HTTP_FORBIDDEN ? token : code == HTTP_UNAUTHORIZED ? bearer : "";
    char line[64];
    if (!*text) {
        snprintf(line, sizeof line, "%s\n", reason_of(code));
        text = line;
    }
    http_reply(call, code, text, strlen(text));
}

static const struct http_page *find_page(const struct http *http, struct http_text path)
{
    const struct http_page *page = http->options.pages;
    while (page->path && !http_text_is(path, page->path))
        page++;
    return page->path ? page : NULL;
}

static void answer(struct http_call *call)
{
    struct http *http = call->http;
    call->stage = STAGE_ANSWER;
    call->page = find_page(http, http_request_path(&call->request));
    /* Without access nobody learns which pages there are. */
    enum http_page_kind kind = call->page ? call->page->kind : HTTP_PAGE_PRIVATE;
    enum http_code code = http_request_check(&call->request, &http->access, kind, &call->link);
    if (code == HTTP_OK && call->page)
        call->page->answer(call, http->options.owner);
    else
        reply_error(call, code == HTTP_OK ? HTTP_NOT_FOUND : code);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct http_request *request = &((struct http_call *)handle->data)->request;
    (void)suggested;
    *room = uv_buf_init(request->bytes + request->used, (unsigned)(sizeof request->bytes - request->used));
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *room)
{
    struct http_call *call = stream->data;
    (void)room;
    if (count == 0)
        return;
    if (count < 0) {
        call_close(call);
        return;
    }
    enum http_code code = http_request_read(&call->request, (size_t)count);
    if (code == HTTP_MORE)
        return;
    uv_read_stop(stream);
    if (code == HTTP_OK)
        answer(call);
    else
        reply_error(call, code);
}

/* ---- accepting ----------------------------------------------------------------------------------------- */

static void tick(uv_timer_t *timer);

/* Closes the oldest connection that had its moment; returns false if none had. */
static bool make_room(struct http *http, int64_t now)
{
    struct http_call *call = http->first;
    while (call && (call->stage == STAGE_ANSWER || now < call->since + MOMENT))
        call = call->next;
    if (call)
        call_close(call);
    return call;
}

static void accept_one(struct http *http)
{
    int64_t now = clock_now();
    struct http_call *call = NULL;
    /* As long as this connection is not accepted, libuv accepts no further one. */
    http->waits = true;
    uv_timer_start(&http->timer, tick, TICK_MILLISECONDS, TICK_MILLISECONDS);
    if ((http->count == HTTP_CONNECTIONS && !make_room(http, now)) || !(call = malloc(sizeof *call)))
        return;
    http->waits = false;
    *call = (struct http_call){.http = http, .since = now};
    http_request_init(&call->request);
    uv_tcp_init(http->listener.loop, &call->socket);
    call->socket.data = call;
    http->handles++;
    http->count++;
    if (http->last)
        http->last->next = call;
    else
        http->first = call;
    http->last = call;
    if (uv_accept((uv_stream_t *)&http->listener, (uv_stream_t *)&call->socket) ||
        uv_read_start((uv_stream_t *)&call->socket, on_room, on_read))
        call_close(call);
}

static void on_connection(uv_stream_t *listener, int error)
{
    if (!error)
        accept_one(listener->data);
}

static void tick(uv_timer_t *timer)
{
    struct http *http = timer->data;
    int64_t now = clock_now();
    for (struct http_call *call = http->first, *next; call; call = next) {
        next = call->next;
        if ((call->stage == STAGE_READ && now >= call->since + READ_LIMIT) ||
            (call->stage == STAGE_WRITE && now >= call->since + WRITE_LIMIT))
            call_close(call);
    }
    if (http->waits)
        accept_one(http);
    else if (!http->count)
        uv_timer_stop(timer);
}

/* ---- the server ---------------------------------------------------------------------------------------- */

static void find_names(struct http *http)
{
    const char **name = http->names;
    *name++ = "localhost";
    *name++ = http->options.address;
    if (gethostname(http->own, sizeof http->own - 1) == 0)
        *name++ = http->own;
    http->access.names = http->names;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static int listen_at(struct http *http, const struct sockaddr *address)
{
    struct sockaddr_storage own;
    int length = sizeof own;
    int error = uv_tcp_bind(&http->listener, address, 0);
    if (!error)
        error = uv_listen((uv_stream_t *)&http->listener, BACKLOG, on_connection);
    if (!error)
        error = uv_tcp_getsockname(&http->listener, (struct sockaddr *)&own, &length);
    if (error)
        return error;
    http->port = ntohs(own.ss_family == AF_INET ? ((struct sockaddr_in *)&own)->sin_port
                                                : ((struct sockaddr_in6 *)&own)->sin6_port);
    http->access.local = is_loopback((struct sockaddr *)&own);
    return 0;
}

static hvd_code bind_to(struct http *http, hvd_status *status)
{
    const struct http_options *options = &http->options;
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    snprintf(port, sizeof port, "%d", options->port);
    int unknown = getaddrinfo(options->address, port, &hints, &found);
    if (unknown)
        return status_set(status, HVD_INVALID_ARGUMENT, "--metrics-address %s: %s", options->address,
                          gai_strerror(unknown));
    int error = listen_at(http, found->ai_addr);
    freeaddrinfo(found);
    if (error == UV_EADDRINUSE)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "--metrics-port %d is in use on this host; take another one, or 0 for any that is free",
            options->port);
    if (error == UV_EADDRNOTAVAIL)
        return status_set(status, HVD_INVALID_ARGUMENT, "--metrics-address %s is no address of this host",
                          options->address);
    return error ? status_set_errno(status, -error, "can't listen at --metrics-address %s, --metrics-port %d",
                                    options->address, options->port)
                 : HVD_OK;
}

static void on_server_closed(uv_handle_t *handle)
{
    release(handle->data);
}

hvd_code http_open(struct http **out, uv_loop_t *loop, const struct http_options *options, hvd_status *status)
{
    struct http *http = calloc(1, sizeof *http);
    if (!http)
        return status_no_memory(status);
    http->options = *options;
    http->access.token = options->token;
    http->access.cookie = options->cookie;
    uv_tcp_init(loop, &http->listener);
    uv_timer_init(loop, &http->timer);
    http->listener.data = http->timer.data = http;
    http->handles = 2;
    find_names(http);
    hvd_code code = bind_to(http, status);
    if (code)
        http_close(http);
    else
        *out = http;
    return code;
}

int http_port(const struct http *http)
{
    return http->port;
}

bool http_is_local(const struct http *http)
{
    return http->access.local;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    while (http->first)
        call_close(http->first);
    uv_close((uv_handle_t *)&http->listener, on_server_closed);
    uv_close((uv_handle_t *)&http->timer, on_server_closed);
}
