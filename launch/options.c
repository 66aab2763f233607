/* options.c - reads the command line, the config file and the variables of the environment. One thread.
 *
 * Options may have one dash or two, values follow as the next word or after '='; the first word that is no
 * option is the command, and all words after it belong to the command. The command line takes precedence over
 * the config file, and that over the environment. Texts of the command line stay those of argv. */
#include "options.h"
#include "nearest.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define VALUE_BYTES   4096
#define SECONDS_LEAST 0.1
#define SECONDS_MOST  86400.0
#define PAIR_MOST     3600
#define SECONDS_GIVEN "2" /* if the value is missing */
#define FIELD(field)  offsetof(struct options, field)

const struct option option_table[] = {
    {GROUP_RANKS, "np", "num-proc", "N", OPTION_COUNT, FIELD(num_proc),
     "Number of ranks; may be left out when the hosts say it"},
    {GROUP_RANKS, "H", "hosts", "HOST:SLOTS", OPTION_TEXT, FIELD(hosts),
     "Hosts and how many ranks each may take, e.g. localhost:4 or a:2,me@b:4,[fd00::7]:2; they are filled in "
     "this "
     "order"},
    {GROUP_RANKS, "", "hostfile", "FILE", OPTION_TEXT, FIELD(hostfile),
     "The same from a file with one 'host slots=N [max_slots=N] [port=N]', 'host:N' or 'host' per line"},
    {GROUP_RANKS, "slots", "slots-per-host", "N", OPTION_COUNT, FIELD(slots_per_host),
     "Slots of hosts for which -H, the file or the script of --host-discovery-script says none (1 in a "
     "file)"},
    {GROUP_RANKS, "", "config-file", "FILE", OPTION_TEXT, FIELD(config),
     "Settings in YAML; the command line wins over it"},
    {GROUP_RANKS, "", "end-with-parent", "PID", OPTION_COUNT, FIELD(parent),
     "End the job when the process PID, which started horovodrun, has ended, however it did"},
    {GROUP_HOSTS, "p", "ssh-port", "PORT", OPTION_PORT, FIELD(ssh_port),
     "Port of ssh, where the host file gives a host none of its own"},
    {GROUP_HOSTS, "i", "ssh-identity-file", "FILE", OPTION_TEXT, FIELD(identity), "Private key for ssh"},
    {GROUP_HOSTS, "", "rsh-agent", "PROGRAM", OPTION_TEXT, FIELD(rsh_agent),
     "What takes the place of ssh, with its arguments; it is called as PROGRAM HOST COMMAND "
     "[OMPI_MCA_plm_rsh_agent]"},
    {GROUP_HOSTS, "", "host-setup", "COMMANDS", OPTION_TEXT, FIELD(host_setup),
     "For bash on each host, before anything else there, e.g. '. env/bin/activate'; what it sets takes "
     "precedence over the environment of horovodrun"},
    {GROUP_HOSTS, "", "mpi", "", OPTION_SWITCH, FIELD(mpi),
     "Start the ranks by mpirun (Open MPI, MPICH, Intel MPI), and let that MPI move the tensors"},
    {GROUP_HOSTS, "", "mpi-args", "TEXT", OPTION_TEXT, FIELD(mpi_args),
     "More options for that mpirun, e.g. --mpi-args='--mca btl_tcp_if_include eth0'"},
    {GROUP_NODES, "", "nnodes", "N", OPTION_COUNT, FIELD(nodes),
     "Number of nodes, on each of which you type this command; -np is then the number of ranks of this node "
     "(its GPUs, otherwise 1), and all need the same HOROVOD_SECRET or HOROVOD_SECRET_FILE [HOROVOD_NODES]"},
    {GROUP_NODES, "", "node-rank", "I", OPTION_LIMIT, FIELD(node_rank),
     "Number of this node, from 0 on; node 0 prints what all ranks print [HOROVOD_NODE_RANK]"},
    {GROUP_NODES, "", "rendezvous", "HOST:PORT", OPTION_TEXT, FIELD(rendezvous),
     "Where the others reach node 0, the same on all nodes (port 29600 if it is left out) "
     "[HOROVOD_RENDEZVOUS]"},
    {GROUP_ELASTIC, "min-np", "min-num-proc", "N", OPTION_COUNT, FIELD(min_num_proc),
     "Continue with the remaining ranks when some fail, and with others that are added, as long as there are "
     "N; the job starts with -np"},
    {GROUP_ELASTIC, "max-np", "max-num-proc", "N", OPTION_COUNT, FIELD(max_num_proc),
     "Use no more ranks than this, however many slots there are (as many as the job starts with)"},
    {GROUP_ELASTIC, "", "spares", "N", OPTION_COUNT, FIELD(spares),
     "Keep N more processes ready, if there are slots for them: they take the places of failed ranks at "
     "once"},
    {GROUP_ELASTIC, "", "host-discovery-script", "FILE", OPTION_TEXT, FIELD(discovery_script),
     "Command that is run every second and prints the hosts to use, a line host:slots or host for each; "
     "instead of -H"},
    {GROUP_ELASTIC, "", "elastic-timeout", "SECONDS", OPTION_COUNT, FIELD(elastic_timeout),
     "End the job when there were too few slots for so long (600) [HOROVOD_ELASTIC_TIMEOUT]"},
    {GROUP_ELASTIC, "", "rejoin-seconds", "SECONDS", OPTION_COUNT, FIELD(rejoin_seconds),
     "After a failure, end a rank that does not come back so long after all others have (120)"},
    {GROUP_ELASTIC, "", "reset-limit", "N", OPTION_LIMIT, FIELD(reset_limit),
     "End the job when its ranks have changed more than N times, for whatever reason"},
    {GROUP_ELASTIC, "", "blacklist-cooldown-range", "MIN MAX", OPTION_PAIR, FIELD(cooldown),
     "Use a host on which a rank has failed again after MIN to MAX seconds, longer each time; without it "
     "never"},
    {GROUP_ELASTIC, "", "failed-slot", "RULE", OPTION_TEXT, FIELD(failed_slot),
     "What follows from a failed rank: drop-host (its host is left out), or restart[:N] (a new process "
     "takes its slot, N times in 10 minutes; 3). The default is drop-host where another host has ranks, and "
     "otherwise restart"},
    {GROUP_COUNT, "", "task", "FOLDER", OPTION_TEXT, FIELD(task), ""},
    {GROUP_COUNT, "", "agent", "", OPTION_SWITCH, FIELD(agent), ""},
    {GROUP_OUTPUT, "", "output-filename", "FOLDER", OPTION_TEXT, FIELD(output),
     "Also keep what the ranks print, in FOLDER/rank.<rank>/stdout and stderr"},
    {GROUP_OUTPUT, "prefix-timestamp", "prefix-output-with-timestamp", "", OPTION_SWITCH, FIELD(timestamp),
     "Put the time in front of every line of output"},
    {GROUP_OUTPUT, "", "report", "FILE", OPTION_TEXT, FIELD(report),
     "Write an HTML file at the end: how the job went, who was late, why it failed and what it cost"},
    {GROUP_OUTPUT, "", "verbose", "", OPTION_SWITCH, FIELD(verbose),
     "Print what runs where, with which settings, and when it ended"},
    {GROUP_METRICS, "", "metrics-port", "PORT", OPTION_LISTEN, FIELD(metrics_port),
     "Serve a live page, and metrics for Prometheus, at this port of 127.0.0.1; 0: at any that is free"},
    {GROUP_METRICS, "", "metrics-address", "ADDRESS", OPTION_TEXT, FIELD(metrics_address),
     "Serve them at this address of the host instead, e.g. 0.0.0.0; scrapers from other hosts need the "
     "token"},
    {GROUP_METRICS, "", "metrics-token-file", "FILE", OPTION_TEXT, FIELD(metrics_token_file),
     "Token for these in the first line of a file; otherwise the job makes one and prints it"},
    {GROUP_METRICS, "", "metrics-discovery", "FOLDER", OPTION_TEXT, FIELD(metrics_discovery),
     "Announce the port to Prometheus by FOLDER/horovod-<job>.json, which is removed at the end"},
    {GROUP_METRICS, "", "metrics-file", "FILE", OPTION_TEXT, FIELD(metrics_file),
     "Write the metrics into a file every 10 seconds, for node_exporter; it is removed at the end"},
    {GROUP_METRICS, "", "metrics-ranks", "N", OPTION_COUNT, FIELD(metrics_ranks),
     "In jobs of more ranks than this, metrics are by host instead of by rank (default 256)"},
    {GROUP_STATUS, "", "status", "", OPTION_SWITCH, FIELD(status),
     "Show what your running jobs do and wait for, and end; the start of a job's id may follow. With -H or "
     "--hostfile (slots may be left out) the ranks on these hosts, for jobs that another program has "
     "started. "
     "Exit code: 0 healthy, 3 a rank is late, 4 a rank is stopped or has failed, 1 no such job"},
    {GROUP_STATUS, "", "monitor", "", OPTION_SWITCH, FIELD(monitor),
     "Serve metrics and the live page of a job that another program has started (--metrics-port, "
     "--metrics-discovery, --metrics-file) until it ends, and write its --report; the start of its id may "
     "follow. With -H or --hostfile (slots may be left out) of the ranks on these hosts. Exit code: 1 no "
     "such "
     "job, or hosts with ranks can no longer be asked"},
    {GROUP_STATUS, "", "stacks", "RANKS", OPTION_TEXT, FIELD(stacks),
     "With --status: show where the program is on these ranks: late (up to 8 of a job on a host, and those "
     "that "
     "wait; the default), all or none"},
    {GROUP_STATUS, "", "json", "", OPTION_SWITCH, FIELD(json),
     "With --status: one JSON object in a line for each job"},
    {GROUP_STATUS, "", "watch", "[SECONDS]", OPTION_SECONDS, FIELD(watch_seconds),
     "With --status: show it again after every SECONDS (2 if left out), until you interrupt it or the jobs "
     "have ended; with -H lost hosts are called again"},
    {GROUP_STATUS, "", "timeline", "FILE", OPTION_TEXT, FIELD(timeline),
     "With --status: also write what all ranks did in the last steps of training into FILE, for "
     "https://ui.perfetto.dev"},
    {GROUP_STATUS, "", "steps", "N", OPTION_COUNT, FIELD(steps),
     "With --timeline: the number of steps (5 if left out)"},
    {GROUP_INFORMATION, "cb", "check-build", "", OPTION_SWITCH, FIELD(check_build),
     "Show what this build can do, and end"},
    {GROUP_INFORMATION, "v", "version", "", OPTION_SWITCH, FIELD(version), "Show the version, and end"},
    {GROUP_INFORMATION, "h", "help", "", OPTION_SWITCH, FIELD(help), "Show this text, and end"},
};
const int option_count = sizeof option_table / sizeof *option_table;

