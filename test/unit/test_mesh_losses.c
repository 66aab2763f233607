/* test_mesh_losses.c - ranks of a mesh that end, are killed or fork: the others learn of it, over links that
 * are open and over those that open on first use. */
#include "mesh_group.h"
#include "transport/peer.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- losses ------------------------------------------------------------------------------------------- */

static void await_loss(struct mesh *mesh, int rank, const char *word)
{
    hvd_status status;
    int lost;
    int64_t deadline = clock_after(DEADLINE);
    while ((lost = mesh_next_lost(mesh, &status)) < 0 && clock_now() < deadline) {
        if (mesh_arm(mesh))
            mesh_sleep(mesh, clock_earlier(deadline, mesh_deadline(mesh)));
        mesh_disarm(mesh);
        mesh_poll(mesh);
    }
    CHECK(lost == rank, "lost %d, not %d", lost, rank);
    CHECK(status.code == HVD_PEER_LOST && strstr(status.text, word), "%s", status.text);
    CHECK(clock_now() < deadline, "only the deadline ended the sleep");
    CHECK(mesh_next_lost(mesh, &status) == -1, "reported twice");
}

static void lose_rank_1(struct member *member)
{
    char byte = 'x';
    struct iovec part = {&byte, 1};
    char word[64];
    struct link *link = mesh_link(member->mesh, member->rank == 1 ? 0 : 1, 0);
    snprintf(word, sizeof word, "lost rank 1 (pid %d, host ", (int)getpid());
    if (member->rank == 1) {
        CHECK(link_send(link, &part, 1) == 1, "can't send");
        return;
    }
    await_loss(member->mesh, 1, word);
    if (member->rank == 0) { /* its last bytes are still there */
        byte = 0;
        CHECK(link_receive(link, &part, 1) == 1 && byte == 'x', "the last bytes are gone");
        CHECK(link_receive(link, &part, 1) == -1, "the link is not broken");
    }
    CHECK(link_send(link, &part, 1) == -1, "bytes go to a lost rank");
}

static void lose_rank_1_together(struct member *member)
{
    lose_rank_1(member);
    if (member->rank != 1)
        pthread_barrier_wait(&barrier);
}

TEST(test_closed_peer_is_reported)
{
    run_each(3, (struct group_options){.fn = lose_rank_1_together});
}

/* A cause may have arrived on another link meanwhile. */
static void stand_still(struct member *member)
{
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct mesh *mesh = member->mesh;
    hvd_status status;
    if (member->rank == 1) {
        CHECK(link_send(mesh_link(mesh, 0, 0), &part, 1) == 1, "can't send");
        return;
    }
    int64_t deadline = clock_after(DEADLINE);
    while (mesh->next_report == CLOCK_NEVER && clock_now() < deadline)
        mesh_poll(mesh);
    while (clock_now() <= clock_earlier(mesh->next_report, deadline))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    CHECK(mesh_next_lost(mesh, &status) == -1, "reported before the mesh was polled");
    mesh_poll(mesh);
    CHECK(mesh_next_lost(mesh, &status) == 1, "not reported after the time for causes");
}

TEST(test_own_standstill_is_no_time_for_causes)
{
    run_each(2, (struct group_options){.fn = stand_still, .transport = "tcp"});
}

static void kill_rank_1(struct member *member)
{
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct link *link = mesh_link(member->mesh, 1 - member->rank, 0);
    if (member->rank == 1) {
        CHECK(link_send(link, &part, 1) == 1, "can't send");
        raise(SIGKILL);
    }
    await_loss(member->mesh, 1, "it was probably killed or crashed");
    byte = 0;
    CHECK(link_receive(link, &part, 1) == 1 && byte == 'x', "the last bytes are gone");
}

TEST(test_killed_process_is_reported)
{
    for (size_t i = 0; i < transport_names; i++) {
        struct group_options options = {.transport = transports[i], .fn = kill_rank_1};
        run_processes(2, &options, 1);
    }
}

static void leave_politely(struct member *member)
{
    hvd_status status;
    struct link *link = mesh_link(member->mesh, 1 - member->rank, 0);
    char byte = 0;
    struct iovec part = {&byte, 1};
    if (member->rank == 1)
        return;
    mesh_expect_end(member->mesh, 1);
    int64_t deadline = clock_after(DEADLINE);
    while (link_receive(link, &part, 1) != -1 && clock_now() < deadline)
        mesh_poll(member->mesh);
    CHECK(clock_now() < deadline, "the end was not noticed");
    CHECK(mesh_next_lost(member->mesh, &status) == -1, "an expected end is no loss: %s", status.text);
}

TEST(test_expected_end_is_no_loss)
{
    run_each(2, (struct group_options){.fn = leave_politely});
}

/* A child of fork() that has abandoned the mesh must not keep the connections open. */
static void fork_and_leave(struct member *member)
{
    int hold[2];
    char word[32] = "lost rank 1";
    if (member->rank == 0) {
        await_loss(member->mesh, 1, word);
        pthread_barrier_wait(&barrier);
        return;
    }
    CHECK(pipe(hold) == 0, "no pipe");
    pid_t child = fork();
    CHECK(child >= 0, "no fork");
    if (child == 0) {
        char byte;
        int before = count_entries("/proc/self/fd");
        mesh_abandon(member->mesh);
        int own = strcmp(member->settings.transport, "shm") ? CHANNELS : 1; /* links, or the doorbell */
        CHECK(before - count_entries("/proc/self/fd") == own + 5,
              "the child keeps descriptors of its parent");
        close(hold[1]);
        ssize_t n = read(hold[0], &byte, 1); /* until the parent is done */
        _exit(n == 0 ? 0 : 1);
    }
    close(hold[0]);
    mesh_close(member->mesh);
    member->mesh = NULL;
    pthread_barrier_wait(&barrier);
    close(hold[1]);
    int outcome;
    CHECK(waitpid(child, &outcome, 0) == child && outcome == 0, "the child failed");
}

