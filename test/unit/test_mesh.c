/* test_mesh.c - meshes of n ranks, each a thread of this process, over every transport: bytes arrive whole
 * and in order, threads leave shared cores, and no wake-up is lost. */
#include "base/platform_cores.h"
#include "mesh_group.h"
#include "random.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

/* ---- all pairs ---------------------------------------------------------------------------------------- */

/* What a rank sent before it closed must arrive: nobody waits for the others here. */
TEST(test_all_pairs)
{
    for (int size = 2; size <= SIZE_MAX_RANKS; size++)
        run_each(size,
                 (struct group_options){.settings = {"shm_ring_bytes", "16384"}, .fn = exchange_with_all});
}

TEST(test_all_pairs_over_faulty_links)
{
    for (int i = 0; i < 2; i++)
        run_group(4, &(struct group_options){.transport = faulty[i],
                                             .settings = {"shm_ring_bytes", "16384"},
                                             .fn = exchange_with_all});
}

TEST(test_all_pairs_encrypted)
{
    const char *const over[] = {"tcp", "faulty-tcp"};
    for (int i = 0; i < 2; i++)
        run_group(4, &(struct group_options){
                         .transport = over[i], .settings = {"encryption", "1"}, .fn = exchange_with_all});
}

TEST(test_all_pairs_of_processes)
{
    for (size_t i = 0; i < transport_names; i++) {
        struct group_options options = {.transport = transports[i], .fn = exchange_with_all};
        run_processes(4, &options, -1);
    }
}

static void expect_shm(struct member *member)
{
    CHECK(strcmp(mesh_transport_name(member->mesh, 1 - member->rank), "shm") == 0, "one host, but no shm");
}

TEST(test_auto_shares_memory_inside_a_host)
{
    run_each(2, (struct group_options){.transport = "auto", .fn = expect_shm});
}

/* ---- cores --------------------------------------------------------------------------------------------- */

static int first_core(const cpu_set_t *cores)
{
    int core = 0;
    while (!CPU_ISSET(core, cores))
        core++;
    return core;
}

/* Both report that they wait on one core; rank 1 is bound to it if `argument` is set. */
static void share_core(struct member *member)
{
    cpu_set_t before, after;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0, "no cores");
    int core = first_core(&before);
    bool bound = member->argument && member->rank == 1;
    mesh_shares_core(member->mesh, core);
    pthread_barrier_wait(&barrier);
    CHECK(mesh_shares_core(member->mesh, core), "nobody else on core %d", core);
    pthread_barrier_wait(&barrier);
    if (member->rank == 1) {
        CHECK(!mesh_shares_core(member->mesh, core + 1), "somebody on core %d", core + 1);
        mesh_shares_core(member->mesh, core);
    }
    pthread_barrier_wait(&barrier);
    if (member->rank == 1)
        CHECK(platform_thread_bind(core), "can't bind to core %d", core);
    if (member->rank == 1 && !bound)
        CHECK(sched_setaffinity(0, sizeof before, &before) == 0, "can't unbind"); /* it is still there */
    int now = core;
    for (int i = 0; i < 50 && now == core; i++) { /* the system may move it back at once */
        mesh_leave_core(member->mesh, core);
        now = sched_getcpu();
    }
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0, "no cores");
    CHECK(CPU_COUNT(&after) == (bound ? 1 : CPU_COUNT(&before)), "%d cores are left", CPU_COUNT(&after));
    CHECK(member->rank == 0 || (now == core) == (bound || CPU_COUNT(&before) == 1), "now on core %d", now);
    pthread_barrier_wait(&barrier);
}

TEST(test_the_higher_rank_leaves_a_shared_core)
{
    run_each(2, (struct group_options){.transport = "shm", .fn = share_core});
}

TEST(test_a_bound_thread_stays_on_its_core)
{
    run_each(2, (struct group_options){.transport = "shm", .fn = share_core, .argument = "bound"});
}

/* ---- no wake-up is lost -------------------------------------------------------------------------------- */

#define ROUNDS 3000

struct rally {
    struct link *link;
    uint32_t round; /* the next byte to send or to receive */
    bool mine;
    uint64_t random;
};

