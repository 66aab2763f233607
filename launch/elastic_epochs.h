/* elastic_epochs.h - the epochs of an elastic job: which place each of its processes has in one, the news
 * that they are sent about it, and how often the ranks have changed. elastic->members are the ranks of the
 * running epoch. One thread, the loop's. */
#ifndef HVD_LAUNCH_ELASTIC_EPOCHS_H
#define HVD_LAUNCH_ELASTIC_EPOCHS_H

#include "elastic.h"

/* Publishes the epoch that the membership has decided, unless it has decided a newer one since, and sends its
 * processes their places; all others are in none. Returns false if it can't, which it reports. */
bool elastic_begin_epoch(struct elastic *elastic, int number);

/* Sends the processes of the running epoch what has changed, so that they leave it. */
void elastic_give_notice(struct elastic *elastic, const struct membership_action *action);

/* Adds a process at its place, in the running epoch or as planned for the next one. NULL: out of memory. */
struct process *elastic_add_process(struct elastic *elastic, const struct membership_action *action);

/* Fills in the slot. An error is reported. */
void elastic_send_news(struct elastic *elastic, const struct process *process, hvd_news news);

#endif
