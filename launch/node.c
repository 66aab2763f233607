/* node.c - one reader for each scheduler that starts one command on each node, the table of them, and what
 * the options say. No state; one thread. */
#include "node.h"

#include "base/status.h"
#include "net/addresses.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NEEDED_LIMIT 4
#define PORT_MAXIMUM 65535

struct reader {
    const char *source;
    const char *needed[NEEDED_LIMIT]; /* all are set if it has started this command; first index, count */
    const char *ranks;                /* the variable with the number of ranks of this node, or NULL */
    const char *host_file; /* the variable with a file of hosts that node 0 may call by ssh, or NULL */
    /* Reads where node 0 is, and what else it says. */
    hvd_code (*read)(struct node *node, const struct variables *variables, hvd_status *status);
};

static const char *look_up(const struct variables *variables, const char *name)
{
    const char *value = variables->get(variables->owner, name);
    return value ? value : "";
}

static hvd_code parse(const char *text, const char *name, int64_t maximum, int64_t *value, hvd_status *status)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (errno || end == text || *end || *value < 0 || *value > maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%.100s is not a whole number from 0 to %lld",
                          name, text, (long long)maximum);
    return HVD_OK;
}

static int64_t most(void)
{
    return (int64_t)setting_by_key("size")->maximum;
}

static hvd_code put_rendezvous(struct node *node, const char *host, int64_t port, const char *source,
                               hvd_status *status)
{
    int length = snprintf(node->rendezvous, sizeof node->rendezvous,
                          strchr(host, ':') && *host != '[' ? "[%s]:%lld" : "%s:%lld", host, (long long)port);
    if (length < 0 || (size_t)length >= sizeof node->rendezvous || host[strcspn(host, " \t\r\n,")])
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%.100s is no name of a host", source, host);
    return HVD_OK;
}

/* ---- readers ------------------------------------------------------------------------------------------- */

/* The store of PyTorch listens at PET_MASTER_PORT in programs that use it, so the next one is used.
 * PET_NNODES may be a range, "2:2", as for torchrun. */
static hvd_code read_torch(struct node *node, const struct variables *variables, hvd_status *status)
{
    int64_t port;
    TRY(parse(look_up(variables, "PET_MASTER_PORT"), "PET_MASTER_PORT", PORT_MAXIMUM - 1, &port, status));
    node->own_port = true;
    return put_rendezvous(node, look_up(variables, "PET_MASTER_ADDR"), port + 1, "PET_MASTER_ADDR", status);
}

/* Lines of addresses; that of node 0 is the first. */
static hvd_code read_skypilot(struct node *node, const struct variables *variables, hvd_status *status)
{
    char first[NODE_ADDRESS_TEXT];
    const char *addresses = look_up(variables, "SKYPILOT_NODE_IPS");
    addresses += strspn(addresses, " \t\r\n");
    snprintf(first, sizeof first, "%.*s", (int)strcspn(addresses, " \t\r\n"), addresses);
    return put_rendezvous(node, first, NODE_PORT, "SKYPILOT_NODE_IPS", status);
}

static hvd_code read_dstack(struct node *node, const struct variables *variables, hvd_status *status)
{
    return put_rendezvous(node, look_up(variables, "DSTACK_MASTER_NODE_IP"), NODE_PORT,
                          "DSTACK_MASTER_NODE_IP", status);
}

/* Any node may be the main one, which is node 0 here, and the only one without the main node's address. */
static hvd_code read_aws_batch(struct node *node, const struct variables *variables, hvd_status *status)
{
    static const char *const name = "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS";
    const char *address = look_up(variables, name);
    int64_t first;
    TRY(parse(look_up(variables, "AWS_BATCH_JOB_MAIN_NODE_INDEX"), "AWS_BATCH_JOB_MAIN_NODE_INDEX",
              node->count - 1, &first, status));
    node->index = (node->index - first + node->count) % node->count;
    if (!*address && node->index)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s is not set on a node that is not the main one",
                          name);
    return put_rendezvous(node, *address ? address : "0.0.0.0", NODE_PORT, name, status);
}

/* Copies the next text of a list such as ["algo-1","algo-2"], whose texts need no escapes. Returns what
 * follows it; NULL: there is none. */
static const char *next_text(const char *list, char *text, size_t capacity)
{
    const char *begin = strchr(list, '"'), *end = begin ? strchr(begin + 1, '"') : NULL;
    if (!end || (size_t)(end - begin) > capacity)
        return NULL;
    snprintf(text, capacity, "%.*s", (int)(end - begin - 1), begin + 1);
    return end + 1;
}