static void pause_randomly(uint64_t r)
{
    for (volatile unsigned spin = 0; r % 3 == 1 && spin < (r >> 8) % 2000;)
        spin++;
    if (r % 3 == 2)
        sched_yield();
    if (r % 97 == 0)
        usleep((useconds_t)((r >> 8) % 200));
}

static bool rally_turn(struct member *member, void *state, bool *done)
{
    struct rally *rally = state;
    uint32_t value = rally->round;
    struct iovec part = {&value, sizeof value};
    (void)member;
    pause_randomly(random_next(&rally->random));
    ssize_t n = rally->mine ? link_send(rally->link, &part, 1) : link_receive(rally->link, &part, 1);
    CHECK(n == 0 || n == sizeof value, "moved %zd bytes", n);
    rally->link->want_read = !rally->mine;
    link_await(rally->link);
    if (n) {
        CHECK(value == rally->round, "round %u came in round %u", value, rally->round);
        if (rally->mine)
            rally->link->operations->end_send(rally->link);
        else
            rally->link->operations->end_receive(rally->link);
        rally->mine = !rally->mine;
        rally->round++;
    }
    *done = rally->round == ROUNDS;
    return n > 0;
}

static void play(struct member *member)
{
    struct rally rally = {.link = mesh_link(member->mesh, 1 - member->rank, 1),
                          .mine = member->rank == 0,
                          .random = (uint64_t)member->rank};
    drive(member, rally_turn, &rally);
}

TEST(test_no_wake_up_is_lost)
{
    run_each(2, (struct group_options){.fn = play});
}

/* A writer that sleeps because the ring is full must wake when the reader makes room, and a sleeping reader
 * when something comes: only the other's doorbell can end these sleeps. */
static bool pour_turn(struct member *member, void *state, bool *done)
{
    size_t *left = state;
    static const uint8_t zeros[50000];
    uint8_t sink[3000];
    struct link *link = mesh_link(member->mesh, 1 - member->rank, 1);
    struct iovec part = {member->rank == 0 ? (void *)zeros : sink,
                         member->rank == 0 ? sizeof zeros : sizeof sink};
    if (part.iov_len > *left)
        part.iov_len = *left;
    ssize_t n = member->rank == 0 ? link_send(link, &part, 1) : link_receive(link, &part, 1);
    CHECK(n >= 0, "the link broke");
    *left -= (size_t)n;
    *done = !*left;
    link->want_write = member->rank == 0;
    link->want_read = member->rank == 1;
    link_await(link);
    return n > 0;
}

static void pour(struct member *member)
{
    size_t left = (size_t)8 << 20;
    drive(member, pour_turn, &left);
}

TEST(test_room_wakes_the_writer)
{
    run_each(2, (struct group_options){.settings = {"shm_ring_bytes", "4096"}, .fn = pour});
    for (int i = 0; i < 2; i++)
        run_group(2, &(struct group_options){
                         .transport = faulty[i], .settings = {"shm_ring_bytes", "4096"}, .fn = pour});
    run_group(2, &(struct group_options){.transport = "tcp", .settings = {"encryption", "1"}, .fn = pour});
}

static void *wake_later(void *argument)
{
    usleep(20000);
    mesh_wake(argument);
    return NULL;
}

static void sleep_and_be_woken(struct member *member)
{
    pthread_t waker;
    mesh_poll(member->mesh); /* new sockets report that they can be written */
    int64_t start = clock_now();
    CHECK(mesh_arm(member->mesh), "news in a quiet mesh");
    mesh_sleep(member->mesh, clock_after(0.03));
    CHECK(clock_now() - start >= CLOCK_SECOND / 50, "the sleep ended by itself");
    CHECK(pthread_create(&waker, NULL, wake_later, member->mesh) == 0, "no thread");
    mesh_sleep(member->mesh, CLOCK_NEVER);
    mesh_disarm(member->mesh);
    pthread_join(waker, NULL);
    mesh_wake(member->mesh); /* counts for the next sleep */
    mesh_sleep(member->mesh, CLOCK_NEVER);
}

static void sleep_together(struct member *member)
{
    pthread_barrier_wait(&barrier);
    sleep_and_be_woken(member);
    pthread_barrier_wait(&barrier);
}

TEST(test_sleep_ends_by_deadline_or_wake)
{
    run_each(2, (struct group_options){.fn = sleep_together});
}
