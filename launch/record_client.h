/* record_client.h - asks a launcher what the ranks of its job have recorded. One thread, with a loop of its
 * own. */
#ifndef HVD_LAUNCH_RECORD_CLIENT_H
#define HVD_LAUNCH_RECORD_CLIENT_H

#include "collected.h"

struct record_client {
    struct frames frames;
    struct collected *collected; /* to which the records are added */
    bool ended;
    char why[256]; /* there are no records; "": there are */
};

/* Fills `collected`, which the caller frees, also after a failure. `job`: the id. */
hvd_code record_query_ask(const char *job, const struct history_window *window, struct collected *collected,
                          hvd_status *status);

/* Handles a frame of the launcher; frames->owner is the client. */
void record_query_receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body);

#endif
