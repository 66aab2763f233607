/* links.c - see links.h. */
#include "links.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* A connection at one of its ends. */
struct half {
    const struct socket_sight *socket;
    int host;
};

static int compare_ends(const struct socket_end *a, const struct socket_end *b)
{
    int order = memcmp(a->address, b->address, sizeof a->address);
    return order ? order : a->port - b->port;
}

static int compare_halves(const void *one, const void *other)
{
    const struct half *a = one, *b = other;
    int order = compare_ends(&a->socket->local, &b->socket->local);
    return order ? order : compare_ends(&a->socket->remote, &b->socket->remote);
}

static int compare_links(const void *one, const void *other)
{
    const struct survey_link *a = one, *b = other;
    return a->from != b->from ? a->from - b->from : a->to - b->to;
}

/* Adds up the connections of each pair of hosts. */
static void merge(struct survey *survey)
{
    int kept = 0;
    if (survey->link_count)
        qsort(survey->links, (size_t)survey->link_count, sizeof *survey->links, compare_links);
    for (int i = 0; i < survey->link_count; i++) {
        const struct survey_link *link = &survey->links[i];
        struct survey_link *sum = kept ? &survey->links[kept - 1] : NULL;
        if (!sum || compare_links(sum, link) != 0) {
            survey->links[kept++] = *link;
            continue;
        }
        sum->bytes += link->bytes;
        sum->retransmitted += link->retransmitted;
        if (link->busy > sum->busy) {
            sum->busy = link->busy;
            sum->receiver_limited = link->receiver_limited;
        }
    }
    survey->link_count = kept;
}

/* Returns the index of the rank's host. */
static int host_index(const struct survey *survey, const struct sight *rank)
{
    int host = 0;
    while (strcmp(survey->hosts[host].name, survey_host_of(rank)) != 0)
        host++;
    return host;
}

static size_t list_halves(const struct survey *survey, struct half *halves)
{
    size_t count = 0;
    for (int i = 0; i < survey->count; i++) {
        const struct sockets *sockets = &survey->ranks[i].sockets;
        int host = sockets->count ? host_index(survey, &survey->ranks[i]) : 0;
        for (int j = 0; j < sockets->count; j++, count++) {
            if (halves)
                halves[count] = (struct half){&sockets->list[j], host};
        }
    }
    return count;
}

hvd_code survey_links_find(struct survey *survey, hvd_status *status)
{
    size_t total = list_halves(survey, NULL);
    if (!total)
        return HVD_OK;
    struct half *halves = calloc(total, sizeof *halves);
    survey->links = calloc(total, sizeof *survey->links);
    if (!halves || !survey->links) {
        free(halves);
        return status_no_memory(status);
    }
    list_halves(survey, halves);
    qsort(halves, total, sizeof *halves, compare_halves);
    for (size_t i = 0; i < total; i++) {
        const struct socket_sight *socket = halves[i].socket;
        const struct socket_sight reverse = {.local = socket->remote, .remote = socket->local};
        const struct half *other =
            bsearch(&(struct half){&reverse, 0}, halves, total, sizeof *halves, compare_halves);
        if (other && other->host != halves[i].host)
            survey->links[survey->link_count++] =
                (struct survey_link){.from = halves[i].host,
                                     .to = other->host,
                                     .bytes = socket->bytes,
                                     .retransmitted = socket->retransmitted,
                                     .busy = socket->busy,
                                     .receiver_limited = socket->receiver_limited};
    }
    free(halves);
    merge(survey);
    return HVD_OK;
}
