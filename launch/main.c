/* main.c - horovodrun: reads the options and settings, and runs the job, the agent or the text that they ask
 * for. One thread. */
#include "agent.h"
#include "check_build.h"
#include "elastic_options.h"
#include "faults.h"
#include "guard.h"
#include "help.h"
#include "hosts.h"
#include "job.h"
#include "join.h"
#include "monitor_run.h"
#include "mpirun.h"
#include "node.h"
#include "nodes.h"
#include "options.h"
#include "status.h"
#include "traces.h"

#include "base/misspelt.h"
#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "net/addresses.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define EXIT_USAGE 2

/* The command line takes precedence over the config file, and that over the environment. Most settings are
 * for the ranks, which get them by their environment; errors are reported here, once for all ranks. */
static hvd_code read_settings(struct options *options, struct settings *settings, hvd_status *status)
{
    int first, last;
    if (options->config)
        TRY(config_file_read(options, options->config, status));
    TRY(foreign_apply_environment(options, status));
    TRY(settings_load_environment(settings, status));
    for (int i = 0; i < setting_count; i++) {
        if (options->values[i])
            TRY(settings_set(settings, &setting_table[i], options->values[i], setting_table[i].environment,
                             status));
    }
    TRY(traces_check(settings, status));
    TRY(ports_parse(settings->ports, &first, &last, status));
    TRY(addresses_check(settings->network_interface, status));
    return log_configure(settings, status);
}

static hvd_code read_hosts(const struct options *options, struct hosts *hosts, hvd_status *status)
{
    struct membership_config ignored;
    hosts->apart = elastic_requested(options);
    hosts->slots = options->slots_per_host ? options->slots_per_host : hosts->slots;
    if (options->discovery_script)
        return elastic_configure(&ignored, options, hosts, status);
    if (options->hosts && options->hostfile)
        return status_set(status, HVD_INVALID_ARGUMENT, "--hosts and --hostfile exclude each other");
    if (options->hosts)
        TRY(hosts_parse(hosts, options->hosts, status));
    else if (options->hostfile)
        TRY(hosts_read_file(hosts, options->hostfile, status));
    else
        TRY(hosts_read_allocation(hosts, &variables_of_process, status));
    if (options->slots_per_host && !hosts->count)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--slots-per-host is for hosts that say no slots, and there are none; name them by "
                          "-H or --hostfile");
    TRY(hosts_layout(hosts, options->num_proc, status));
    if (!elastic_requested(options))
        return HVD_OK;
    return elastic_configure(&ignored, options, hosts, status);
}

static void report_misspelt(void *owner, const char *name, const char *right)
{
    (void)owner;
    fprintf(stderr, "horovodrun: " MISSPELT_TEXT "\n", name, right);
}

static int usage_error(const struct options *options, const hvd_status *status)
{
    if (options->task)
        faults_write_refusal(options->task, status->text);
    fprintf(stderr, "horovodrun: %s\nTry 'horovodrun --help'.\n", status->text);
    return EXIT_USAGE;
}

/* Names of this host, of which an elastic job may have several, need no agent. */
static bool all_local(const struct hosts *hosts)
{
    for (int i = 0; i < hosts->count; i++) {
        if (!hosts->list[i].local)
            return false;
    }
    return true;
}

/* One command on each node. */
static int run_node(const struct options *options, const struct settings *settings, const struct node *node,
                    struct hosts *hosts, struct guard *guard)
{
    int exit_code;
    hvd_status status;
    if (node->index > 0)
        return join_run(options, settings, node, guard);
    if (nodes_gather(hosts, node, settings, guard, &exit_code, &status)) {
        fprintf(stderr, "horovodrun: %s\n", status.text);
        return exit_code;
    }
    return job_run(options, settings, hosts, guard);
}

static int run_job(const struct options *options, const struct settings *settings, const struct node *node,
                   struct hosts *hosts, struct guard *guard)
{
    hvd_status status;
    guard->has_agents = (node->source && node->index == 0) || options->discovery_script ||
                        options->host_setup || !all_local(hosts);
    if ((options->parent && guard_end_with_parent((pid_t)options->parent, &status)) ||
        guard_fork(guard, &status)) {
        fprintf(stderr, "horovodrun: %s\n", status.text);
        return 1;
    }
    if (guard->job)
        return guard_watch(guard);
    return node->source ? run_node(options, settings, node, hosts, guard)
                        : job_run(options, settings, hosts, guard);
}

/* The nodes of a job authenticate each other by a secret that the user gives to all of them. */
static hvd_code read_node(struct node *node, struct options *options, struct settings *settings,
                          hvd_status *status)
{
    TRY(node_find(node, options, settings, &variables_of_process, status));
    if (!node->source) {
        options->num_proc = options->num_proc ? options->num_proc : node->ranks;
        return HVD_OK;
    }
    if (!*settings->secret && !*settings->secret_file)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "node %d of %d (%s): the nodes need a secret in common: set HOROVOD_SECRET_FILE or "
                          "HOROVOD_SECRET to the same on all of them (openssl rand -hex 32 makes one)",
                          (int)node->index, (int)node->count, node->source);
    return bootstrap_read_secret(settings, status);
}