/* What a word of the command line names: one of the three, or nothing. */
struct flag {
    const struct option *option;
    const struct setting *setting;
    const struct foreign *foreign;
    bool negated; /* --no-<flag> */
};

static struct flag flag_named(const char *name)
{
    for (int i = 0; i < option_count; i++) {
        if (strcmp(option_table[i].name, name) == 0 || (*name && strcmp(option_table[i].shorter, name) == 0))
            return (struct flag){.option = &option_table[i]};
    }
    return (struct flag){.setting = setting_by_flag(name), .foreign = foreign_by_flag(name)};
}

static struct flag flag_find(const char *name)
{
    struct flag flag = flag_named(name);
    if (flag.option || flag.setting || flag.foreign || strncmp(name, "no-", 3) != 0)
        return flag;
    flag = flag_named(name + 3);
    flag.negated = true;
    if ((flag.setting && flag.setting->kind == SETTING_BOOLEAN) ||
        (flag.foreign && flag.foreign->kind == FOREIGN_CHOICE))
        return flag;
    return (struct flag){0};
}

hvd_code options_give(struct options *options, const struct setting *setting, const char *value,
                      const char *source, hvd_status *status)
{
    char text[VALUE_BYTES];
    if (strlen(value) >= sizeof text)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: the value is too long", source);
    TRY(setting_value_from_flag(setting, value, source, text, sizeof text, status));
    char **place = &options->values[setting - setting_table];
    free(*place);
    *place = strdup(text);
    return *place ? HVD_OK : status_no_memory(status);
}

