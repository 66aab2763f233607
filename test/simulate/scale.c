/* scale.c - what one step costs the ranks of a large job, counted: messages and bytes at the root and at the
 * busiest rank, and how many times in a row messages travel until all ranks run. In rounds: all messages of a
 * round arrive in the next one. */
#include "world.h"

#include "base/status.h"
#include "coordinate/coordinator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 64, FANOUT = 16, RANKS_PER_HOST = 8, REFERENCE = 256 };

/* A step: every rank submits so many requests at once, under the names from the first one on. */
struct step {
    const char *text;
    hvd_operation operation;
    int first, count;
    bool other_rows; /* each number of rows is another one than in all steps before, 300 to 4,395 */
};

enum {
    FIRST_STEP,
    ALL_NAMES,
    ONE_NAME,
    GATHER_FIRST,
    GATHER_AGAIN,
    GATHER_OTHERS,
    EXCHANGE_FIRST,
    EXCHANGE_AGAIN,
    EXCHANGE_OTHERS,
    STEPS
};

static const struct step steps[STEPS] = {
    [FIRST_STEP] = {"64 names, in full", HVD_ALLREDUCE, 0, NAMES, false},
    [ALL_NAMES] = {"64 names, by id", HVD_ALLREDUCE, 0, NAMES, false},
    [ONE_NAME] = {"1 name, by id", HVD_ALLREDUCE, 0, 1, false},
    [GATHER_FIRST] = {"1 allgather, in full", HVD_ALLGATHER, NAMES, 1, false},
    [GATHER_AGAIN] = {"1 allgather, by id", HVD_ALLGATHER, NAMES, 1, false},
    [GATHER_OTHERS] = {"1 allgather, other rows", HVD_ALLGATHER, NAMES, 1, true},
    [EXCHANGE_FIRST] = {"1 alltoall, in full", HVD_ALLTOALL, NAMES + 1, 1, false},
    [EXCHANGE_AGAIN] = {"1 alltoall, by id", HVD_ALLTOALL, NAMES + 1, 1, false},
    [EXCHANGE_OTHERS] = {"1 alltoall, other rows", HVD_ALLTOALL, NAMES + 1, 1, true},
};

struct count {
    long messages, bytes; /* sent and received */
};

struct node {
    struct job *job;
    int rank;
    struct coordinator *coordinator;
    struct pending requests[NAMES + 2];
    struct count count;
};

struct note {
    int from, to;
    size_t length;
    uint8_t *bytes;
};

struct notes {
    struct note *list;
    size_t count, capacity;
};

struct job {
    int size;
    struct topology topology;
    struct node *nodes;
    struct notes coming, going;
    const struct step *step;
    long ran, with_rows;
};

/* What one step of all ranks has cost. */
struct cost {
    struct count root, most;
    int rounds;
};

static char names[NAMES + 2][16];

/* ---- what the coordinators request --------------------------------------------------------------------- */

static void add_count(struct node *node, size_t length)
{
    node->count.messages++;
    node->count.bytes += (long)length;
}

static void send_note(void *owner, int to, const uint8_t *bytes, size_t length)
{
    struct node *node = owner;
    struct notes *notes = &node->job->going;
    if (notes->count == notes->capacity) {
        notes->capacity = notes->capacity ? 2 * notes->capacity : 1024;
        notes->list = realloc(notes->list, notes->capacity * sizeof *notes->list);
    }
    struct note *note = &notes->list[notes->count++];
    *note = (struct note){node->rank, to, length, malloc(length)};
    memcpy(note->bytes, bytes, length);
    add_count(node, length);
}

static void run_batch(void *owner, const struct batch *batch)
{
    struct node *node = owner;
    node->job->ran += batch->count;
    node->job->with_rows += batch->members[0].rows != NULL;
    for (int i = 0; i < batch->count; i++)
        free(batch->requests[i]->signature.bytes);
    coordinator_batch_done(node->coordinator, batch->sequence);
}

static void fail_request(void *owner, struct pending *request, const hvd_status *status)
{
    printf("rank %d: \"%s\": %s\n", ((struct node *)owner)->rank, request->name, status->text);
    exit(1);
}

static void flood_note(void *owner, int except, const uint8_t *bytes, size_t length, bool fatal)
{
    (void)except, (void)bytes, (void)length, (void)fatal;
    printf("rank %d has a fault\n", ((struct node *)owner)->rank);
    exit(1);
}

static struct choice choose(void *owner, const struct signature_summary *what, uint64_t bytes,
                            bool rows_unknown)
{
    (void)owner, (void)what, (void)bytes, (void)rows_unknown;
    return (struct choice){0};
}

static uint64_t own_rows(void *owner, const struct pending *request, int index)
{
    const struct node *node = owner;
    (void)request;
    return node->job->step->other_rows ? 300 + (uint64_t)(node->rank * 1009 + index * 31) % 4096 : 5;
}

/* ---- a job --------------------------------------------------------------------------------------------- */

static void check(hvd_code code, const hvd_status *status)
{
    if (code) {
        printf("%s\n", status->text);
        exit(1);
    }
}

static void open_node(struct job *job, int rank)
{
    struct node *node = &job->nodes[rank];
    hvd_status status;
    struct coordinator_config config = {.fusion_threshold = UINT64_C(1) << 40, .cache_capacity = 1024};
    *node = (struct node){.job = job, .rank = rank};
    config.output = (struct coordinator_output){.owner = node,
                                                .send = send_note,
                                                .flood = flood_note,
                                                .run = run_batch,
                                                .finish = fail_request,
                                                .choose = choose,
                                                .rows = own_rows};
    check(tree_node_init(&config.tree, &job->topology, rank, FANOUT, &status), &status);
    check(coordinator_create(&config, &node->coordinator, &status), &status);
}

