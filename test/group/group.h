/* group.h - n ranks as n threads of one process: real contexts, real links, one debugger. */
#ifndef HVD_TEST_GROUP_H
#define HVD_TEST_GROUP_H

#include "horovod.h"
#include "random.h"
#include "test.h"

#include <stdbool.h>
#include <stdint.h>

struct member {
    hvd_context *context;
    int rank, size;
    const char *transport;
    const char *const *settings;
    void (*configure)(hvd_config *config, int rank);
    const char *address; /* of the rendezvous */
    const char *host;    /* the one it pretends to be on; NULL: this one */
    void *argument;
};

typedef void (*member_fn)(struct member *member);

struct group_options {
    const char *transport;                           /* "shm", "tcp", "auto" (by host), or one of faulty.h */
    const char *const *settings;                     /* key, value, key, value, ..., NULL */
    void (*configure)(hvd_config *config, int rank); /* NULL, or for what is no setting */
    double seconds;                                  /* deadline; 0: 300 */
    int lives;                /* how often each rank opens the job, runs fn and shuts down; 0: once */
    const char *const *hosts; /* the one that each rank pretends to be on; NULL: this one */
};

/* Opens a job of `size` ranks, runs fn on each in a thread of its own, shuts down, joins. A wait beyond the
 * deadline ends the program with a list of the ranks that hang; it is long, so that a slow machine fails no
 * test. */
void group_run(const struct group_options *options, int size, member_fn fn, void *argument);

/* The same with numbers of ranks up to 5, and one that the test's seed draws of those above; under a
 * sanitizer with 1 and one above. HOROVOD_TEST_SIZES selects all. Over every transport when the options name
 * none. Operations on the test device run under a sanitizer with one number above 1 and one transport, both
 * drawn, as without it they run with all. Those on CUDA are a sample: a third of the tests, also with one of
 * each; HOROVOD_TEST_FULL selects all. */
void group_run_sizes(const struct group_options *options, int smallest, int largest, member_fn fn);

/* A test of just that; the rest of the arguments are the options. */
#define GROUP_TEST(name, fn, smallest, largest, ...)                                                         \
    TEST(name)                                                                                               \
    {                                                                                                        \
        group_run_sizes(&(struct group_options){__VA_ARGS__}, smallest, largest, fn);                        \
    }
#define EVERY_TRANSPORT .transport = NULL
#define SETTINGS(...)                                                                                        \
    .settings = (const char *const[])                                                                        \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

#ifdef __SANITIZE_THREAD__
#define MOST_RANKS 3 /* some fifty times slower */
#elif defined(HVD_ON_DEVICE)
#define MOST_RANKS 4 /* every copy changes page tables */
#else
#define MOST_RANKS 8
#endif

/* Opens a job beside the one of the group, over the same rendezvous; the caller shuts it down. */
hvd_context *join_job(const struct member *member, const char *job, int rank, int size);

/* Stops the program with place, rank and text when the condition is false; usable in every thread. */
#define CHECK(condition, ...)                                                                                \
    ((condition) ? (void)0 : group_fail(__FILE__, __LINE__, #condition, "" __VA_ARGS__))
_Noreturn void group_fail(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* For calls whose last argument is &check_status. */
#define CHECK_OK(call)                                                                                       \
    do {                                                                                                     \
        hvd_status check_status;                                                                             \
        hvd_code check_code = (call);                                                                        \
        CHECK(check_code == HVD_OK, "%s: %s", hvd_code_name(check_code), check_status.text);                 \
    } while (0)

/* A request for one tensor in place, ready to be changed. */
hvd_request request_of(hvd_operation operation, const char *name, const hvd_tensor *tensor);
hvd_tensor tensor_of(void *data, hvd_dtype dtype, const int64_t *shape, int ndim);

/* Starts a float32 sum over a process set, in place. */
hvd_handle *submit_sum(struct member *member, const char *name, float *data, int64_t elements, int set);
/* Waits for its success, and releases it. */
void finish(hvd_handle *handle);
/* Of the ranks' numbers from 1 on. */
int sum_of(const struct member *member);

/* A float32 sum of one element over all ranks, in place: does the job still work? */
void check_allreduce_works(struct member *member, const char *name);

/* HOROVOD_TEST_SEED, or 1: the same random sample of cases again. */
uint64_t test_seed(void);

/* HOROVOD_TEST_FULL: whole products instead of what covers every pair. */
bool test_full(void);

#endif
