/* test_shm_link.c - two ranks that share memory, driven by hand in one thread: when bytes are lent instead of
 * copied, or read directly, that no rank reads outside of them, and that memory is released. */
#include "base/platform_poller.h"
#include "base/platform_sockets.h"
#include "net/socket.h"
#include "test.h"
#include "transport/arena.h"
#include "transport/sharing.h"
#include "transport/shm_link.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RING  ((size_t)16 << 10) /* the control channel, whatever is asked for */
#define BYTES ((size_t)100000)

struct pair {
    struct mesh mesh[2];
    struct peer peers[2]; /* of rank 0: rank 1, and the other way round */
    struct link *links[2];
    uint8_t *memory; /* shared */
};

static struct segment *segment_of(struct pair *pair, int rank)
{
    return ((struct shm_mesh *)*mesh_state(&pair->mesh[rank], &transport_shm))->segment;
}

/* Its side of the pair. */
static struct shm_peer *side_of(const struct pair *pair, int rank)
{
    return pair->peers[rank].state;
}

static int make(void **state)
{
    int doorbells[2];
    struct pair *pair = calloc(1, sizeof *pair);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, doorbells), 0);
    for (int rank = 0; rank < 2; rank++) {
        struct mesh *mesh = &pair->mesh[rank];
        *mesh = (struct mesh){
            .hub = mesh, .rank = rank, .channels = 1, .peers = &pair->peers[rank], .peer_count = 1};
        mesh->poller = platform_poller_create();
        struct shm_mesh *own = calloc(1, sizeof *own);
        *mesh_state(mesh, &transport_shm) = own;
        ASSERT_OK(segment_create(1, 1, 1, RING, &own->segment, &check_status));
        ASSERT_OK(segment_reserve(own->segment, 0, true, &check_status));
    }
    for (int rank = 0; rank < 2; rank++) {
        struct peer *peer = &pair->peers[rank];
        struct segment *theirs = segment_of(pair, 1 - rank);
        struct ring in = segment_ring(theirs, 0, 0);
        struct sharing sharing = {.segment = theirs, .rings = &in};
        *peer = (struct peer){.mesh = &pair->mesh[rank],
                              .rank = 1 - rank,
                              .neighbour = true,
                              .links = &pair->links[rank],
                              .transport = &transport_shm,
                              .watched = -1};
        atomic_fetch_add(&theirs->references, 1);
        ASSERT_OK(transport_shm.open(peer, 0, doorbells[rank], NULL, &sharing, &check_status));
        pair->links[rank]->lends = true;
        pair->links[rank]->batch_bytes = (size_t)1 << 20;
    }
    ASSERT_OK(hvd_shared_alloc(BYTES, (void **)&pair->memory, &check_status));
    for (size_t i = 0; i < BYTES; i++)
        pair->memory[i] = (uint8_t)(i * 7 + (i >> 8));
    *state = pair;
    return 0;
}

static int unmake(void **state)
{
    struct pair *pair = *state;
    for (int rank = 0; rank < 2; rank++) {
        transport_shm.close_peer(&pair->peers[rank]);
        socket_close(&pair->mesh[rank].poller);
        transport_shm.close_mesh(&pair->mesh[rank]);
    }
    hvd_shared_free(pair->memory);
    free(pair);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = make, .after_each = unmake};

static ssize_t send_some(struct pair *pair, const void *bytes, size_t length)
{
    struct iovec part = {(void *)bytes, length};
    return link_send(pair->links[0], &part, 1);
}

static ssize_t receive_some(struct pair *pair, void *bytes, size_t length)
{
    struct iovec part = {bytes, length};
    return link_receive(pair->links[1], &part, 1);
}

/* From here on rank 0 may lend. */
static void introduce(struct pair *pair)
{
    uint8_t copied[RING];
    ssize_t n = send_some(pair, pair->memory, BYTES); /* through the ring: rank 1 has not mapped it yet */
    assert_in_range(n, 1, RING);
    assert_int_equal(pair->links[0]->lent, 0);
    for (int news = 0; news < 2; news++) /* the arena, and the token for direct reads */
        transport_shm.poll(&pair->peers[1]);
    assert_int_equal(receive_some(pair, copied, (size_t)n), n);
    assert_memory_equal(copied, pair->memory, n);
    pair->links[0]->operations->end_send(pair->links[0]);
    pair->links[1]->operations->end_receive(pair->links[1]);
}

