/* test_vector.c - spans seen as one vector: every range of vectors with empty and odd spans. */
#include "coll/collective.h"
#include "test.h"

#include <stdint.h>

#define BYTES 16

static char memory[BYTES];

/* Spans that follow each other in `memory`, so that byte i of the vector is memory[i]. */
static struct vector vector_of(struct span *spans, size_t *starts, const size_t *lengths, int count)
{
    struct vector vector = {spans, starts, count, 0};
    char *next = memory;
    for (int i = 0; i < count; i++) {
        spans[i] = (struct span){next, lengths[i]};
        next += lengths[i];
    }
    vector_measure(&vector);
    return vector;
}

/* With room for all parts and for one only: the parts name the bytes of the range, in order. */
static void check_range(const struct vector *vector, size_t offset, size_t length, int limit)
{
    struct iovec parts[BYTES];
    int count = vector_parts(vector, offset, length, parts, limit);
    size_t at = offset;
    assert_true(count <= limit);
    assert_int_equal(count == 0, length == 0);
    for (int i = 0; i < count; i++) {
        assert_ptr_equal(parts[i].iov_base, memory + at);
        assert_true(parts[i].iov_len > 0);
        at += parts[i].iov_len;
    }
    assert_true(at <= offset + length);
    if (limit == BYTES)
        assert_int_equal(at, offset + length);
}

TEST(test_all_ranges)
{
    static const size_t layouts[][6] = {{BYTES, 0, 0, 0, 0, 0},
                                        {1, 2, 3, 4, 5, 1},
                                        {0, 0, 5, 0, 11, 0},
                                        {0, 16, 0, 0, 0, 0},
                                        {8, 0, 0, 0, 0, 8}};
    struct span spans[6];
    size_t starts[6];
    for (size_t layout = 0; layout < sizeof layouts / sizeof *layouts; layout++) {
        struct vector vector = vector_of(spans, starts, layouts[layout], 6);
        assert_int_equal(vector.length, BYTES);
        for (size_t offset = 0; offset <= BYTES; offset++)
            for (size_t length = 0; offset + length <= BYTES; length++) {
                check_range(&vector, offset, length, BYTES);
                check_range(&vector, offset, length, 1);
            }
        for (size_t offset = 0; offset < BYTES; offset++) {
            int span = vector_find(&vector, offset);
            assert_in_range(offset, starts[span], starts[span] + spans[span].length - 1);
        }
    }
}

TEST(test_empty)
{
    struct vector vector = {0};
    struct iovec part;
    vector_measure(&vector);
    assert_int_equal(vector.length, 0);
    assert_int_equal(vector_parts(&vector, 0, 0, &part, 1), 0);
}

TEST(test_same)
{
    struct span a[2] = {{memory, 4}, {memory + 8, 4}}, b[2] = {{memory, 4}, {memory + 8, 4}};
    struct vector one = {a, NULL, 2, 8}, other = {b, NULL, 2, 8};
    assert_true(vector_same(&one, &other));
    b[1].data++;
    assert_false(vector_same(&one, &other));
    b[1] = a[1];
    other.count = 1;
    assert_false(vector_same(&one, &other));
}
