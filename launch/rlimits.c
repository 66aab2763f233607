/* rlimits.c - checks whether the limits of a host leave room for its ranks, before the first of many is
 * started. One thread. */
#include "rlimits.h"

#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define OWN_PROCESSES 4  /* horovodrun, hvd-job, hvd-keeper, and the thread of the rendezvous */
#define OWN_FILES     32 /* at most, whatever the number of ranks */

/* Returns UINT64_MAX if there is no limit. */
static uint64_t limit_of(__rlimit_resource_t resource)
{
    struct rlimit limit;
    bool known = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return known ? limit.rlim_cur : UINT64_MAX;
}

/* RLIMIT_NPROC does not apply to root. */
static uint64_t limit_of_processes(const char **remedy)
{
    uint64_t of_user = getuid() == 0 ? UINT64_MAX : limit_of(RLIMIT_NPROC), of_system = UINT64_MAX;
    FILE *file = fopen("/proc/sys/kernel/pid_max", "re");
    if (file && fscanf(file, "%" SCNu64, &of_system) != 1)
        of_system = UINT64_MAX;
    if (file)
        fclose(file);
    *remedy = of_user < of_system ? "`ulimit -u`" : "`sysctl kernel.pid_max`";
    return of_user < of_system ? of_user : of_system;
}

/* Returns the number of descriptors of each rank in this process. */
static uint64_t files_of_rank(const struct table *table, bool starts)
{
    int pipes = !starts ? 0 : table->function >= 0 ? OUTPUTS : OUTPUT_RESULT;
    int copies = (table->options->task ? 1 : 0) + (table->options->output ? OUTPUT_RESULT : 0);
    return (uint64_t)(pipes + copies);
}

bool rlimits_allow_page(const struct table *table, int count)
{
    /* Each rank of the job keeps a connection to the rendezvous. */
    uint64_t connections = table->rendezvous ? (uint64_t)table->size : 0;
    uint64_t files = (files_of_rank(table, true) + 1) * (uint64_t)count;
    return files + connections + OWN_FILES <= limit_of(RLIMIT_NOFILE);
}

hvd_code rlimits_check(const struct table *table, int count, bool starts, hvd_status *status)
{
    const char *host = starts ? table->hosts->list[0].name : "horovodrun's own host", *remedy;
    uint64_t each = files_of_rank(table, starts);
    uint64_t files = each * (uint64_t)count, most_files = limit_of(RLIMIT_NOFILE);
    uint64_t processes = (uint64_t)count + OWN_PROCESSES, most_processes = limit_of_processes(&remedy);
    if (files > most_files)
        return status_set(status, HVD_SYSTEM,
                          "too many open files: %d ranks take %" PRIu64 " of them on %s, %" PRIu64
                          " each, and the limit is %" PRIu64 "; raise `ulimit -n`, or spread the ranks over "
                          "more hosts",
                          count, files, host, each, most_files);
    if (starts && processes > most_processes)
        return status_set(status, HVD_SYSTEM,
                          "too many processes: %d ranks take %" PRIu64 " of them on %s, and the limit is "
                          "%" PRIu64 "; raise %s, or spread the ranks over more hosts",
                          count, processes, host, most_processes, remedy);
    return HVD_OK;
}
