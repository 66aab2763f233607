/* test_claim.c - one process at a time is a given rank: other processes are children here. */
#include "bootstrap/claim.h"

#include "net/socket.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct settings settings;
static struct starter starter;

static void set(const char *key, const char *value)
{
    ASSERT_OK(settings_set(&settings, setting_by_key(key), value, "test", &check_status));
}

static int before(void **state)
{
    (void)state;
    ASSERT_OK(settings_init(&settings, &check_status));
    char secret[64]; /* no other run of this test beside this one has it */
    snprintf(secret, sizeof secret, "a secret of process %d", (int)getpid());
    set("secret", secret);
    set("rendezvous", "127.0.0.1:29500");
    set("size", "4");
    set("rank", "1");
    starter = (struct starter){.size = 1, .pmi = -1};
    return 0;
}

static int after(void **state)
{
    (void)state;
    settings_free(&settings);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = before, .after_each = after};

static int claim(void)
{
    int descriptor;
    ASSERT_OK(claim_rank(&settings, &starter, &descriptor, &check_status));
    return descriptor;
}

TEST(one_process_holds_a_rank)
{
    char words[64];
    int descriptor, held = claim();
    assert_true(held >= 0);
    snprintf(words, sizeof words, "process %ld is this rank already", (long)getpid());
    ASSERT_FAILS(claim_rank(&settings, &starter, &descriptor, &check_status), HVD_INVALID_ARGUMENT, words);
    assert_int_equal(descriptor, -1);
    socket_close(&held);
    held = claim();
    assert_true(held >= 0);
    socket_close(&held);
}

TEST(other_ranks_jobs_and_secrets_are_free)
{
    int held[4] = {claim()};
    set("rank", "2");
    held[1] = claim();
    set("rendezvous", "127.0.0.1:29501");
    held[2] = claim();
    set("epoch", "1");
    held[3] = claim();
    for (int i = 0; i < 4; i++) {
        assert_true(held[i] >= 0);
        socket_close(&held[i]);
    }
}

TEST(a_job_of_one_holds_nothing)
{
    set("size", "1");
    assert_int_equal(claim(), -1);
}

TEST(what_may_be_another_job_holds_nothing)
{
    set("rendezvous", "");
    starter.size = 4;
    assert_int_equal(claim(), -1);
}

TEST(a_killed_process_holds_nothing)
{
    int status, ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        byte = claim() >= 0;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    int descriptor;
    ASSERT_FAILS(claim_rank(&settings, &starter, &descriptor, &check_status), HVD_INVALID_ARGUMENT,
                 "is this rank");
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    descriptor = claim();
    assert_true(descriptor >= 0);
    socket_close(&descriptor);
    close(ready[0]);
    close(ready[1]);
}
