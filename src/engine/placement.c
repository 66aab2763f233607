/* placement.c - agrees on the topology in two rounds of messages: a claim from each rank to rank 0, and one
 * verdict, which all ranks read. In the thread that joins the job; encoding and decoding in any thread. */
#include "engine/placement.h"

#include "backend/mpi_library.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/status.h"
#include "coordinate/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MISSING_LIMIT 64

static const char *const number_names[PLACEMENT_NUMBERS] = {"HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
                                                            "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"};

struct exchange {
    struct rendezvous_client *client;
    const struct settings *settings;
    int64_t deadline;
};

/* ---- claims ------------------------------------------------------------------------------------------- */

static hvd_code claim_make(struct claim *claim, const struct settings *settings, hvd_status *status)
{
    *claim = (struct claim){.size = (int)settings->size,
                            .fanout = (int)settings->tree_fanout,
                            .mpi = mpi_is_chosen(settings),
                            .host_given = *settings->host_id != '\0',
                            .numbers = {(int)settings->local_rank, (int)settings->local_size,
                                        (int)settings->cross_rank, (int)settings->cross_size}};
    snprintf(claim->release, sizeof claim->release, "%s", HVD_VERSION);
    topology_own_host(settings->host_id, claim->host, sizeof claim->host);
    if (strlen(settings->host_id) < sizeof claim->host)
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT, "HOROVOD_HOST_ID is longer than %d bytes",
                      TOPOLOGY_HOST_LIMIT - 1);
}

/* The release is first: later fields may change with it. */
void claim_encode(struct wire_writer *writer, const struct claim *claim)
{
    wire_put_string(writer, claim->release);
    wire_put_u32(writer, (uint32_t)claim->size);
    wire_put_u32(writer, (uint32_t)claim->fanout);
    wire_put_u8(writer, claim->mpi);
    wire_put_u8(writer, claim->host_given);
    wire_put_string(writer, claim->host);
    for (int i = 0; i < PLACEMENT_NUMBERS; i++)
        wire_put_u32(writer, (uint32_t)claim->numbers[i]);
}

bool claim_decode(struct claim *claim, const uint8_t *bytes, size_t length)
{
    struct wire_reader reader = wire_reader_of(bytes, length);
    *claim = (struct claim){0};
    if (!wire_get_string(&reader, claim->release, sizeof claim->release))
        return false;
    if (strcmp(claim->release, HVD_VERSION) != 0)
        return true;
    claim->size = (int)wire_get_u32(&reader);
    claim->fanout = (int)wire_get_u32(&reader);
    claim->mpi = wire_get_u8(&reader);
    claim->host_given = wire_get_u8(&reader);
    wire_get_string(&reader, claim->host, sizeof claim->host);
    for (int i = 0; i < PLACEMENT_NUMBERS; i++)
        claim->numbers[i] = (int)wire_get_u32(&reader);
    return wire_done(&reader);
}

static void claim_key(int rank, char *key)
{
    snprintf(key, RENDEZVOUS_KEY_LIMIT, "place/%d", rank);
}

static hvd_code claim_publish(const struct exchange *exchange, const struct claim *claim, hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT];
    struct wire_writer value = {0};
    claim_key((int)exchange->settings->rank, key);
    claim_encode(&value, claim);
    hvd_code code = value.failed ? status_no_memory(status)
                                 : rendezvous_put(exchange->client, key, value.bytes, value.length, status);
    wire_writer_free(&value);
    return code;
}

static hvd_code claim_fetch(const struct exchange *exchange, int rank, int64_t deadline, struct claim *claim,
                            hvd_status *status)
{
    char key[RENDEZVOUS_KEY_LIMIT];
    struct wire_writer value = {0};
    claim_key(rank, key);
    hvd_code code = rendezvous_get(exchange->client, key, deadline, &value, status);
    if (!code && !claim_decode(claim, value.bytes, value.length))
        code =
            status_set(status, HVD_REFUSED, "what rank %d has published about its place is malformed", rank);
    wire_writer_free(&value);
    return code;
}

/* ---- ranks that are missing ---------------------------------------------------------------------------- */

static hvd_code report_missing(const struct exchange *exchange, const struct rank_set *missing,
                               hvd_status *status)
{
    char ranks[256];
    bool one = missing->count == 1 && missing->ranges[0].first == missing->ranges[0].last && !missing->others;
    return status_set(status, HVD_TIMED_OUT,
                      "%s %s not joined within %g s (HOROVOD_START_TIMEOUT); rank %lld waits for it, see the "
                      "output of what is missing",
                      rank_set_text(missing, ranks, sizeof ranks), one ? "has" : "have",
                      exchange->settings->start_timeout_seconds, (long long)exchange->settings->rank);
}

/* Checks only the first ranks, so that a thousand ranks that time out do not fetch a million claims: rank 0
 * checks all of them. */
