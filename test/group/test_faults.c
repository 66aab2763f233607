/* test_faults.c - ranks as processes, two a host, over TCP between hosts: some of them are killed, stopped or
 * end in the midst of a transfer, and the others `_exit` as soon as they get the error. All must name one
 * cause.
 *
 * HOROVOD_TEST_FAULTS says how many jobs of each kind. */
#include "group.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Under a sanitizer a transfer of a quarter takes longer than a whole one without it. */
enum { HOSTS = 4, RANKS = 8, ELEMENTS = SANITIZED ? 1 << 16 : 1 << 18, WARM_STEPS = 3, DEADLINE = 100 };

static const char *const host_ids[HOSTS] = {"a", "b", "c", "d"};

struct fault {
    unsigned victims; /* a bit each */
    int signal;       /* what the parent sends them; 0: they _exit while an operation is under way */
    bool sets;        /* the even ranks have a process set */
    const char *text; /* part of the cause */
};

/* In memory that all processes share. */
struct board {
    atomic_bool start; /* `address`, of the rendezvous, is there */
    char address[32];
    atomic_int steps[RANKS];
    atomic_bool failed[RANKS];
    atomic_bool end; /* the victims, by themselves */
    char texts[RANKS][HVD_STATUS_TEXT];
};

static struct board *board;

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool is_victim(const struct fault *fault, int rank)
{
    return fault->victims >> rank & 1;
}

static hvd_code reduce(hvd_context *context, float *data, int set, const char *name, bool wait,
                       hvd_status *status)
{
    int64_t shape[] = {ELEMENTS};
    hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    hvd_handle *handle;
    request.process_set = set;
    return wait ? hvd_run(context, &request, NULL, status) : hvd_submit(context, &request, &handle, status);
}

static int add_even_ranks(hvd_context *context)
{
    int32_t ranks[RANKS / 2], set;
    for (int i = 0; i < RANKS / 2; i++)
        ranks[i] = 2 * i;
    CHECK_OK(hvd_process_set_add(context, ranks, RANKS / 2, &set, &check_status));
    return set;
}

_Noreturn static void run_rank(const struct fault *fault, int rank)
{
    struct member member = {.rank = rank,
                            .size = RANKS,
                            .transport = "auto",
                            .host = host_ids[rank / 2],
                            .address = board->address};
    /* A rank that has no processor for 4 s would be the cause where another one was killed. */
    member.settings = (const char *const[]){"timeout_seconds", fault->signal == SIGSTOP ? "4" : "60", NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!atomic_load(&board->start))
        pause_briefly();
    float *data = calloc(2 * (size_t)ELEMENTS, sizeof *data);
    member.context = join_job(&member, "faults", rank, RANKS);
    int set = fault->sets ? add_even_ranks(member.context) : 0;
    hvd_status status;
    hvd_code code = HVD_OK;
    while (!code) {
        bool ends = atomic_load(&board->end) && is_victim(fault, rank);
        if (set && rank % 2 == 0)
            code = reduce(member.context, data, set, "even", !ends, &status);
        if (!code)
            code = reduce(member.context, data + ELEMENTS, 0, "all", !ends, &status);
        if (ends)
            _exit(0);
        atomic_fetch_add(&board->steps[rank], 1);
    }
    memcpy(board->texts[rank], status.text, sizeof status.text);
    atomic_store(&board->failed[rank], true);
    _exit(3);
}

static void print_board(const struct fault *fault, const char *what)
{
    fprintf(stderr, "%s; victims 0x%x, signal %d\n", what, fault->victims, fault->signal);
    for (int rank = 0; rank < RANKS; rank++)
        fprintf(stderr, "  rank %d, %d steps: %s\n", rank, atomic_load(&board->steps[rank]),
                board->texts[rank]);
}

static void wait_for(const struct fault *fault, bool (*over)(const struct fault *fault), const char *what)
{
    for (int waited = 0; !over(fault); waited++) {
        if (waited == DEADLINE * 1000)
            print_board(fault, what);
        CHECK(waited < DEADLINE * 1000, "%s", what);
        pause_briefly();
    }
}

static bool all_are_warm(const struct fault *fault)
{
    bool warm = true;
    (void)fault;
    for (int rank = 0; rank < RANKS; rank++)
        warm &= atomic_load(&board->steps[rank]) >= WARM_STEPS;
    return warm;
}

