/* test_starters.c - what starters say in the environment of their ranks. */
#include "bootstrap/starters.h"
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

static hvd_code read_list(struct starter *starter, const char *const *list, hvd_status *status)
{
    return starter_read(starter, &(struct variables){get, list}, status);
}

#define READ(starter, ...)                                                                                   \
    ASSERT_OK(read_list(starter, (const char *const[]){__VA_ARGS__, NULL}, &check_status))
static void check_fails(const char *words, const char *const *list)
{
    struct starter starter;
    ASSERT_FAILS(read_list(&starter, list, &check_status), HVD_INVALID_ARGUMENT, words);
}

#define FAIL(words, ...) check_fails(words, (const char *const[]){__VA_ARGS__, NULL})

static void check(const struct starter *starter, const char *name, int rank, int size, bool one_host)
{
    assert_non_null(starter->name);
    assert_string_equal(starter->name, name);
    assert_int_equal(starter->rank, rank);
    assert_int_equal(starter->size, size);
    assert_int_equal(starter->one_host, one_host);
    assert_int_equal(starter->launched, strcmp(name, "horovodrun") == 0);
}

#define OPEN_MPI                                                                                             \
    "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2",                      \
        "PMIX_NAMESPACE=502333441", "OMPI_MCA_orte_precondition_transports=0f9e-d58c"
#define HYDRA "PMI_RANK=1", "PMI_SIZE=3", "PMI_FD=8", "MPI_LOCALNRANKS=3", "MPI_LOCALRANKID=1"
#define TORCHRUN                                                                                             \
    "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=n1", "MASTER_PORT=29500",   \
        "TORCHELASTIC_RESTART_COUNT=0"
#define BATCH                                                                                                \
    "SLURM_JOB_ID=17", "SLURM_PROCID=0", "SLURM_NTASKS=5", "SLURM_NODEID=0", "SLURM_LOCALID=0",              \
        "SLURM_JOB_NODELIST=host[1-3]", "SLURM_TASKS_PER_NODE=2(x2),1", "SLURM_CLUSTER_NAME=c"
#define STEP                                                                                                 \
    "SLURM_JOB_ID=17", "SLURM_STEP_ID=2", "SLURM_STEP_NUM_TASKS=5", "SLURM_STEP_NUM_NODES=3",                \
        "SLURM_PROCID=3", "SLURM_NODEID=0", "SLURM_LOCALID=1", "SLURM_STEP_NODELIST=host[1-3]",              \
        "SLURM_STEP_TASKS_PER_NODE=2(x2),1", "SLURM_DISTRIBUTION=cyclic", "SLURM_CLUSTER_NAME=c"

TEST(jax)
{
    struct starter starter;
    READ(&starter, "JAX_PROCESS_ID=1", "JAX_NUM_PROCESSES=4", "JAX_COORDINATOR_ADDRESS=job-0.job:1234");
    check(&starter, "JAX", 1, 4, false);
    assert_string_equal(starter.host, "job-0.job");
    assert_int_equal(starter.port, 1235);
    assert_string_equal(starter.job, "jax-job-0.job-1234");
    READ(&starter, "JAX_PROCESS_ID=0", "JAX_NUM_PROCESSES=2", "JAX_COORDINATOR_ADDRESS=[fd00::7]:1234");
    assert_string_equal(starter.host, "fd00::7");
    FAIL("JAX_COORDINATOR_ADDRESS=host is not host:port", "JAX_PROCESS_ID=0", "JAX_NUM_PROCESSES=2",
         "JAX_COORDINATOR_ADDRESS=host");
    FAIL("JAX_COORDINATOR_ADDRESS=:7 is not host:port", "JAX_PROCESS_ID=0", "JAX_NUM_PROCESSES=2",
         "JAX_COORDINATOR_ADDRESS=:7");
    FAIL("JAX_COORDINATOR_ADDRESS=a:65535 is not host:port", "JAX_PROCESS_ID=0", "JAX_NUM_PROCESSES=2",
         "JAX_COORDINATOR_ADDRESS=a:65535");
}

TEST(no_starter)
{
    struct starter starter;
    READ(&starter, "HOME=/root", "RANK=0", "WORLD_SIZE=1", "PMI_RANK=", "JOB_COMPLETION_INDEX=3");
    assert_null(starter.name);
    assert_int_equal(starter.size, 1);
    READ(&starter, BATCH); /* the script itself */
    assert_null(starter.name);
}

TEST(own_variables_come_first)
{
    struct starter starter;
    READ(&starter, OPEN_MPI, HYDRA, TORCHRUN, STEP, "HOROVOD_RANK=0", "HOROVOD_SIZE=2", "HOROVOD_JOB=j");
    check(&starter, "horovodrun", 0, 2, false);
    READ(&starter, OPEN_MPI, HYDRA, TORCHRUN, STEP, "HOROVOD_RANK=0", "HOROVOD_SIZE=2");
    check(&starter, "HOROVOD_ variables", 0, 2, false);
    assert_true(starter.by_hand);
}

