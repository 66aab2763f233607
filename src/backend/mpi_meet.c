/* mpi_meet.c - joins ranks that an MPI has started: rank 0 serves the rendezvous and broadcasts its address
 * and the job's secret through MPI. Runs in the thread that calls hvd_init.
 *
 * All ranks start with a non-blocking barrier, since a collective that has started can't be cancelled: after
 * it all ranks are there, and blocking calls end. The server stays for the life of the process, since other
 * ranks may still be connecting when rank 0 has left. */
#include "backend/mpi_meet.h"

#include "backend/mpi_library.h"
#include "base/status.h"
#include "base/topology.h"
#include "net/addresses.h"
#include "net/crypto.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET_DIGITS 32
#define JOB_LIMIT     256
#define YIELDS        1000
#define PAUSE         (CLOCK_SECOND / 5000) /* poll interval after the first YIELDS polls */

/* The first message of each rank. Its layout never changes; later messages may change with the release. */
#define MAGIC "horovod"
struct header {
    char magic[8], release[48];
    uint8_t length[8]; /* size of struct meeting */
};

/* The message that rank 0 broadcasts. */
struct meeting {
    char host[TOPOLOGY_HOST_LIMIT]; /* of rank 0 */
    char address[ADDRESSES_TEXT];   /* "": rank 0 has failed, see `text` */
    char secret[SECRET_DIGITS + 1];
    char job[JOB_LIMIT]; /* a new name each time: a server identifies ranks by their numbers in a job */
    char text[sizeof((hvd_status){0}).text];
};

/* The servers of this process: [0] at all interfaces, [1] at loopback. */
static struct {
    pthread_mutex_t lock;
    hvd_rendezvous *servers[2];
    char addresses[2][ADDRESSES_TEXT], secrets[2][SECRET_DIGITS + 1];
    unsigned meetings;
} served = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The barrier of a call that has given up, which some rank has not entered. The next call continues it. */
static struct {
    pthread_mutex_t lock;
    bool open;
    mpi_handle comm, request;
} unfinished = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct party {
    const struct mpi_abi *mpi;
    mpi_handle comm;
    int rank, size;
};

/* ---- all ranks are there, and run the same release ------------------------------------------------------
 */

static bool claim_unfinished(mpi_handle comm, mpi_handle *request)
{
    pthread_mutex_lock(&unfinished.lock);
    bool taken = unfinished.open && unfinished.comm == comm;
    if (taken)
        *request = unfinished.request;
    unfinished.open = unfinished.open && !taken;
    pthread_mutex_unlock(&unfinished.lock);
    return taken;
}

static hvd_code give_up(const struct party *party, mpi_handle comm, mpi_handle request, bool interrupted,
                        hvd_status *status)
{
    pthread_mutex_lock(&unfinished.lock);
    unfinished.open = true;
    unfinished.comm = comm;
    unfinished.request = request;
    pthread_mutex_unlock(&unfinished.lock);
    mpi_skip_finalize(true);
    if (interrupted)
        return status_set(status, HVD_INTERRUPTED, "interrupted while waiting for the other ranks of MPI");
    return status_set(status, HVD_TIMED_OUT,
                      "rank %d waits in MPI for the other ranks: not all %d of the communicator have called "
                      "hvd.init() within the time to start (HOROVOD_START_TIMEOUT)",
                      party->rank, party->size);
}

static hvd_code wait_for_all(const struct party *party, mpi_handle comm, int64_t deadline,
                             const struct interrupt *interrupt, hvd_status *status)
{
    mpi_handle request;
    bool again = claim_unfinished(comm, &request), done = false;
    int error = again ? 0 : party->mpi->barrier_begin(comm, &request);
    int64_t next_ask = 0;
    for (int polls = 0; !error && !done; polls++) {
        int64_t now = clock_now();
        bool interrupted = now >= next_ask && interrupt_is_set(interrupt);
        next_ask = now >= next_ask ? now + INTERRUPT_INTERVAL : next_ask;
        error = party->mpi->test(&request, &done);
        if (error || done)
            break;
        if (interrupted || now >= deadline)
            return give_up(party, comm, request, interrupted, status);
        if (polls < YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, PAUSE}, NULL);
    }
    if (again)
        mpi_skip_finalize(false);
    return mpi_check(party->mpi, error, party->rank, "MPI_Ibarrier", status);
}

static hvd_code compare(const struct header *headers, int size, hvd_status *status)
{
    for (int rank = 0; rank < size; rank++) {
        const struct header *each = &headers[rank];
        if (memcmp(each->magic, MAGIC, sizeof each->magic) != 0)
            return status_set(status, HVD_INVALID_ARGUMENT, "rank %d runs something else than horovod", rank);
        if (memcmp(each->release, headers->release, sizeof each->release) != 0 ||
            memcmp(each->length, headers->length, sizeof each->length) != 0)
            return status_set(
                status, HVD_MISMATCH,
                "rank %d runs release %.47s of horovod, but rank 0 runs %.47s; install the same "
                "release on every host",
                rank, each->release, headers->release);
    }
    return HVD_OK;
}