static void open_job(struct job *job, int size)
{
    int *hosts = calloc((size_t)size, sizeof *hosts);
    hvd_status status;
    *job = (struct job){.size = size, .nodes = calloc((size_t)size, sizeof *job->nodes)};
    for (int rank = 0; rank < size; rank++)
        hosts[rank] = rank / RANKS_PER_HOST;
    check(topology_init(&job->topology, hosts, size, &status), &status);
    for (int rank = 0; rank < size; rank++)
        open_node(job, rank);
    free(hosts);
}

static void close_job(struct job *job)
{
    for (int rank = 0; rank < job->size; rank++)
        coordinator_destroy(job->nodes[rank].coordinator);
    topology_free(&job->topology);
    free(job->nodes);
    free(job->coming.list);
    free(job->going.list);
}

static void submit(struct node *node, int name)
{
    static char data;
    int64_t shape[] = {100};
    hvd_tensor tensor = {&data, shape, 1, HVD_FLOAT32, HVD_CPU, 0};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = node->job->step->operation,
                           .count = 1,
                           .inputs = &tensor,
                           .reduction = HVD_SUM};
    hvd_status status;
    uint32_t length;
    check(signature_measure(&request, &length, &status), &status);
    node->requests[name] = (struct pending){
        .name = names[name], .signature = signature_encode(&request, NULL, malloc(length), length)};
    check(coordinator_submit(node->coordinator, &node->requests[name], 1, &status), &status);
}

static void deliver(struct job *job)
{
    struct notes coming = job->going;
    job->going = job->coming;
    job->going.count = 0;
    job->coming = coming;
    for (size_t i = 0; i < coming.count; i++) {
        struct note *note = &coming.list[i];
        struct node *to = &job->nodes[note->to];
        add_count(to, note->length);
        coordinator_receive(to->coordinator, note->from, note->bytes, note->length, 1);
        free(note->bytes);
    }
    for (size_t i = 0; i < coming.count; i++)
        coordinator_flush(job->nodes[coming.list[i].to].coordinator, 1);
}

static struct cost run_step(struct job *job, const struct step *step)
{
    struct cost cost = {0};
    job->step = step;
    job->ran = job->with_rows = 0;
    for (int rank = 0; rank < job->size; rank++) {
        job->nodes[rank].count = (struct count){0};
        for (int i = 0; i < step->count; i++)
            submit(&job->nodes[rank], step->first + i);
        coordinator_flush(job->nodes[rank].coordinator, 1);
    }
    for (; job->going.count; cost.rounds++)
        deliver(job);
    if (job->ran != (long)job->size * step->count) {
        printf("%ld requests ran, not %ld\n", job->ran, (long)job->size * step->count);
        exit(1);
    }
    cost.root = job->nodes[0].count;
    for (int rank = 0; rank < job->size; rank++) {
        const struct count *each = &job->nodes[rank].count;
        cost.most.messages = each->messages > cost.most.messages ? each->messages : cost.most.messages;
        cost.most.bytes = each->bytes > cost.most.bytes ? each->bytes : cost.most.bytes;
    }
    return cost;
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

static void measure(int size, struct cost costs[STEPS])
{
    struct job job;
    open_job(&job, size);
    for (int step = 0; step < STEPS; step++) {
        struct cost *cost = &costs[step];
        *cost = run_step(&job, &steps[step]);
        printf("%8d  %-24s %8ld %8ld %14ld %8ld %8d%s\n", size, steps[step].text, cost->root.messages,
               cost->root.bytes, cost->most.messages, cost->most.bytes, cost->rounds,
               job.with_rows ? "  with rows" : "");
    }
    close_job(&job);
}

/* The way up and down again, by the leader of a host and those of the hosts above. */
static int longest(int size)
{
    int levels = 1;
    for (long hosts = 1; hosts * RANKS_PER_HOST < size; hosts *= FANOUT)
        levels++;
    return 2 * levels;
}

/* What a step costs does not grow with the ranks, except for numbers of rows. Equal ones are counted, and the
 * count may have two bytes more; each one that differs costs a few bytes, up to a limit. What repeats costs
 * as much as a name that has no rows. */
static bool is_bounded(int step, const struct cost *few, const struct cost *many)
{
    const struct count *root = &few[step].root, *most = &many[step].most;
    bool repeats = step == GATHER_AGAIN || step == EXCHANGE_AGAIN;
    bool counts = step == GATHER_FIRST || step == EXCHANGE_FIRST;
    long limit =
        steps[step].other_rows ? root->messages / 2 * 4200 : root->bytes + 3 * root->messages * counts;
    return many[step].root.messages == root->messages && many[step].root.bytes <= limit &&
           most->messages <= root->messages + 2 && most->bytes <= limit * 2 &&
           (!repeats || memcmp(&many[step].root, &many[ONE_NAME].root, sizeof many->root) == 0);
}

bool scale_run(int size)
{
    struct cost few[STEPS], many[STEPS];
    bool sound = true;
    for (int name = 0; name < NAMES + 2; name++)
        snprintf(names[name], sizeof names[name], "tensor %d", name);
    printf("%8s  %-24s %8s %8s %14s %8s %8s\n", "ranks", "a step of", "root's", "bytes", "busiest rank's",
           "bytes", "rounds");
    measure(REFERENCE, few);
    measure(size, many);
    for (int step = 0; step < STEPS; step++) {
        if (!is_bounded(step, few, many)) {
            printf("FAILED: %s costs more with more ranks\n", steps[step].text);
            sound = false;
        }
        if (many[step].rounds > (step == FIRST_STEP ? 2 : 1) * longest(size)) {
            printf("FAILED: %s takes more than %d rounds\n", steps[step].text, longest(size));
            sound = false;
        }
    }
    return sound;
}
