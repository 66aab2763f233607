/* test_fault.c - the bytes of fault records: whole ones return as they were, others are refused. */
#include "base/fault.h"
#include "base/status.h"
#include "test.h"

#include <stddef.h>
#include <string.h>

/* Programs that were compiled before host, lost_rank and cause were there read and write these two members.
 */
_Static_assert(offsetof(hvd_status, text) == 4 && sizeof(hvd_status) == 1024, "the status has kept its size");

static void fill(hvd_fault *fault)
{
    *fault = (hvd_fault){.struct_size = sizeof *fault, .rank = 3, .line = 12};
    status_set(&fault->status, HVD_PEER_LOST, "lost rank %d", 1);
    status_blame(&fault->status, HVD_CAUSE_CONNECTION, 1, "b");
    strcpy(fault->exception, "KeyError: 'x'");
    strcpy(fault->file, "train.py");
    strcpy(fault->function, "step");
}

TEST(test_a_record_returns_as_it_was)
{
    hvd_fault fault, found = {.struct_size = sizeof found};
    struct wire_writer bytes = {0};
    fill(&fault);
    fault_put(&bytes, &fault);
    ASSERT_OK(hvd_read_fault(bytes.bytes, bytes.length, &found, &check_status));
    assert_int_equal(found.rank, 3);
    assert_int_equal(found.line, 12);
    assert_int_equal(found.status.code, HVD_PEER_LOST);
    assert_int_equal(found.status.cause, HVD_CAUSE_CONNECTION);
    assert_int_equal(found.status.lost_rank, 1);
    assert_string_equal(found.status.host, "b");
    assert_string_equal(found.status.text, "lost rank 1");
    assert_string_equal(found.exception, "KeyError: 'x'");
    assert_string_equal(found.file, "train.py");
    assert_string_equal(found.function, "step");
    wire_writer_free(&bytes);
}

/* A caller that was compiled with a shorter struct gets as much of it. */
TEST(test_a_shorter_struct_is_filled_to_its_end)
{
    hvd_fault fault, found;
    struct wire_writer bytes = {0};
    fill(&fault);
    fault_put(&bytes, &fault);
    memset(&found, 0x55, sizeof found);
    found.struct_size = offsetof(hvd_fault, status);
    ASSERT_OK(hvd_read_fault(bytes.bytes, bytes.length, &found, &check_status));
    assert_int_equal(found.rank, 3);
    assert_int_equal(*(unsigned char *)&found.status, 0x55);
    wire_writer_free(&bytes);
}

TEST(test_what_is_no_record_is_refused)
{
    hvd_fault fault, found = {.struct_size = sizeof found};
    struct wire_writer bytes = {0};
    hvd_status status;
    fill(&fault);
    fault_put(&bytes, &fault);
    for (size_t length = 0; length < bytes.length; length++)
        assert_int_equal(hvd_read_fault(bytes.bytes, length, &found, &status), HVD_REFUSED);
    wire_put_u8(&bytes, 0);
    assert_int_equal(hvd_read_fault(bytes.bytes, bytes.length, &found, &status), HVD_REFUSED);
    bytes.length--;
    bytes.bytes[0]++;
    ASSERT_FAILS(hvd_read_fault(bytes.bytes, bytes.length, &found, &check_status), HVD_REFUSED,
                 "malformed, or of another version");
    wire_writer_free(&bytes);
}

TEST(test_blame_is_copied_and_reset)
{
    hvd_status status, copy;
    status_set(&status, HVD_PEER_LOST, "lost");
    status_blame(&status, HVD_CAUSE_HOST, 2, "a");
    status_copy(&copy, &status);
    assert_int_equal(copy.lost_rank, 2);
    assert_string_equal(copy.host, "a");
    assert_string_equal(hvd_cause_name(copy.cause), "host");
    status_set(&copy, HVD_SYSTEM, "another");
    assert_int_equal(copy.lost_rank, -1);
    assert_int_equal(copy.cause, HVD_CAUSE_NONE);
    hvd_status none = {.code = HVD_SYSTEM, .text = "set by hand"};
    status_copy(&copy, &none);
    assert_int_equal(copy.lost_rank, -1);
    assert_string_equal(hvd_cause_name((hvd_cause)99), "unknown");
}