static hvd_code find_missing(const struct exchange *exchange, hvd_status *status)
{
    struct rank_set missing = {0};
    for (int rank = 0; rank < exchange->settings->size && rank < MISSING_LIMIT; rank++) {
        struct claim claim;
        hvd_code code = claim_fetch(exchange, rank, 0, &claim, status);
        if (code == HVD_TIMED_OUT)
            rank_set_add(&missing, rank, rank);
        else if (code)
            return code;
    }
    if (missing.count)
        return report_missing(exchange, &missing, status);
    return status_set(status, HVD_TIMED_OUT,
                      "not all ranks have joined within %g s (HOROVOD_START_TIMEOUT); rank %lld waits for "
                      "them, rank 0 says which are missing",
                      exchange->settings->start_timeout_seconds, (long long)exchange->settings->rank);
}

/* ---- rank 0 compares ----------------------------------------------------------------------------------- */

static hvd_code differ(hvd_status *status, int rank, const char *what, int value, int of_rank_0)
{
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "rank %d has %s=%d, but rank 0 has %d; it must be equal on all ranks", rank, what,
                      value, of_rank_0);
}

hvd_code claim_compare(const struct claim *first, const struct claim *other, int rank, hvd_status *status)
{
    if (strcmp(first->release, other->release) != 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %d runs release %s of horovod, but rank 0 runs %s; install the same release "
                          "everywhere",
                          rank, other->release, first->release);
    if (first->size != other->size)
        return differ(status, rank, "HOROVOD_SIZE", other->size, first->size);
    if (first->fanout != other->fanout)
        return differ(status, rank, "HOROVOD_TREE_FANOUT", other->fanout, first->fanout);
    if (first->mpi != other->mpi)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %d has HOROVOD_CPU_OPERATIONS=mpi, but rank %d has not; set it on all ranks, "
                          "or on none",
                          first->mpi ? 0 : rank, first->mpi ? rank : 0);
    if (first->host_given != other->host_given)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %d has HOROVOD_HOST_ID=%s, but rank %d has none; set it on all ranks, or on "
                          "none",
                          first->host_given ? 0 : rank, first->host_given ? first->host : other->host,
                          first->host_given ? rank : 0);
    return HVD_OK;
}

/* After the deadline it does not wait for the remaining claims, and only finds out which are missing. */
static hvd_code collect(const struct exchange *exchange, struct claim *claims, hvd_status *status)
{
    struct rank_set missing = {0};
    for (int rank = 1; rank < exchange->settings->size; rank++) {
        hvd_code code =
            claim_fetch(exchange, rank, missing.count ? 0 : exchange->deadline, &claims[rank], status);
        if (code == HVD_TIMED_OUT)
            rank_set_add(&missing, rank, rank);
        else if (!code)
            code = claim_compare(&claims[0], &claims[rank], rank, status);
        if (code && code != HVD_TIMED_OUT)
            return code;
    }
    return missing.count ? report_missing(exchange, &missing, status) : HVD_OK;
}

static hvd_code make_table(struct claim *claims, int size, struct topology *topology, hvd_status *status)
{
    struct map hosts = {.key_offset = 0};
    int *labels = calloc((size_t)size, sizeof *labels);
    bool complete = labels;
    for (int rank = 0; complete && rank < size; rank++) {
        struct claim *claim = &claims[rank];
        claim->label = rank;
        /* host_name: the first claim with this host. */
        struct claim **place = (struct claim **)map_place(&hosts, claim->host, strlen(claim->host), claim);
        complete = place;
        labels[rank] = complete ? (*place)->label : 0;
    }
    hvd_code code = complete ? topology_init(topology, labels, size, status) : status_no_memory(status);
    map_free(&hosts);
    free(labels);
    return code;
}

/* Local and cross ranks and sizes in the environment must agree with the table. */
static hvd_code check_numbers(const struct topology *topology, const struct claim *claims, hvd_status *status)
{
    for (int rank = 0; rank < topology->size; rank++) {
        const int found[PLACEMENT_NUMBERS] = {
            topology_local_rank(topology, rank), topology_local_size(topology, rank),
            topology_cross_rank(topology, rank), topology_cross_size(topology, rank)};
        for (int i = 0; i < PLACEMENT_NUMBERS; i++)
            if (claims[rank].numbers[i] >= 0 && claims[rank].numbers[i] != found[i])
                return status_set(
                    status, HVD_INVALID_ARGUMENT,
                    "rank %d has %s=%d, but it is %d: local rank %d of %d on a host whose first rank is rank "
                    "%d; unset it, or set HOROVOD_HOST_ID on every rank to say which ranks share a host",
                    rank, number_names[i], claims[rank].numbers[i], found[i], found[0], found[1],
                    topology_leader(topology, topology->host_of[rank]));
    }
    return HVD_OK;
}