static hvd_code read_sagemaker(struct node *node, const struct variables *variables, hvd_status *status)
{
    const char *list = look_up(variables, "SM_HOSTS"), *current = look_up(variables, "SM_CURRENT_HOST");
    char name[256], first[256] = "";
    for (const char *rest = list; (rest = next_text(rest, name, sizeof name));) {
        if (!node->count++)
            memcpy(first, name, sizeof first);
        if (strcmp(name, current) == 0)
            node->index = node->count - 1;
    }
    if (node->index < 0 || node->count > most())
        return status_set(status, HVD_INVALID_ARGUMENT, "SM_HOSTS=%.200s has no SM_CURRENT_HOST=%.100s", list,
                          current);
    return put_rendezvous(node, first, NODE_PORT, "SM_HOSTS", status);
}

/* ---- the table ----------------------------------------------------------------------------------------- */

/* What the user has written is before what a scheduler writes. */
static const struct reader readers[] = {
    {.source = "HOROVOD_NODE_RANK", .needed = {"HOROVOD_NODE_RANK", "HOROVOD_NODES"}},
    {.source = "an indexed Kubernetes Job", .needed = {"JOB_COMPLETION_INDEX", "HOROVOD_NODES"}},
    {.source = "torchrun's variables (PET_...)",
     .needed = {"PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT"},
     .ranks = "PET_NPROC_PER_NODE",
     .read = read_torch},
    {.source = "SkyPilot",
     .needed = {"SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_IPS"},
     .ranks = "SKYPILOT_NUM_GPUS_PER_NODE",
     .read = read_skypilot},
    {.source = "dstack",
     .needed = {"DSTACK_NODE_RANK", "DSTACK_NODES_NUM", "DSTACK_MASTER_NODE_IP"},
     .ranks = "DSTACK_GPUS_PER_NODE",
     .host_file = "DSTACK_MPI_HOSTFILE",
     .read = read_dstack},
    {.source = "AWS Batch",
     .needed = {"AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_MAIN_NODE_INDEX"},
     .read = read_aws_batch},
    {.source = "SageMaker",
     .needed = {"SM_CURRENT_HOST", "SM_HOSTS"},
     .ranks = "SM_NUM_GPUS",
     .read = read_sagemaker},
};

static bool fits(const struct reader *reader, const struct variables *variables)
{
    for (int i = 0; i < NEEDED_LIMIT && reader->needed[i]; i++) {
        if (!*look_up(variables, reader->needed[i]))
            return false;
    }
    return true;
}

/* Parses a number, or the larger one of a range of equal ones: "2:2". */
static hvd_code read_count(struct node *node, const char *text, const char *name, hvd_status *status)
{
    const char *colon = strchr(text, ':');
    if (colon &&
        (strlen(text) != 2 * strlen(colon + 1) + 1 || strncmp(text, colon + 1, (size_t)(colon - text)) != 0))
        return status_set(status, HVD_UNSUPPORTED,
                          "%s=%.100s: the number of nodes can't change while the job runs; give one number",
                          name, text);
    return parse(colon ? colon + 1 : text, name, most(), &node->count, status);
}

static hvd_code check(const struct node *node, const char *index, const char *count, hvd_status *status)
{
    if (node->count < 1)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%lld must be at least 1", count,
                          (long long)node->count);
    if (node->index >= node->count)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s=%lld is outside of %lld nodes (%s); nodes are counted from 0", index,
                          (long long)node->index, (long long)node->count, count);
    return HVD_OK;
}

hvd_code node_read(struct node *node, const struct variables *variables, hvd_status *status)
{
    const struct reader *reader = NULL;
    *node = (struct node){.index = -1};
    for (size_t i = 0; i < sizeof readers / sizeof *readers && !reader; i++)
        reader = fits(&readers[i], variables) ? &readers[i] : NULL;
    if (!reader)
        return HVD_OK;
    const char *index = reader->needed[0], *count = reader->needed[1];
    const char *ranks = reader->ranks ? look_up(variables, reader->ranks) : "";
    node->source = reader->source;
    node->called = reader->host_file && *look_up(variables, reader->host_file);
    node->own_port = true;
    if (reader->read != read_sagemaker) { /* which has names instead of numbers */
        TRY(parse(look_up(variables, index), index, most(), &node->index, status));
        TRY(read_count(node, look_up(variables, count), count, status));
        TRY(check(node, index, count, status));
    }
    /* A number of GPUs may be 0, and torchrun's may be a word, such as auto. */
    if (*ranks >= '0' && *ranks <= '9')
        TRY(parse(ranks, reader->ranks, most(), &node->ranks, status));
    return reader->read ? reader->read(node, variables, status) : HVD_OK;
}

/* ---- options ------------------------------------------------------------------------------------------- */

/* Returns the first option that is given of those that say where the ranks are; NULL: none is. */
static const char *other_hosts(const struct options *options)
{
    return options->hosts              ? "--hosts"
           : options->hostfile         ? "--hostfile"
           : options->discovery_script ? "--host-discovery-script"
           : options->min_num_proc     ? "--min-np"
           : options->mpi              ? "--mpi"
           : options->host_setup       ? "--host-setup"
           : options->rsh_agent        ? "--rsh-agent"
           : options->slots_per_host   ? "--slots-per-host"
           : options->task             ? "horovod.run"
                                       : NULL;
}

