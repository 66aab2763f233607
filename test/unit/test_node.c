/* test_node.c - which node this is, by options and by what schedulers say in the environment. */
#include "../../launch/node.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* "NAME=value" entries, ended by NULL. */
static const char *get(const void *owner, const char *name)
{
    size_t length = strlen(name);
    for (const char *const *entry = owner; *entry; entry++) {
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    }
    return NULL;
}

static struct settings settings;
static struct options options;

static hvd_code find(struct node *node, const char *const *list, hvd_status *status)
{
    return node_find(node, &options, &settings, &(struct variables){get, list}, status);
}

static void reset(void)
{
    settings = (struct settings){.rendezvous = "", .ports = "", .secret = "0123", .secret_file = ""};
    options = (struct options){0};
}

static void check(const char *const *list, int index, int count, int ranks, const char *rendezvous)
{
    struct node node;
    ASSERT_OK(find(&node, list, &check_status));
    assert_non_null(node.source);
    assert_int_equal(node.index, index);
    assert_int_equal(node.count, count);
    assert_int_equal(node.ranks, ranks);
    assert_string_equal(node.rendezvous, rendezvous);
}

static void check_fails(const char *words, hvd_code code, const char *const *list)
{
    struct node node;
    ASSERT_FAILS(find(&node, list, &check_status), code, words);
}

#define LIST(...)                                                                                            \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, "CUDA_VISIBLE_DEVICES=", NULL                                                           \
    }
#define CHECK(index, count, ranks, at, ...) check(LIST(__VA_ARGS__), index, count, ranks, at)
#define FAIL(words, ...)                    check_fails(words, HVD_INVALID_ARGUMENT, LIST(__VA_ARGS__))

#define TORCH "PET_NNODES=3", "PET_NODE_RANK=2", "PET_MASTER_ADDR=job-0.job", "PET_MASTER_PORT=29500"
#define SKYPILOT                                                                                             \
    "SKYPILOT_NODE_RANK=1", "SKYPILOT_NUM_NODES=2", "SKYPILOT_NODE_IPS=10.0.0.4\n10.0.0.9",                  \
        "SKYPILOT_NUM_GPUS_PER_NODE=8"
#define DSTACK                                                                                               \
    "DSTACK_NODE_RANK=0", "DSTACK_NODES_NUM=2", "DSTACK_MASTER_NODE_IP=10.1.0.2", "DSTACK_GPUS_PER_NODE=0",  \
        "DSTACK_NODES_IPS=10.1.0.2\n10.1.0.3"
#define AWS              "AWS_BATCH_JOB_NUM_NODES=4", "AWS_BATCH_JOB_MAIN_NODE_INDEX=1"
#define AWS_MAIN_ADDRESS "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS=10.0.0.7"
#define SAGEMAKER        "SM_HOSTS=[\"algo-1\", \"algo-2\", \"algo-3\"]"

TEST(no_node)
{
    struct node node;
    reset();
    ASSERT_OK(find(&node, LIST("HOROVOD_RANK=1", "JOB_COMPLETION_INDEX=2", "HOROVOD_SIZE=4"), &check_status));
    assert_null(node.source);
    assert_int_equal(node.ranks, 0);
    /* A program that a rank starts. */
    ASSERT_OK(find(&node, LIST(TORCH, "HOROVOD_JOB=0123", "HOROVOD_RANK=1"), &check_status));
    assert_null(node.source);
}

TEST(schedulers)
{
    reset();
    CHECK(2, 3, 1, "job-0.job:29501", TORCH, "PET_NPROC_PER_NODE=auto");
    CHECK(2, 3, 4, "job-0.job:29501", TORCH, "PET_NPROC_PER_NODE=4");
    CHECK(1, 2, 8, "10.0.0.4:29600", SKYPILOT);
    CHECK(0, 2, 1, "10.1.0.2:29600", DSTACK);
    CHECK(0, 4, 1, "0.0.0.0:29600", AWS, "AWS_BATCH_JOB_NODE_INDEX=1");
    CHECK(1, 4, 1, "10.0.0.7:29600", AWS, "AWS_BATCH_JOB_NODE_INDEX=2", AWS_MAIN_ADDRESS);
    CHECK(3, 4, 1, "10.0.0.7:29600", AWS, "AWS_BATCH_JOB_NODE_INDEX=0", AWS_MAIN_ADDRESS);
    CHECK(1, 3, 2, "algo-1:29600", SAGEMAKER, "SM_CURRENT_HOST=algo-2", "SM_NUM_GPUS=2");
    settings.rendezvous = "train-0.train:4000";
    CHECK(1, 2, 1, "train-0.train:4000", "JOB_COMPLETION_INDEX=1", "HOROVOD_NODES=2");
    CHECK(0, 2, 1, "train-0.train:4000", "JOB_COMPLETION_INDEX=1", "HOROVOD_NODES=2", "HOROVOD_NODE_RANK=0");
    CHECK(2, 3, 1, "train-0.train:4000", TORCH); /* what the user has written takes precedence */
}

