/* calls.h - what every function of the driver does first: it counts the call, and returns the error that the
 * state of the process, the context or a test demands. Internal to the stand-in; any thread. */
#ifndef HVD_TEST_STANDIN_CALLS_H
#define HVD_TEST_STANDIN_CALLS_H

#include "standin/driver.h"

#include <stdbool.h>

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        CUresult check_result = (call);                                                                      \
        if (check_result)                                                                                    \
            return check_result;                                                                             \
    } while (0)

enum call {
#define CALL(member, symbol, parameters) CALL_##symbol,
    ALL_CALLS(CALL)
#undef CALL
        CALLS
};

/* What must be there before a function does anything. */
enum need {
    NEEDS_NOTHING,
    NEEDS_DRIVER, /* cuInit has been called */
    NEEDS_CONTEXT /* this thread has a current context, which is not broken */
};

CUresult calls_enter(enum call call, enum need need);

/* The first statement of a function of the driver. */
#define ENTER(symbol, need) CHECK(calls_enter(CALL_##symbol, need))

/* Reads STANDIN_FAIL; from now on calls in a forked process are refused. Called by the first cuInit. */
void calls_begin(void);

/* While a host function runs in this thread, all calls are refused. */
void calls_forbid(bool forbidden);

/* That many more streams are captured. */
void calls_count_captures(int more);

#endif
