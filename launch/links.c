/* links.c - see links.h. */
#include "links.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* A connection at one of its ends. */
struct half {
    const struct socket_view *socket;
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
    const struct job_view_link *a = one, *b = other;
    return a->from != b->from ? a->from - b->from : a->to - b->to;
}

/* Adds up the connections of each pair of hosts. */
static void merge(struct job_view *job_view)
{
    int kept = 0;
    if (job_view->link_count)
        qsort(job_view->links, (size_t)job_view->link_count, sizeof *job_view->links, compare_links);
    for (int i = 0; i < job_view->link_count; i++) {
        const struct job_view_link *link = &job_view->links[i];
        struct job_view_link *sum = kept ? &job_view->links[kept - 1] : NULL;
        if (!sum || compare_links(sum, link) != 0) {
            job_view->links[kept++] = *link;
            continue;
        }
        sum->bytes += link->bytes;
        sum->retransmitted += link->retransmitted;
        if (link->busy > sum->busy) {
            sum->busy = link->busy;
            sum->receiver_limited = link->receiver_limited;
        }
    }
    job_view->link_count = kept;
}

/* Returns the index of the rank's host. */
static int host_index(const struct job_view *job_view, const struct rank_view *rank)
{
    int host = 0;
    while (strcmp(job_view->hosts[host].name, job_view_host_of(rank)) != 0)
        host++;
    return host;
}

static size_t list_halves(const struct job_view *job_view, struct half *halves)
{
    size_t count = 0;
    for (int i = 0; i < job_view->count; i++) {
        const struct sockets *sockets = &job_view->ranks[i].sockets;
        int host = sockets->count ? host_index(job_view, &job_view->ranks[i]) : 0;
        for (int j = 0; j < sockets->count; j++, count++) {
            if (halves)
                halves[count] = (struct half){&sockets->list[j], host};
        }
    }
    return count;
}

hvd_code job_view_links_find(struct job_view *job_view, hvd_status *status)
{
    size_t total = list_halves(job_view, NULL);
    if (!total)
        return HVD_OK;
    struct half *halves = calloc(total, sizeof *halves);
    job_view->links = calloc(total, sizeof *job_view->links);
    if (!halves || !job_view->links) {
        free(halves);
        return status_no_memory(status);
    }
    list_halves(job_view, halves);
    qsort(halves, total, sizeof *halves, compare_halves);
    for (size_t i = 0; i < total; i++) {
        const struct socket_view *socket = halves[i].socket;
        const struct socket_view reverse = {.local = socket->remote, .remote = socket->local};
        const struct half key = {&reverse, 0};
        const struct half *other = bsearch(&key, halves, total, sizeof *halves, compare_halves);
        if (other && other->host != halves[i].host)
            job_view->links[job_view->link_count++] =
                (struct job_view_link){.from = halves[i].host,
                                       .to = other->host,
                                       .bytes = socket->bytes,
                                       .retransmitted = socket->retransmitted,
                                       .busy = socket->busy,
                                       .receiver_limited = socket->receiver_limited};
    }
    free(halves);
    merge(job_view);
    return HVD_OK;
}