/* Parses "10 600". */
static hvd_code give_pair(int64_t *pair, const char *value, const char *source, hvd_status *status)
{
    char *end, *rest;
    pair[0] = strtoll(value, &end, 10);
    pair[1] = strtoll(end, &rest, 10);
    if (end == value || rest == end || *rest || pair[0] < 1 || pair[1] > PAIR_MOST || pair[0] > pair[1])
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s %s must be two whole numbers from 1 to %d, the smaller one first", source,
                          value, PAIR_MOST);
    return HVD_OK;
}

static hvd_code give_option(struct options *options, const struct option *option, const char *value,
                            const char *source, hvd_status *status)
{
    void *field = (char *)options + option->offset;
    if (option->kind == OPTION_SWITCH) {
        *(bool *)field = true;
        return HVD_OK;
    }
    if (option->kind == OPTION_TEXT) {
        *(const char **)field = value;
        return *value ? HVD_OK : status_set(status, HVD_INVALID_ARGUMENT, "%s: the value is empty", source);
    }
    char *end;
    if (option->kind == OPTION_SECONDS) {
        double seconds = strtod(value, &end);
        *(double *)field = seconds;
        return end != value && !*end && seconds >= SECONDS_LEAST && seconds <= SECONDS_MOST
                   ? HVD_OK
                   : status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be a number from %g to %g", source,
                                value, SECONDS_LEAST, SECONDS_MOST);
    }
    if (option->kind == OPTION_PAIR)
        return give_pair(field, value, source, status);
    bool any = option->kind == OPTION_LISTEN || option->kind == OPTION_LIMIT;
    bool counts = option->kind == OPTION_COUNT || option->kind == OPTION_LIMIT;
    double maximum = counts ? setting_by_key("size")->maximum : 65535;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < !any || number > maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be a whole number from %d to %.0f",
                          source, value, !any, maximum);
    *(int64_t *)field = option->kind == OPTION_LIMIT ? number + 1 : number ? number : METRICS_ANY_PORT;
    return HVD_OK;
}

