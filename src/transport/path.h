/* path.h - how bytes travel from one rank to another one of its host. Here it is decided, for each pair of
 * ranks and size of job, from what each path has cost lately:
 *
 *   ring         the writer copies into shared memory, the reader out of it
 *   nontemporal  the same, with stores that bypass the caches
 *   direct       the stream refers to the writer's memory, which the reader copies: process_vm_readv(2)
 *   shared       the stream refers to memory that the reader has mapped (lending.h) and reads in place
 *
 * An ordinary store first takes the cache line away from the core that read it last. Between cores that share
 * a cache this is cheap; between others it was measured to take 50 to 100 ns, one line after the other: 1
 * GB/s. A non-temporal store does not, but then the reader must go to memory: 15 to 20 GB/s anywhere. A
 * direct read copies once instead of twice, but the kernel looks up every page: 10 to 14 GB/s. So what is
 * best depends on the processor, on where the two ranks run just now, and on whether their bytes are in a
 * cache. All copies are timed, the reader publishes what its own cost, and from time to time a part goes the
 * other way. Memory that is shared is always read in place. Under the progress lock. */
#ifndef HVD_TRANSPORT_PATH_H
#define HVD_TRANSPORT_PATH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* HOROVOD_SHM_PATH. The forced ones also ignore shared memory. */
enum path_rule { PATH_AUTO, PATH_RING, PATH_NONTEMPORAL, PATH_DIRECT, PATH_RULES };

/* The rule of this name; false: there is none. */
bool path_rule_find(const char *name, enum path_rule *rule);

/* When the path that is not in use is tried again. Zeroed memory is valid: at once. */
struct path_trial {
    size_t until;    /* bytes */
    size_t interval; /* doubles while trials change nothing */
};

/* ---- stores ------------------------------------------------------------------------------------------- */

enum store_way { STORE_CACHED, STORE_NONTEMPORAL, STORE_WAYS };

/* The kind of stores that one writer uses for bytes that one reader reads, or has read. Zeroed memory is
 * valid. */
struct stores {
    double cost[STORE_WAYS]; /* of a byte, in ticks of the processor's clock, smoothed; 0: unknown */
    enum store_way way;
    bool forced;
    struct path_trial trial;
};

/* Like memcpy; a store with release order after it publishes the bytes. NULL: with ordinary stores. */
void stores_copy(struct stores *stores, void *to, const void *from, size_t length);

/* For code that computes the bytes that it stores: begin returns which stores this transfer should use, end
 * learns from its time. Use one struct stores for transfers of one kind only; NULL: ordinary stores. */
struct store_transfer {
    enum store_way way;
    bool timed;
    uint64_t begin;
};
struct store_transfer stores_begin(struct stores *stores, size_t length);
void stores_end(struct stores *stores, const struct store_transfer *transfer, size_t length);

/* Records the cost of a byte with these stores, and selects the better ones. */
void stores_learn(struct stores *stores, enum store_way way, double cost);

/* ---- ring or direct ----------------------------------------------------------------------------------- */

#define PATH_SIZES 3 /* of batches: their bytes fit a core's own cache, a shared one, or neither */

int path_size(size_t batch_bytes);

/* The reader's cost of its latest MiBs, in memory that both sides see. */
struct path_cost {
    _Atomic uint64_t ticks, bytes;
};

struct path_costs {
    struct path_cost ring[PATH_SIZES], direct[PATH_SIZES];
};

uint64_t path_ticks(void);
/* Records a cost; 0 ticks: bytes that the reader used in place. */
void path_learn(struct path_cost *cost, uint64_t ticks, size_t bytes);
void path_copy(struct path_cost *cost, void *to, const void *from, size_t bytes); /* memcpy, and learns */

/* The writer's side of a pair of ranks. Zeroed memory is valid. */
struct path {
    enum path_rule rule;
    struct path_choice {
        struct stores stores;
        bool direct;
        struct path_trial direct_trial, ring_trial;
        size_t ring_bytes; /* sent since the ring was tried again */
    } sizes[PATH_SIZES];
};

void path_begin(struct path *path, enum path_rule rule);

/* Returns true if memory that the reader has mapped should be read in place. */
bool path_shares(const struct path *path, size_t batch_bytes);

/* Returns how many of the next `length` bytes the reader should read directly; 0: the next piece is sent
 * through the ring. */
size_t path_direct_bytes(struct path *path, size_t batch_bytes, struct path_costs *read, size_t length);
/* Counts bytes that were sent. path_direct_bytes does not count, since a writer repeats it while the ring is
 * full. */
void path_sent(struct path *path, size_t batch_bytes, size_t bytes, bool direct);

#endif
