/* record.h - what a rank publishes at the rendezvous, so that its peers find it. */
#ifndef HVD_TRANSPORT_RECORD_H
#define HVD_TRANSPORT_RECORD_H

#include "base/clock.h"
#include "transport/peer.h"

struct record {
    long process;
    char host[PEER_HOST_LIMIT];
    char addresses[TRANSPORT_LIMIT][TRANSPORT_ADDRESS]; /* by row; "": it does not use that transport */
};

void record_encode(struct wire_writer *writer, const struct record *record);
bool record_decode(struct record *record, const uint8_t *bytes, size_t length);

hvd_code record_publish(const struct mesh_config *config, const struct record *record, hvd_status *status);
/* HVD_TIMED_OUT: it has not been published. */
hvd_code record_fetch(const struct mesh_config *config, int rank, int64_t deadline, struct record *record,
                      hvd_status *status);

/* The records of ranks [first, first + RECORD_TABLE) in one value: so n ranks need not fetch n * n. */
#define RECORD_TABLE 32
hvd_code record_publish_table(const struct mesh_config *config, int first, const struct record *records,
                              hvd_status *status);
hvd_code record_fetch_table(const struct mesh_config *config, int first, int64_t deadline,
                            struct record *records, hvd_status *status);

/* Publishes why this rank can't open the mesh, so that its peers need not wait for it. */
void record_fail(const struct mesh_config *config, const hvd_status *cause);
/* Looks whether a peer has published such a cause; then HVD_SYSTEM and its text. */
#define RECORD_LOOK_INTERVAL (CLOCK_SECOND / 4)
hvd_code record_failure(const struct mesh_config *config, hvd_status *status);

#endif
