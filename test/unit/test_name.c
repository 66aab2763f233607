/* test_name.c - names of requests, for their users and on the wire: one makes the other again. */
#include "coordinate/name.h"
#include "coordinate/request.h"
#include "test.h"

#include <string.h>

static void check(hvd_operation operation, bool grouped, enum name_origin origin, const char *text,
                  const char *on_wire, const char *plain)
{
    char again[REQUEST_NAME_LIMIT];
    assert_string_equal(name_on_wire(operation, grouped, origin, text), on_wire);
    assert_string_equal(name_plain(operation, on_wire), plain);
    assert_string_equal(name_text(operation, grouped, on_wire, again, sizeof again), text);
    assert_int_equal(name_write(operation, grouped, plain, strlen(plain), again), strlen(text));
    assert_string_equal(again, text);
}

TEST(each_origin_has_a_form_of_its_own)
{
    check(HVD_ALLREDUCE, false, NAME_GIVEN, "allreduce.grad", ".grad", "grad");
    check(HVD_ALLREDUCE, true, NAME_GIVEN, "grouped_allreduce.noname.3", ".noname.3", "noname.3");
    check(HVD_ALLGATHER, true, NAME_COUNTED, "grouped_allgather.noname.3", "noname.3", "noname.3");
    check(HVD_BROADCAST, false, NAME_GENERATED, "broadcast.train.py:6#1", "train.py:6#1", "train.py:6#1");
    check(HVD_BARRIER, false, NAME_COUNTED, "barrier.noname.3", "barrier.noname.3", "noname.3");
    check(HVD_BARRIER, false, NAME_GIVEN, "barrier.", ".", "");
    check(HVD_ALLREDUCE, false, NAME_GIVEN, "allreduce..a.b", "..a.b", ".a.b");
}

TEST(counted_names_are_recognised)
{
    char text[REQUEST_NAME_LIMIT];
    name_write_counted(HVD_REDUCESCATTER, true, UINT64_MAX, text);
    assert_string_equal(text, "grouped_reducescatter.noname.18446744073709551615");
    assert_true(name_is_counted(text + name_prefix_length(HVD_REDUCESCATTER, true)));
    assert_true(name_is_counted("noname.0"));
    assert_false(name_is_counted("noname.0.1"));
    assert_false(name_is_counted("nonames.0"));
    assert_false(name_is_counted(""));
}
