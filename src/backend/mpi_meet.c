/* mpi_meet.c - ranks that an MPI has started find each other through it: rank 0 serves the rendezvous, and
 * its address and the job's secret come by a broadcast. In the thread that calls hvd_init. */
#include "backend/mpi.h"

#include "base/addresses.h"
#include "base/crypto.h"
#include "base/status.h"
#include "base/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET_DIGITS 32

/* What rank 0 broadcasts. */
struct meeting {
    char host[TOPOLOGY_HOST_LIMIT]; /* of rank 0 */
    char address[ADDRESSES_TEXT];   /* "": there is none, see `text` */
    char secret[SECRET_DIGITS + 1];
    char text[sizeof((hvd_status){0}).text];
};

struct party {
    const struct mpi_abi *mpi;
    mpi_handle comm;
    int rank, size;
};

static hvd_code broadcast(const struct party *party, struct meeting *meeting, hvd_status *status)
{
    int error = party->mpi->broadcast(party->comm, meeting, sizeof *meeting, 0);
    return mpi_check(party->mpi, error, party->rank, "MPI_Bcast", status);
}

/* *together: whether all ranks are on the host of rank 0. */
static hvd_code compare_hosts(const struct party *party, const struct settings *settings,
                              struct meeting *meeting, bool *together, hvd_status *status)
{
    char own[sizeof meeting->host];
    topology_own_host(settings->host_id, own, sizeof own);
    snprintf(meeting->host, sizeof meeting->host, "%s", own);
    hvd_code code = broadcast(party, meeting, status);
    int32_t same = strcmp(meeting->host, own) == 0, sum = 0;
    if (!code)
        code = mpi_check(party->mpi,
                         party->mpi->allreduce(party->comm, &same, &sum, 1, MPI_INT32, party->mpi->op_sum()),
                         party->rank, "MPI_Allreduce", status);
    *together = sum == party->size;
    return code;
}

static hvd_code start_server(const struct settings *settings, struct meeting *meeting, bool together,
                             hvd_rendezvous **served, hvd_status *status)
{
    struct addresses own = addresses_of_loopback;
    char text[ADDRESSES_TEXT];
    hvd_code code = together ? HVD_OK : addresses_find(settings->network_interface, "", &own, status);
    if (!code)
        code = crypto_random_hex(meeting->secret, SECRET_DIGITS, status);
    if (code)
        return code;
    addresses_to_listen(&own, settings->ports, text);
    code = hvd_rendezvous_start(text, meeting->secret, served, status);
    if (!code)
        addresses_to_connect(&own, together ? "" : settings->advertised_address, hvd_rendezvous_port(*served),
                             meeting->address, sizeof meeting->address);
    return code;
}

/* Fine on failure, too: the others read why. */
static void serve(const struct settings *settings, struct meeting *meeting, bool together,
                  hvd_rendezvous **served)
{
    hvd_status status;
    if (start_server(settings, meeting, together, served, &status))
        snprintf(meeting->text, sizeof meeting->text, "%s", status.text);
}

static hvd_code take(struct settings *settings, const struct party *party, const struct meeting *meeting,
                     hvd_status *status)
{
    if (!*meeting->address)
        return status_set(status, HVD_SYSTEM, "rank 0 can't serve the rendezvous: %s", meeting->text);
    settings_place(settings, party->rank, party->size);
    hvd_code code = settings_set(settings, setting_by_key("rendezvous"), meeting->address,
                                 "the broadcast of rank 0", status);
    return code ? code
                : settings_set(settings, setting_by_key("secret"), meeting->secret, "the broadcast of rank 0",
                               status);
}

hvd_code mpi_meet(struct settings *settings, const void *comm, hvd_rendezvous **served, hvd_status *status)
{
    struct party party = {0};
    struct meeting meeting = {0};
    bool together;
    hvd_code code = mpi_open(settings, &party.mpi, status);
    if (!code)
        code = mpi_set_base(party.mpi, comm ? party.mpi->comm_at(comm) : party.mpi->world(), &party.comm,
                            status);
    if (!code)
        code = mpi_check(party.mpi, party.mpi->comm_place(party.comm, &party.rank, &party.size), 0,
                         "MPI_Comm_rank", status);
    if (!code)
        code = compare_hosts(&party, settings, &meeting, &together, status);
    if (!code && party.rank == 0)
        serve(settings, &meeting, together, served);
    if (!code)
        code = broadcast(&party, &meeting, status);
    return code ? code : take(settings, &party, &meeting, status);
}
