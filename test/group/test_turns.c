/* test_turns.c - the cost of a turn of progress: on many ranks it visits only the links that have news.
 * Visits are counted (faulty.h), not timed. */
#include "faulty.h"
#include "group.h"

#include <stdatomic.h>
#include <unistd.h>

static atomic_long looks_of_root; /* -1: it still waits */

/* The root waits turn after turn while the reports of all ranks but the last arrive: three looks at the link
 * of each are needed for a message, and for finding that there is no second one. */
static void wait_for_the_last(struct member *member)
{
    const int64_t shape[] = {1};
    float value = 1;
    hvd_status status;
    hvd_handle *handle;
    hvd_tensor tensor = tensor_of(&value, HVD_FLOAT32, shape, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, "late", &tensor);
    if (member->rank == 0)
        atomic_store(&looks_of_root, -1);
    faulty_count();
    check_allreduce_works(member, "begin");
    long before = faulty_looks(0);
    while (member->rank == member->size - 1 && atomic_load(&looks_of_root) < 0)
        usleep(1000);
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    if (member->rank == 0) {
        for (int i = 0; i < 50; i++)
            CHECK(hvd_wait(handle, 0.01, &status) == HVD_IN_PROGRESS, "%s", status.text);
        atomic_store(&looks_of_root, faulty_looks(0) - before);
    }
    CHECK_OK(hvd_wait(handle, -1, &check_status));
    CHECK(value == (float)member->size, "%g", value);
    hvd_release(handle);
    long looks = atomic_load(&looks_of_root);
    CHECK(looks <= 4L * member->size, "rank 0 of %d looked %ld times at its links", member->size, looks);
}

#ifdef __SANITIZE_THREAD__
enum { MANY = 12, MORE = 12 };
#else
enum { MANY = 32, MORE = 64 };
#endif

#define SMALL_RINGS SETTINGS("shm_ring_bytes", "16384")

GROUP_TEST(test_links_looked_at, wait_for_the_last, MANY, MANY, .transport = "faulty-shm", SMALL_RINGS)
GROUP_TEST(test_links_looked_at_by_more, wait_for_the_last, MORE, MORE, .transport = "faulty-shm",
           SMALL_RINGS)
GROUP_TEST(test_sockets_looked_at, wait_for_the_last, 12, 12, .transport = "faulty-tcp")
