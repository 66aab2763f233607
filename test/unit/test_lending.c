/* test_lending.c - two ranks that share memory, driven by hand in one thread: when bytes are lent instead of
 * copied, that nobody reads where it must not, and that memory is let go of. */
#include "base/platform.h"
#include "base/socket.h"
#include "test.h"
#include "transport/arena.h"
#include "transport/peer.h"
#include "transport/sharing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

static int make(void **state)
{
    int doorbells[2];
    struct pair *pair = calloc(1, sizeof *pair);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, doorbells), 0);
    for (int rank = 0; rank < 2; rank++) {
        struct mesh *mesh = &pair->mesh[rank];
        *mesh = (struct mesh){.rank = rank, .channels = 1, .peers = &pair->peers[rank], .peer_count = 1};
        mesh->bell = platform_poller_create();
        ASSERT_OK(segment_create(1, 1, RING, &mesh->segment, &check_status));
    }
    for (int rank = 0; rank < 2; rank++) {
        struct peer *peer = &pair->peers[rank];
        *peer = (struct peer){.mesh = &pair->mesh[rank],
                              .rank = 1 - rank,
                              .links = &pair->links[rank],
                              .doorbell = doorbells[rank],
                              .segment = pair->mesh[1 - rank].segment};
        struct ring in = segment_ring(pair->mesh[1 - rank].segment, 0, 0);
        ASSERT_OK(shm_open_links(peer, &in, &check_status));
        pair->links[rank]->lends = true;
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
        pair->links[rank]->operations->close(pair->links[rank]);
        lending_end(&pair->peers[rank].lending);
        socket_close(&pair->peers[rank].doorbell);
        socket_close(&pair->mesh[rank].bell);
        segment_release(pair->mesh[rank].segment);
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
    shm_poll(&pair->peers[1]);
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
    struct ring ring = segment_ring(pair->mesh[0].segment, 0, 0);
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
    const struct lending *lending = &pair->peers[1].lending;
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
    struct lending *lending = &pair->peers[1].lending;
    char name[] = "/tmp/horovod-test-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    assert_int_equal(ftruncate(fd, 1 << 20), 0); /* a file, which its owner could cut */
    lending_accept(lending, fd);
    assert_true(lending->refuses);
    lending_accept(lending, -1); /* the descriptor got lost */
    close(fd);
    assert_int_equal(atomic_load(lending->grants), 0);
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
    socket_close(&pair->peers[0].doorbell);
    shm_poll(&pair->peers[1]);
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
    assert_non_null(pair->peers[1].lending.borrowed);
    hvd_shared_free(pair->memory);
    shm_poll(&pair->peers[1]);
    assert_null(pair->peers[1].lending.borrowed);
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
    struct segment *own = pair->mesh[0].segment;
    struct sharing sharing;
    int ends[2], before = count_entries("/proc/self/fd");
    uint8_t offer[64], yes = 1;
    size_t bytes = segment_offer_bytes(1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    ASSERT_OK(sharing_begin(&sharing, own, 0, 1, &check_status));
    segment_offer(own, 0, offer);
    assert_int_equal(platform_send_with_fd(ends[1], offer, 1, own->fd), 1);
    assert_int_equal(sharing_advance(&sharing, ends[0], NULL), HVD_IN_PROGRESS);
    assert_int_equal(platform_send_with_fd(ends[1], offer + 1, bytes - 1, -1), bytes - 1);
    assert_int_equal(sharing_advance(&sharing, ends[0], NULL), HVD_IN_PROGRESS);
    assert_int_equal(platform_send_with_fd(ends[1], &yes, 1, own->fd), 1);
    ASSERT_OK(sharing_advance(&sharing, ends[0], &check_status));
    sharing_free(&sharing);
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
