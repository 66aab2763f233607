/* intruders.h - real connections to a port of a job that do not belong to it: in floods, with a wrong key,
 * another release, garbage, lengths beyond the limits, or the recorded bytes of a member. Each must be
 * dropped in time; the test checks that the job continues. */
#ifndef HVD_TEST_INTRUDERS_H
#define HVD_TEST_INTRUDERS_H

#include "base/clock.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "test.h"

#define INTRUDERS_TIME 60 /* seconds: nothing takes longer */

struct target {
    int port; /* of 127.0.0.1 */
    const char *secret;
    struct handshake_claim claim; /* that is accepted */
    void (*serve)(void *owner);   /* lets it go on; NULL: a thread does so */
    void *owner;
};

int intruder_dial(const struct target *target);

void intruder_send(int fd, const void *bytes, size_t length);

/* The target has to close it. */
void intruder_is_turned_away(const struct target *target, int fd);

hvd_code intruder_shake(const struct target *target, struct handshake *handshake, int fd, hvd_status *status);

void try_wrong_key(const struct target *target);

/* It says why, in a form that every release reads. */
void try_other_release(const struct target *target);

/* Replays the bytes of a member; the nonce of the other end is a new one. The caller checks that the bytes
 * after it are not accepted. */
void try_replay(const struct target *target, const void *behind, size_t behind_length);

/* A body longer than any message, one byte longer, and lengths inside of a body that lead out of it. */
void try_oversized(const struct target *target);

void try_garbage(const struct target *target);

/* ---- silent ones -------------------------------------------------------------------------------------- */

struct silent {
    int count, *fds;
};

/* 10,000, or as many as the limit of descriptors leaves room for. They need not be accepted yet. */
struct silent silent_flood(const struct target *target);

void silent_end(struct silent *silent);

#endif