TEST(test_bytes_are_lent_once_the_peer_sees_them)
{
    struct pair *pair = *state;
    struct link *from = pair->links[0], *to = pair->links[1];
    uint8_t *copy = malloc(BYTES);
    introduce(pair);
    assert_int_equal(send_some(pair, pair->memory, BYTES), BYTES);
    assert_false(from->operations->taken(from, from->lent));
    from->want_taken = from->lent;
    assert_false(from->operations->news(from));
    assert_int_equal(receive_some(pair, copy, BYTES - 1), BYTES - 1);
    assert_false(from->operations->taken(from, from->lent));
    assert_int_equal(receive_some(pair, copy + BYTES - 1, 1), 1);
    assert_memory_equal(copy, pair->memory, BYTES);
    assert_true(from->operations->taken(from, from->lent) && from->operations->news(from));
    from->operations->end_send(from);
    to->operations->end_receive(to);
    free(copy);
}

TEST(test_a_view_is_the_memory_itself)
{
    struct pair *pair = *state;
    const void *view;
    introduce(pair);
    assert_int_equal(send_some(pair, pair->memory + 8, 64 << 10), 64 << 10);
    assert_int_equal(pair->links[1]->operations->view(pair->links[1], &view, BYTES), 64 << 10);
    assert_ptr_equal(view, pair->memory + 8);
    assert_true(pair->links[1]->operations->consume(pair->links[1], 64 << 10));
}

/* More parts than slots, lent and copied ones in turn, while the reader takes odd numbers. */
TEST(test_both_kinds_mix)
{
    struct pair *pair = *state;
    enum { PARTS = 60, PART = 9000 };
    uint8_t *plain = malloc(BYTES), *all = malloc(PARTS * PART), *got = malloc(PARTS * PART);
    struct iovec parts[PARTS];
    size_t total = 0, sent = 0, read = 0;
    introduce(pair);
    memcpy(plain, pair->memory, BYTES);
    for (size_t i = 0; i < PARTS; i++) {
        size_t length = i % 5 == 4 ? 16 : PART - 16 * i;
        parts[i] = (struct iovec){(i % 3 ? pair->memory : plain) + 16 * i, length};
        memcpy(all + total, parts[i].iov_base, length);
        total += length;
    }
    for (int turn = 0; read < total; turn++) {
        struct iovec rest[PARTS];
        int count = 0;
        size_t skip = sent;
        assert_true(turn < 10000);
        for (int i = 0; i < PARTS; skip -= skip < parts[i].iov_len ? skip : parts[i].iov_len, i++)
            if (skip < parts[i].iov_len)
                rest[count++] = (struct iovec){(uint8_t *)parts[i].iov_base + skip, parts[i].iov_len - skip};
        ssize_t n = count ? link_send(pair->links[0], rest, count) : 0;
        assert_true(n >= 0);
        sent += (size_t)n;
        size_t room = total - read < 4001 ? total - read : 4001;
        n = receive_some(pair, got + read, room);
        assert_true(n >= 0);
        read += (size_t)n;
    }
    assert_int_equal(sent, total);
    assert_true(pair->links[0]->lent > 0);
    assert_memory_equal(got, all, total);
    free(plain);
    free(all);
    free(got);
}

static void expect_refused(struct pair *pair, struct ring_reference reference, const char *why)
{
    hvd_status status;
    uint8_t byte;
    struct ring ring = segment_ring(segment_of(pair, 0), 0, 0);
    assert_true(ring_refer(&ring, &reference));
    assert_int_equal(receive_some(pair, &byte, 1), -1);
    assert_int_equal(mesh_next_lost(&pair->mesh[1], &status), 0);
    assert_non_null(strstr(status.text, why));
}

TEST(test_memory_not_shared_is_refused)
{
    expect_refused(*state, (struct ring_reference){1, 0, 16}, "memory that it has not shared");
}

