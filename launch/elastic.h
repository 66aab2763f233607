/* elastic.h - a job whose processes come and go: carries out what the state machine of membership.h decides,
 * and feeds it with the hosts that are found and with what processes report. The rendezvous of this process
 * serves all epochs, so only the loss of this host ends the job. One thread, the loop's. */
#ifndef HVD_LAUNCH_ELASTIC_H
#define HVD_LAUNCH_ELASTIC_H

#include "changes.h"
#include "discovery.h"
#include "processes.h"

#include "membership/membership.h"

enum elastic_input_kind { ELASTIC_HOST_PREPARED, ELASTIC_HOST_UNUSABLE, ELASTIC_NOT_STARTED };

struct elastic {
    struct table *table;
    struct membership *membership;
    void (*act)(struct table *table); /* carries out the actions of the membership */
    struct discovery discovery;
    hvd_watch *watch; /* for reports of processes; NULL: not opened */
    uv_poll_t reports;
    uv_timer_t timer;                /* of the membership */
    bool waits;                      /* for a deadline of the membership, which the timer checks */
    int64_t checked;                 /* the last call of elastic_now, clock_now's */
    int64_t still;                   /* for how long this process has stood still */
    struct membership_rank *members; /* [size] of the running epoch, by rank */
    int size;
    struct changes changes; /* so far */
    struct elastic_input {
        enum elastic_input_kind kind;
        int index; /* of the host, or the slot of the process */
    } * inputs;    /* of the membership, which follow from its own actions; [input_count], the oldest first */
    int input_count;
};

/* The rendezvous is served: starts to look for hosts. */
hvd_code elastic_open(struct elastic *elastic, hvd_status *status);
/* Closes its handles; the loop must still run. Before the rendezvous is stopped. */
void elastic_close(struct elastic *elastic);
void elastic_free(struct elastic *elastic); /* after the loop has closed its handles */

/* Returns the time for an input of the membership. While that waits for a deadline, time in which this
 * process stands still is left out: what has happened meanwhile may not have been read yet. */
int64_t elastic_now(struct elastic *elastic);

/* Carries out an action that concerns single hosts or processes, or the epoch. */
void elastic_act(struct elastic *elastic, const struct membership_action *action);
/* All actions have been carried out: gives the membership the next input that follows from them; false: there
 * is none. */
bool elastic_take_input(struct elastic *elastic);
/* The host is lost: processes of it that still run get the news that they are out. */
void elastic_lose_host(struct elastic *elastic, int host);
/* Takes what processes have reported so far. Before each end of a process: its last report precedes it, but
 * the loop may see them in any order. */
void elastic_read_reports(struct elastic *elastic);
/* After each turn of the loop: reports which processes are gone, and sets the timer. */
void elastic_turn(struct elastic *elastic);
/* Says what has become of a process that has failed, while the job continues. */
void elastic_say_end(struct process *process);

#endif