static hvd_code unknown_option(const char *word, const char *name, hvd_status *status)
{
    char negated[VALUE_BYTES];
    bool no = strncmp(name, "no-", 3) == 0;
    const char *nearest = nearest_option(no ? name + 3 : name);
    if (!nearest)
        return status_set(status, HVD_INVALID_ARGUMENT, "there is no option %s", word);
    snprintf(negated, sizeof negated, "no-%s", nearest);
    struct flag flag = flag_find(negated);
    if (no && (flag.setting || flag.foreign))
        nearest = negated;
    return status_set(status, HVD_INVALID_ARGUMENT, "there is no option %s; did you mean %s%s?", word,
                      strlen(nearest) < 3 ? "-" : "--", nearest);
}

static bool is_number(const char *word)
{
    char *end;
    return word && *word >= '0' && *word <= '9' && (strtod(word, &end), !*end);
}

/* Returns the number of values of the flag: in its own word, and in `next` and the words after it. */
static int flag_values(const struct flag *flag, const char *own, const char *next)
{
    if (flag->option && flag->option->kind == OPTION_SECONDS)
        return own || is_number(next);
    if (flag->option)
        return flag->option->kind == OPTION_PAIR ? 2 : flag->option->kind != OPTION_SWITCH;
    if (flag->setting)
        return flag->setting->kind != SETTING_BOOLEAN;
    switch (flag->foreign->kind) {
    case FOREIGN_SWITCH:
    case FOREIGN_CHOICE:
        return 0;
    case FOREIGN_PAIR:
        return 2;
    default:
        return 1;
    }
}

/* Joins the values by blanks; the first one may follow '=' in the option's own word. Moves *argv past them.
 */
