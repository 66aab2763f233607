/* http_request.c - collects the texts of a request by llhttp, and checks host and token. One thread for each
 * request.
 *
 * All bytes of a request are in one piece of memory, so a text that arrives in several pieces is still one.
 */
#include "http_request.h"

#include "net/crypto.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

/* ---- reading ------------------------------------------------------------------------------------------- */

static void extend(struct http_text *text, const char *at, size_t length)
{
    if (!text->at)
        text->at = at;
    text->length += length;
}

static struct http_request *request_of(llhttp_t *parser)
{
    return parser->data;
}

static int on_url(llhttp_t *parser, const char *at, size_t length)
{
    extend(&request_of(parser)->target, at, length);
    return 0;
}

static int on_header_field(llhttp_t *parser, const char *at, size_t length)
{
    extend(&request_of(parser)->name, at, length);
    return 0;
}

static bool is_name(struct http_text text, const char *name)
{
    return text.length == strlen(name) && strncasecmp(text.at, name, text.length) == 0;
}

static int on_header_field_complete(llhttp_t *parser)
{
    struct http_request *request = request_of(parser);
    request->value = is_name(request->name, "host")            ? &request->host
                     : is_name(request->name, "authorization") ? &request->authorization
                     : is_name(request->name, "cookie")        ? &request->cookie
                                                               : NULL;
    request->repeated = request->repeated || (request->value && request->value->at);
    request->name = (struct http_text){0};
    return 0;
}

static int on_header_value(llhttp_t *parser, const char *at, size_t length)
{
    struct http_request *request = request_of(parser);
    if (request->value)
        extend(request->value, at, length);
    return 0;
}

static int on_headers_complete(llhttp_t *parser)
{
    request_of(parser)->complete = true;
    return HPE_PAUSED; /* a body, or a second request, is not read */
}

static const llhttp_settings_t callbacks = {.on_url = on_url,
                                            .on_header_field = on_header_field,
                                            .on_header_field_complete = on_header_field_complete,
                                            .on_header_value = on_header_value,
                                            .on_headers_complete = on_headers_complete};

void http_request_init(struct http_request *request)
{
    memset(request, 0, sizeof *request);
    llhttp_init(&request->parser, HTTP_REQUEST, &callbacks);
    request->parser.data = request;
}

enum http_code http_request_read(struct http_request *request, size_t count)
{
    const char *at = request->bytes + request->used;
    request->used += count;
    llhttp_errno_t error = llhttp_execute(&request->parser, at, count);
    if (!request->complete) {
        if (error)
            return HTTP_BAD_REQUEST;
        return request->used < sizeof request->bytes ? HTTP_MORE : HTTP_TOO_LARGE;
    }
    if (request->parser.method != HTTP_GET)
        return HTTP_NOT_ALLOWED;
    bool origin = request->target.length && *request->target.at == '/';
    return origin && request->host.length && !request->repeated ? HTTP_OK : HTTP_BAD_REQUEST;
}

/* ---- texts --------------------------------------------------------------------------------------------- */

bool http_text_is(struct http_text text, const char *other)
{
    return text.length == strlen(other) && memcmp(text.at, other, text.length) == 0;
}

/* Takes the part up to the first `separator` off the text. *rest gets what follows; at NULL: nothing does. */
static struct http_text split(struct http_text text, char separator, struct http_text *rest)
{
    const char *end = text.length ? memchr(text.at, separator, text.length) : NULL;
    *rest = (struct http_text){0};
    if (!end)
        return text;
    size_t length = (size_t)(end - text.at);
    *rest = (struct http_text){end + 1, text.length - length - 1};
    return (struct http_text){text.at, length};
}

/* Removes `prefix`; returns false if the text does not start with it. */
static bool skip(struct http_text *text, const char *prefix)
{
    size_t length = strlen(prefix);
    if (text->length < length || memcmp(text->at, prefix, length) != 0)
        return false;
    text->at += length;
    text->length -= length;
    return true;
}

struct http_text http_request_path(const struct http_request *request)
{
    struct http_text query;
    return split(request->target, '?', &query);
}

/* ---- access -------------------------------------------------------------------------------------------- */

static bool is_token(struct http_text text, const char *token)
{
    return text.length == strlen(token) && crypto_equal(text.at, token, text.length);
}

static bool has_link(const struct http_request *request, const char *token)
{
    struct http_text query;
    split(request->target, '?', &query);
    return query.at && skip(&query, "token=") && is_token(query, token);
}

static bool has_cookie(const struct http_request *request, const struct http_access *access)
{
    struct http_text rest = request->cookie;
    while (rest.length) {
        struct http_text each = split(rest, ';', &rest), value;
        while (skip(&each, " "))
            ;
        struct http_text name = split(each, '=', &value);
        if (http_text_is(name, access->cookie) && value.at && is_token(value, access->token))
            return true;
    }
    return false;
}

static bool has_bearer(const struct http_request *request, const char *token)
{
    struct http_text text = request->authorization;
    if (text.length < 7 || strncasecmp(text.at, "Bearer ", 7) != 0)
        return false;
    text.at += 7;
    text.length -= 7;
    while (skip(&text, " "))
        ;
    return is_token(text, token);
}

/* "10.0.0.7:9400", "[::1]:9400" and "b:9400" without the port and the brackets; false: it is too long. */
static bool host_of(struct http_text text, char *host, size_t capacity)
{
    struct http_text rest;
    text = skip(&text, "[") ? split(text, ']', &rest) : split(text, ':', &rest);
    if (text.length >= capacity)
        return false;
    memcpy(host, text.length ? text.at : "", text.length);
    host[text.length] = '\0';
    return true;
}

/* A page of a foreign site may let its own name lead to this server, and then read what the server answers
 * ("DNS rebinding"). The browser sends that name here; a numeric address can't be led astray. */
static bool asks_this_host(const struct http_request *request, const char *const *names)
{
    char host[256];
    struct in6_addr address;
    if (!host_of(request->host, host, sizeof host))
        return false;
    if (inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1)
        return true;
    while (*names && strcasecmp(*names, host) != 0)
        names++;
    return *names;
}

enum http_code http_request_check(const struct http_request *request, const struct http_access *access,
                                  enum http_page_kind kind, bool *link)
{
    *link = false;
    if (has_bearer(request, access->token))
        return HTTP_OK; /* no page of a foreign site knows it */
    if (!asks_this_host(request, access->names))
        return HTTP_FORBIDDEN;
    if (kind == HTTP_PAGE_METRICS)
        return access->local && !request->authorization.at ? HTTP_OK : HTTP_UNAUTHORIZED;
    *link = has_link(request, access->token);
    return *link || has_cookie(request, access) ? HTTP_OK : HTTP_FORBIDDEN;
}
