/* dial.h - connects to the first of several addresses that proves to be the right one. The addresses are
 * tried in turn, and concurrently after a while, as RFC 8305 recommends. The owner decides what proves an
 * address (a handshake, a credential), since the kernel's connection may lead to something else.
 *
 * An address is tried once the one before it has failed or has had its time: NEXT_ADDRESS_DELAY for the
 * connection, then NEXT_PROOF_DELAY for the proof. The first one that is proven ends the others. Nothing
 * blocks except dial_run. One thread at a time. */
#ifndef HVD_NET_DIAL_H
#define HVD_NET_DIAL_H

#include "base/clock.h"
#include "horovod.h"
#include "net/socket.h"

/* A busy peer needs more time for the proof than its kernel needs for the connection. */
#define NEXT_ADDRESS_DELAY (CLOCK_SECOND / 4)
#define NEXT_PROOF_DELAY   (CLOCK_SECOND / 2)

struct dial;

/* One address: the first member of the owner's own struct, which zeroed memory initializes. */
struct candidate {
    struct dial *dial;    /* NULL: the owner accepted this connection instead of dialling it */
    struct polled socket; /* its descriptor is -1 unless the address is being tried */
    bool connected;       /* set by the owner once the kernel has made the connection */
    bool proven;          /* set by the owner if it needs more than the proof; see dial_turn */
    hvd_code code;        /* how the last try has failed; HVD_OK: it has not */
    char outcome[160];    /* the text of that */
};

struct dial_operations {
    /* Starts to connect and sets the descriptor: HVD_IN_PROGRESS. Otherwise the fault. */
    hvd_code (*begin)(struct candidate *candidate, hvd_status *fault);
    /* Continues as far as possible: HVD_OK: the address is proven; HVD_IN_PROGRESS: to be called again after
     * `events`. Otherwise the fault. */
    hvd_code (*advance)(struct candidate *candidate, hvd_status *fault);
    short (*events)(const struct candidate *candidate);
    /* Releases what begin and advance have kept, after which begin may be called again. `fault`: why the
     * candidate failed; NULL: it is no longer needed. */
    void (*end)(struct candidate *candidate, const hvd_status *fault);
    /* Writes the address for a text. */
    void (*name)(const struct candidate *candidate, char *text, size_t capacity);
};

struct dial {
    const struct dial_operations *operations;
    int poller;       /* the owner's; its tags are the candidates */
    char *candidates; /* `count` structs of `stride` bytes, each of which begins with a candidate */
    size_t stride;
    int count, begun;             /* the first `begun` ones are being tried or have failed */
    int64_t last_begun, next_due; /* when the last one was begun; when the next one is */
    struct candidate *winner;     /* NULL: none is proven yet */
};

void dial_init(struct dial *dial, const struct dial_operations *operations, int poller, void *candidates,
               size_t stride, int count);
struct candidate *dial_candidate(const struct dial *dial, int index);
int dial_index(const struct candidate *candidate);

/* Starts the candidates that are due. Both return HVD_IN_PROGRESS; HVD_OK: one has won; HVD_PEER_LOST: all
 * have failed, each with its code. Another code is a fault of the poller, or of a proven candidate unless it
 * is HVD_PEER_LOST, and is in `status`. Then connections stay open until dial_end, so that the owner can
 * publish the cause before the other end sees the end. */
hvd_code dial_turn(struct dial *dial, hvd_status *status);
/* Advances a candidate that the poller has reported. */
hvd_code dial_advance(struct candidate *candidate, hvd_status *status);
/* When dial_turn must be called even if nothing is reported; CLOCK_NEVER: never. */
int64_t dial_due(const struct dial *dial);

/* Tries all again, from the first one on. Outcomes stay until they are replaced. */
void dial_restart(struct dial *dial);
/* Ends every candidate; the winner must have been taken (its descriptor is -1) or is closed as well. */
void dial_end(struct dial *dial);

/* Appends ": 10.0.0.2 (from 10.0.0.1): Connection refused; 10.1.0.2 (from 10.1.0.1): no answer", of all that
 * were tried. */
void dial_append_outcomes(const struct dial *dial, char *text, size_t capacity);

/* Runs the whole race, until an address has won, all have failed, `patience` has passed since the last one
 * was started, or the deadline has passed; the last two return HVD_PEER_LOST. HVD_INTERRUPTED: the interrupt
 * ended the wait. The owner calls dial_end. */
hvd_code dial_run(struct dial *dial, int64_t patience, int64_t deadline, const struct interrupt *interrupt,
                  hvd_status *status);

#endif
