/* fuzz_places.c - any bytes as what members publish at the rendezvous for all: claims of places, the verdict
 * on them, the place of a slot, tables of records. What is accepted must make sense. First byte: which of
 * them. */
#include "engine/placement.h"
#include "rendezvous/assignments.h"
#include "transport/address_record.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 6 };
enum { AS_CLAIMS, AS_VERDICT, AS_ASSIGNMENT, AS_RECORDS, MODES };

static void check(const struct topology *topology, int size)
{
    if (topology->size != size || topology->hosts < 1 || topology->hosts > size)
        abort();
    for (int rank = 0; rank < size; rank++) {
        int host = topology->host_of[rank], place = topology->place_of[rank];
        if (host < 0 || host >= topology->hosts || place < 0 || place >= size ||
            topology->rank_at[place] != rank)
            abort();
    }
}

/* Each behind its length; the last one is that of the ranks that are left. */
static void claim(const uint8_t *bytes, size_t length)
{
    struct claim claims[RANKS];
    struct topology topology = {0};
    struct wire_writer again = {0};
    hvd_status status;
    bool all = true;
    for (int rank = 0; rank < RANKS && all; rank++) {
        size_t own = length && bytes[0] < length ? bytes[0] : length ? length - 1 : 0;
        all = length && claim_decode(&claims[rank], bytes + 1, own) &&
              (!rank || !claim_compare(&claims[0], &claims[rank], rank, &status));
        if (length > own + 1) {
            bytes += own + 1;
            length -= own + 1;
        }
    }
    if (all && !claims_make_topology(claims, RANKS, &topology, &status)) {
        check(&topology, RANKS);
        claim_encode(&again, &claims[0]);
    }
    topology_free(&topology);
    wire_writer_free(&again);
}

/* Of a table there is one encoding behind the decoded one, which says the same. */
static void judge(const uint8_t *bytes, size_t length)
{
    struct topology topology = {0}, same = {0};
    struct wire_writer again = {0};
    hvd_status status = {0}, fine = {0};
    int size = 1 + bytes[0] % 64;
    hvd_code code = verdict_decode(bytes + 1, length - 1, size, &topology, &status);
    if (code) {
        topology_free(&topology);
        return;
    }
    check(&topology, size);
    verdict_encode(&again, &topology, &fine);
    if (verdict_decode(again.bytes, again.length, size, &same, &status))
        abort();
    if (memcmp(topology.host_of, same.host_of, (size_t)size * sizeof(int)) != 0)
        abort();
    wire_writer_free(&again);
    topology_free(&topology);
    topology_free(&same);
}

static void assign(const uint8_t *bytes, size_t length)
{
    struct assignment assignment = {0};
    if (assignment_decode(&assignment, bytes, length) &&
        (assignment.rank >= assignment.size || strlen(assignment.host) >= sizeof assignment.host))
        if (assignment.rank >= 0)
            abort();
}

static void read_records(const uint8_t *bytes, size_t length)
{
    struct address_record records[RANKS] = {{0}};
    int count = 1 + bytes[0] % RANKS;
    address_records_decode(records, count, bytes + 1, length - 1);
    for (int i = 0; i < RANKS; i++)
        address_record_free(&records[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length < 2)
        return 0;
    int mode = bytes[0] % MODES;
    bytes++;
    length--;
    if (mode == AS_CLAIMS)
        claim(bytes, length);
    else if (mode == AS_VERDICT)
        judge(bytes, length);
    else if (mode == AS_ASSIGNMENT)
        assign(bytes, length);
    else
        read_records(bytes, length);
    return 0;
}
