/* agents.h - the starter `agents`: all hosts of a job, and how far its start has come. One thread, the
 * loop's.
 */
#ifndef HVD_LAUNCH_AGENTS_H
#define HVD_LAUNCH_AGENTS_H

#include "remote.h"

struct agents {
    struct remote **list; /* [count] in the order that the user gave, or in which they were called */
    int count;
    uv_timer_t timer;
    int64_t next_heartbeat;
    off_t function_size;       /* of --task; 0: there is none */
    char folder[FOLDER_LIMIT]; /* in which ranks start */
    bool assigning;            /* the first host has been sent FRAME_SERVE and FRAME_EPOCH */
    bool started;            /* the assignments are published; an elastic job has started from its start on */
    struct remote *input_to; /* the host of rank 0, which has stdin; NULL: none */
    uv_poll_t input;
    bool input_polled, input_ended;
    size_t input_credit;
};

/* Handles a frame of an agent; frames->owner is its host. */
void agents_receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body);

#endif
