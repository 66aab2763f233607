/* path.h - how bytes travel from one rank to another one of its host. Here it is decided for each pair of
 * ranks and size of job:
 *
 *   ring         the writer copies into shared memory, the reader out of it
 *   nontemporal  the same, with stores that bypass the caches
 *   direct       the stream refers to the writer's memory, which the reader copies: process_vm_readv(2)
 *   shared       the stream refers to memory that the reader has mapped (lending.h) and reads in place
 *
 * An ordinary store first takes the cache line away from the core that read it last. Between cores that share
 * a cache this is cheap; between others it was measured to take 50 to 100 ns, one line after the other: 1
 * GB/s. A non-temporal store does not, but then the reader must go to memory: 15 to 20 GB/s anywhere. So the
 * better stores depend on the processor, on where the two ranks run just now, and on whether their bytes are
 * in a cache: all copies are timed, and from time to time one uses the other stores. Memory that is shared is
 * always read in place.
 *
 * A direct read copies once instead of twice, but the kernel looks up every page, and the writer waits. Which
 * of both takes longer can't be measured in passing (docs/performance/host.md), so only HOROVOD_SHM_PATH
 * chooses direct reads. Under the progress lock. */
#ifndef HVD_TRANSPORT_PATH_H
#define HVD_TRANSPORT_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* HOROVOD_SHM_PATH. The forced ones also ignore shared memory. */
enum path_rule { PATH_AUTO, PATH_RING, PATH_NONTEMPORAL, PATH_DIRECT, PATH_RULES };

/* The rule of this name; false: there is none. */
bool path_rule_find(const char *name, enum path_rule *rule);

/* ---- stores ------------------------------------------------------------------------------------------- */

enum store_way { STORE_CACHED, STORE_NONTEMPORAL, STORE_WAYS };

/* The kind of stores that one writer uses for bytes that one reader reads, or has read. Zeroed memory is
 * valid. */
struct stores {
    double cost[STORE_WAYS]; /* of a byte, in ticks of the processor's clock, smoothed; 0: unknown */
    enum store_way way;
    bool forced;
    struct {
        size_t until;    /* bytes until the other stores are tried again */
        size_t interval; /* doubles while trials change nothing */
    } trial;
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

/* ---- paths -------------------------------------------------------------------------------------------- */

#define PATH_SIZES 3 /* of batches: their bytes fit a core's own cache, a shared one, or neither */

int path_size(size_t batch_bytes);

/* The writer's side of a pair of ranks. Zeroed memory is valid. */
struct path {
    enum path_rule rule;
    struct stores stores[PATH_SIZES];
};

void path_begin(struct path *path, enum path_rule rule);

/* Returns true if memory that the reader has mapped should be read in place. */
bool path_shares(const struct path *path, size_t batch_bytes);

#endif
