/* collective.c - what a group does, in the thread of its stream: the ranks put pieces of their inputs into
 * slots that all of them see, meet, and read the others'. Messages go through a box for each pair of ranks.
 */
#include "standin/nccl/communicator.h"

#include "standin/context.h"
#include "standin/memory.h"

#include <stdio.h>
#include <string.h>

static atomic_int running[DEVICES_LIMIT];

void device_count_running(int device, int more)
{
    atomic_fetch_add(&running[device], more);
}

bool device_is_running(int device)
{
    return atomic_load(&running[device]) > 0;
}

static char *reach(struct ncclComm *comm, uint64_t address, size_t bytes)
{
    char *memory = memory_reach(address, bytes);
    if (!memory) {
        context_break(comm->device, CUDA_ILLEGAL_ADDRESS, "a collective uses memory that is not allocated");
        comm_fail(comm, NCCL_CUDA_ERROR, "Cuda failure 700 'an illegal memory access was encountered'");
    }
    return memory;
}

/* ---- collectives -------------------------------------------------------------------------------------- */

/* Returns true if all ranks have called the same. */
static bool check_heads(struct ncclComm *comm, const struct call *call)
{
    struct head *heads = comm->shared->heads, *own = &heads[comm->rank];
    memset(own, 0, sizeof *own);
    own->kind = (int)call->kind;
    own->type = call->type;
    own->base = call->op.base;
    own->scales = call->op.scales;
    own->factor = call->op.factor;
    own->root = call->peer;
    own->count = call->count;
    if (!comm_meet(comm))
        return false;
    for (int rank = 0; rank < comm->size; rank++)
        if (memcmp(&heads[rank], own, sizeof *own) != 0)
            comm_fail(comm, NCCL_INVALID_USAGE,
                      "rank %d and rank %d call different collectives, where NCCL would hang", comm->rank,
                      rank);
    return !comm_given_up(comm);
}

static bool reduces(const struct call *call)
{
    return call->kind == ALL_REDUCE || call->kind == REDUCE || call->kind == REDUCE_SCATTER;
}

static bool put_piece(struct ncclComm *comm, const struct call *call, size_t at, size_t count)
{
    size_t width = width_of(call->type);
    char *slot = comm->shared->slots[comm->rank];
    if (call->kind == BROADCAST && comm->rank != call->peer)
        return true;
    const char *from = reach(comm, call->from + at * width, count * width);
    if (!from)
        return false;
    memcpy(slot, from, count * width);
    if (call->op.scales)
        scale(slot, count, call->type, call->op.factor);
    return true;
}

/* Writes the elements of [at, at + count) that are in this rank's part of the result. */
static void take_sum(struct ncclComm *comm, const struct call *call, size_t at, size_t count)
{
    char sum[SLOT_BYTES];
    size_t width = width_of(call->type), first = 0, end = at + count;
    if (call->kind == REDUCE && comm->rank != call->peer)
        return;
    memcpy(sum, comm->shared->slots[0], count * width);
    for (int rank = 1; rank < comm->size; rank++)
        combine(sum, comm->shared->slots[rank], count, call->type, call->op.base);
    if (call->kind == REDUCE_SCATTER) {
        first = call->count * (size_t)comm->rank;
        end = first + call->count;
    }
    size_t low = at > first ? at : first, high = at + count < end ? at + count : end;
    char *to = low < high ? reach(comm, call->to + (low - first) * width, (high - low) * width) : NULL;
    if (to)
        memcpy(to, sum + (low - at) * width, (high - low) * width);
}

static void take_copies(struct ncclComm *comm, const struct call *call, size_t at, size_t count)
{
    size_t width = width_of(call->type);
    for (int rank = 0; rank < comm->size; rank++) {
        if (call->kind == BROADCAST && rank != call->peer)
            continue;
        size_t place = (call->kind == ALL_GATHER ? (size_t)rank * call->count : 0) + at;
        char *to = reach(comm, call->to + place * width, count * width);
        if (to)
            memcpy(to, comm->shared->slots[rank], count * width);
    }
}

static void run_collective(struct ncclComm *comm, const struct call *call)
{
    size_t most = SLOT_BYTES / width_of(call->type);
    size_t total = call->kind == REDUCE_SCATTER ? call->count * (size_t)comm->size : call->count;
    ncclResult_t ordered = nccl_enter(CALL_COLLECTIVE);
    if (ordered)
        comm_fail(comm, ordered, "a test has ordered a failure");
    if (comm_given_up(comm) || !check_heads(comm, call))
        return;
    for (size_t at = 0; at < total && !comm_given_up(comm); at += most) {
        size_t count = total - at < most ? total - at : most;
        if (!put_piece(comm, call, at, count) || !comm_meet(comm))
            return;
        if (reduces(call))
            take_sum(comm, call, at, count);
        else
            take_copies(comm, call, at, count);
        if (!comm_meet(comm))
            return;
    }
    comm_meet(comm); /* the heads may be written again */
}

/* ---- messages ----------------------------------------------------------------------------------------- */

static bool is_message(const struct call *call)
{
    return call->kind == SEND || call->kind == RECEIVE;
}

/* Returns true if a piece of the message was moved. */
static bool move_piece(struct ncclComm *comm, struct call *call)
{
    size_t left = call->count * width_of(call->type) - call->done, part = left < BOX_BYTES ? left : BOX_BYTES;
    bool sends = call->kind == SEND;
    struct box *box =
        sends ? &comm->shared->boxes[comm->rank][call->peer] : &comm->shared->boxes[call->peer][comm->rank];
    if (atomic_load(&box->full) == sends)
        return false;
    char *memory = reach(comm, (sends ? call->from : call->to) + call->done, part);
    if (!memory)
        return false;
    memcpy(sends ? box->bytes : memory, sends ? memory : box->bytes, part);
    atomic_store(&box->full, sends);
    call->done += part;
    return true;
}

/* All at once, since two ranks may send to each other; those between the same two in their order. */
static void run_messages(struct ncclComm *comm, struct call *calls, int count)
{
    bool left = true;
    for (int turns = 0; left && !comm_given_up(comm);) {
        bool moved = false, waits[2][MOST_RANKS] = {{false}};
        left = false;
        for (int i = 0; i < count; i++) {
            struct call *call = &calls[i];
            if (!is_message(call) || call->done == call->count * width_of(call->type))
                continue;
            bool *waiting = &waits[call->kind == SEND][call->peer];
            moved |= !*waiting && move_piece(comm, call);
            *waiting = left = true;
        }
        if (!moved && left)
            comm_pause(&turns);
    }
}

void collectives_run(struct ncclComm *comm, struct call *calls, int count)
{
    for (int i = 0; i < count && !comm_given_up(comm); i++)
        if (!is_message(&calls[i]))
            run_collective(comm, &calls[i]);
    run_messages(comm, calls, count);
}