static hvd_code compare_releases(const struct party *party, hvd_status *status)
{
    struct header own = {.magic = MAGIC};
    struct header *all = calloc((size_t)party->size, sizeof *all);
    if (!all)
        return status_no_memory(status);
    snprintf(own.release, sizeof own.release, "%s", hvd_version());
    for (size_t i = 0; i < sizeof own.length; i++)
        own.length[i] = (uint8_t)(sizeof(struct meeting) >> 8 * i);
    int error = party->mpi->allgather(party->comm, &own, all, (int)sizeof own);
    hvd_code code = mpi_check(party->mpi, error, party->rank, "MPI_Allgather", status);
    if (!code)
        code = compare(all, party->size, status);
    free(all);
    return code;
}

/* ---- rank 0 serves --------------------------------------------------------------------------------------
 */

static hvd_code broadcast(const struct party *party, struct meeting *meeting, hvd_status *status)
{
    int error = party->mpi->broadcast(party->comm, meeting, sizeof *meeting, 0);
    return mpi_check(party->mpi, error, party->rank, "MPI_Bcast", status);
}

/* *together: all ranks are on the host of rank 0. */
static hvd_code compare_hosts(const struct party *party, const struct settings *settings,
                              struct meeting *meeting, bool *together, hvd_status *status)
{
    char own[sizeof meeting->host];
    topology_own_host(settings->host_id, own, sizeof own);
    snprintf(meeting->host, sizeof meeting->host, "%s", own);
    TRY(broadcast(party, meeting, status));
    int32_t same = strcmp(meeting->host, own) == 0, sum = 0;
    int error = party->mpi->allreduce(party->comm, &same, &sum, 1, MPI_INT32, party->mpi->op_sum());
    *together = sum == party->size;
    return mpi_check(party->mpi, error, party->rank, "MPI_Allreduce", status);
}

static hvd_code start_server(const struct settings *settings, bool together, hvd_status *status)
{
    struct addresses own = addresses_of_loopback;
    char text[ADDRESSES_TEXT];
    hvd_rendezvous **server = &served.servers[together];
    if (!together)
        TRY(addresses_find(settings->network_interface, "", &own, status));
    TRY(crypto_random_hex(served.secrets[together], SECRET_DIGITS, status));
    addresses_to_listen(&own, settings->ports, text);
    TRY(hvd_rendezvous_start(text, served.secrets[together], server, status));
    addresses_to_connect(&own, together ? "" : settings->advertised_address, hvd_rendezvous_port(*server),
                         served.addresses[together], sizeof served.addresses[together]);
    return HVD_OK;
}

/* Starts the server; if that fails, the others read the reason in `text`. */
static void serve(const struct settings *settings, struct meeting *meeting, bool together)
{
    hvd_status status;
    pthread_mutex_lock(&served.lock);
    if (!served.servers[together] && start_server(settings, together, &status)) {
        snprintf(meeting->text, sizeof meeting->text, "%s", status.text);
    } else {
        memcpy(meeting->address, served.addresses[together], sizeof meeting->address);
        memcpy(meeting->secret, served.secrets[together], sizeof meeting->secret);
        snprintf(meeting->job, sizeof meeting->job, "%.200s-%u", settings->job, ++served.meetings);
    }
    pthread_mutex_unlock(&served.lock);
}

static hvd_code set_job(struct settings *settings, const struct party *party, const struct meeting *meeting,
                        hvd_status *status)
{
    if (!*meeting->address)
        return status_set(status, HVD_SYSTEM, "rank 0 can't serve the rendezvous: %s", meeting->text);
    settings_place(settings, party->rank, party->size);
    static const char by[] = "the broadcast of rank 0";
    TRY(settings_set(settings, setting_by_key("rendezvous"), meeting->address, by, status));
    TRY(settings_set(settings, setting_by_key("secret"), meeting->secret, by, status));
    return settings_set(settings, setting_by_key("job"), meeting->job, by, status);
}

hvd_code mpi_meet(struct settings *settings, const void *given, int64_t deadline,
                  const struct interrupt *interrupt, hvd_status *status)
{
    struct party party = {0};
    struct meeting meeting = {0};
    bool together;
    TRY(mpi_open(settings, &party.mpi, status));
    mpi_handle comm = given ? party.mpi->comm_at(given) : party.mpi->world();
    TRY(mpi_check(party.mpi, party.mpi->comm_place(comm, &party.rank, &party.size), 0, "MPI_Comm_rank",
                  status));
    TRY(wait_for_all(&party, comm, deadline, interrupt, status));
    TRY(mpi_set_base(party.mpi, comm, &party.comm, status));
    TRY(compare_releases(&party, status));
    TRY(compare_hosts(&party, settings, &meeting, &together, status));
    if (party.rank == 0)
        serve(settings, &meeting, together);
    TRY(broadcast(&party, &meeting, status));
    return set_job(settings, &party, &meeting, status);
}