/* An offered arena, and references that leave it. */
TEST(test_references_stay_inside)
{
    struct pair *pair = *state;
    struct ring_reference all;
    introduce(pair);
    assert_true(arena_find(pair->memory, BYTES, &all));
    const struct lending *lending = &side_of(pair, 1)->lending;
    size_t bytes = all.offset + BYTES;
    const struct ring_reference wrong[] = {
        {all.arena, 0, bytes + 1},   {all.arena, bytes, 1},       {all.arena, bytes + 1, 1},
        {all.arena, 64, UINT64_MAX}, {all.arena, UINT64_MAX, 64}, {all.arena, UINT64_MAX - 8, 16},
        {all.arena, 0, 0},           {all.arena + 1, 0, 16},      {0, 0, 16},
    };
    assert_ptr_equal(lending_resolve(lending, &all), pair->memory);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_null(lending_resolve(lending, &wrong[i]));
}

TEST(test_no_foreign_memory_is_mapped)
{
    struct pair *pair = *state;
    struct lending *lending = &side_of(pair, 1)->lending;
    char name[] = "/tmp/horovod-test-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    assert_int_equal(ftruncate(fd, 1 << 20), 0); /* a file, which its owner could cut */
    lending_accept(lending, fd);
    assert_true(lending->refuses);
    lending_accept(lending, -1); /* the descriptor got lost */
    close(fd);
    assert_int_equal(atomic_load(&lending->in->granted), 0);
    introduce(pair);
    assert_in_range(send_some(pair, pair->memory, BYTES), 1, RING); /* still copied */
}

TEST(test_revoked_bytes_are_not_used)
{
    struct pair *pair = *state;
    hvd_status status;
    uint8_t *copy = malloc(BYTES);
    introduce(pair);
    assert_int_equal(send_some(pair, pair->memory, BYTES), BYTES);
    assert_int_equal(receive_some(pair, copy, 1000), 1000);
    pair->links[0]->operations->revoke(pair->links[0]);
    assert_int_equal(receive_some(pair, copy, 1000), -1);
    assert_int_equal(mesh_next_lost(&pair->mesh[1], &status), 0);
    assert_non_null(strstr(status.text, "ended an operation whose data this rank still read"));
    free(copy);
}

/* What a dead rank has lent stays readable. */
TEST(test_the_dead_still_lend)
{
    struct pair *pair = *state;
    uint8_t *copy = malloc(BYTES);
    introduce(pair);
    assert_int_equal(send_some(pair, pair->memory, BYTES), BYTES);
    socket_close(&side_of(pair, 0)->doorbell);
    transport_shm.poll(&pair->peers[1]);
    assert_true(pair->peers[1].lost);
    assert_int_equal(receive_some(pair, copy, BYTES), BYTES);
    assert_memory_equal(copy, pair->memory, BYTES);
    assert_int_equal(receive_some(pair, copy, 1), -1);
    free(copy);
}

TEST(test_freed_memory_is_let_go)
{
    struct pair *pair = *state;
    int before = count_entries("/proc/self/fd");
    introduce(pair);
    assert_non_null(side_of(pair, 1)->lending.borrowed);
    hvd_shared_free(pair->memory);
    transport_shm.poll(&pair->peers[1]);
    assert_null(side_of(pair, 1)->lending.borrowed);
    assert_int_equal(count_entries("/proc/self/fd"), before - 1);
    ASSERT_OK(hvd_shared_alloc(BYTES, (void **)&pair->memory, &check_status));
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(pair->memory[i], 0);
    introduce(pair); /* a new one, another serial */
    assert_int_equal(send_some(pair, pair->memory, BYTES), BYTES);
    hvd_shared_free(NULL);
}

