/* agent_frames.h - what an agent does when a frame of the launcher arrives, and what it reports to the
 * launcher. One thread, the loop's. */
#ifndef HVD_LAUNCH_AGENT_FRAMES_H
#define HVD_LAUNCH_AGENT_FRAMES_H

#include "agent.h"
#include "look.h"
#include "options.h"
#include "processes.h"
#include "stalls.h"

struct agent {
    struct table table;            /* the first member: a pointer to one is a pointer to the other */
    const struct agent_node *node; /* NULL: this is no node */
    bool silent;                   /* a node: node 0 is */
    bool concluded;                /* a node: the job has ended, with `exit_code` */
    int exit_code;
    int signal; /* a node: the last one that it got, which ends the job */
    struct options options;
    struct settings settings;
    struct host host; /* this one */
    struct hosts hosts;
    struct preparation preparation;
    struct frames frames;
    struct sink input; /* of rank 0 */
    size_t input_taken;
    bool input_given; /* a process has it as its stdin */
    bool input_ended;
    int expected;                             /* processes that the launcher has announced */
    bool announced;                           /* the launcher has sent FRAME_JOB */
    bool released;                            /* elastic jobs: it starts no more */
    struct history_window at_end, at_failure; /* the records that the launcher requests then */
    hvd_status fault;                         /* why no process is started any longer */
    bool lost;
    uv_timer_t answer; /* ends the time for the launcher's answer */
    int64_t signalled; /* when the launcher was sent a signal, clock_now's */
    struct look look;
    struct stalls stalls;
    uint32_t look_number; /* of the last one for which the launcher has asked */
};

/* Handles a frame of the launcher; frames->owner is the agent. */
void agent_receive(struct frames *frames, enum frame_kind kind, struct wire_reader *body);

/* Returns true if the launcher may start another process here. */
bool agent_may_start(const struct agent *agent);

/* After each turn of the loop: reports which processes are gone, and how much rank 0 has read of its stdin;
 * continues to read output that may be sent again. */
void agent_turn(struct agent *agent);

/* Sends an event of agent->table. */
void agent_happened(struct table *table, const struct event *event);

void agent_send_ready(struct agent *agent);

/* Sends what the ranks of this host have recorded; those that were killed have as well. */
void agent_send_records(struct agent *agent, const struct history_window *window);

/* Sends the views of agent->look, which it frees. */
void agent_send_views(struct look *look, struct rank_view *views, int count);

#endif
