/* starters.c - one reader for each starter, and the table of them in the order in which they are asked. No
 * state; any thread. */
#include "bootstrap/starters.h"

#include "base/settings.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLES_LIMIT 4
#define PORT_MAXIMUM    65535
/* All ranks derive the rendezvous' port from the job's number; these are below the ephemeral ports. */
#define PORTS_FIRST 20000
#define PORTS_COUNT 10000

struct reader {
    const char *name;
    const char *needed[VARIABLES_LIMIT]; /* all are set if it has started this process; first rank, size */
    const char *local_size;              /* the variable with the number of ranks on this host, or NULL */
    /* Reads what else it says; NULL: nothing. */
    hvd_code (*read)(struct starter *starter, const struct variables *variables, hvd_status *status);
    bool launched, by_hand;
};

static const char *get_from_process(const void *owner, const char *name)
{
    (void)owner;
    return getenv(name);
}

const struct variables variables_of_process = {get_from_process, NULL};

static const char *look_up(const struct variables *variables, const char *name)
{
    const char *value = variables->get(variables->owner, name);
    return value ? value : "";
}

static hvd_code number(const struct variables *variables, const char *name, double maximum, int64_t *value,
                       hvd_status *status)
{
    const char *text = look_up(variables, name);
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (errno || end == text || *end || *value < 0 || (double)*value > maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s is not a whole number from 0 to %.0f", name,
                          text, maximum);
    return HVD_OK;
}

/* ---- names of nodes ----------------------------------------------------------------------------------- */

struct expansion {
    char name[STARTER_TEXT];
    bool (*visit)(void *owner, const char *name);
    void *owner;
    bool ended;
};

