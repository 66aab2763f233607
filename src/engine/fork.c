/* fork.c - what a child of fork() must not keep: sockets, whose copies would hide this process's death from
 * its peers.
 *
 * The list of open contexts is the only process-wide state of the engine beside the log level. The handlers
 * are installed with the first context and stay. */
#include "engine/context.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct hvd_context *open_contexts;
static pthread_once_t install_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&list_lock);
}

static void after_fork_in_child(void)
{
    for (struct hvd_context *context = open_contexts; context; context = context->next_open) {
        atomic_store(&context->forked, true);
        mesh_abandon(context->mesh);
    }
    open_contexts = NULL;
    pthread_mutex_unlock(&list_lock);
}

static void install_handlers(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void fork_register(struct hvd_context *context)
{
    pthread_once(&install_once, install_handlers);
    pthread_mutex_lock(&list_lock);
    context->next_open = open_contexts;
    open_contexts = context;
    pthread_mutex_unlock(&list_lock);
}

void fork_unregister(struct hvd_context *context)
{
    pthread_mutex_lock(&list_lock);
    struct hvd_context **at = &open_contexts;
    while (*at && *at != context)
        at = &(*at)->next_open;
    if (*at)
        *at = context->next_open;
    pthread_mutex_unlock(&list_lock);
}
