/* elastic_epochs.c - see elastic_epochs.h. */
#include "elastic_epochs.h"
#include "faults.h"
#include "sampler.h"
#include "say.h"
#include "starter.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/topology.h"
#include "rendezvous/slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void elastic_send_news(struct elastic *elastic, const struct process *process, hvd_news news)
{
    struct table *table = elastic->table;
    char slot[SLOT_NAME_LIMIT];
    hvd_status status;
    snprintf(slot, sizeof slot, "%d", process->slot);
    news.struct_size = sizeof news;
    news.slot = slot;
    if (hvd_rendezvous_send_news(table->rendezvous, table->id, &news, &status))
        say(table, "can't send process %d the news of what is next: %s", process->slot, status.text);
}

/* ---- places -------------------------------------------------------------------------------------------- */

/* Entries that are one host share local ranks. Without agents all of them are this one. */
static int label_host(const struct hosts *hosts, int host)
{
    int label = 0;
    while (strcmp(hosts->list[label].identity, hosts->list[host].identity) != 0)
        label++;
    return label;
}

/* The last rank is on host `last`. */
static hvd_code find_topology(const struct elastic *elastic, const struct membership_rank *ranks, int size,
                              int last, struct topology *topology, hvd_status *status)
{
    const struct hosts *hosts = elastic->table->hosts;
    int *labels = calloc((size_t)size + 1, sizeof *labels);
    if (!labels)
        return status_no_memory(status);
    for (int rank = 0; rank < size; rank++)
        labels[rank] = label_host(hosts, rank == size - 1 ? last : ranks[rank].host);
    hvd_code code = topology_init(topology, labels, size, status);
    free(labels);
    return code;
}

static struct place place_of(const struct topology *topology, int host, int rank)
{
    return (struct place){.host = host,
                          .rank = rank,
                          .local_rank = topology_local_rank(topology, rank),
                          .local_size = topology_local_size(topology, rank),
                          .cross_rank = topology_cross_rank(topology, rank),
                          .cross_size = topology_cross_size(topology, rank)};
}

struct process *elastic_add_process(struct elastic *elastic, const struct membership_action *action)
{
    struct table *table = elastic->table;
    hvd_status status;
    int size = elastic->size;
    const struct membership_rank *ranks = elastic->members;
    struct process *process = NULL;
    struct topology topology;
    bool first = action->rank < size && ranks[action->rank].slot == action->slot;
    if (!first)
        ranks = membership_planned(elastic->membership, &size);
    /* A spare may become the last rank. */
    int rank = action->rank < size ? action->rank : size - 1;
    int last = action->rank < size ? ranks[size - 1].host : action->host;
    if (find_topology(elastic, ranks, size, last, &topology, &status) == HVD_OK) {
        struct place place = place_of(&topology, action->host, rank);
        process = table_add(table, action->slot, &place);
        topology_free(&topology);
    }
    if (!process)
        return NULL;
    process->size = size;
    process->epoch = table->epoch + !first;
    process->apart = !first;
    return process;
}

/* ---- epochs -------------------------------------------------------------------------------------------- */

static hvd_code publish(struct elastic *elastic, int number, hvd_status *status)
{
    struct table *table = elastic->table;
    struct epoch epoch = {.number = number};
    memcpy(epoch.job, table->id, sizeof epoch.job);
    if (!epoch_init(&epoch, elastic->size))
        return status_no_memory(status);
    for (int rank = 0; rank < elastic->size; rank++)
        epoch_set(&epoch, rank, elastic->members[rank].slot, rank);
    hvd_code code = table->starter->assign(table, &epoch, status);
    epoch_free(&epoch);
    if (code)
        return code;
    faults_close(table);
    return faults_watch(table, table->id, number, status);
}

/* Gives the processes of the epoch their places; all others are in none. */
static hvd_code place_members(struct elastic *elastic, int number, hvd_status *status)
{
    struct table *table = elastic->table;
    struct hosts *hosts = table->hosts;
    struct topology topology;
    TRY(find_topology(elastic, elastic->members, elastic->size, elastic->members[elastic->size - 1].host,
                      &topology, status));
    for (int i = 0; i < hosts->count; i++)
        hosts->list[i].ranks = 0;
    for (int i = 0; i < table->count; i++)
        table->list[i]->apart = true;
    for (int rank = 0; rank < elastic->size; rank++) {
        const struct membership_rank *member = &elastic->members[rank];
        hosts->list[member->host].ranks++;
        struct process *process = table_find(table, member->slot);
        if (!process)
            continue; /* of the first epoch, and not started yet */
        process->apart = false;
        process->epoch = number;
        process->size = elastic->size;
        process->place = place_of(&topology, member->host, rank);
        elastic_send_news(
            elastic, process,
            (hvd_news){.kind = HVD_NEWS_EPOCH, .epoch = number, .rank = rank, .size = elastic->size});
    }
    topology_free(&topology);
    return HVD_OK;
}

/* An epoch begins; elastic->members are those of the one before. */
static void count_change(struct elastic *elastic, const struct membership_rank *ranks, int size)
{
    struct changes *changes = &elastic->changes;
    int stayed = 0;
    for (int rank = 0; rank < size; rank++)
        stayed += !ranks[rank].newcomer;
    changes->resets[changes->noticed & (MEMBERSHIP_LESS | MEMBERSHIP_MORE)]++;
    changes->lost += elastic->size - stayed;
    changes->added += size - stayed;
    changes->interrupted += changes->since ? clock_now() - changes->since : 0;
    changes->since = 0;
    changes->began = clock_now();
    changes->noticed = 0;
}

bool elastic_begin_epoch(struct elastic *elastic, int number)
{
    struct table *table = elastic->table;
    hvd_status status;
    int epoch, size;
    const struct membership_rank *ranks = membership_ranks(elastic->membership, &epoch, &size);
    if (epoch != number)
        return true; /* a newer one has begun already */
    if (number > 0)
        count_change(elastic, ranks, size);
    elastic->size = size;
    free(elastic->members);
    elastic->members = malloc((size_t)elastic->size * sizeof *elastic->members);
    if (elastic->members)
        memcpy(elastic->members, ranks, (size_t)elastic->size * sizeof *elastic->members);
    table->epoch = number;
    table->size = elastic->size;
    table->waited = false;
    if (!elastic->members || publish(elastic, number, &status) || place_members(elastic, number, &status)) {
        say(table, "can't begin epoch %d: %s", number, elastic->members ? status.text : "out of memory");
        return false;
    }
    if (table->sampler)
        sampler_begin_epoch(table->sampler, number, elastic->members, elastic->size);
    if (!number)
        say_job(table);
    else
        say(table, "epoch %d has begun with %d ranks", number, elastic->size);
    return true;
}

void elastic_give_notice(struct elastic *elastic, const struct membership_action *action)
{
    elastic->changes.noticed = action->change;
    if (action->change & MEMBERSHIP_LOST && !elastic->changes.since)
        elastic->changes.since = clock_now();
    for (int rank = 0; rank < elastic->size; rank++) {
        const struct process *process = table_find(elastic->table, elastic->members[rank].slot);
        if (process && !process->gone)
            elastic_send_news(elastic, process,
                              (hvd_news){.kind = HVD_NEWS_EPOCH,
                                         .epoch = action->epoch,
                                         .rank = rank,
                                         .size = elastic->size,
                                         .notice = (int32_t)action->change});
    }
}