static hvd_code join_values(char ***argv, int count, const char *own, const char *word, char *text,
                            size_t capacity, hvd_status *status)
{
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        const char *value = i == 0 && own ? own : **argv;
        if (!value)
            return status_set(status, HVD_INVALID_ARGUMENT, "%s needs %s", word,
                              count == 1 ? "a value" : "two values");
        if (value != own)
            ++*argv;
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? " " : "", value);
        if (used >= capacity)
            return status_set(status, HVD_INVALID_ARGUMENT, "%s: the value is too long", word);
    }
    return HVD_OK;
}

/* Applies the option at *argv with the words that are its value; moves *argv past them. */
static hvd_code parse_option(struct options *options, char ***argv, hvd_status *status)
{
    char *argument = **argv, *own = strchr(argument, '=');
    char word[256], text[VALUE_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    const char *name = word + strspn(word, "-");
    struct flag flag = flag_find(name);
    if (!flag.option && !flag.setting && !flag.foreign)
        return unknown_option(word, name, status);
    ++*argv;
    int count = flag_values(&flag, own, **argv);
    if (count == 0 && own)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s takes no value", word);
    /* This is the value of a flag without words; join_values replaces it for the others. */
    snprintf(text, sizeof text, "%d", !flag.negated);
    TRY(join_values(argv, count, own ? own + 1 : NULL, word, text, sizeof text, status));
    /* Options keep a pointer to their value: it must be the word of argv, not `text`. */
    if (flag.option)
        return give_option(options, flag.option,
                           !count       ? SECONDS_GIVEN
                           : count == 2 ? text
                           : own        ? own + 1
                                        : (*argv)[-1],
                           word, status);
    if (flag.setting)
        return options_give(options, flag.setting, text, word, status);
    return foreign_apply(options, flag.foreign, text, word, status);
}

/* Returns the first option that is given of those that elastic jobs have; NULL: none is. */
static const char *first_elastic(const struct options *options, bool makes_elastic)
{
    if (makes_elastic && options->min_num_proc)
        return "--min-np";
    if (makes_elastic && options->discovery_script)
        return "--host-discovery-script";
    return options->max_num_proc      ? "--max-np"
           : options->spares          ? "--spares"
           : options->elastic_timeout ? "--elastic-timeout"
           : options->rejoin_seconds  ? "--rejoin-seconds"
           : options->reset_limit     ? "--reset-limit"
           : options->cooldown[0]     ? "--blacklist-cooldown-range"
           : options->failed_slot     ? "--failed-slot"
                                      : NULL;
}

static hvd_code check_elastic(const struct options *options, hvd_status *status)
{
    const char *any = first_elastic(options, true), *alone = first_elastic(options, false);
    if (options->mpi && !options->task && any)
        return status_set(status, HVD_UNSUPPORTED,
                          "%s: mpirun (--mpi) starts a fixed number of ranks; leave one of the two out", any);
    if (options->discovery_script && (options->hosts || options->hostfile))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--host-discovery-script takes the place of --hosts and --hostfile; give one of "
                          "them");
    if (alone && !options->min_num_proc && !options->discovery_script)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s needs --min-np or --host-discovery-script, which make a job elastic", alone);
    return HVD_OK;
}

hvd_code options_parse(struct options *options, char **argv, hvd_status *status)
{
    memset(options, 0, sizeof *options);
    options->values = calloc((size_t)setting_count, sizeof *options->values);
    options->foreign = calloc((size_t)foreign_count, sizeof *options->foreign);
    if (!options->values || !options->foreign)
        return status_no_memory(status);
    /* The name of the program may be missing. */
    argv += *argv != NULL;
    /* A dash alone is a command. */
    while (*argv && (options->status || options->monitor || (argv[0][0] == '-' && argv[0][1]))) {
        if (strcmp(*argv, "--") == 0) {
            argv++;
            break;
        }
        if (argv[0][0] == '-')
            TRY(parse_option(options, &argv, status));
        else if (options->job)
            return status_set(status, HVD_INVALID_ARGUMENT, "--%s takes one job, not %s as well",
                              options->status ? "status" : "monitor", *argv);
        else
            options->job = *argv++;
    }
    options->command = argv;
    if (options->monitor && options->status)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--status looks at jobs once, --monitor until one has ended; give one of them");
    const char *stacks = options->stacks ? options->stacks : "late";
    if (!options->status && (options->json || options->stacks || options->watch_seconds > 0))
        return status_set(status, HVD_INVALID_ARGUMENT, "--json, --stacks and --watch need --status");
    if (strcmp(stacks, "late") != 0 && strcmp(stacks, "all") != 0 && strcmp(stacks, "none") != 0)
        return status_set(status, HVD_INVALID_ARGUMENT, "--stacks=%s must be late, all or none", stacks);
    if (!options->status && options->timeline)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "--timeline needs --status; the option for a job that starts is --timeline-filename");
    if (options->steps && !options->timeline)
        return status_set(status, HVD_INVALID_ARGUMENT, "--steps needs --timeline FILE");
    TRY(check_elastic(options, status));
    if (options->timeline && options->watch_seconds > 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--timeline is written once, and --watch goes on; give one of them");
    return HVD_OK;
}

