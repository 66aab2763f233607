/* small_world.h - ranks in one thread: their executors, fake links between them, and collectives
 * of every kind with known data and a check of the result. Vectors lie in many pieces of memory of their own,
 * so that a sanitizer sees a step outside. */
#ifndef HVD_TEST_SMALL_WORLD_H
#define HVD_TEST_SMALL_WORLD_H

#include "fake_links.h"
#include "numbers.h"

#include "base/status.h"
#include "coll/execute.h"
#include "coll/pattern.h"

#define STALL_LIMIT 20000 /* turns in which nothing moved, however often links say "not now" */

/* ---- memory --------------------------------------------------------------------------------------- */

/* A vector of `spans` separate pieces of memory, some of them empty. */
struct vector vector_make(size_t elements, size_t element, int spans);

/* The same layout, other memory. */
struct vector vector_like(const struct vector *from);

char *vector_at(const struct vector *vector, size_t offset);

/* ---- the world ------------------------------------------------------------------------------------ */

struct world {
    int size;
    struct links *links;
    struct executor *executors[WORLD_RANKS];
};

/* A test's own collective; the struct stays until the world is done. */
struct work {
    struct collective collective;
    int done;
    hvd_code code;
    char text[HVD_STATUS_TEXT];
    struct vector input, output; /* what the test made; output also for allgather */
    size_t blocks[WORLD_RANKS + 1];
    uint64_t own_sizes[WORLD_RANKS];
    uint64_t sizes[4 * WORLD_RANKS];
};

extern struct topology world_topology; /* of the world that is open */

struct world world_open(int size);

/* Turns all ranks over in changing order until `all` are idle; false when nothing moves any more. */
bool world_run(struct world *world);

void world_close(struct world *world);

/* The row of this name, else the operation's first. */
const struct algorithm *algorithm_named(hvd_operation operation, const char *name);

void work_init(struct work *work, hvd_operation operation, const char *algorithm, int rank, int size);

void work_assert_done(const struct work *work);

void work_drop(struct work *work);

/* Behind a run that went well; each rank had one collective. */
void world_finish(struct world *world, struct work *works);

/* ---- allreduce ------------------------------------------------------------------------------------ */

struct reduce_case {
    const char *algorithm;
    hvd_dtype dtype;
    hvd_reduction reduction;
    size_t elements;
    int spans;
    bool in_place;
    double prescale, postscale;
};

double contribution(const struct reduce_case *c, int rank, size_t i);

double expected(const struct reduce_case *c, int size, size_t i);

void reduce_init(struct work *work, const struct reduce_case *c, int rank, int size);

/* Whole numbers are exact up to two divided by the step, and so are all partial sums here but in the coarsest
 * types. */
void assert_close(const struct reduce_case *c, double is, double should);

void reduce_check(const struct work *works, const struct reduce_case *c, int size);

void reduce_run(const struct reduce_case *c, int size);

/* ---- allgather, alltoall, broadcast ------------------------------------------------------------------- */

hvd_code gathered(struct collective *collective, const uint64_t *sizes, hvd_status *status);

void gather_init(struct work *work, const char *algorithm, int tensors, int rank, int size);

void gather_check(const struct work *works, int tensors, int size);

void broadcast_init(struct work *work, const char *algorithm, int root, size_t bytes, bool in_place, int rank,
                    int size);

void broadcast_check(const struct work *works, int root, int size);

#endif
