/* address_record.h - the record that a rank publishes at the rendezvous so that its peers find it: its
 * addresses for each transport. The thread that opens a mesh; the accessors of a record: any thread. */
#ifndef HVD_TRANSPORT_ADDRESS_RECORD_H
#define HVD_TRANSPORT_ADDRESS_RECORD_H

#include "base/clock.h"
#include "base/wire.h"
#include "transport/mesh_open.h"
#include "transport/peer.h"

struct address_record {
    long process;
    char host[PEER_HOST_LIMIT];
    char *addresses[TRANSPORT_LIMIT]; /* by row, one a line; NULL: it does not use that transport */
};

void address_record_free(struct address_record *record);
/* Returns the index-th address of a row, in the order in which `mine` tries them; it ends at the end of a
 * line. NULL: there are fewer. Addresses that both hosts have (docker0, for example) lead to the own host;
 * they come last unless both ranks are on it. */
const char *address_record_get(const struct address_record *theirs, const struct address_record *mine,
                               int row, int index);
/* Returns the index-th address of a peer, in the order in which this rank tries them. */
const char *address_record_of_peer(const struct peer *peer, int row, int index);
const char *address_record_next(const char *address); /* the line behind it, or NULL */
/* Returns true if the lines have the address, with any port. */
bool address_record_has_address(const char *lines, const char *address);

void address_record_encode(struct wire_writer *writer, const struct address_record *record);
/* Replaces the contents of the record, which is zeroed or valid; false: malformed. */
bool address_record_decode(struct address_record *record, const uint8_t *bytes, size_t length);

hvd_code address_record_publish(const struct mesh_config *config, const struct address_record *record,
                                hvd_status *status);
/* HVD_TIMED_OUT: it has not been published. */
hvd_code address_record_fetch(const struct mesh_config *config, int rank, int64_t deadline,
                              struct address_record *record, hvd_status *status);

/* Publishes the records of ranks [first, first + ADDRESS_RECORD_TABLE) as one value, so that n ranks need not
 * fetch n * n records. */
#define ADDRESS_RECORD_TABLE 32
hvd_code address_record_publish_table(const struct mesh_config *config, int first,
                                      const struct address_record *records, hvd_status *status);
/* Replaces that many records; false: malformed. */
bool address_records_decode(struct address_record *records, int count, const uint8_t *bytes, size_t length);
hvd_code address_record_fetch_table(const struct mesh_config *config, int first, int64_t deadline,
                                    struct address_record *records, hvd_status *status);

/* Publishes why this rank can't open the mesh, so that its peers need not wait for it. */
void address_record_fail(const struct mesh_config *config, const hvd_status *cause);
/* Returns HVD_SYSTEM with the text of a cause that a peer has published; otherwise HVD_OK. */
#define ADDRESS_RECORD_LOOK_INTERVAL (CLOCK_SECOND / 4)
hvd_code address_record_failure(const struct mesh_config *config, hvd_status *status);

#endif