void options_free(struct options *options)
{
    for (int i = 0; options->values && i < setting_count; i++)
        free(options->values[i]);
    free(options->values);
    free(options->foreign);
    options->values = NULL;
    options->foreign = NULL;
}

/* ---- options of Horovod's that are no setting of ours -------------------------------------------------- */

const struct foreign foreign_table[] = {
#define FOREIGN(shorter, name, argument, kind, minimum, maximum, config_key, environment, effect, setting,   \
                text)                                                                                        \
    {shorter,    name,        argument,         FOREIGN_##kind, minimum, maximum,                            \
     config_key, environment, FOREIGN_##effect, setting,        text},
#include "foreign.def"
#undef FOREIGN
};

const int foreign_count = sizeof foreign_table / sizeof *foreign_table;

const struct foreign *foreign_by_flag(const char *flag)
{
    for (int i = 0; *flag && i < foreign_count; i++) {
        if (strcmp(foreign_table[i].name, flag) == 0 || strcmp(foreign_table[i].shorter, flag) == 0)
            return &foreign_table[i];
    }
    return NULL;
}

const struct foreign *foreign_by_config_key(const char *key)
{
    for (int i = 0; *key && i < foreign_count; i++) {
        if (strcmp(foreign_table[i].config_key, key) == 0)
            return &foreign_table[i];
    }
    return NULL;
}

static hvd_code check_numbers(const struct foreign *foreign, const char *value, const char *source,
                              hvd_status *status)
{
    const char *rest = value;
    for (int left = foreign->kind == FOREIGN_PAIR ? 2 : 1; left > 0; left--) {
        char *end;
        double number = strtod(rest, &end);
        if (end == rest || (*end && *end != ' '))
            return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s is not %s", source, value,
                              foreign->kind == FOREIGN_PAIR ? "two numbers" : "a number");
        rest = end + strspn(end, " ");
        if (number >= foreign->minimum && number <= foreign->maximum)
            continue;
        if (foreign->maximum <= 1)
            return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be in [%g, %g]", source, value,
                              foreign->minimum, foreign->maximum);
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be %s %.15g", source, value,
                          number > foreign->maximum ? "<=" : ">=",
                          number > foreign->maximum ? foreign->maximum : foreign->minimum);
    }
    return *rest ? status_set(status, HVD_INVALID_ARGUMENT, "%s=%s: there is more than one value", source,
                              value)
                 : HVD_OK;
}

static hvd_code give_setting(struct options *options, const struct foreign *foreign, const char *value,
                             const char *source, hvd_status *status)
{
    const struct setting *setting = setting_by_key(foreign->setting);
    /* A value that was given by the setting's own name takes precedence. */
    return options->values[setting - setting_table] ? HVD_OK
                                                    : options_give(options, setting, value, source, status);
}

