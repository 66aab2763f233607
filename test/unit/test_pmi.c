/* test_pmi.c - the exchange with a process manager: a thread that reads requests and answers from a list. */
#include "base/clock.h"
#include "bootstrap/pmi.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define INIT  "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define SPACE "cmd=my_kvsname kvsname=kvs_7_0\n"

struct manager {
    const char *const *answers; /* ended by NULL: then it waits for the end */
    int ends[2];
    char requests[2048];
    pthread_t thread;
    atomic_bool finalized; /* the answer is on its way */
};

static void *serve(void *argument)
{
    struct manager *manager = argument;
    char *request = manager->requests, *next = request;
    while (read(manager->ends[1], next, 1) > 0) {
        if (*next++ != '\n')
            continue;
        bool finalize = strcmp(request, "cmd=finalize\n") == 0;
        const char *answer = finalize ? "cmd=finalize_ack\n" : *manager->answers;
        request = next;
        if (!answer)
            continue;
        if (!*answer)
            break;
        manager->answers += !finalize;
        if (finalize) /* a rank that had ended meanwhile would be a broken pipe */
            usleep(20000);
        atomic_store(&manager->finalized, finalize);
        send(manager->ends[1], answer, strlen(answer), MSG_NOSIGNAL);
    }
    close(manager->ends[1]);
    return NULL;
}

/* "": the manager closes the connection. */
static hvd_code run(struct manager *manager, bool own, char text[PMI_VALUE_LIMIT], double seconds,
                    const struct interrupt *interrupt, hvd_status *status)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, manager->ends), 0);
    assert_int_equal(pthread_create(&manager->thread, NULL, serve, manager), 0);
    hvd_code code = pmi_broadcast(manager->ends[0], own, text, clock_after(seconds), interrupt, status);
    pmi_finalize(manager->ends[0]);
    if (!code)
        assert_true(atomic_load(&manager->finalized));
    close(manager->ends[0]);
    pthread_join(manager->thread, NULL);
    return code;
}

#define ANSWERS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void check_requests(const struct manager *manager, const char *expected)
{
    assert_string_equal(manager->requests, expected);
}

TEST(rank_0_gives)
{
    struct manager manager = {.answers = ANSWERS(INIT, SPACE, "cmd=put_result rc=0 msg=success\n",
                                                 "cmd=barrier_out\n", "cmd=get_result rc=0 value=s,a:1\n")};
    char text[PMI_VALUE_LIMIT] = "s,a:1";
    ASSERT_OK(run(&manager, true, text, 60, NULL, &check_status));
    assert_string_equal(text, "s,a:1");
    check_requests(&manager, "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_my_kvsname\n"
                             "cmd=put kvsname=kvs_7_0 key=horovod-rendezvous value=s,a:1\ncmd=barrier_in\n"
                             "cmd=get kvsname=kvs_7_0 key=horovod-rendezvous\ncmd=finalize\n");
}

TEST(others_take)
{
    struct manager manager = {.answers = ANSWERS(INIT, SPACE, "cmd=barrier_out\n",
                                                 "cmd=get_result rc=0 msg=success value=s,[::1]:2\n")};
    char text[PMI_VALUE_LIMIT] = "";
    ASSERT_OK(run(&manager, false, text, 60, NULL, &check_status));
    assert_string_equal(text, "s,[::1]:2");
}

static int at_once(void *argument)
{
    (void)argument;
    return 1;
}

static void check_fault(const char *const *answers, double seconds, hvd_code code, const char *words)
{
    struct manager manager = {.answers = answers};
    char text[PMI_VALUE_LIMIT] = "";
    ASSERT_FAILS(run(&manager, false, text, seconds, NULL, &check_status), code, words);
}

TEST(faults_of_the_manager)
{
    static char line[4096];
    memset(line, 'x', sizeof line - 2);
    line[sizeof line - 2] = '\n';
    check_fault(ANSWERS(""), 60, HVD_PEER_LOST, "has closed its connection");
    check_fault(ANSWERS(INIT), 0.1, HVD_TIMED_OUT, "has every rank called init?");
    check_fault(ANSWERS("cmd=response_to_init rc=-1\n"), 60, HVD_REFUSED,
                "answers 'cmd=response_to_init rc=-1'");
    check_fault(ANSWERS(INIT, "cmd=my_kvsname kvsname=\n"), 60, HVD_REFUSED, "without  kvsname=");
    check_fault(ANSWERS(INIT, SPACE, "rc=0 cmd=barrier_out\n"), 60, HVD_REFUSED, "not 'cmd=barrier_out'");
    check_fault(ANSWERS(INIT, SPACE, "cmd=barrier_out\n", "cmd=get_result rc=-1\n"), 60, HVD_REFUSED,
                "rc=-1");
    check_fault(ANSWERS(line), 60, HVD_REFUSED, "too long a line");
}

TEST(an_interrupt_ends_it)
{
    struct manager manager = {.answers = ANSWERS(INIT)};
    char text[PMI_VALUE_LIMIT] = "";
    ASSERT_FAILS(run(&manager, false, text, 60, &(struct interrupt){at_once, NULL}, &check_status),
                 HVD_INTERRUPTED, "interrupted while waiting for the process manager");
}
