/* link_dial.h - one connection to a peer of lower rank, which this rank dials at each of the peer's
 * addresses; the first address that proves to be the peer wins (net/dial.h). The thread of its connector.
 *
 * Connections to a peer are numbered: lane * channels + channel. Lane 0 is the whole link; of a striped one,
 * lane 1 is opened as lane 0 would be, and the further ones are opened once it has moved much, and nothing
 * waits for them. Only the end that dials decides whether and how a link is striped. */
#ifndef HVD_TRANSPORT_LINK_DIAL_H
#define HVD_TRANSPORT_LINK_DIAL_H

#include "transport/attempt.h"

struct link_dial {
    struct dial dial;
    struct peer *peer;
    int row;    /* of its transport */
    int number; /* of the connection */
    int first;  /* its first address, by address_record_of_peer */
    int64_t since;
    int64_t again_at; /* all have failed, and are tried again then; CLOCK_NEVER: they are being tried */
    bool ended;
    struct link_dial *next;
    struct attempt attempts[]; /* by address */
};

/* Nothing is dialled before dial_turn. `address` < 0: at all addresses of the peer. NULL: memory is out. */
struct link_dial *link_dial_create(struct peer *peer, int row, int number, int address, int poller);
/* Removes it from its list, and frees it with all that is still being tried. */
void link_dial_remove(struct link_dial **place);

/* Returns true if nothing waits for the connection. */
bool link_dial_is_optional(const struct link_dial *link);

/* When the time to connect ends; CLOCK_NEVER: connector_run has the deadline. */
int64_t link_dial_deadline(const struct link_dial *link);
/* When it needs a turn even if nothing is reported. */
int64_t link_dial_due(const struct link_dial *link);

/* Returns true if an address has failed with this code. */
bool link_dial_has_failed_with(const struct link_dial *link, hvd_code code);
/* Ends an optional one, and writes its outcomes to the log. */
void link_dial_give_up(struct link_dial *link);

/* Appends "; rank 3 (host a) tried: 10.0.0.2 port 4242 (from 10.0.0.1): no answer; ..." */
void link_dial_append_outcomes(const struct link_dial *link, hvd_status *status);

#endif
