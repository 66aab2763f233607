/* allocation.c - the hosts that a batch system has given to this job, from its environment and files. */
#include "base/status.h"
#include "hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *look_up(const struct variables *variables, const char *name)
{
    const char *value = variables->get(variables->owner, name);
    return value ? value : "";
}

/* ---- Slurm: "a[1-3],b" and "2(x3),1" ------------------------------------------------------------------- */

struct nodes {
    struct hosts *hosts;
    const char *tasks, *at; /* the list, and its entry for this node */
    long repeats;           /* of that entry that are left */
    hvd_code code;
    hvd_status *status;
};

static bool take_node(void *owner, const char *name)
{
    struct nodes *nodes = owner;
    char *end;
    long slots = strtol(nodes->at, &end, 10);
    long times = strncmp(end, "(x", 2) == 0 ? strtol(end + 2, &end, 10) : 1;
    end += *end == ')';
    if (slots < 1 || times < 1 || (*end != ',' && *end)) {
        nodes->code =
            status_set(nodes->status, HVD_INVALID_ARGUMENT,
                       "SLURM_TASKS_PER_NODE=%s has no number of tasks for node %s", nodes->tasks, name);
        return false;
    }
    nodes->code = hosts_add(nodes->hosts, name, slots, "SLURM_JOB_NODELIST", nodes->status);
    nodes->repeats = (nodes->repeats ? nodes->repeats : times) - 1;
    if (!nodes->repeats)
        nodes->at = end + (*end == ',');
    return !nodes->code;
}

static hvd_code read_slurm(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    const char *list = look_up(variables, "SLURM_JOB_NODELIST"),
               *tasks = look_up(variables, "SLURM_TASKS_PER_NODE");
    if (!*tasks)
        tasks = look_up(variables, "SLURM_JOB_CPUS_PER_NODE");
    struct nodes nodes = {.hosts = hosts, .tasks = tasks, .at = tasks, .status = status};
    snprintf(hosts->source, sizeof hosts->source, "Slurm job %s", look_up(variables, "SLURM_JOB_ID"));
    hosts->by_srun = true;
    if (!nodelist_visit(list, take_node, &nodes))
        return status_set(status, HVD_INVALID_ARGUMENT, "SLURM_JOB_NODELIST=%s is malformed", list);
    return nodes.code;
}

/* ---- files -------------------------------------------------------------------------------------------- */

/* A host in each line; `counted`: followed by its slots, else a line is one slot. */
static hvd_code read_file(struct hosts *hosts, const char *path, bool counted, hvd_status *status)
{
    char line[1024], name[1024] = "", *end;
    int64_t slots = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return status_set_errno(status, errno, "can't read the file of %s, %s", hosts->source, path);
    hvd_code code = HVD_OK;
    /* Equal ones follow each other: a host is added once, when the next one comes. */
    while (!code && fgets(line, sizeof line, file)) {
        size_t length = strcspn(line, " \t\r\n");
        int64_t more = counted ? strtoll(line + length, &end, 10) : 1;
        if (length == 0)
            continue;
        if (*name && (strncmp(line, name, length) != 0 || name[length])) {
            code = hosts_add(hosts, name, slots, path, status);
            slots = 0;
        }
        snprintf(name, sizeof name, "%.*s", (int)length, line);
        slots += more;
    }
    if (!code && ferror(file))
        code = status_set_errno(status, errno, "can't read the file of %s, %s", hosts->source, path);
    fclose(file);
    if (!code && *name)
        code = hosts_add(hosts, name, slots, path, status);
    return code;
}

static hvd_code read_pbs(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    snprintf(hosts->source, sizeof hosts->source, "PBS job %s", look_up(variables, "PBS_JOBID"));
    return read_file(hosts, look_up(variables, "PBS_NODEFILE"), false, status);
}

static hvd_code read_sge(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    snprintf(hosts->source, sizeof hosts->source, "Grid Engine job %s", look_up(variables, "JOB_ID"));
    return read_file(hosts, look_up(variables, "PE_HOSTFILE"), true, status);
}

/* ---- LSF ----------------------------------------------------------------------------------------------- */

/* Where the script runs on a node of its own, that comes first, with a single slot. */
static void drop_batch_node(struct hosts *hosts)
{
    bool fewest = hosts->count > 1 && hosts->list[0].slots == 1;
    for (int i = 1; fewest && i < hosts->count; i++)
        fewest = hosts->list[i].slots > 1;
    if (hosts->count < 2 || (!fewest && strncasecmp(hosts->list[0].name, "batch", strlen("batch")) != 0))
        return;
    hosts->count--;
    memmove(&hosts->list[0], &hosts->list[1], (size_t)hosts->count * sizeof *hosts->list);
}

/* "host1 2 host2 4" */
static hvd_code read_pairs(struct hosts *hosts, const char *pairs, hvd_status *status)
{
    char *copy = strdup(pairs), *rest = NULL;
    hvd_code code = copy ? HVD_OK : status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the hosts");
    for (char *name = copy ? strtok_r(copy, " ", &rest) : NULL; name && !code;
         name = strtok_r(NULL, " ", &rest)) {
        const char *slots = strtok_r(NULL, " ", &rest);
        code = hosts_add(hosts, name, slots ? strtoll(slots, NULL, 10) : 0, "LSB_MCPU_HOSTS", status);
    }
    free(copy);
    return code;
}

static hvd_code read_lsf(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    const char *file = look_up(variables, "LSB_DJOB_RANKFILE");
    snprintf(hosts->source, sizeof hosts->source, "LSF job %s", look_up(variables, "LSB_JOBID"));
    hvd_code code = *file ? read_file(hosts, file, false, status)
                          : read_pairs(hosts, look_up(variables, "LSB_MCPU_HOSTS"), status);
    drop_batch_node(hosts);
    return code;
}

/* ---- the table ----------------------------------------------------------------------------------------- */

static const struct {
    const char *job, *list; /* it fits when both are set */
    hvd_code (*read)(struct hosts *hosts, const struct variables *variables, hvd_status *status);
} systems[] = {
    {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", read_slurm},
    {"LSB_JOBID", "LSB_DJOB_RANKFILE", read_lsf},
    {"LSB_JOBID", "LSB_MCPU_HOSTS", read_lsf},
    {"PBS_JOBID", "PBS_NODEFILE", read_pbs},
    {"JOB_ID", "PE_HOSTFILE", read_sge},
};

hvd_code hosts_read_allocation(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const char *list = look_up(variables, systems[i].list);
        if (!*look_up(variables, systems[i].job) || !*list)
            continue;
        hvd_code code = systems[i].read(hosts, variables, status);
        /* Without hosts all ranks would run on this one. */
        if (!code && !hosts->count)
            code = status_set(status, HVD_INVALID_ARGUMENT, "%s: %s=%s names no host", hosts->source,
                              systems[i].list, list);
        return code;
    }
    return HVD_OK;
}
