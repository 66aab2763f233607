/* test_units.c - figures in units that people read. */
#include "../../launch/units.h"
#include "test.h"

TEST(test_durations)
{
    const struct {
        double seconds;
        const char *text;
    } rows[] = {{0, "0 ms"},       {0.00043, "0.43 ms"}, {0.04, "40 ms"},     {0.99949, "999 ms"},
                {0.9996, "1.0 s"}, {9.94, "9.9 s"},      {14, "14 s"},        {119, "119 s"},
                {960, "16 min"},   {9000, "2.5 h"},      {216000, "2.5 days"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32] = "";
        append_duration(text, sizeof text, rows[i].seconds);
        assert_string_equal(text, rows[i].text);
    }
}

TEST(test_bytes)
{
    const struct {
        double bytes;
        const char *text;
    } rows[] = {{0, "0 B"},         {431, "431 B"},     {999.6, "1 kB"},  {43210, "43 kB"},
                {4.32e5, "432 kB"}, {1.24e6, "1.2 MB"}, {9e11, "900 GB"}, {4e18, "4000 PB"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[32] = "";
        append_bytes(text, sizeof text, rows[i].bytes);
        assert_string_equal(text, rows[i].text);
    }
}
