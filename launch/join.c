/* join.c - connects to node 0, and says which node this is. One thread. */
#include "join.h"
#include "agent.h"
#include "environment.h"
#include "nodes.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/find_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int interrupt(void *guard)
{
    return nodes_signal(guard) != 0;
}

static hvd_code connect_to_first(const struct node *node, const struct settings *settings,
                                 struct guard *guard, struct stream *stream, hvd_status *status)
{
    char who[NODE_ADDRESS_TEXT + 16];
    const struct handshake_claim claim = nodes_claim(settings);
    const struct interrupt ask = {interrupt, guard};
    const struct server server = {.addresses = node->rendezvous,
                                  .secret = settings->secret,
                                  .who = who,
                                  .claim = &claim,
                                  .deadline = clock_after(settings->start_timeout_seconds),
                                  .interrupt = &ask};
    snprintf(who, sizeof who, "node 0 at %s", node->rendezvous);
    *stream = (struct stream){.io = &stream_socket, .fd = -1};
    TRY(find_server(&server, &stream->fd, &stream->tls, status));
    socket_send_at_once(stream->fd);
    return HVD_OK;
}

/* What node 0 sends to the agent of a host that it has called is known here. */
static hvd_code describe(struct agent_node *agent, const struct options *options, const struct node *node,
                         struct environment *environment, hvd_status *status)
{
    struct node_hello *hello = &agent->hello;
    TRY(environment_for_hosts(environment, options, status));
    agent->preparation.environment = environment->entries;
    agent->preparation.command = options->command;
    if (!getcwd(agent->preparation.folder, sizeof agent->preparation.folder))
        return status_set_errno(
            status, errno, "can't find out in which folder horovodrun was started; has it been removed?");
    *hello =
        (struct node_hello){.index = (int)node->index, .count = (int)node->count, .ranks = (int)node->ranks};
    snprintf(hello->release, sizeof hello->release, "%s", hvd_version());
    if (gethostname(hello->host, sizeof hello->host - 1))
        snprintf(hello->host, sizeof hello->host, "node %d", hello->index);
    return HVD_OK;
}

int join_run(const struct options *options, const struct settings *settings, const struct node *node,
             struct guard *guard)
{
    struct environment environment = {0};
    struct agent_node agent = {.rendezvous = node->rendezvous, .secret = settings->secret};
    hvd_status status;
    int exit_code = 1;
    if (describe(&agent, options, node, &environment, &status) == HVD_OK &&
        connect_to_first(node, settings, guard, &agent.stream, &status) == HVD_OK)
        return agent_run(guard, &agent); /* its processes keep the environment */
    if (status.code == HVD_INTERRUPTED)
        exit_code = 128 + nodes_signal(guard);
    fprintf(stderr, "horovodrun: %s\n", status.text);
    environment_free(&environment);
    return exit_code;
}