/* The port that nobody has given is one of HOROVOD_PORTS, if there are any: the same on all nodes. */
static void pick_port(struct node *node, const char *ports)
{
    char *colon = strrchr(node->rendezvous, ':');
    int port = colon ? atoi(colon + 1) : 0;
    if (node->own_port && port)
        snprintf(colon + 1, sizeof node->rendezvous - (size_t)(colon + 1 - node->rendezvous), "%d",
                 ports_pick(ports, port, port));
}

/* Adds the port that an address lacks. */
static hvd_code give_rendezvous(struct node *node, const char *address, const char *source,
                                hvd_status *status)
{
    char host[SOCKET_TEXT * 3];
    const char *port;
    int64_t number = NODE_PORT;
    if (!socket_split(address, host, sizeof host, &port) || !*host || strchr(address, ','))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s=%.200s must be host:port of node 0, e.g. node0:29600", source, address);
    char name[64];
    snprintf(name, sizeof name, "the port of %s", source);
    if (*port)
        TRY(parse(port, name, PORT_MAXIMUM, &number, status));
    node->own_port = !*port;
    return put_rendezvous(node, host, number ? number : NODE_PORT, source, status);
}

static hvd_code check_known(const struct node *node, hvd_status *status)
{
    if (!node->count)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--node-rank and --rendezvous need --nnodes, the number of nodes");
    if (node->index < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "which of the %lld nodes is this? Say --node-rank N, from 0 on, or set "
                          "HOROVOD_NODE_RANK",
                          (long long)node->count);
    if (!*node->rendezvous)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "where is node 0? Say --rendezvous HOST:PORT, or set HOROVOD_RENDEZVOUS, to the same "
            "on all nodes");
    return HVD_OK;
}

hvd_code node_find(struct node *node, const struct options *options, const struct settings *settings,
                   const struct variables *variables, hvd_status *status)
{
    const char *option = options->nodes        ? "--nnodes"
                         : options->node_rank  ? "--node-rank"
                         : options->rendezvous ? "--rendezvous"
                                               : NULL;
    const char *other = other_hosts(options);
    *node = (struct node){.index = -1};
    if (other && option)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: with one command on each node (%s) each node has its own ranks; leave one of "
                          "the two out",
                          other, option);
    if (other)
        return HVD_OK;
    /* A program that a rank starts inherits the scheduler's variables. */
    if (!*look_up(variables, "HOROVOD_JOB"))
        TRY(node_read(node, variables, status));
    bool secret = *settings->secret || *settings->secret_file;
    if (node->called && !option && !secret && node->index == 0)
        node->source = NULL;
    if (!node->source && !option)
        return HVD_OK;
    if (options->nodes)
        node->count = options->nodes;
    if (options->node_rank)
        node->index = options->node_rank - 1;
    node->source = option ? option : node->source;
    if (options->rendezvous)
        TRY(give_rendezvous(node, options->rendezvous, "--rendezvous", status));
    else if (*settings->rendezvous)
        TRY(give_rendezvous(node, settings->rendezvous, "HOROVOD_RENDEZVOUS", status));
    if (options->num_proc)
        node->ranks = options->num_proc;
    if (!node->ranks)
        node->ranks = node_count_gpus(variables);
    node->ranks = node->ranks ? node->ranks : 1;
    if (node->count == 1 && node->index <= 0) {
        node->source = NULL;
        return HVD_OK;
    }
    TRY(check_known(node, status));
    TRY(check(node, "--node-rank", "--nnodes", status));
    pick_port(node, settings->ports);
    return HVD_OK;
}

/* ---- GPUs ---------------------------------------------------------------------------------------------- */

/* Counts the entries of a list such as "0,1" or "GPU-8932f937,MIG-..."; the first one below 0 ends it, as for
 * CUDA. */
static int count_entries(const char *list)
{
    int count = 0;
    while (*(list += strspn(list, ", "))) {
        if (*list == '-')
            break;
        count++;
        list += strcspn(list, ",");
    }
    return count;
}

int node_count_gpus(const struct variables *variables)
{
    static const char *const lists[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
                                        "ROCR_VISIBLE_DEVICES"};
    int count = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *list = variables->get(variables->owner, lists[i]);
        if (list)
            return count_entries(list);
    }
    DIR *devices = opendir("/dev");
    for (const struct dirent *entry; devices && (entry = readdir(devices));) {
        const char *number = strncmp(entry->d_name, "nvidia", 6) == 0 ? entry->d_name + 6 : "";
        count += *number && !number[strspn(number, "0123456789")];
    }
    if (devices)
        closedir(devices);
    return count;
}
