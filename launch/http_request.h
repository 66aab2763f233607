/* http_request.h - reads a request of HTTP/1.1 whose sender may be anybody, and decides whether it may see a
 * page. No sockets. One thread for each request.
 *
 * Only GET is understood, and of the headers only those that decide about access: a body is not read. */
#ifndef HVD_LAUNCH_HTTP_REQUEST_H
#define HVD_LAUNCH_HTTP_REQUEST_H

#include <llhttp.h>
#include <stdbool.h>
#include <stddef.h>

#define HTTP_REQUEST_BYTES 8192

/* Bytes of the request; at NULL: it has none. */
struct http_text {
    const char *at;
    size_t length;
};

struct http_request {
    llhttp_t parser;
    char bytes[HTTP_REQUEST_BYTES];
    size_t used;             /* bytes that have been received */
    struct http_text target; /* "/metrics?x" */
    struct http_text name;   /* of the header that is being read */
    struct http_text *value; /* where its value belongs; NULL: nobody needs it */
    struct http_text host, authorization, cookie;
    bool repeated; /* one of these three was given twice */
    bool complete;
};

enum http_code {
    HTTP_MORE = 0, /* the request is not complete */
    HTTP_OK = 200,
    HTTP_BAD_REQUEST = 400,
    HTTP_UNAUTHORIZED = 401, /* no or a wrong Authorization, where it is the only way */
    HTTP_FORBIDDEN = 403,    /* no or a wrong token, or another host is asked */
    HTTP_NOT_FOUND = 404,
    HTTP_NOT_ALLOWED = 405, /* no GET */
    HTTP_TOO_LARGE = 431,
    HTTP_UNAVAILABLE = 503
};

void http_request_init(struct http_request *request);

/* `count` more bytes are at bytes + used. Returns HTTP_MORE, HTTP_OK if the request is complete, or what is
 * wrong with it. */
enum http_code http_request_read(struct http_request *request, size_t count);

/* The path of a complete request, without what follows a '?'. */
struct http_text http_request_path(const struct http_request *request);

bool http_text_is(struct http_text text, const char *other);

/* What a server has for all its requests. */
struct http_access {
    const char *token;
    const char *cookie;       /* the name of the cookie that keeps the token */
    const char *const *names; /* of this host, in addition to all numeric addresses; ends with NULL */
    bool local;               /* only this host reaches the server */
};

enum http_page_kind {
    HTTP_PAGE_METRICS, /* for scrapers: open to this host, otherwise only by "Authorization: Bearer TOKEN" */
    HTTP_PAGE_PRIVATE  /* for the user's browser: only with the token, "?token=TOKEN" first, then a cookie */
};

/* Returns HTTP_OK if the page may be shown. *link: the token was in the link, so the browser needs the
 * cookie. */
enum http_code http_request_check(const struct http_request *request, const struct http_access *access,
                                  enum http_page_kind kind, bool *link);

#endif