hvd_code foreign_apply(struct options *options, const struct foreign *foreign, const char *value,
                       const char *source, hvd_status *status)
{
    bool yes = true;
    if (foreign->kind == FOREIGN_SWITCH || foreign->kind == FOREIGN_CHOICE) {
        /* It is parsed like a boolean setting; any row of that kind serves. */
        char text[2];
        TRY(setting_value_from_flag(setting_by_key("log_hide_time"), value, source, text, sizeof text,
                                    status));
        yes = text[0] == '1';
    } else if (foreign->kind != FOREIGN_WORD) {
        TRY(check_numbers(foreign, value, source, status));
    }
    options->foreign[foreign - foreign_table] = yes ? FOREIGN_YES : FOREIGN_NO;
    switch (foreign->effect) {
    case FOREIGN_REFUSED:
        return status_set(status, HVD_UNSUPPORTED, "%s: %s", source, foreign->text);
    case FOREIGN_SAME:
        return give_setting(options, foreign, value, source, status);
    case FOREIGN_OPPOSITE:
        return give_setting(options, foreign, yes ? "0" : "1", source, status);
    default:
        return HVD_OK;
    }
}

/* The setting's own variable takes precedence over another name for it. */
static bool is_overridden(const struct foreign *foreign)
{
    const struct setting *setting = setting_by_key(foreign->setting);
    const char *value = setting ? getenv(setting->environment) : NULL;
    return value && *value;
}

hvd_code foreign_apply_environment(struct options *options, hvd_status *status)
{
    for (int i = 0; i < foreign_count; i++) {
        const struct foreign *foreign = &foreign_table[i];
        const char *value = *foreign->environment ? getenv(foreign->environment) : NULL;
        if (value && *value && options->foreign[i] == FOREIGN_OPEN && !is_overridden(foreign))
            TRY(foreign_apply(options, foreign, value, foreign->environment, status));
    }
    return HVD_OK;
}

void foreign_report(const struct options *options)
{
    for (int i = 0; options->verbose && i < foreign_count; i++) {
        const struct foreign *foreign = &foreign_table[i];
        if (options->foreign[i] != FOREIGN_YES || foreign->effect != FOREIGN_NEEDLESS)
            continue;
        bool is_option = *foreign->name, has_key = *foreign->config_key;
        fprintf(stderr, "horovodrun: %s%s: %s\n", is_option ? "--" : "",
                is_option ? foreign->name
                : has_key ? foreign->config_key
                          : foreign->environment,
                foreign->text);
    }
}

/* ---- the config file ----------------------------------------------------------------------------------- */

/* A setting or a section, and the line that gives it. */
struct given {
    const char *name;
    size_t line;
};

struct config {
    struct options *options;
    yaml_document_t document;
    const char *path;
    struct given *given;
    size_t given_count;
};

static hvd_code config_error(const struct config *config, const yaml_node_t *node, const char *key,
                             const char *problem, hvd_status *status)
{
    return status_set(status, HVD_INVALID_ARGUMENT, "%s:%zu: %s%s%s", config->path, node->start_mark.line + 1,
                      key, *key ? " " : "", problem);
}

static hvd_code unknown_key(const struct config *config, const yaml_node_t *node, const char *key,
                            hvd_status *status)
{
    const char *nearest = nearest_config_key(key);
    char problem[256] = "is no setting; docs/settings.md lists them";
    if (nearest)
        snprintf(problem, sizeof problem, "is no setting; did you mean %s?", nearest);
    return config_error(config, node, key, problem, status);
}

/* Refuses a second value, since the user may mean either. `name` is that of a section, or the main name of a
 * setting. */
static hvd_code give_once(struct config *config, const char *name, const char *key,
                          const yaml_node_t *key_node, hvd_status *status)
{
    for (size_t i = 0; i < config->given_count; i++) {
        if (strcmp(config->given[i].name, name) == 0)
            return status_set(status, HVD_INVALID_ARGUMENT,
                              "%s:%zu: %s gives again what line %zu gives; keep one of them", config->path,
                              key_node->start_mark.line + 1, key, config->given[i].line);
    }
    struct given *more = realloc(config->given, (config->given_count + 1) * sizeof *more);
    if (!more)
        return status_no_memory(status);
    config->given = more;
    config->given[config->given_count++] = (struct given){name, key_node->start_mark.line + 1};
    return HVD_OK;
}