TEST(options_before_variables)
{
    reset();
    options = (struct options){.node_rank = 1, .num_proc = 6, .rendezvous = "fd00::7"};
    CHECK(0, 3, 6, "[fd00::7]:29600", TORCH, "PET_NPROC_PER_NODE=4");
    options = (struct options){.nodes = 5, .node_rank = 5, .rendezvous = "[fd00::7]:33"};
    CHECK(4, 5, 1, "[fd00::7]:33", "X=");
    /* Other ways to say where ranks run; then the variables of a scheduler have no meaning. */
    options = (struct options){.hosts = "a:1"};
    struct node node;
    ASSERT_OK(find(&node, LIST(TORCH), &check_status));
    assert_null(node.source);
}

/* dstack lets node 0 log in on the others, so that it can start all ranks if there is no secret. */
TEST(nodes_that_are_called)
{
    struct node node;
    reset();
    CHECK(0, 2, 1, "10.1.0.2:29600", DSTACK, "DSTACK_MPI_HOSTFILE=/hosts");
    settings.secret = "";
    CHECK(0, 2, 1, "10.1.0.2:29600", DSTACK);
    ASSERT_OK(find(&node, LIST(DSTACK, "DSTACK_MPI_HOSTFILE=/hosts"), &check_status));
    assert_null(node.source);
}

TEST(one_node)
{
    struct node node;
    reset();
    ASSERT_OK(find(&node,
                   LIST("SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES=1", "SKYPILOT_NODE_IPS=10.0.0.4",
                        "SKYPILOT_NUM_GPUS_PER_NODE=2"),
                   &check_status));
    assert_null(node.source);
    assert_int_equal(node.ranks, 2);
    options.nodes = 1;
    ASSERT_OK(find(&node, LIST("X="), &check_status));
    assert_null(node.source);
}

TEST(ports)
{
    reset();
    settings.ports = "20000-20099";
    CHECK(1, 2, 8, "10.0.0.4:20000", SKYPILOT); /* 29600 - 20000 is a multiple of 100 */
    CHECK(2, 3, 1, "job-0.job:20001", TORCH);   /* 29501 */
    options = (struct options){.nodes = 2, .node_rank = 1, .rendezvous = "a:4000"};
    CHECK(0, 2, 1, "a:4000", "X=");
}

TEST(gpus)
{
    static const struct {
        const char *entry;
        int count;
    } cases[] = {{"CUDA_VISIBLE_DEVICES=0,1", 2},
                 {"CUDA_VISIBLE_DEVICES=0,-1,2", 1},
                 {"CUDA_VISIBLE_DEVICES=GPU-8932f937,MIG-3eb8,7", 3},
                 {"CUDA_VISIBLE_DEVICES=", 0},
                 {"HIP_VISIBLE_DEVICES=3", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const list[] = {cases[i].entry, NULL};
        assert_int_equal(node_count_gpus(&(struct variables){get, list}), cases[i].count);
    }
    reset();
    check((const char *const[]){TORCH, "CUDA_VISIBLE_DEVICES=0,1", NULL}, 2, 3, 2, "job-0.job:29501");
}

TEST(faults)
{
    reset();
    FAIL("PET_NODE_RANK=x is not a whole number", "PET_NNODES=3", "PET_NODE_RANK=x", "PET_MASTER_ADDR=a",
         "PET_MASTER_PORT=1");
    FAIL("PET_NODE_RANK=3 is outside of 3 nodes (PET_NNODES)", "PET_NNODES=3", "PET_NODE_RANK=3",
         "PET_MASTER_ADDR=a", "PET_MASTER_PORT=1");
    FAIL("PET_NNODES=0 must be at least 1", "PET_NNODES=0", "PET_NODE_RANK=0", "PET_MASTER_ADDR=a",
         "PET_MASTER_PORT=1");
    FAIL("PET_MASTER_ADDR=a b is no name of a host", "PET_NNODES=2", "PET_NODE_RANK=0", "PET_MASTER_ADDR=a b",
         "PET_MASTER_PORT=1");
    check_fails("PET_NNODES=1:4: the number of nodes can't change", HVD_UNSUPPORTED,
                LIST("PET_NNODES=1:4", "PET_NODE_RANK=0", "PET_MASTER_ADDR=a", "PET_MASTER_PORT=1"));
    FAIL("has no SM_CURRENT_HOST=algo-9", SAGEMAKER, "SM_CURRENT_HOST=algo-9");
    FAIL("is not set on a node that is not the main one", AWS, "AWS_BATCH_JOB_NODE_INDEX=2");
    FAIL("where is node 0?", "JOB_COMPLETION_INDEX=1", "HOROVOD_NODES=2");
    options.nodes = 2;
    FAIL("which of the 2 nodes is this?", "X=");
    options = (struct options){.node_rank = 1, .rendezvous = "a"};
    FAIL("need --nnodes", "X=");
    options = (struct options){.nodes = 2, .node_rank = 3, .rendezvous = "a"};
    FAIL("--node-rank=2 is outside of 2 nodes (--nnodes)", "X=");
    options = (struct options){.nodes = 2, .node_rank = 1, .rendezvous = "[fd00::7"};
    FAIL("--rendezvous=[fd00::7 must be host:port of node 0", "X=");
    options = (struct options){.nodes = 2, .node_rank = 1, .rendezvous = "a:70000"};
    FAIL("the port of --rendezvous=70000 is not a whole number from 0 to 65535", "X=");
    options = (struct options){.nodes = 2, .hosts = "a:1"};
    FAIL("--hosts: with one command on each node (--nnodes)", "X=");
}