TEST(inner_starters_come_first)
{
    struct starter starter;
    READ(&starter, OPEN_MPI, HYDRA, TORCHRUN, STEP);
    check(&starter, "torchrun", 3, 4, false);
    READ(&starter, OPEN_MPI, HYDRA, STEP);
    check(&starter, "Open MPI", 2, 4, false);
    READ(&starter, HYDRA, STEP);
    check(&starter, "PMI", 1, 3, true);
}

TEST(open_mpi)
{
    struct starter starter;
    READ(&starter, OPEN_MPI);
    check(&starter, "Open MPI", 2, 4, false);
    assert_string_equal(starter.job, "mpirun-502333441-0f9e-d58c");
    READ(&starter, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "OMPI_MCA_ess_base_jobid=7");
    check(&starter, "Open MPI", 0, 2, true);
    assert_string_equal(starter.job, "mpirun-7-");
    FAIL("OMPI_COMM_WORLD_SIZE=four", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=four");
    FAIL("rank 4 is outside a job of size 4 (OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK=4",
         "OMPI_COMM_WORLD_SIZE=4");
}

TEST(pmi)
{
    struct starter starter;
    READ(&starter, HYDRA);
    check(&starter, "PMI", 1, 3, true);
    assert_int_equal(starter.pmi, 8);
    FAIL("PMI_FD=-1", "PMI_RANK=1", "PMI_SIZE=3", "PMI_FD=-1");
}

TEST(jsrun)
{
    struct starter starter;
    READ(&starter, OPEN_MPI, "JSM_NAMESPACE_RANK=5", "JSM_NAMESPACE_SIZE=6", "JSM_NAMESPACE_LOCAL_SIZE=6",
         "LSB_JOBID=99");
    check(&starter, "jsrun", 5, 6, true);
    assert_string_equal(starter.job, "jsrun-99--502333441");
}

TEST(torchrun)
{
    struct starter starter;
    READ(&starter, TORCHRUN);
    check(&starter, "torchrun", 3, 4, false);
    assert_string_equal(starter.host, "n1");
    assert_int_equal(starter.port, 29501);
    assert_string_equal(starter.job, "torchrun-n1-29500-0");
    FAIL("MASTER_PORT=65535", "RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=n1", "MASTER_PORT=65535");
}

TEST(half_of_torchrun)
{
    FAIL("RANK=1 and WORLD_SIZE=2 are set, but MASTER_ADDR is not", "RANK=1", "WORLD_SIZE=2");
    FAIL("but MASTER_PORT is not", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=n1");
    struct starter starter;
    READ(&starter, "RANK=1", "WORLD_SIZE=2", OPEN_MPI);
    check(&starter, "Open MPI", 2, 4, false);
}

TEST(slurm)
{
    struct starter starter;
    READ(&starter, STEP);
    check(&starter, "Slurm", 3, 5, false);
    assert_string_equal(starter.host, "host1");
    assert_string_equal(starter.job, "srun-c-17.2");
    assert_int_equal(starter.port, 20000 + 17 * 16 + 2);
    READ(&starter, "SLURM_DISTRIBUTION=arbitrary", STEP);
    assert_string_equal(starter.host, "");
    READ(&starter, "SLURM_STEP_NUM_NODES=1", STEP);
    check(&starter, "Slurm", 3, 5, true);
    FAIL("SLURM_STEP_NODELIST=a[1-", "SLURM_STEP_NODELIST=a[1-", STEP);
}

TEST(kubernetes)
{
    struct starter starter;
    READ(&starter, "JOB_COMPLETION_INDEX=1", "HOROVOD_SIZE=2", "HOROVOD_RENDEZVOUS=train-0.train:29600");
    check(&starter, "a Kubernetes Job", 1, 2, false);
    assert_true(starter.by_hand);
    READ(&starter, "JOB_COMPLETION_INDEX=1", "HOROVOD_SIZE=2"); /* to be named by its rank */
    check(&starter, "a Kubernetes Job", 1, 2, false);
}

static bool append(void *owner, const char *name)
{
    char *text = owner;
    snprintf(text + strlen(text), 256 - strlen(text), "%s ", name);
    return strcmp(name, "last") != 0;
}

TEST(lists_of_nodes)
{
    static const struct {
        const char *list, *names;
    } lists[] = {
        {"a", "a "},
        {"a,b-c.d,e", "a b-c.d e "},
        {"host[1-3,7]", "host1 host2 host3 host7 "},
        {"h[08-10,1]x,b", "h08x h09x h10x h1x b "},
        {"r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2 "},
        {"a[1-2],b[3],last,c", "a1 a2 b3 last "},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char names[256] = "";
        assert_true(nodelist_visit(lists[i].list, append, names));
        assert_string_equal(names, lists[i].names);
    }
    static const char *const bad[] = {"",       "a,",   "a[",    "a]",    "a[1",     "a[]", "a[1-]",
                                      "a[2-1]", "a[x]", "a[-1]", "a[1]]", "a[1[2]]", ",a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char names[256] = "";
        if (nodelist_visit(bad[i], append, names))
            fail_msg("'%s' is taken as %s", bad[i], names);
    }
}
