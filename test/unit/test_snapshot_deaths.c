/* test_snapshot_deaths.c - two ranks that save and change a state run one instruction at a time, in a random
 * order, and after each instruction any of them could die: a version of the state must be left that is no
 * older than what both have committed, and it must have its own bytes. Planted faults must be found. */
#include "test.h"

#include "random.h"
#include "snapshot/copier.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS    2
#define WORDS    5 /* of the state, of which the first rank has two */
#define OWN      3 /* words that only the first rank has, behind those */
#define VERSIONS 4
#define NONE     PUBLICATION_NONE

#define MOST_STEPS 100000 /* a sound run has some 20000 */

enum fault { SOUND, PUBLISHED_EARLY, NOT_WITHDRAWN, ONE_BUFFER, OWN_SHARE_ONLY };

/* What the parent sees of a rank. */
struct rank {
    _Atomic int64_t committed; /* the last version that it has committed */
    _Atomic int64_t clean;     /* the version that its own state is; NONE: it has changed since */
};

static struct rank *ranks; /* in memory that all processes share */

static uint32_t word_of(int64_t version, int word)
{
    return (uint32_t)(version * 1000 + word);
}

/* ---- a rank ------------------------------------------------------------------------------------------- */

static void copy_wrongly(const struct copier_task *task, enum fault fault)
{
    struct publication *publication = &task->copy->head->publication;
    if (fault != NOT_WITHDRAWN)
        publication_withdraw(publication, task->buffer, task->share);
    if (fault == PUBLISHED_EARLY)
        publication_publish(publication, task->buffer, task->share, &task->state);
    host_copy_write(task->copy, task->buffer, task->from, (const char *)task->parts[0].data + task->from,
                    task->to - task->from);
    host_copy_write(task->copy, task->buffer, task->state.bytes,
                    (const char *)task->parts[0].data + task->state.bytes, task->state.own);
    publication_publish(publication, task->buffer, task->share, &task->state);
}

static void save(struct host_copy *copy, int rank, int buffer, int64_t version, enum fault fault)
{
    uint32_t state[WORDS + OWN];
    const size_t common = WORDS * sizeof state[0];
    hvd_memory part = {state, rank ? common : sizeof state};
    atomic_bool abandoned = false;
    for (int word = 0; word < WORDS + OWN; word++)
        state[word] = word_of(version, word);
    struct copier_task task = {.copy = copy,
                               .buffer = buffer,
                               .share = rank,
                               .state = {version, 1, common, RANKS, rank ? 0 : sizeof state - common},
                               .from = rank ? 2 * sizeof state[0] : 0,
                               .to = rank ? common : 2 * sizeof state[0],
                               .parts = &part,
                               .count = 1};
    if (fault == PUBLISHED_EARLY || fault == NOT_WITHDRAWN)
        copy_wrongly(&task, fault);
    else if (copier_run(&task, &abandoned, NULL))
        _exit(2);
}

static bool is_saved(const struct host_copy *copy, int rank, int buffer, int64_t version, enum fault fault)
{
    struct publication_state state;
    const struct publication *publication = &copy->head->publication;
    if (fault == OWN_SHARE_ONLY)
        return atomic_load(&publication->buffers[buffer][rank].version) == version;
    return publication_read(publication, buffer, &state) && state.version == version;
}

/* As hvd_snapshot_save and hvd_snapshot_wait, with a step of training after each. */
static void train(struct host_copy *copy, int rank, enum fault fault)
{
    for (int64_t version = 1; version <= VERSIONS; version++) {
        int buffer = fault == ONE_BUFFER ? 0 : (int)(version & 1);
        atomic_store(&ranks[rank].clean, version);
        atomic_store(&ranks[rank].committed, version);
        save(copy, rank, buffer, version, fault);
        while (atomic_load(&ranks[!rank].committed) < version) /* its gradients come after that */
            ;
        while (!is_saved(copy, rank, buffer, version, fault))
            ;
        atomic_store(&ranks[rank].clean, NONE);
    }
}

static pid_t start(const struct host_copy_place *place, int rank, enum fault fault)
{
    pid_t child = fork();
    if (child)
        return child;
    struct host_copy *copy;
    if (host_copy_open(place, &copy, NULL))
        _exit(3);
    for (int buffer = 0; buffer < 2; buffer++)
        if (host_copy_reserve(copy, buffer, (WORDS + OWN) * sizeof(uint32_t), 0,
                              (WORDS + OWN) * sizeof(uint32_t), NULL))
            _exit(4);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
        _exit(5);
    raise(SIGSTOP);
    train(copy, rank, fault);
    _exit(0);
}