static void open_and_fork(struct member *member)
{
    CHECK(open_mesh(&member->settings, DEADLINE, &member->mesh, &member->status) == HVD_OK, "%s",
          member->status.text);
    pthread_barrier_wait(&barrier);
    fork_and_leave(member);
    mesh_close(member->mesh);
}

TEST(test_forked_child_keeps_nothing_open)
{
    run_each(2, (struct group_options){.fn = open_and_fork, .opens_by_itself = true});
}

/* ---- links on first use -------------------------------------------------------------------------------- */

static struct link *await_link(struct mesh *mesh, int rank)
{
    int64_t deadline = clock_after(DEADLINE);
    struct link *link;
    while (!(link = mesh_link(mesh, rank, 0)) && clock_now() < deadline) {
        if (mesh_arm(mesh))
            mesh_sleep(mesh, clock_earlier(deadline, mesh_deadline(mesh)));
        mesh_disarm(mesh);
        mesh_poll(mesh);
    }
    CHECK(link, "no link to rank %d", rank);
    return link;
}

static hvd_code open_line(struct member *member)
{
    int neighbours[2], count = 0;
    if (member->rank > 0)
        neighbours[count++] = member->rank - 1;
    if (member->rank < member->size - 1)
        neighbours[count++] = member->rank + 1;
    return open_mesh_to(&member->settings, neighbours, count, DEADLINE, &member->mesh, &member->status);
}

static pthread_barrier_t all; /* ranks of the group */

/* Each rank has its neighbours only; then all pairs, which both ends ask for in an order of their own. */
static void open_as_needed(struct member *member)
{
    CHECK(open_line(member) == HVD_OK, "%s", member->status.text);
    for (int peer = 0, next = -1; peer < member->size; peer++) {
        bool beside = peer == member->rank - 1 || peer == member->rank + 1;
        CHECK(strcmp(mesh_transport_name(member->mesh, peer), "none") == 0 || beside, "%d is linked", peer);
        if (beside)
            next = mesh_next_peer(member->mesh, next);
        CHECK(!beside || next == peer, "%d, not %d, is linked", next, peer);
    }
    pthread_barrier_wait(&all);
    for (int distance = 1; distance < member->size; distance++)
        await_link(member->mesh, (member->rank + distance) % member->size);
    exchange_with_all(member);
    CHECK(mesh_deadline(member->mesh) == CLOCK_NEVER, "something is still under way");
    pthread_barrier_wait(&all);
    mesh_close(member->mesh);
}

TEST(test_links_open_on_first_use)
{
    static const char *const over[] = {"shm", "tcp", "faulty-shm", "faulty-tcp"};
    for (int i = 0; i < 4; i++) {
        pthread_barrier_init(&all, NULL, 5);
        run_group(5, &(struct group_options){.transport = over[i],
                                             .settings = {"shm_ring_bytes", "16384"},
                                             .fn = open_as_needed,
                                             .opens_by_itself = true});
        pthread_barrier_destroy(&all);
    }
}

/* Rank 0 has ended, or is stopped, when rank 2 needs it; rank 2 has no connection whose end it could see. */
static void need_what_is_gone(struct member *member)
{
    const char *how = member->argument;
    char word[64];
    CHECK(open_line(member) == HVD_OK, "%s", member->status.text);
    pthread_barrier_wait(&all);
    if (member->rank == 0 && strcmp(how, "gone") == 0) {
        mesh_close(member->mesh);
        member->mesh = NULL;
    }
    pthread_barrier_wait(&all);
    if (member->rank == 2) {
        int64_t start = clock_now();
        snprintf(word, sizeof word, "rank 0 (pid %d, host ", (int)getpid());
        CHECK(!mesh_link(member->mesh, 0, 0), "a link to rank 0");
        await_loss(member->mesh, 0, word);
        CHECK(clock_now() - start >= CLOCK_SECOND / 5, "it was not tried for long");
        CHECK(!mesh_link(member->mesh, 0, 0) && mesh_deadline(member->mesh) == CLOCK_NEVER,
              "it is tried again");
    }
    pthread_barrier_wait(&all);
    mesh_close(member->mesh);
}

TEST(test_peer_that_ends_before_its_link_is_there_is_lost)
{
    static const char *const over[] = {"shm", "tcp", "auto", "faulty-shm", "faulty-tcp"};
    for (int i = 0; i < 2 * 5; i++) {
        pthread_barrier_init(&all, NULL, 3);
        run_group(3, &(struct group_options){.transport = over[i / 2],
                                             .settings = {"start_timeout_seconds", "0.3"},
                                             .fn = need_what_is_gone,
                                             .argument = i % 2 ? "gone" : "stopped",
                                             .opens_by_itself = true});
        pthread_barrier_destroy(&all);
    }
}