/* Expands `rest`, such as "a[1-3,07]-x", after the `length` bytes that the name has so far. */
static bool expand(struct expansion *to, size_t length, const char *rest)
{
    size_t plain = strcspn(rest, "[],");
    if (length + plain >= sizeof to->name)
        return false;
    memcpy(to->name + length, rest, plain);
    length += plain;
    rest += plain;
    if (*rest == ',' || !*rest) {
        to->name[length] = '\0';
        to->ended = length == 0 || !to->visit(to->owner, to->name);
        return length > 0;
    }
    const char *after = strchr(rest, ']');
    if (*rest == ']' || !after)
        return false;
    do {
        char *end;
        int width = (int)strcspn(++rest, "-,]");
        long first = strtol(rest, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (width == 0 || *rest == '-' || first > last || end > after || (*end != ',' && *end != ']'))
            return false;
        rest = end;
        for (long i = first; i <= last && !to->ended; i++) {
            int digits = snprintf(to->name + length, sizeof to->name - length, "%0*ld", width, i);
            if (length + (size_t)digits >= sizeof to->name || !expand(to, length + (size_t)digits, after + 1))
                return false;
        }
    } while (*rest == ',');
    return true;
}

bool nodelist_visit(const char *list, bool (*visit)(void *owner, const char *name), void *owner)
{
    struct expansion to = {.visit = visit, .owner = owner};
    for (;;) {
        if (!expand(&to, 0, list))
            return false;
        if (to.ended)
            return true;
        for (bool inside = false; *list && (inside || *list != ','); list++)
            inside = *list == '[' || (inside && *list != ']');
        if (!*list++)
            return true;
    }
}

static bool keep_first(void *owner, const char *name)
{
    snprintf(owner, STARTER_TEXT, "%s", name);
    return false;
}

/* ---- readers ------------------------------------------------------------------------------------------ */

/* The store of PyTorch listens at MASTER_PORT, so the next one is used. */
static hvd_code read_torchrun(struct starter *starter, const struct variables *variables, hvd_status *status)
{
    int64_t port;
    TRY(number(variables, "MASTER_PORT", PORT_MAXIMUM - 1, &port, status));
    starter->port = (int)port + 1;
    starter->number = starter->port;
    snprintf(starter->host, sizeof starter->host, "%s", look_up(variables, "MASTER_ADDR"));
    snprintf(starter->job, sizeof starter->job, "torchrun-%.200s-%lld-%s", starter->host, (long long)port,
             look_up(variables, "TORCHELASTIC_RESTART_COUNT"));
    return HVD_OK;
}

/* JAX's coordinator listens at its port, so the next one is used. */
static hvd_code read_jax(struct starter *starter, const struct variables *variables, hvd_status *status)
{
    const char *address = look_up(variables, "JAX_COORDINATOR_ADDRESS"), *port = strrchr(address, ':');
    char *end;
    long number = port ? strtol(port + 1, &end, 10) : 0;
    if (number < 1 || number >= PORT_MAXIMUM || *end || port == address)
        return status_set(status, HVD_INVALID_ARGUMENT, "JAX_COORDINATOR_ADDRESS=%.200s is not host:port",
                          address);
    /* An IPv6 address is in brackets there, and not here. */
    bool brackets = *address == '[' && port[-1] == ']';
    starter->port = (int)number + 1;
    starter->number = starter->port;
    snprintf(starter->host, sizeof starter->host, "%.*s", (int)(port - address) - 2 * brackets,
             address + brackets);
    snprintf(starter->job, sizeof starter->job, "jax-%.200s-%ld", starter->host, number);
    return HVD_OK;
}

/* The number is a hash of mpirun's host name and process id; the other variable is random. */
static hvd_code read_open_mpi(struct starter *starter, const struct variables *variables, hvd_status *status)
{
    (void)status;
    const char *number = look_up(variables, "PMIX_NAMESPACE");
    if (!*number)
        number = look_up(variables, "OMPI_MCA_ess_base_jobid");
    if (*number)
        snprintf(starter->job, sizeof starter->job, "mpirun-%s-%s", number,
                 look_up(variables, "OMPI_MCA_orte_precondition_transports"));
    return HVD_OK;
}

static hvd_code read_jsrun(struct starter *starter, const struct variables *variables, hvd_status *status)
{
    (void)status;
    const char *step = look_up(variables, "PMIX_NAMESPACE"), *job = look_up(variables, "LSB_JOBID");
    if (*step || *job)
        snprintf(starter->job, sizeof starter->job, "jsrun-%s-%s-%s", job, look_up(variables, "LSB_JOBINDEX"),
                 step);
    return HVD_OK;
}

static hvd_code read_pmi(struct starter *starter, const struct variables *variables, hvd_status *status)
{
    int64_t descriptor;
    TRY(number(variables, "PMI_FD", INT16_MAX, &descriptor, status));
    starter->pmi = (int)descriptor;
    return HVD_OK;
}

/* Only processes that srun starts have a step; a batch script has the other variables, but is no rank. */
static hvd_code read_slurm(struct starter *starter, const struct variables *variables, hvd_status *status)
{
    int64_t job, step;
    TRY(number(variables, "SLURM_JOB_ID", UINT32_MAX, &job, status));
    TRY(number(variables, "SLURM_STEP_ID", UINT32_MAX, &step, status));
    starter->one_host = strcmp(look_up(variables, "SLURM_STEP_NUM_NODES"), "1") == 0;
    starter->number = job * 16 + step;
    starter->port = PORTS_FIRST + (int)(starter->number % PORTS_COUNT);
    snprintf(starter->job, sizeof starter->job, "srun-%s-%lld.%lld", look_up(variables, "SLURM_CLUSTER_NAME"),
             (long long)job, (long long)step);
    const char *nodes = look_up(variables, "SLURM_STEP_NODELIST");
    /* With an arbitrary distribution rank 0 may be on any of the nodes. */
    if (strncmp(look_up(variables, "SLURM_DISTRIBUTION"), "arbitrary", strlen("arbitrary")) == 0 || !*nodes)
        return HVD_OK;
    if (!nodelist_visit(nodes, keep_first, starter->host))
        return status_set(status, HVD_INVALID_ARGUMENT, "SLURM_STEP_NODELIST=%s is malformed", nodes);
    return HVD_OK;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

/* Horovod's own variables are first: a launcher, which serves the rendezvous, also names the job. A starter
 * that another one starts is before it: torchrun or mpirun under srun. */
static const struct reader readers[] = {
    {.name = "horovodrun", .needed = {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_JOB"}, .launched = true},
    {.name = "HOROVOD_ variables", .needed = {"HOROVOD_RANK", "HOROVOD_SIZE"}, .by_hand = true},
    {.name = "torchrun",
     .needed = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
     .local_size = "LOCAL_WORLD_SIZE",
     .read = read_torchrun},
    {.name = "JAX",
     .needed = {"JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_COORDINATOR_ADDRESS"},
     .read = read_jax},
    {.name = "jsrun",
     .needed = {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
     .local_size = "JSM_NAMESPACE_LOCAL_SIZE",
     .read = read_jsrun},
    {.name = "Open MPI",
     .needed = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .read = read_open_mpi},
    {.name = "PMI",
     .needed = {"PMI_RANK", "PMI_SIZE", "PMI_FD"},
     .local_size = "MPI_LOCALNRANKS",
     .read = read_pmi},
    {.name = "Slurm",
     .needed = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "SLURM_JOB_ID"},
     .read = read_slurm},
    {.name = "a Kubernetes Job", .needed = {"JOB_COMPLETION_INDEX", "HOROVOD_SIZE"}, .by_hand = true},
};

static bool fits(const struct reader *reader, const struct variables *variables)
{
    for (int i = 0; i < VARIABLES_LIMIT && reader->needed[i]; i++) {
        if (!*look_up(variables, reader->needed[i]))
            return false;
    }
    return true;
}

static hvd_code read_places(struct starter *starter, const struct reader *reader,
                            const struct variables *variables, hvd_status *status)
{
    int64_t local = 0;
    const struct setting *size = setting_by_key("size");
    TRY(number(variables, reader->needed[0], size->maximum - 1, &starter->rank, status));
    TRY(number(variables, reader->needed[1], size->maximum, &starter->size, status));
    if (starter->rank >= starter->size)
        return status_set(status, HVD_INVALID_ARGUMENT, "rank %lld is outside a job of size %lld (%s, %s)",
                          (long long)starter->rank, (long long)starter->size, reader->needed[0],
                          reader->needed[1]);
    if (reader->local_size && *look_up(variables, reader->local_size))
        TRY(number(variables, reader->local_size, size->maximum, &local, status));
    starter->one_host = local == starter->size;
    return HVD_OK;
}

/* If half of torchrun's variables are missing, this is not a job of one rank: it is an error. */
static hvd_code refuse_half(const struct variables *variables, hvd_status *status)
{
    const char *rank = look_up(variables, "RANK"), *size = look_up(variables, "WORLD_SIZE");
    bool has_address = *look_up(variables, "MASTER_ADDR");
    if (!*rank || strtol(size, NULL, 10) < 2)
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "RANK=%s and WORLD_SIZE=%s are set, but %s is not; set MASTER_ADDR and MASTER_PORT on "
                      "all ranks to rank 0's host and a free port, as torchrun does, or unset RANK for a job "
                      "of one rank",
                      rank, size, has_address ? "MASTER_PORT" : "MASTER_ADDR");
}

hvd_code starter_read(struct starter *starter, const struct variables *variables, hvd_status *status)
{
    *starter = (struct starter){.size = 1, .pmi = -1};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!fits(&readers[i], variables))
            continue;
        starter->name = readers[i].name;
        starter->launched = readers[i].launched;
        starter->by_hand = readers[i].by_hand;
        snprintf(starter->variables, sizeof starter->variables, "%s, %s", readers[i].needed[0],
                 readers[i].needed[1]);
        hvd_code code = read_places(starter, &readers[i], variables, status);
        return code || !readers[i].read ? code : readers[i].read(starter, variables, status);
    }
    return refuse_half(variables, status);
}
