/* test_allocation.c - the hosts of a batch system's allocation. */
#include "../../launch/hosts.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static hvd_code read_list(struct hosts *hosts, const char *const *list, hvd_status *status)
{
    return hosts_read_allocation(hosts, &(struct variables){get, list}, status);
}

/* "host:slots" with spaces between. */
static void check(const char *expected, const char *const *list)
{
    struct hosts hosts = {0};
    char text[1024] = "";
    ASSERT_OK(read_list(&hosts, list, &check_status));
    for (int i = 0; i < hosts.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s:%d", i ? " " : "", hosts.list[i].name,
                 (int)hosts.list[i].slots);
    assert_string_equal(text, expected);
    hosts_free(&hosts);
}

static void check_fails(const char *words, const char *const *list)
{
    struct hosts hosts = {0};
    ASSERT_FAILS(read_list(&hosts, list, &check_status), HVD_INVALID_ARGUMENT, words);
    hosts_free(&hosts);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(none)
{
    check("", LIST("HOME=/root", "SLURM_JOB_ID=1", "PBS_NODEFILE=/absent"));
}

TEST(slurm)
{
    check("n1:2 n2:2 n3:2 n7:1",
          LIST("SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n[1-3,7]", "SLURM_TASKS_PER_NODE=2(x3),1"));
    check("n1:1 n2:8", LIST("SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n1,n2", "SLURM_TASKS_PER_NODE=1,8"));
    check("n1:4 n2:4", LIST("SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_JOB_CPUS_PER_NODE=4(x2)"));
    check_fails("SLURM_TASKS_PER_NODE=2 has no number of tasks for node n2",
                LIST("SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2"));
    check_fails("SLURM_JOB_NODELIST=n[1- is malformed",
                LIST("SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n[1-", "SLURM_TASKS_PER_NODE=2"));
}

/* "NAME=path" of a file with this text; free it. */
static char *file_of(const char *name, const char *text)
{
    char path[] = "/tmp/horovod-allocation-XXXXXX", *entry = NULL;
    int file = mkstemp(path);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    assert_true(asprintf(&entry, "%s=%s", name, path) > 0);
    return entry;
}

static void remove_file(char *entry)
{
    unlink(strchr(entry, '=') + 1);
    free(entry);
}

TEST(lsf)
{
    check("h1:2 h2:2", LIST("LSB_JOBID=9", "LSB_MCPU_HOSTS=batch5 1 h1 2 h2 2"));
    check("h1:42 h2:42", LIST("LSB_JOBID=9", "LSB_MCPU_HOSTS=login1 1 h1 42 h2 42"));
    check("h1:1 h2:1", LIST("LSB_JOBID=9", "LSB_MCPU_HOSTS=h1 1 h2 1")); /* no batch node */
    check("h1:1", LIST("LSB_JOBID=9", "LSB_MCPU_HOSTS=h1 1"));
    char *ranks = file_of("LSB_DJOB_RANKFILE", "batch1\nh1\nh1\nh2\nh2\nh1\n");
    check("h1:3 h2:2", LIST("LSB_JOBID=9", "LSB_MCPU_HOSTS=other 1", ranks));
    remove_file(ranks);
    check_fails("LSB_MCPU_HOSTS: 0 is not a number of slots for h1",
                LIST("LSB_JOBID=9", "LSB_MCPU_HOSTS=h1"));
}

TEST(pbs)
{
    char *nodes = file_of("PBS_NODEFILE", "a\na\nb\n");
    check("a:2 b:1", LIST("PBS_JOBID=1.server", nodes));
    remove_file(nodes);
}

/* All ranks on this host would be no answer. */
TEST(files_without_hosts)
{
    struct hosts hosts = {0};
    char *nodes = file_of("PBS_NODEFILE", "\n");
    check_fails("PBS job 1: PBS_NODEFILE=/tmp/horovod-allocation-", LIST("PBS_JOBID=1", nodes));
    check_fails(" names no host", LIST("PBS_JOBID=1", nodes));
    remove_file(nodes);
    ASSERT_FAILS(read_list(&hosts, LIST("PBS_JOBID=1", "PBS_NODEFILE=/tmp"), &check_status), HVD_SYSTEM,
                 "can't read the file of PBS job 1, /tmp: Is a directory");
    hosts_free(&hosts);
}

TEST(grid_engine)
{
    char *nodes = file_of("PE_HOSTFILE", "a 2 all.q@a UNDEFINED\nb 4 all.q@b <NULL>\n");
    check("a:2 b:4", LIST("JOB_ID=3", nodes));
    remove_file(nodes);
    nodes = file_of("PE_HOSTFILE", "a two\n");
    check_fails("0 is not a number of slots for a", LIST("JOB_ID=3", nodes));
    remove_file(nodes);
}

TEST(host_files_of_mpi)
{
    static const char *const names[] = {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",
                                        "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE", "DSTACK_MPI_HOSTFILE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *nodes = file_of(names[i], "# by a controller\nw-0.train slots=2\nw-1.train:4\nw-2.train\n");
        check("w-0.train:2 w-1.train:4 w-2.train:1", LIST(nodes));
        check("w-0.train:2 w-1.train:4 w-2.train:1",
              LIST(nodes, "I_MPI_PERHOST=all", "DSTACK_GPUS_PER_NODE=0"));
        remove_file(nodes);
    }
    char *nodes = file_of("OMPI_MCA_orte_default_hostfile", "a\nb\n");
    check("a:8 b:8", LIST(nodes, "OMPI_MCA_orte_set_default_slots=8"));
    check_fails("is not a number of slots", LIST(nodes, "OMPI_MCA_orte_set_default_slots=8x"));
    check("n1:2", LIST("SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n1", "SLURM_TASKS_PER_NODE=2", nodes));
    struct hosts hosts = {.slots = 3}; /* --slots-per-host */
    ASSERT_OK(read_list(&hosts, LIST(nodes, "OMPI_MCA_orte_set_default_slots=8"), &check_status));
    assert_int_equal(hosts.list[0].slots, 3);
    ASSERT_OK(hosts_layout(&hosts, 0, &check_status));
    ASSERT_FAILS(hosts_layout(&hosts, 7, &check_status), HVD_INVALID_ARGUMENT,
                 "more ranks than the host file of OMPI_MCA_orte_default_hostfile has slots (6)");
    hosts_free(&hosts);
    remove_file(nodes);
}

TEST(azure_batch)
{
    check("10.0.0.4:1 10.0.0.5:1", LIST("AZ_BATCH_HOST_LIST=10.0.0.4,10.0.0.5"));
    check_fails("AZ_BATCH_HOST_LIST: '-x' is no name of a host", LIST("AZ_BATCH_HOST_LIST=-x"));
}

TEST(too_few_slots)
{
    struct hosts hosts = {0};
    ASSERT_OK(read_list(&hosts,
                        LIST("SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=2(x2)"),
                        &check_status));
    ASSERT_FAILS(hosts_layout(&hosts, 5, &check_status), HVD_INVALID_ARGUMENT,
                 "-np 5 asks for more ranks than Slurm job 17 has slots (4)");
    ASSERT_OK(hosts_layout(&hosts, 0, &check_status));
    assert_int_equal(hosts.size, 4);
    hosts_free(&hosts);
}
