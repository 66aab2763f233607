/* status_hosts.h - looks at the ranks of this user on given hosts, by agents: for jobs without a launcher
 * that could be asked. One thread, with a loop of its own. */
#ifndef HVD_LAUNCH_STATUS_HOSTS_H
#define HVD_LAUNCH_STATUS_HOSTS_H

#include "guard.h"
#include "host_pages.h"
#include "hosts.h"
#include "options.h"

/* How the hosts are reached. */
struct status_hosts {
    const struct options *options;
    const struct settings *settings;
    struct hosts *hosts;
    struct guard *guard;
};

/* Returns the views of all ranks that it finds, and their number; the caller owns them, and frees the list.
 * NULL: there is none, or memory is out. Says which hosts can't be asked, and returns their number. */
struct rank_view *status_hosts_look(const struct status_hosts *where, enum stacks stacks, int *count,
                                    int *failed);

#endif