hvd_code claims_make_topology(struct claim *claims, int size, struct topology *topology, hvd_status *status)
{
    TRY(make_table(claims, size, topology, status));
    return check_numbers(topology, claims, status);
}

static hvd_code decide(const struct exchange *exchange, const struct claim *own, struct topology *topology,
                       hvd_status *status)
{
    int size = (int)exchange->settings->size;
    struct claim *claims = calloc((size_t)size, sizeof *claims);
    if (!claims)
        return status_no_memory(status);
    claims[0] = *own;
    hvd_code code = collect(exchange, claims, status);
    if (!code)
        code = claims_make_topology(claims, size, topology, status);
    free(claims);
    return code;
}

/* ---- the verdict -------------------------------------------------------------------------------------- */

#define VERDICT_KEY "topology"

/* The verdict is a code and a text, or the table as runs of ranks on one host. */
void verdict_encode(struct wire_writer *writer, const struct topology *topology, const hvd_status *problem)
{
    wire_put_u8(writer, (uint8_t)problem->code);
    if (problem->code) {
        wire_put_string(writer, problem->text);
        return;
    }
    for (int rank = 0, next; rank < topology->size; rank = next) {
        for (next = rank + 1;
             next < topology->size && next - rank < UINT16_MAX && topology_share_host(topology, rank, next);)
            next++;
        wire_put_u16(writer, (uint16_t)topology->host_of[rank]);
        wire_put_u16(writer, (uint16_t)(next - rank));
    }
}

static hvd_code read_table(struct wire_reader *reader, int size, struct topology *topology,
                           hvd_status *status)
{
    int *labels = calloc((size_t)size, sizeof *labels);
    int rank = 0;
    if (!labels)
        return status_no_memory(status);
    while (rank < size && !reader->failed) {
        int host = wire_get_u16(reader);
        for (int left = wire_get_u16(reader); left > 0 && rank < size; left--)
            labels[rank++] = host;
    }
    hvd_code code = rank == size && wire_done(reader)
                        ? topology_init(topology, labels, size, status)
                        : status_set(status, HVD_REFUSED,
                                     "what rank 0 has published as the topology of the "
                                     "job is malformed");
    free(labels);
    return code;
}

hvd_code verdict_decode(const uint8_t *bytes, size_t length, int size, struct topology *topology,
                        hvd_status *status)
{
    struct wire_reader reader = wire_reader_of(bytes, length);
    hvd_status problem = {.code = (hvd_code)wire_get_u8(&reader)};
    if (!problem.code)
        return read_table(&reader, size, topology, status);
    if (wire_get_string(&reader, problem.text, sizeof problem.text) && wire_done(&reader))
        return status_copy(status, &problem);
    return status_set(status, HVD_REFUSED, "what rank 0 has published of the topology is malformed");
}

static hvd_code verdict_publish(const struct exchange *exchange, const struct topology *topology,
                                const hvd_status *problem, hvd_status *status)
{
    struct wire_writer value = {0};
    verdict_encode(&value, topology, problem);
    hvd_code code = value.failed
                        ? status_no_memory(status)
                        : rendezvous_put(exchange->client, VERDICT_KEY, value.bytes, value.length, status);
    wire_writer_free(&value);
    return code;
}

static hvd_code verdict_fetch(const struct exchange *exchange, struct topology *topology, hvd_status *status)
{
    struct wire_writer value = {0};
    hvd_code code = rendezvous_get(exchange->client, VERDICT_KEY, exchange->deadline, &value, status);
    if (code) {
        wire_writer_free(&value);
        return code == HVD_TIMED_OUT ? find_missing(exchange, status) : code;
    }
    code = verdict_decode(value.bytes, value.length, (int)exchange->settings->size, topology, status);
    wire_writer_free(&value);
    return code;
}

/* ---- all of it ---------------------------------------------------------------------------------------- */

static hvd_code lead(const struct exchange *exchange, const struct claim *own, struct topology *topology,
                     hvd_status *status)
{
    hvd_status problem, unused;
    hvd_code code = decide(exchange, own, topology, &problem);
    if (code) {
        /* The other ranks notice an interrupted rank by its absence. */
        if (code != HVD_INTERRUPTED)
            verdict_publish(exchange, topology, &problem, &unused);
        return status_copy(status, &problem);
    }
    problem.code = HVD_OK;
    return verdict_publish(exchange, topology, &problem, status);
}

hvd_code placement_agree(struct rendezvous_client *client, const struct settings *settings, int64_t deadline,
                         struct topology *topology, hvd_status *status)
{
    struct exchange exchange = {client, settings, deadline};
    struct claim own;
    TRY(claim_make(&own, settings, status));
    if (!client)
        return decide(&exchange, &own, topology, status);
    TRY(claim_publish(&exchange, &own, status));
    return settings->rank == 0 ? lead(&exchange, &own, topology, status)
                               : verdict_fetch(&exchange, topology, status);
}