static hvd_code apply_value(struct config *config, const char *key, const yaml_node_t *key_node,
                            const yaml_node_t *value, hvd_status *status)
{
    const struct setting *setting = setting_by_config_key(key);
    const struct foreign *foreign = foreign_by_config_key(key);
    char source[600];
    if (!setting && !foreign)
        return unknown_key(config, key_node, key, status);
    if (value->type != YAML_SCALAR_NODE)
        return config_error(config, value, key, "must be a single value", status);
    const struct setting *given = setting ? setting : setting_by_key(foreign->setting);
    TRY(give_once(config, given ? given->config_key : foreign->config_key, key, key_node, status));
    const char *text = (const char *)value->data.scalar.value;
    snprintf(source, sizeof source, "%s:%zu: %s", config->path, value->start_mark.line + 1, key);
    /* The command line takes precedence, here and below. */
    if (foreign && config->options->foreign[foreign - foreign_table] != FOREIGN_OPEN)
        return HVD_OK;
    if (foreign)
        return foreign_apply(config->options, foreign, text, source, status);
    if (config->options->values[setting - setting_table])
        return HVD_OK;
    return options_give(config->options, setting, text, source, status);
}

/* `section` is "" at the top level, where a value that is a mapping is a section. */
static hvd_code apply_mapping(struct config *config, const char *section, const yaml_node_t *node,
                              hvd_status *status)
{
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *key_node = yaml_document_get_node(&config->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(&config->document, pair->value);
        char key[256];
        if (key_node->type != YAML_SCALAR_NODE)
            return config_error(config, key_node, "", "a name must be a single word", status);
        const char *name = (const char *)key_node->data.scalar.value;
        snprintf(key, sizeof key, "%s%s%s", section, *section ? "." : "", name);
        /* Sections do not nest: apply_value refuses a mapping in a section. */
        bool is_section = value->type == YAML_MAPPING_NODE && !*section;
        if (!is_section) {
            TRY(apply_value(config, key, key_node, value, status));
            continue;
        }
        TRY(give_once(config, name, key, key_node, status));
        TRY(apply_mapping(config, key, value, status));
    }
    return HVD_OK;
}

/* Returns true for an empty document, or a `---` alone. */
static bool is_empty(const yaml_node_t *root)
{
    return !root || (root->type == YAML_SCALAR_NODE && !root->data.scalar.length);
}

/* A line `---` starts another document, which has no meaning here. */
static hvd_code apply_documents(struct config *config, yaml_parser_t *parser, FILE *file, hvd_status *status)
{
    hvd_code code = HVD_OK;
    bool loaded;
    for (int i = 0; !code && (loaded = yaml_parser_load(parser, &config->document)); i++) {
        const yaml_node_t *root = yaml_document_get_root_node(&config->document);
        if (i && !is_empty(root))
            code = config_error(config, root, "", "a second document; all settings stand in one", status);
        else if (!is_empty(root) && root->type != YAML_MAPPING_NODE)
            code = config_error(config, root, "", "expected lines of the form 'name: value'", status);
        else if (!is_empty(root))
            code = apply_mapping(config, "", root, status);
        yaml_document_delete(&config->document);
        config->given_count = 0; /* their names belonged to the document */
        if (!root)
            return code;
    }
    if (code || loaded)
        return code;
    if (ferror(file)) /* a folder, for example */
        return status_set_errno(status, errno, "can't read the config file %s", config->path);
    return status_set(status, HVD_INVALID_ARGUMENT, "%s:%zu: not YAML: %s", config->path,
                      parser->problem_mark.line + 1, parser->problem ? parser->problem : "unreadable");
}

hvd_code config_file_read(struct options *options, const char *path, hvd_status *status)
{
    struct config config = {.options = options, .path = path};
    yaml_parser_t parser;
    FILE *file = fopen(path, "re");
    if (!file)
        return status_set_errno(status, errno, "can't read the config file %s", path);
    if (!yaml_parser_initialize(&parser)) {
        fclose(file);
        return status_no_memory(status);
    }
    yaml_parser_set_input_file(&parser, file);
    hvd_code code = apply_documents(&config, &parser, file, status);
    yaml_parser_delete(&parser);
    free(config.given);
    fclose(file);
    return code;
}
