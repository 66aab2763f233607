/* publication.h - which versions of a state are whole in memory that the ranks of a host share. There are two
 * buffers. Each rank writes its share of a version into one of them, and then publishes the share; a version
 * is whole once all its shares are published. Any rank may die at any instruction:
 *
 *   1. A share is withdrawn before its first byte is written, and published after its last one.
 *   2. A rank writes into the buffer that does not hold the newest whole version, and starts with a version
 *      only after the version before is whole. So one whole version is always there.
 *   3. Versions rise. What ranks of another group left incomplete is withdrawn by publication_clear before
 *      any of this one writes, as a version of theirs may have the same number.
 *
 * Each rank writes the records of its own shares only. Any thread may read. */
#ifndef HVD_SNAPSHOT_PUBLICATION_H
#define HVD_SNAPSHOT_PUBLICATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PUBLICATION_SHARES 256 /* further ranks of a host copy nothing */
#define PUBLICATION_NONE   (-1)

/* What is equal in all shares of a version. */
struct publication_state {
    int64_t version;
    uint64_t structure; /* a hash of the lengths of its parts */
    uint64_t bytes;
    int shares;
    uint64_t own; /* bytes that only share 0 has, behind those; no other share says how many */
};

struct publication_share {
    _Atomic int64_t version; /* PUBLICATION_NONE: not published; written last */
    _Atomic uint64_t structure, bytes, own;
    atomic_int shares;
};

struct publication {
    struct publication_share buffers[2][PUBLICATION_SHARES];
};

/* Withdraws the share, before its bytes are written. */
void publication_withdraw(struct publication *publication, int buffer, int share);
/* Publishes the share, after its bytes were written. */
void publication_publish(struct publication *publication, int buffer, int share,
                         const struct publication_state *state);

/* Returns true if a whole version is in the buffer, and writes which. */
bool publication_read(const struct publication *publication, int buffer, struct publication_state *state);
/* Returns the buffer of the newest whole version, and writes which it is; -1: there is none. */
int publication_newest(const struct publication *publication, struct publication_state *state);
/* Returns a share of the version that is not in the buffer; *differs: it is there with another structure. -1:
 * the version is whole. */
int publication_missing(const struct publication *publication, int buffer,
                        const struct publication_state *state, bool *differs);

/* Makes both buffers empty. */
void publication_init(struct publication *publication);
/* Withdraws what is not whole. No rank may write meanwhile. */
void publication_clear(struct publication *publication);

#endif
