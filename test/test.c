/* test.c - see test.h. */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEST_LIMIT = 128 };

static struct CMUnitTest tests[TEST_LIMIT];
static size_t test_count;

static const struct test_hooks *hooks(void)
{
    static const struct test_hooks none;
    return &test_hooks ? &test_hooks : &none;
}

void test_add(const char *name, CMUnitTestFunction function)
{
    if (test_count == TEST_LIMIT)
        abort();
    tests[test_count++] =
        (struct CMUnitTest){name, function, hooks()->before_each, hooks()->after_each, NULL};
}

int count_entries(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    if (!entries)
        abort();
    while (readdir(entries))
        count++;
    closedir(entries);
    return count;
}

void check_text(const char *text, const char *words)
{
    if (!strstr(text, words))
        fail_msg("\"%s\" does not say \"%s\"", text, words);
}

int main(void)
{
    const char *filter = getenv("HOROVOD_TEST_FILTER");
    if (filter)
        cmocka_set_test_filter(filter);
    return _cmocka_run_group_tests(program_invocation_short_name, tests, test_count, hooks()->before_all,
                                   hooks()->after_all);
}

size_t own_bytes(void)
{
    size_t kibibytes = 0;
    char line[256];
    FILE *file = SANITIZED ? NULL : fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "RssAnon: %zu", &kibibytes) != 1)
        continue;
    if (file)
        fclose(file);
    return kibibytes << 10;
}
