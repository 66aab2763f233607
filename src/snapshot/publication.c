/* publication.c - a share's record is its version and, written before it, what the version is made of. Any
 * thread; each record has one writer at a time. */
#include "snapshot/publication.h"

void publication_withdraw(struct publication *publication, int buffer, int share)
{
    atomic_store(&publication->buffers[buffer][share].version, PUBLICATION_NONE);
    atomic_thread_fence(memory_order_seq_cst); /* no byte of the share is written before */
}

void publication_publish(struct publication *publication, int buffer, int share,
                         const struct publication_state *state)
{
    struct publication_share *record = &publication->buffers[buffer][share];
    atomic_store_explicit(&record->structure, state->structure, memory_order_relaxed);
    atomic_store_explicit(&record->bytes, state->bytes, memory_order_relaxed);
    atomic_store_explicit(&record->shares, state->shares, memory_order_relaxed);
    atomic_store_explicit(&record->own, state->own, memory_order_relaxed);
    atomic_store_explicit(&record->version, state->version, memory_order_release);
}

static struct publication_state read_share(const struct publication_share *record)
{
    struct publication_state state = {.version =
                                          atomic_load_explicit(&record->version, memory_order_acquire)};
    state.structure = atomic_load_explicit(&record->structure, memory_order_relaxed);
    state.bytes = atomic_load_explicit(&record->bytes, memory_order_relaxed);
    state.shares = atomic_load_explicit(&record->shares, memory_order_relaxed);
    state.own = atomic_load_explicit(&record->own, memory_order_relaxed);
    return state;
}

int publication_missing(const struct publication *publication, int buffer,
                        const struct publication_state *state, bool *differs)
{
    for (int share = 0; share < state->shares; share++) {
        struct publication_state found = read_share(&publication->buffers[buffer][share]);
        *differs =
            found.version == state->version && (found.structure != state->structure ||
                                                found.bytes != state->bytes || found.shares != state->shares);
        if (found.version != state->version || *differs)
            return share;
    }
    return -1;
}

bool publication_read(const struct publication *publication, int buffer, struct publication_state *state)
{
    bool differs;
    *state = read_share(&publication->buffers[buffer][0]);
    return state->version != PUBLICATION_NONE && state->shares >= 1 && state->shares <= PUBLICATION_SHARES &&
           publication_missing(publication, buffer, state, &differs) < 0;
}

int publication_newest(const struct publication *publication, struct publication_state *state)
{
    struct publication_state states[2];
    bool whole[2];
    for (int buffer = 0; buffer < 2; buffer++)
        whole[buffer] = publication_read(publication, buffer, &states[buffer]);
    if (!whole[0] && !whole[1])
        return -1;
    int newest = whole[1] && (!whole[0] || states[1].version > states[0].version);
    *state = states[newest];
    return newest;
}

void publication_init(struct publication *publication)
{
    for (int buffer = 0; buffer < 2; buffer++)
        for (int share = 0; share < PUBLICATION_SHARES; share++)
            publication_withdraw(publication, buffer, share);
}

void publication_clear(struct publication *publication)
{
    struct publication_state state;
    for (int buffer = 0; buffer < 2; buffer++) {
        bool whole = publication_read(publication, buffer, &state);
        for (int share = 0; !whole && share < PUBLICATION_SHARES; share++)
            publication_withdraw(publication, buffer, share);
    }
}
