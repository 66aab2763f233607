/* connection.h - the server's side of one client of the key-value store: the handshake, then question and
 * answer. It never blocks. Under the server's lock. */
#ifndef HVD_RENDEZVOUS_CONNECTION_H
#define HVD_RENDEZVOUS_CONNECTION_H

#include "net/admission.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "rendezvous/protocol.h"
#include "rendezvous/store.h"

struct connection {
    struct stream stream;
    struct newcomer newcomer; /* belongs to the server, until `proven` */
    bool proven;
    bool waiting;                       /* for a key that is not there yet */
    int index;                          /* in the server's list */
    struct connection *next, *previous; /* a ring of those that wait for the same key */
    struct epoch *epoch;                /* the newest of the job that it has entered; NULL before */
    uint32_t number;                    /* of the epoch that it has entered */
    uint32_t generation;                /* of the rank; 0: it has not joined */
    bool member;                        /* it is counted in epoch->members */
    char *bound;                        /* the key that becomes empty when the connection ends; NULL: none */
    uint64_t bound_number;              /* of its put */
    struct handshake handshake;
    struct question question; /* the one waited for */
};

/* Takes ownership of the descriptor; returns NULL if memory is out. `secret` is not copied. */
struct connection *connection_create(int fd, const char *secret);
void connection_free(struct connection *connection, struct store *store);

/* Continues until the socket has nothing left to read or no room to write, or the handshake ends, after which
 * it must be called again. Answers connections that wait for a key that this one stores. HVD_OK: the
 * connection is alive; otherwise close it, and log the text unless it is empty. */
hvd_code connection_advance(struct connection *connection, struct store *store, hvd_status *status);

/* Puts a key of the starter of the job, whose epoch `number` begins if it is newer than the last one, and
 * answers the connections that wait for the key. OUTCOME_OVER: a newer epoch has begun, *newest. */
enum outcome connections_publish(struct store *store, const char *job, uint32_t number, const char *key,
                                 const struct store_value *value, uint32_t *newest);

#endif