/* What a child of fork() does, freeing included, does not show here, and its memory is not lent. */
TEST(test_what_a_child_writes_stays_its_own)
{
    struct pair *pair = *state;
    int outcome;
    uint8_t first = pair->memory[0];
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ring_reference reference;
        uint8_t *memory = pair->memory;
        bool same = memory[0] == first && memory[1000] == (uint8_t)(7000 + (1000 >> 8));
        bool lendable = arena_find(memory, BYTES, &reference);
        memset(memory, 0xee, BYTES);
        hvd_shared_free(memory);
        _exit(same && !lendable ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_int_equal(outcome, 0);
    assert_int_equal(pair->memory[0], first);
    assert_int_equal(pair->memory[1000], (uint8_t)(7000 + (1000 >> 8)));
    introduce(pair);
    assert_int_equal(send_some(pair, pair->memory, BYTES), BYTES);
}

/* The offer in two parts, its descriptor with the first; one more comes with the verdict. */
TEST(test_an_offer_comes_in_parts)
{
    struct pair *pair = *state;
    struct segment *own = segment_of(pair, 0);
    struct sharing *sharing = sharing_create(own, 0, 1);
    int ends[2], before = count_entries("/proc/self/fd");
    uint8_t offer[64], yes = 1;
    size_t bytes = segment_offer_bytes(1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    assert_non_null(sharing);
    segment_offer(own, 0, offer);
    assert_int_equal(platform_send_with_fd(ends[1], offer, 1, own->fd), 1);
    assert_int_equal(sharing_advance(sharing, ends[0], NULL), HVD_IN_PROGRESS);
    assert_int_equal(platform_send_with_fd(ends[1], offer + 1, bytes - 1, -1), bytes - 1);
    assert_int_equal(sharing_advance(sharing, ends[0], NULL), HVD_IN_PROGRESS);
    assert_int_equal(platform_send_with_fd(ends[1], &yes, 1, own->fd), 1);
    ASSERT_OK(sharing_advance(sharing, ends[0], &check_status));
    sharing_free(sharing);
    socket_close(&ends[0]);
    socket_close(&ends[1]);
    assert_int_equal(count_entries("/proc/self/fd"), before);
}

TEST(test_too_much_is_an_error)
{
    void *memory = NULL;
    hvd_status status;
    assert_int_not_equal(hvd_shared_alloc(SIZE_MAX - 5, &memory, &status), HVD_OK);
    assert_int_not_equal(hvd_shared_alloc((size_t)1 << 60, &memory, &status), HVD_OK);
    assert_non_null(strstr(status.text, "raise the limit"));
    assert_null(memory);
}

/* ---- direct reads ------------------------------------------------------------------------------------- */

/* Rank 0 offers its bytes for direct reads; the first go through the ring, whatever rank 1 answers. */
static unsigned ask_for_direct_reads(struct pair *pair)
{
    uint8_t first[64] = {1, 2, 3}, copied[64];
    path_begin(&side_of(pair, 0)->path, PATH_DIRECT);
    assert_int_equal(send_some(pair, first, sizeof first), sizeof first);
    assert_int_equal(pair->links[0]->lent, 0);
    assert_int_equal(receive_some(pair, copied, sizeof copied), sizeof copied);
    assert_memory_equal(copied, first, sizeof first);
    transport_shm.poll(&pair->peers[1]);
    return atomic_load(&side_of(pair, 0)->lending.out->access);
}

static uint8_t *make_bytes(void)
{
    uint8_t *bytes = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 11 + (i >> 9));
    return bytes;
}

static void expect_lost(struct pair *pair, const char *why)
{
    hvd_status status;
    assert_int_equal(mesh_next_lost(&pair->mesh[1], &status), 0);
    if (!strstr(status.text, why))
        fail_msg("'%s' does not say '%s'", status.text, why);
}

TEST(test_bytes_are_read_directly_once_that_is_granted)
{
    struct pair *pair = *state;
    struct link *from = pair->links[0], *to = pair->links[1];
    uint8_t *bytes = make_bytes(), *copy = malloc(BYTES);
    const void *view;
    assert_int_equal(ask_for_direct_reads(pair), RING_ACCESS_GRANTED);
    assert_int_equal(send_some(pair, bytes, BYTES), BYTES); /* many times the ring */
    assert_int_equal(receive_some(pair, copy, 50001), 50001);
    assert_false(from->operations->taken(from, from->lent));
    assert_int_equal(to->operations->view(to, &view, 16), 16);
    assert_memory_equal(view, bytes + 50001, 16);
    assert_int_equal(to->operations->view(to, &view, BYTES), BYTES - 50001);
    memcpy(copy + 50001, view, BYTES - 50001);
    assert_true(to->operations->consume(to, BYTES - 50001));
    assert_memory_equal(copy, bytes, BYTES);
    assert_true(from->operations->taken(from, from->lent));
    from->operations->end_send(from);
    to->operations->end_receive(to);
    assert_int_equal(send_some(pair, bytes, 10), 10);
    assert_int_equal(receive_some(pair, copy, 10), 10);
    free(bytes);
    free(copy);
}

/* A process of that id has other bytes at this address. */
TEST(test_another_process_is_not_read)
{
    struct pair *pair = *state;
    uint8_t *bytes = make_bytes();
    uint8_t wrong[SEGMENT_ID_BYTES];
    memcpy(wrong, segment_of(pair, 0)->memory->id, sizeof wrong);
    wrong[3] ^= 1;
    side_of(pair, 1)->lending.id = wrong;
    assert_int_equal(ask_for_direct_reads(pair), RING_ACCESS_DENIED);
    assert_in_range(send_some(pair, bytes, BYTES), 1, RING);
    free(bytes);
}

static void forbid_direct_reads(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void *answer_where_forbidden(void *pair)
{
    forbid_direct_reads();
    return (void *)(uintptr_t)ask_for_direct_reads(pair);
}

static void *read_where_forbidden(void *pair)
{
    uint8_t byte;
    forbid_direct_reads();
    return (void *)(uintptr_t)receive_some(pair, &byte, 1);
}

/* A filter holds for the thread that sets it. */
static intptr_t run_in_thread(void *(*run)(void *), struct pair *pair)
{
    pthread_t thread;
    void *outcome;
    assert_int_equal(pthread_create(&thread, NULL, run, pair), 0);
    assert_int_equal(pthread_join(thread, &outcome), 0);
    return (intptr_t)outcome;
}

TEST(test_what_the_system_forbids_is_no_fault)
{
    struct pair *pair = *state;
    uint8_t *bytes = make_bytes(), *copy = malloc(BYTES);
    assert_int_equal(run_in_thread(answer_where_forbidden, pair), RING_ACCESS_DENIED);
    for (size_t done = 0; done < BYTES;) {
        ssize_t n = send_some(pair, bytes + done, BYTES - done);
        assert_in_range(n, 1, RING);
        assert_int_equal(receive_some(pair, copy + done, (size_t)n), n);
        done += (size_t)n;
    }
    assert_memory_equal(copy, bytes, BYTES);
    assert_int_equal(pair->links[0]->lent, 0);
    free(bytes);
    free(copy);
}

TEST(test_what_the_system_forbids_later_is_said)
{
    struct pair *pair = *state;
    uint8_t *bytes = make_bytes();
    assert_int_equal(ask_for_direct_reads(pair), RING_ACCESS_GRANTED);
    assert_int_equal(send_some(pair, bytes, BYTES), BYTES);
    assert_int_equal(run_in_thread(read_where_forbidden, pair), -1);
    expect_lost(pair, "HOROVOD_SHM_PATH=ring");
    free(bytes);
}

TEST(test_the_dead_are_not_read_directly)
{
    struct pair *pair = *state;
    uint8_t *bytes = make_bytes(), *copy = malloc(BYTES);
    assert_int_equal(ask_for_direct_reads(pair), RING_ACCESS_GRANTED);
    assert_int_equal(send_some(pair, bytes, BYTES), BYTES);
    assert_int_equal(receive_some(pair, copy, 1000), 1000);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        pause();
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    side_of(pair, 1)->lending.process = child;
    assert_int_equal(receive_some(pair, copy, 1000), -1);
    expect_lost(pair, "it was probably killed");
    free(bytes);
    free(copy);
}

TEST(test_revoked_bytes_are_not_read_directly)
{
    struct pair *pair = *state;
    uint8_t *bytes = make_bytes(), *copy = malloc(BYTES);
    assert_int_equal(ask_for_direct_reads(pair), RING_ACCESS_GRANTED);
    assert_int_equal(send_some(pair, bytes, BYTES), BYTES);
    pair->links[0]->operations->revoke(pair->links[0]);
    assert_int_equal(receive_some(pair, copy, 1000), -1);
    expect_lost(pair, "ended an operation whose data this rank still read");
    free(bytes);
    free(copy);
}

/* As device memory is none: it is copied into the ring. */
TEST(test_only_readable_memory_is_offered)
{
    struct pair *pair = *state;
    struct lending *lending = &side_of(pair, 0)->lending;
    size_t bytes = LENDING_REGION * 2;
    uint8_t *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(ask_for_direct_reads(pair), RING_ACCESS_GRANTED);
    assert_false(lending_is_readable(lending, side_of(pair, 0)->doorbell, memory, bytes));
    assert_int_equal(mprotect(memory, bytes, PROT_READ | PROT_WRITE), 0);
    assert_true(lending_is_readable(lending, side_of(pair, 0)->doorbell, memory, bytes));
    munmap(memory, bytes);
}

TEST(test_direct_reads_that_nobody_granted_are_refused)
{
    expect_refused(*state, (struct ring_reference){0, 4096, 16}, "memory that it has not shared");
}
