/* mesh_group.h - meshes of n ranks, each a thread or a process, for the tests of meshes. */
#ifndef HVD_TEST_MESH_GROUP_H
#define HVD_TEST_MESH_GROUP_H

#include "base/clock.h"
#include "test.h"
#include "transport/mesh_open.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define SECRET         "the secret of this test"
#define SIZE_MAX_RANKS 8
#define CHANNELS       2
#define DEADLINE       60.0 /* seconds of each wait */

/* A failed check in a thread ends the program: cmocka's own checks belong to the main thread. */
#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: check failed: %s: ", __FILE__, __LINE__, #condition);                    \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fputc('\n', stderr);                                                                             \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

struct member {
    int rank, size;
    struct settings settings;
    struct mesh *mesh; /* NULL when opening failed */
    hvd_status status;
    void (*fn)(struct member *member);
    void *argument;
    pthread_t thread;
};

struct group_options {
    const char *transport;
    const char *settings[5]; /* key, value, ..., NULL */
    void (*fn)(struct member *member);
    void *argument;
    bool opens_by_itself;
    void (*prepare)(int rank); /* in its process */
};

/* The names of all transports, and of those that split, delay and repeat what they carry (faulty.h). */
extern const char *const transports[], *const faulty[];
extern const size_t transport_names;
extern pthread_barrier_t barrier; /* of two ranks, in run_each */

void set(struct settings *settings, const char *key, const char *value);

/* Enters the job at the rendezvous of the settings; the caller closes config->rendezvous, also after an
 * error. */
hvd_code meet(struct mesh_config *config, hvd_status *status);

/* Opens the mesh of a member that opens by itself. */
hvd_code open_mesh(const struct settings *settings, double seconds, struct mesh **mesh, hvd_status *status);
/* Connects to these neighbours alone; NULL: to all ranks of the job. */
hvd_code open_mesh_to(const struct settings *settings, const int *neighbours, int neighbour_count,
                      double seconds, struct mesh **mesh, hvd_status *status);

/* Runs options->fn on each rank of a new job, each in a thread. */
void run_group(int size, const struct group_options *options);
/* As run_group, over every transport, where the options name none. */
void run_each(int size, struct group_options options);
/* As run_group, with a process for each rank, so that memory is really passed. A rank that the test kills
 * ends by SIGKILL; the others must end well. */
void run_processes(int size, const struct group_options *options, int killed);

/* Drives a mesh as the engine does: turn by turn, sleeping when a turn moved nothing. */
void drive(struct member *member, bool (*turn)(struct member *member, void *state, bool *done), void *state);

/* Checks that every rank exchanges messages of all sizes with every other one, on both channels and in both
 * directions at once. */
void exchange_with_all(struct member *member);

#endif
