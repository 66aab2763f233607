/* test_host_copy.c - the memory of a host copy is opened by other processes, which it remembers, and refuses
 * what it is not. */
#include "test.h"

#include "snapshot/host_copy.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct host_copy *made;

static int create(void **state)
{
    (void)state;
    return host_copy_create(&made, NULL);
}

static int destroy(void **state)
{
    (void)state;
    host_copy_close(made);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = create, .after_each = destroy};

TEST(test_opens_it_only_where_it_is)
{
    struct host_copy *copy;
    struct host_copy_place place = host_copy_place(made), other = place;
    ASSERT_OK(host_copy_open(&place, &copy, &check_status));
    host_copy_close(copy);
    other.id[3] ^= 1;
    ASSERT_FAILS(host_copy_open(&other, &copy, &check_status), HVD_UNSUPPORTED, "can't open the copy");
    other = place;
    other.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    ASSERT_FAILS(host_copy_open(&other, &copy, &check_status), HVD_UNSUPPORTED, "Stale");
    close(other.fd);
    other.fd = -1;
    ASSERT_FAILS(host_copy_open(&other, &copy, &check_status), HVD_UNSUPPORTED, "No such file");
}

TEST(test_leaves_no_descriptor)
{
    struct host_copy *copy;
    int before = count_entries("/proc/self/fd");
    struct host_copy_place place = host_copy_place(made);
    ASSERT_OK(host_copy_open(&place, &copy, &check_status));
    ASSERT_OK(host_copy_reserve(copy, 1, 10 << 20, 5 << 20, 10 << 20, &check_status));
    host_copy_close(copy);
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

TEST(test_adopts_only_memory_of_its_format)
{
    struct host_copy *copy;
    int before = count_entries("/proc/self/fd"), fd = host_copy_place(made).fd;
    ASSERT_OK(host_copy_adopt(fd, &copy, &check_status));
    assert_memory_equal(copy->head->id, made->head->id, HOST_COPY_ID_BYTES);
    host_copy_close(copy);
    made->head->format++; /* as of another version of the library */
    ASSERT_FAILS(host_copy_adopt(fd, &copy, &check_status), HVD_INVALID_ARGUMENT, "not the memory");
    int other = memfd_create("horovod", MFD_CLOEXEC); /* too short, and it could get shorter */
    ASSERT_FAILS(host_copy_adopt(other, &copy, &check_status), HVD_INVALID_ARGUMENT, "not the memory");
    close(other);
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

TEST(test_knows_which_processes_use_it)
{
    struct host_copy_process own = host_copy_place(made).process;
    struct host_copy_place place = host_copy_place(made);
    int entered[2];
    char byte;
    host_copy_enter(made, 0);
    assert_false(host_copy_is_used(made, &own, 1));
    assert_true(host_copy_is_used(made, NULL, 0));
    assert_int_equal(pipe(entered), 0);
    pid_t child = fork();
    if (!child) {
        struct host_copy *copy;
        if (host_copy_open(&place, &copy, NULL))
            _exit(1);
        host_copy_enter(copy, 1);
        close(entered[0]);
        if (write(entered[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    close(entered[1]);
    assert_int_equal(read(entered[0], &byte, 1), 1);
    close(entered[0]);
    assert_true(host_copy_is_used(made, &own, 1));
    kill(child, SIGKILL);
    siginfo_t ended;
    assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0);
    assert_false(host_copy_is_used(made, &own, 1)); /* a zombie writes nothing */
    waitpid(child, NULL, 0);
    assert_false(host_copy_is_used(made, &own, 1));
}

TEST(test_refuses_more_than_there_is)
{
    ASSERT_FAILS(host_copy_reserve(made, 0, SIZE_MAX / 8, 0, 1, &check_status), HVD_OUT_OF_MEMORY,
                 "HOROVOD_ELASTIC_COPIES=0");
    struct publication_state lie = {1, 1, (size_t)1 << 50, 1, 0};
    char byte;
    publication_publish(&made->head->publication, 0, 0, &lie); /* as a process that is not to be trusted */
    ASSERT_FAILS(host_copy_read(made, 1, 0, &byte, 1, &check_status), HVD_SYSTEM, "shared memory");
    lie.own = SIZE_MAX;
    publication_publish(&made->head->publication, 0, 0, &lie);
    ASSERT_FAILS(host_copy_read(made, 1, 0, &byte, 1, &check_status), HVD_INVALID_ARGUMENT, "are not in");
}
