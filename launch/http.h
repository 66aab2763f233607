/* http.h - a server of HTTP/1.1 for a few read-only pages, on the loop of its caller. One thread, the loop's.
 *
 * Everybody who reaches the port may be an enemy: a request must be complete within 5 s and 8 KiB, there are
 * HTTP_CONNECTIONS, of which those that are slow to ask make room for others, and a connection is for one
 * request. It never calls back except to have a page answered. */
#ifndef HVD_LAUNCH_HTTP_H
#define HVD_LAUNCH_HTTP_H

#include "http_request.h"

#include "horovod.h"

#include <uv.h>

#define HTTP_CONNECTIONS 64 /* and so as many calls at most that wait for their answers */

/* A request that waits for its answer. */
struct http_call;

struct http_page {
    const char *path; /* "/metrics" */
    enum http_page_kind kind;
    const char *type;   /* "text/html; charset=utf-8" */
    const char *policy; /* what Content-Security-Policy allows in addition to nothing, "style-src
                           'sha256-...'", or "" */
    void (*answer)(struct http_call *call, void *owner); /* calls http_reply, now or later */
};

struct http_options {
    const char *address; /* a name or a numeric address of this host */
    int port;            /* 0: any that is free */
    const char *token;   /* stays the caller's, as do the others */
    const char *cookie;
    const struct http_page *pages; /* ends with a row without a path */
    void *owner;                   /* for the pages */
};

struct http;

/* Listens. The error says which port, and what to do. */
hvd_code http_open(struct http **http, uv_loop_t *loop, const struct http_options *options,
                   hvd_status *status);

int http_port(const struct http *http);

/* Returns true if only this host reaches it. */
bool http_is_local(const struct http *http);

/* Answers with the type of the page, or with text if the code is an error's. The bytes are copied. */
void http_reply(struct http_call *call, enum http_code code, const char *body, size_t length);

/* Closes all connections: calls that have not been answered must not be any longer. The loop must still run
 * to close its handles; it frees the memory then. NULL is fine. */
void http_close(struct http *http);

#endif
