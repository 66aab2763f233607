/* messages.h - what the launcher sends to an agent before ranks run, as the bodies of frames. */
#ifndef HVD_LAUNCH_MESSAGES_H
#define HVD_LAUNCH_MESSAGES_H

#include "base/wire.h"
#include "hosts.h"
#include "job.h"

#define FOLDER_LIMIT 4096

/* FRAME_PREPARE: what the agent checks. */
struct preparation {
    bool setup; /* there was a --host-setup */
    char folder[FOLDER_LIMIT];
    char **environment; /* "NAME=value"; ends with NULL */
    char **command;
};

/* FRAME_START: which ranks it starts. */
struct start {
    char id[JOB_ID_DIGITS + 1], secret[JOB_SECRET_DIGITS + 1], rendezvous[JOB_ADDRESS_LIMIT];
    char host[sizeof((struct host *)0)->name];
    int size;
    bool verbose;
    struct slot *slots; /* [count], not 0 */
    int count;
};

void preparation_put(const struct preparation *preparation, struct wire_writer *body);
void start_put(const struct start *start, struct wire_writer *body);

/* False: the body is malformed, or memory is out. What they fill in is zeroed before, and the taker's to
 * free, then too. */
bool preparation_take(struct preparation *preparation, struct wire_reader *body);
bool start_take(struct start *start, struct wire_reader *body);

void words_free(char **words); /* a list that ends with NULL, and its words; or NULL */

#endif