static int run_command(struct options *options, struct guard *guard)
{
    struct settings settings;
    struct hosts hosts = {0};
    struct node node = {0};
    int exit_code;
    hvd_status status;
    if (!options->command[0]) {
        status_set(&status, HVD_INVALID_ARGUMENT, "there is no command to run");
        return usage_error(options, &status);
    }
    if (settings_init(&settings, &status))
        return usage_error(options, &status);
    if (read_settings(options, &settings, &status) || read_node(&node, options, &settings, &status) ||
        (!node.source && read_hosts(options, &hosts, &status))) {
        exit_code = usage_error(options, &status);
    } else if (options->mpi && !options->task) { /* horovod.run needs channels to its ranks */
        foreign_report(options);
        if (!options->parent || guard_end_with_parent((pid_t)options->parent, &status) == HVD_OK)
            mpirun_become(options, &hosts, &status);
        exit_code = usage_error(options, &status);
    } else {
        foreign_report(options);
        misspelt_variables(environ, report_misspelt, NULL);
        exit_code = run_job(options, &settings, &node, &hosts, guard);
    }
    nodes_free(hosts.nodes);
    hosts_free(&hosts);
    settings_free(&settings);
    return exit_code;
}

static int print_status_of_hosts(const struct options *options, const struct settings *settings,
                                 struct hosts *hosts, struct guard *guard)
{
    struct attached attached = {
        .table = {.options = options, .settings = settings, .hosts = hosts, .guard = guard}};
    int exit_code = VERDICT_BROKEN;
    hvd_status status;
    guard->parent = getppid();
    if (attached_open(&attached, &status))
        fprintf(stderr, "horovodrun: %s\n", status.text);
    else
        exit_code = status_print(options, &attached);
    attached_close(&attached);
    return exit_code;
}

/* With -H or --hostfile it reaches these hosts as a job would. */
static int run_status(struct options *options, struct guard *guard)
{
    struct settings settings;
    struct hosts hosts = {.slots = 1};
    int exit_code;
    hvd_status status;
    if (!options->hosts && !options->hostfile)
        return status_print(options, NULL);
    if (options->timeline) {
        status_set(
            &status, HVD_INVALID_ARGUMENT,
            "--timeline does not reach the hosts of -H or --hostfile: leave these out, where horovodrun "
            "runs the job, or type it on the host of the rank");
        return usage_error(options, &status);
    }
    if (settings_init(&settings, &status))
        return usage_error(options, &status);
    if (read_settings(options, &settings, &status) || read_hosts(options, &hosts, &status)) {
        exit_code = usage_error(options, &status);
    } else {
        exit_code = print_status_of_hosts(options, &settings, &hosts, guard);
    }
    hosts_free(&hosts);
    settings_free(&settings);
    return exit_code;
}

/* Without -H or --hostfile it looks at this host. */
static int run_monitor(struct options *options, struct guard *guard)
{
    struct settings settings;
    struct hosts hosts = {.slots = 1};
    bool given = options->hosts || options->hostfile;
    int exit_code;
    hvd_status status;
    if (settings_init(&settings, &status))
        return usage_error(options, &status);
    if (monitor_check(options, &status) || read_settings(options, &settings, &status) ||
        (given && read_hosts(options, &hosts, &status))) {
        exit_code = usage_error(options, &status);
    } else {
        guard->has_agents = given;
        if ((options->parent && guard_end_with_parent((pid_t)options->parent, &status)) ||
            guard_fork(guard, &status)) {
            fprintf(stderr, "horovodrun: %s\n", status.text);
            exit_code = 1;
        } else {
            exit_code = guard->job ? guard_watch(guard)
                                   : monitor_run(options, &settings, given ? &hosts : NULL, guard);
        }
    }
    hosts_free(&hosts);
    settings_free(&settings);
    return exit_code;
}

static int run_agent(struct guard *guard)
{
    hvd_status status;
    if (guard_fork(guard, &status)) {
        fprintf(stderr, "horovodrun: %s\n", status.text);
        return 1;
    }
    return guard->job ? guard_watch(guard) : agent_run(guard, NULL);
}

int main(int argc, char **argv)
{
    (void)argc;
    struct options options = {0};
    struct guard guard;
    hvd_status status;
    int exit_code = 0, file;
    /* Otherwise a pipe of this process could get the number of a stdin, stdout or stderr that was closed at
     * its start. */
    do {
        file = open("/dev/null", O_RDWR);
    } while (file >= 0 && file <= STDERR_FILENO);
    close(file);
    if (guard_init(&guard, argv, &status) || options_parse(&options, argv, &status))
        exit_code = usage_error(&options, &status);
    else if (options.help)
        help_print();
    else if (options.version)
        printf("%s\n", hvd_version());
    else if (options.status)
        exit_code = run_status(&options, &guard);
    else if (options.monitor)
        exit_code = run_monitor(&options, &guard);
    else if (options.check_build)
        check_build_print();
    else
        exit_code = options.agent ? run_agent(&guard) : run_command(&options, &guard);
    options_free(&options);
    return exit_code;
}
