/* test_reserve.c - rings whose memory comes on demand: what is there when, counted in blocks of the file.
 */
#include "test.h"
#include "transport/reserve.h"
#include "transport/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define RING  ((size_t)1 << 20)
#define PIECE ((size_t)64 << 10)

static size_t file_bytes(const struct segment *segment)
{
    struct stat info;
    assert_int_equal(fstat(segment->fd, &info), 0);
    return (size_t)info.st_blocks * 512;
}

static void pass(struct ring *out, struct ring *in, size_t length)
{
    static const uint8_t bytes[RING];
    const void *shown;
    assert_int_equal(ring_write(out, bytes, length), length);
    for (size_t n; length; length -= n) {
        n = ring_view(in, &shown, length);
        assert_true(n > 0);
        ring_consume(in, n);
    }
}

TEST(test_memory_comes_in_pieces_and_goes)
{
    struct segment *segment;
    ASSERT_OK(segment_create(1, 1, 2, RING, &segment, &check_status));
    ASSERT_OK(segment_reserve(segment, 0, false, &check_status));
    struct ring out = segment_ring(segment, 0, 1), in = out;
    struct reserve reserve = reserve_of(&out);
    size_t heads = file_bytes(segment), page = 4096;
    assert_in_range(heads, 1, PIECE);
    assert_false(reserve_is_used(&reserve));
    for (size_t piece = 1; piece <= RING / PIECE; piece++) {
        assert_true(reserve_next(&reserve, &out, PIECE));
        pass(&out, &in, PIECE);
        assert_in_range(file_bytes(segment), heads + piece * PIECE - page, heads + piece * PIECE + page);
    }
    assert_int_equal(reserve.missing, 0);
    assert_true(reserve_return(&reserve, &out));
    assert_in_range(file_bytes(segment), heads, heads + page); /* the last page lies in it in part only */
    /* Across the end, and across a border. */
    pass(&out, &in, 0);
    out.mine = in.mine = out.theirs = in.theirs = RING - PIECE / 2;
    atomic_store(&out.memory->head, out.mine);
    atomic_store(&out.memory->tail, out.mine);
    assert_true(reserve_next(&reserve, &out, PIECE));
    assert_int_equal(reserve.missing, reserve.all & ~(1 | (uint64_t)1 << (RING / PIECE - 1)));
    segment_release(segment);
}

TEST(test_unread_bytes_stay)
{
    struct segment *segment;
    ASSERT_OK(segment_create(1, 1, 2, RING, &segment, &check_status));
    ASSERT_OK(segment_reserve(segment, 0, false, &check_status));
    struct ring out = segment_ring(segment, 0, 1), in = out;
    struct reserve reserve = reserve_of(&out);
    const void *shown;
    assert_true(reserve_next(&reserve, &out, 5));
    assert_int_equal(ring_write(&out, "bytes", 5), 5);
    assert_false(reserve_return(&reserve, &out));
    assert_int_equal(ring_view(&in, &shown, 5), 5);
    assert_memory_equal(shown, "bytes", 5);
    ring_consume(&in, 5);
    assert_true(reserve_return(&reserve, &out));
    assert_false(reserve_is_used(&reserve));
    segment_release(segment);
}

TEST(test_lack_of_memory_is_an_error)
{
    struct segment *segment;
    ASSERT_OK(segment_create(1, 1, 2, RING, &segment, &check_status));
    ASSERT_OK(segment_reserve(segment, 0, false, &check_status));
    struct ring out = segment_ring(segment, 0, 1);
    struct reserve reserve = reserve_of(&out);
    out.memory += (1 << 30) / sizeof *out.memory; /* where nothing is mapped */
    assert_false(reserve_next(&reserve, &out, 1));
    assert_int_equal(errno, ENOMEM);
    assert_false(reserve_is_used(&reserve));
    segment_release(segment);
}

TEST(test_reserved_from_the_start)
{
    struct segment *segment;
    ASSERT_OK(segment_create(1, 1, 2, RING, &segment, &check_status));
    ASSERT_OK(segment_reserve(segment, 0, true, &check_status));
    assert_true(file_bytes(segment) >= RING);
    segment_release(segment);
}
