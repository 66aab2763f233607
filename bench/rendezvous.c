/* rendezvous.c - what many ranks cost the rendezvous: build/bench/bench_rendezvous [CLIENTS ...]. As at the
 * start of a job all clients at once enter it, publish a claim and wait for a verdict, which rank 0 puts once
 * it has fetched all claims. Each is a thread of this process, with two descriptors. A row: clients;
 * milliseconds until all have the verdict; processor time of the server alone, and that per client. */
#include "base/clock.h"
#include "rendezvous/client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define SECRET      "the secret of this benchmark"
#define SECONDS     600.0
#define STACK_BYTES ((size_t)256 << 10)

struct client {
    pthread_t thread;
    int rank, size;
    const char *address;
};

static atomic_llong nanoseconds_of_clients;

static void check(hvd_code code, const hvd_status *status)
{
    if (code) {
        fprintf(stderr, "bench: %s\n", status->text);
        exit(1);
    }
}

static long long processor_time(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void get(struct rendezvous_client *client, const char *key)
{
    struct wire_writer value = {0};
    hvd_status status;
    check(rendezvous_get(client, key, clock_after(SECONDS), &value, &status), &status);
    wire_writer_free(&value);
}

static void *take_part(void *argument)
{
    const struct client *own = argument;
    struct rendezvous_client *client;
    char key[32];
    uint32_t generation;
    uint8_t claim[64] = {0};
    hvd_status status;
    check(rendezvous_connect(own->address, SECRET, false, clock_after(SECONDS), NULL, &client, &status),
          &status);
    const struct rendezvous_place place = {"job", 0, own->rank, own->size};
    check(rendezvous_enter(client, &place, &generation, &status), &status);
    rendezvous_scope(client, generation, 0);
    snprintf(key, sizeof key, "place/%d", own->rank);
    check(rendezvous_put(client, key, claim, sizeof claim, &status), &status);
    for (int rank = 1; own->rank == 0 && rank < own->size; rank++) {
        snprintf(key, sizeof key, "place/%d", rank);
        get(client, key);
    }
    if (own->rank == 0)
        check(rendezvous_put(client, "verdict", claim, sizeof claim, &status), &status);
    get(client, "verdict");
    atomic_fetch_add(&nanoseconds_of_clients, processor_time(CLOCK_THREAD_CPUTIME_ID));
    rendezvous_close(client);
    return NULL;
}

static void run(int size)
{
    hvd_status status;
    hvd_rendezvous *server;
    pthread_attr_t small;
    char address[32];
    struct client *clients = calloc((size_t)size, sizeof *clients);
    if (!clients)
        exit(1);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    check(hvd_rendezvous_start("127.0.0.1", SECRET, &server, &status), &status);
    snprintf(address, sizeof address, "127.0.0.1:%d", hvd_rendezvous_port(server));
    atomic_store(&nanoseconds_of_clients, 0);
    int64_t begin = clock_now();
    long long before = processor_time(CLOCK_PROCESS_CPUTIME_ID),
              own = processor_time(CLOCK_THREAD_CPUTIME_ID);
    for (int rank = 0; rank < size; rank++) {
        clients[rank] = (struct client){.rank = rank, .size = size, .address = address};
        if (pthread_create(&clients[rank].thread, &small, take_part, &clients[rank]))
            exit(1);
    }
    for (int rank = 0; rank < size; rank++)
        pthread_join(clients[rank].thread, NULL);
    double wall = (double)(clock_now() - begin) / 1e6;
    own = processor_time(CLOCK_THREAD_CPUTIME_ID) - own;
    double server_time = (double)(processor_time(CLOCK_PROCESS_CPUTIME_ID) - before - own -
                                  atomic_load(&nanoseconds_of_clients)) /
                         1e6;
    printf("%8d %10.0f ms %10.0f ms %8.1f us\n", size, wall, server_time, server_time * 1e3 / size);
    fflush(stdout);
    hvd_rendezvous_stop(server);
    pthread_attr_destroy(&small);
    free(clients);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"512", "1024", "2048", "4096"};
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    printf(" clients          wall         server   per client\n");
    for (int i = 0; i < (argc > 1 ? argc - 1 : 4); i++)
        run(atoi(argc > 1 ? argv[i + 1] : usual[i]));
    return 0;
}