static bool survivors_have_failed(const struct fault *fault)
{
    bool failed = true;
    for (int rank = 0; rank < RANKS; rank++)
        failed &= is_victim(fault, rank) || atomic_load(&board->failed[rank]);
    return failed;
}

static void check_texts(const struct fault *fault)
{
    const char *first = NULL;
    for (int rank = 0; rank < RANKS; rank++) {
        if (is_victim(fault, rank))
            continue;
        first = first ? first : board->texts[rank];
        if (strcmp(board->texts[rank], first) != 0 || !strstr(first, fault->text))
            print_board(fault, fault->text);
        CHECK(strcmp(board->texts[rank], first) == 0, "rank %d names another cause", rank);
        CHECK(strstr(first, fault->text), "the cause is another one");
    }
}

static void run_job(const struct fault *fault)
{
    hvd_rendezvous *rendezvous;
    pid_t processes[RANKS];
    memset((void *)board, 0, sizeof *board);
    /* Before there is a second thread: fork() would copy the locks that it holds. */
    for (int rank = 0; rank < RANKS; rank++) {
        processes[rank] = fork();
        CHECK(processes[rank] >= 0, "no process");
        if (processes[rank] == 0)
            run_rank(fault, rank);
    }
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &rendezvous, &check_status));
    snprintf(board->address, sizeof board->address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    atomic_store(&board->start, true);
    wait_for(fault, all_are_warm, "the job does not start");
    for (int rank = 0; rank < RANKS; rank++)
        if (is_victim(fault, rank) && fault->signal)
            kill(processes[rank], fault->signal);
    atomic_store(&board->end, !fault->signal);
    wait_for(fault, survivors_have_failed, "some ranks go on waiting");
    for (int rank = 0; rank < RANKS; rank++) {
        kill(processes[rank], SIGKILL);
        waitpid(processes[rank], NULL, 0);
    }
    hvd_rendezvous_stop(rendezvous);
    check_texts(fault);
}

static void run_jobs(const struct fault *faults, size_t count, int usual)
{
    const char *wanted = getenv("HOROVOD_TEST_FAULTS");
    int jobs = wanted ? atoi(wanted) : SANITIZED ? (int)count : usual;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED, "no memory");
    for (int job = 0; job < jobs; job++)
        run_job(&faults[(size_t)job % count]);
    munmap((void *)board, sizeof *board);
}

TEST(test_killed)
{
    static const struct fault faults[] = {
        {.victims = 1 << 0, .signal = SIGKILL, .text = "lost rank 0 (pid "},
        {.victims = 1 << 2, .signal = SIGKILL, .text = "lost rank 2 (pid "},
        {.victims = 1 << 5, .signal = SIGKILL, .text = "lost rank 5 (pid "},
        {.victims = 1 << 2, .signal = SIGKILL, .sets = true, .text = "lost rank 2 (pid "},
    };
    run_jobs(faults, sizeof faults / sizeof *faults, 12);
}

TEST(test_exit_in_a_transfer)
{
    static const struct fault faults[] = {
        {.victims = 1 << 0, .text = "lost rank 0 (pid "},
        {.victims = 1 << 2, .text = "lost rank 2 (pid "},
        {.victims = 1 << 5, .text = "lost rank 5 (pid "},
        {.victims = 1 << 4, .sets = true, .text = "lost rank 4 (pid "},
    };
    run_jobs(faults, sizeof faults / sizeof *faults, 12);
}

TEST(test_stopped_process)
{
    static const struct fault faults[] = {
        {.victims = 1 << 0, .signal = SIGSTOP, .text = "rank 0 (pid "},
        {.victims = 1 << 2, .signal = SIGSTOP, .text = "rank 2 (pid "},
        {.victims = 1 << 5, .signal = SIGSTOP, .sets = true, .text = "rank 5 (pid "},
    };
    run_jobs(faults, sizeof faults / sizeof *faults, 3);
}

TEST(test_silent_host)
{
    static const struct fault faults[] = {
        {.victims = 0x0c, .signal = SIGSTOP, .text = "(ranks 2-3) has not answered for 4 s"},
        {.victims = 0x03, .signal = SIGSTOP, .text = "(ranks 0-1) has not answered for 4 s"},
        {.victims = 0xf3, .signal = SIGSTOP, .text = "(ranks 2-3) is cut off"},
    };
    run_jobs(faults, sizeof faults / sizeof *faults, 3);
}
