/* test_cgroup.c - limits of control groups, in files as the kernel writes them. */
#include "base/cgroup.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/horovod-cgroup-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static int remove_folder(void **state)
{
    (void)state;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const struct test_hooks test_hooks = {.before_each = make_folder, .after_each = remove_folder};

/* Makes the folders of the path as well. */
static void write_file(const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
    FILE *file = fopen(path, "we");
    assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static double processors(void)
{
    char list[PATH_MAX];
    snprintf(list, sizeof list, "%s/list", folder);
    return cgroup_processors(list, folder);
}

static int kills(void)
{
    char list[PATH_MAX];
    snprintf(list, sizeof list, "%s/list", folder);
    return (int)cgroup_memory_kills(list, folder);
}

#define ASSERT_NEAR(value, expected) assert_true((value) > (expected)-1e-9 && (value) < (expected) + 1e-9)

TEST(nothing)
{
    ASSERT_NEAR(processors(), 0);
    assert_int_equal(kills(), -1);
    write_file("list", "0::/\n");
    ASSERT_NEAR(processors(), 0);
    assert_int_equal(kills(), -1);
}

/* In a container with a namespace of its own for groups. */
TEST(version_2_at_the_top)
{
    write_file("list", "0::/\n");
    write_file("cpu.max", "150000 100000\n");
    write_file("memory.events", "low 0\nhigh 0\nmax 4\noom 1\noom_kill 3\noom_group_kill 0\n");
    ASSERT_NEAR(processors(), 1.5);
    assert_int_equal(kills(), 3);
    write_file("cpu.max", "max 100000\n");
    ASSERT_NEAR(processors(), 0);
}

/* A quota of any group above applies as well. */
TEST(version_2_below)
{
    write_file("list", "0::/pods/pod1/train\n");
    write_file("pods/pod1/train/cpu.max", "max 100000\n");
    write_file("pods/pod1/cpu.max", "400000 100000\n");
    write_file("pods/cpu.max", "3000000 100000\n");
    write_file("pods/pod1/memory.events", "oom_kill 1\n");
    ASSERT_NEAR(processors(), 4);
    assert_int_equal(kills(), 1);
    write_file("pods/cpu.max", "50000 100000\n");
    ASSERT_NEAR(processors(), 0.5);
}

TEST(version_1)
{
    write_file("list", "8:memory:/a/b\n4:cpu,cpuacct:/a/b\n3:cpuset:/\n1:name=systemd:/\n0::/x\n");
    write_file("cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
    write_file("cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
    write_file("memory/a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    ASSERT_NEAR(processors(), 0);
    assert_int_equal(kills(), 2);
    write_file("cpu,cpuacct/a/b/cpu.cfs_quota_us", "20000\n");
    ASSERT_NEAR(processors(), 0.2);
}

/* A container sees its own group at the top, and the list has the host's path. */
TEST(version_1_in_a_container)
{
    write_file("list", "4:cpuacct,cpu:/docker/0123\n8:memory:/docker/0123\n");
    write_file("cpuacct,cpu/cpu.cfs_quota_us", "250000\n");
    write_file("cpuacct,cpu/cpu.cfs_period_us", "100000\n");
    write_file("memory/memory.oom_control", "oom_kill 7\n");
    ASSERT_NEAR(processors(), 2.5);
    assert_int_equal(kills(), 7);
}

TEST(malformed)
{
    write_file("list", "\nx\n1:\n4:cpu\n0::/\n");
    write_file("cpu.max", "many 100000\n");
    write_file("memory.events", "oom 1\n");
    ASSERT_NEAR(processors(), 0);
    assert_int_equal(kills(), -1);
    write_file("cpu.max", "1 0\n");
    ASSERT_NEAR(processors(), 0);
}