/* ---- after each instruction --------------------------------------------------------------------------- */

/* Returns true if each version that counts as whole has its own bytes. */
static bool bytes_are_right(struct host_copy *copy)
{
    struct publication_state whole;
    uint32_t state[WORDS + OWN];
    for (int buffer = 0; buffer < 2; buffer++) {
        if (!publication_read(&copy->head->publication, buffer, &whole))
            continue;
        assert_int_equal(host_copy_read(copy, whole.version, 0, state, sizeof state, NULL), HVD_OK);
        for (int word = 0; word < WORDS + OWN; word++)
            if (state[word] != word_of(whole.version, word))
                return false;
    }
    return true;
}

/* Returns what would be lost if any of the ranks died now, or NULL. */
static const char *find_loss(struct host_copy *copy)
{
    struct publication_state newest = {.version = NONE};
    publication_newest(&copy->head->publication, &newest);
    if (!bytes_are_right(copy))
        return "a whole version has bytes of another one";
    int64_t committed[RANKS];
    for (int rank = 0; rank < RANKS; rank++)
        committed[rank] = atomic_load(&ranks[rank].committed);
    for (int survivor = 0; survivor < RANKS; survivor++) {
        int64_t left = atomic_load(&ranks[survivor].clean);
        if (newest.version > left)
            left = newest.version;
        if (left < committed[0] && left < committed[1])
            return "a version that both ranks have committed is lost";
    }
    return NULL;
}

/* Returns false once the process has ended. */
static bool step_once(pid_t process)
{
    int status;
    assert_int_equal(ptrace(PTRACE_SINGLESTEP, process, NULL, NULL), 0);
    assert_int_equal(waitpid(process, &status, 0), process);
    if (WIFSTOPPED(status))
        return true;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return false;
}

/* Runs both ranks to their end, or until something is lost. */
static const char *run_ranks(uint64_t seed, enum fault fault)
{
    struct host_copy *copy;
    pid_t processes[RANKS];
    const char *loss = NULL;
    int status, alive = RANKS, left = MOST_STEPS;
    ASSERT_OK(host_copy_create(&copy, &check_status));
    struct host_copy_place place = host_copy_place(copy);
    for (int rank = 0; rank < RANKS; rank++) {
        atomic_store(&ranks[rank].committed, 0);
        atomic_store(&ranks[rank].clean, 0);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        processes[rank] = start(&place, rank, fault);
        assert_int_equal(waitpid(processes[rank], &status, 0), processes[rank]);
        assert_true(WIFSTOPPED(status));
    }
    while (alive && !loss) {
        int rank = (int)random_below(&seed, RANKS);
        uint64_t burst = 1 + random_below(&seed, random_below(&seed, 8) ? 40 : 4000);
        while (processes[rank] && burst-- && !loss) {
            if (!step_once(processes[rank])) {
                processes[rank] = 0;
                alive--;
            }
            loss = left-- ? find_loss(copy) : "the ranks wait for each other";
        }
    }
    for (int rank = 0; rank < RANKS; rank++)
        if (processes[rank]) {
            kill(processes[rank], SIGKILL);
            waitpid(processes[rank], &status, 0);
        }
    host_copy_close(copy);
    return loss;
}

static int share_ranks(void **state)
{
    (void)state;
    ranks = mmap(NULL, RANKS * sizeof *ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return ranks == MAP_FAILED;
}

const struct test_hooks test_hooks = {.before_all = share_ranks};

/* A sanitizer's instructions are too many to be run one by one. */
TEST(test_no_version_is_lost_at_any_instruction)
{
    for (uint64_t seed = 0; seed < 2 && !SANITIZED; seed++)
        assert_null(run_ranks(seed, SOUND));
}

static void must_be_found(enum fault fault)
{
    const char *loss = SANITIZED ? "" : NULL;
    for (uint64_t seed = 0; seed < 20 && !loss; seed++)
        loss = run_ranks(seed, fault);
    assert_non_null(loss);
}

TEST(test_a_share_published_early_is_found)
{
    must_be_found(PUBLISHED_EARLY);
}

TEST(test_a_share_not_withdrawn_is_found)
{
    must_be_found(NOT_WITHDRAWN);
}

TEST(test_one_buffer_is_found)
{
    must_be_found(ONE_BUFFER);
}

TEST(test_a_step_that_waits_for_its_own_share_only_is_found)
{
    must_be_found(OWN_SHARE_ONLY);
}
