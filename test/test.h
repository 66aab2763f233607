/* test.h - tests that register themselves; test.c runs those of a program in the order of its lines. */
#ifndef HVD_TEST_H
#define HVD_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "horovod.h"

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* TEST(name) { ... }; `state` is what before_each has put there. */
#define TEST(name)                                                                                           \
    static void name(void **state);                                                                          \
    __attribute__((constructor)) static void add_##name(void)                                                \
    {                                                                                                        \
        test_add(#name, name);                                                                               \
    }                                                                                                        \
    static void name(__attribute__((unused)) void **state)

void test_add(const char *name, CMUnitTestFunction function);

/* A program that has any of these defines them. */
struct test_hooks {
    CMFixtureFunction before_all, before_each, after_each, after_all;
};
extern const struct test_hooks test_hooks __attribute__((weak));

/* As of "/proc/self/fd", the descriptors; with those of looking. */
int count_entries(const char *folder);
/* Bytes of this process's own memory that are there; 0 where a sanitizer keeps books. */
size_t own_bytes(void);

/* For calls whose last argument is &check_status. */
#define ASSERT_OK(call)                                                                                      \
    do {                                                                                                     \
        hvd_status check_status;                                                                             \
        if (call)                                                                                            \
            fail_msg("%s: %s", #call, check_status.text);                                                    \
    } while (0)

#define ASSERT_FAILS(call, code, words)                                                                      \
    do {                                                                                                     \
        hvd_status check_status;                                                                             \
        assert_int_equal(call, code);                                                                        \
        check_text(check_status.text, words);                                                                \
    } while (0)

/* Fails when the words are not in the text. */
void check_text(const char *text, const char *words);

#endif
