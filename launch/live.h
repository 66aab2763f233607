/* live.h - the live page (live.html) and what it asks for, as answers of the HTTP server. In the launcher;
 * one thread, the loop's. */
#ifndef HVD_LAUNCH_LIVE_H
#define HVD_LAUNCH_LIVE_H

#include "http.h"
#include "sampler.h"

struct live {
    struct sampler *sampler;
    struct http_call *calls[HTTP_CONNECTIONS]; /* that wait for a look */
    int count;
};

void live_init(struct live *live, struct sampler *sampler);

/* Prints the link, and how to reach it from another machine. */
void live_say(struct live *live, const char *host, int port, bool local, const char *token);

void live_answer_page(const struct live *live, struct http_call *call);
void live_answer_status(struct live *live, struct http_call *call);
void live_answer_course(const struct live *live, struct http_call *call);

#endif
