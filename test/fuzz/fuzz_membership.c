/* fuzz_membership.c - any reports of processes and agents, true or not, in any order, as what an elastic job
 * goes by. The first three bytes are the limits of the job. Then each input is one byte and what it needs.
 * Ranks are distinct living processes, and never too many; a job that ends, ends once. */
#include "membership/membership.h"

#include <stdlib.h>
#include <string.h>

enum { HOSTS = 4, STARTED_LIMIT = 400 };

#define SECOND INT64_C(1000000000)

struct subject {
    struct membership *membership;
    const uint8_t *bytes;
    size_t length;
    int64_t now;
    int max, started, hosts;
    bool lives[STARTED_LIMIT], finished;
};

static int take(struct subject *subject)
{
    if (!subject->length)
        return 0;
    subject->length--;
    return *subject->bytes++;
}

static void check_ranks(const struct subject *subject)
{
    int epoch, size;
    bool seen[STARTED_LIMIT] = {0};
    const struct membership_rank *ranks = membership_ranks(subject->membership, &epoch, &size);
    if (size > subject->max || (epoch < 0 && size))
        abort();
    for (int i = 0; i < size; i++) {
        if (ranks[i].slot < 0 || ranks[i].slot >= STARTED_LIMIT || seen[ranks[i].slot])
            abort();
        seen[ranks[i].slot] = true;
    }
}

/* Carries out all actions; processes end when they receive the action that ends them. */
static void act(struct subject *subject)
{
    struct membership_action action;
    while (membership_next(subject->membership, &action)) {
        switch (action.kind) {
        case MEMBERSHIP_PREPARE:
            subject->hosts = action.host >= subject->hosts ? action.host + 1 : subject->hosts;
            break;
        case MEMBERSHIP_EPOCH:
            check_ranks(subject);
            break;
        case MEMBERSHIP_START:
            if (action.slot != subject->started || subject->finished)
                abort();
            subject->started++;
            subject->lives[action.slot % STARTED_LIMIT] = true;
            break;
        case MEMBERSHIP_END:
            if (action.slot >= subject->started)
                abort();
            break;
        case MEMBERSHIP_FINISH:
            if (subject->finished)
                abort();
            subject->finished = true;
            break;
        default:
            break;
        }
    }
}

static void discover(struct subject *subject)
{
    static const char *const names[HOSTS] = {"a", "b", "c", "d"};
    struct membership_host hosts[HOSTS];
    int which = take(subject), count = 0;
    for (int i = 0; i < HOSTS; i++)
        if (which >> i & 1)
            hosts[count++] = (struct membership_host){names[i], 1 + (which >> 4) % 3};
    membership_discovered(subject->membership, subject->now, hosts, count);
}

/* Returns a process that was started, or -1. */
static int take_slot(struct subject *subject)
{
    int slot = take(subject);
    return subject->started ? slot % subject->started : -1;
}

static void report_wait(struct subject *subject, int slot)
{
    int after = take(subject), lost = take(subject), epoch, size;
    membership_ranks(subject->membership, &epoch, &size);
    /* mostly plausible */
    struct membership_wait wait = {.after = after < 200 ? epoch - after % 3 + 1 : (after - 228) * 9999999,
                                   .holds_state = lost & 1,
                                   .lost_rank = lost < 200 ? lost % 8 - 1 : (lost - 228) * 9999999};
    membership_waits(subject->membership, subject->now, slot, &wait);
}

static void end(struct subject *subject, int slot)
{
    int how = take(subject);
    if (!subject->lives[slot % STARTED_LIMIT])
        return;
    subject->lives[slot % STARTED_LIMIT] = false;
    if (how == 0)
        membership_not_started(subject->membership, subject->now, slot, 127);
    else
        membership_ended(subject->membership, subject->now, slot, how % 2 ? 0 : how, how % 3 ? 0 : 9);
    act(subject);
    membership_gone(subject->membership, subject->now, slot);
}

static void put(struct subject *subject)
{
    struct membership *membership = subject->membership;
    int kind = take(subject) % 10, slot = kind < 4 ? take_slot(subject) : -1;
    int host = subject->hosts && kind >= 4 && kind < 8 ? take(subject) % subject->hosts : -1;
    if ((kind < 4 && slot < 0) || (kind >= 4 && kind < 8 && host < 0))
        return;
    switch (kind) {
    case 0:
        report_wait(subject, slot);
        break;
    case 1:
        membership_done(membership, subject->now, slot);
        break;
    case 2:
        membership_leaves(membership, subject->now, slot);
        break;
    case 3:
        end(subject, slot);
        break;
    case 4:
        membership_host_prepared(membership, subject->now, host);
        break;
    case 5:
        membership_host_failed(membership, subject->now, host);
        break;
    case 6:
        membership_host_lost(membership, subject->now, host, take(subject) & 1);
        break;
    case 7:
        membership_host_leaves(membership, subject->now, host);
        break;
    case 8:
        discover(subject);
        break;
    default:
        subject->now += take(subject) * SECOND / 4;
        membership_tick(membership, subject->now);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length < 3)
        return 0;
    struct membership_config config = {.min = 1 + bytes[0] % 4,
                                       .spares = bytes[0] / 64,
                                       .settle = SECOND / 20,
                                       .prepare = 5 * SECOND,
                                       .rejoin = 30 * SECOND,
                                       .silent = 5 * SECOND,
                                       .gather = 10 * SECOND,
                                       .timeout = 60 * SECOND,
                                       .listed = bytes[1] & 1,
                                       .restart = bytes[1] & 2,
                                       .drop_last = bytes[1] & 4,
                                       .grow_now = bytes[1] & 8,
                                       .restarts = bytes[1] >> 4,
                                       .reset_limit = bytes[2] % 16 - 1,
                                       .pause = {SECOND, 4 * SECOND}};
    config.start = config.min + bytes[2] / 16 % 4;
    config.max = config.start + bytes[2] / 64;
    struct subject subject = {
        .membership = membership_new(&config), .bytes = bytes + 3, .length = length - 3, .max = config.max};
    if (!subject.membership)
        abort();
    while (subject.length && subject.started < STARTED_LIMIT / 2) {
        put(&subject);
        act(&subject);
    }
    membership_free(subject.membership);
    return 0;
}
