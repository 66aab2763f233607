/* options.c - reads the command line. Options may have one dash or two, values follow as the next word or
 * after '='; the first word that is no option is the command, and all after it belongs to the command. */
#include "options.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES  4096
#define FIELD(field) offsetof(struct options, field)

const struct option option_table[] = {
    {GROUP_RANKS, "np", "num-proc", "N", OPTION_COUNT, FIELD(num_proc),
     "Number of ranks; may be left out when the hosts say it"},
    {GROUP_RANKS, "H", "hosts", "HOST:SLOTS", OPTION_TEXT, FIELD(hosts),
     "Hosts and how many ranks each may take, e.g. localhost:4 or a:2,me@b:4,[fd00::7]:2; they are filled in "
     "this "
     "order"},
    {GROUP_RANKS, "", "hostfile", "FILE", OPTION_TEXT, FIELD(hostfile),
     "The same from a file with one 'host slots=N [max_slots=N] [port=N]' or 'host:N' per line"},
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
    {GROUP_COUNT, "", "task", "FOLDER", OPTION_TEXT, FIELD(task), ""},
    {GROUP_COUNT, "", "agent", "", OPTION_SWITCH, FIELD(agent), ""},
    {GROUP_OUTPUT, "", "output-filename", "FOLDER", OPTION_TEXT, FIELD(output),
     "Also keep what the ranks print, in FOLDER/rank.<rank>/stdout and stderr"},
    {GROUP_OUTPUT, "prefix-timestamp", "prefix-output-with-timestamp", "", OPTION_SWITCH, FIELD(timestamp),
     "Put the time in front of every line of output"},
    {GROUP_OUTPUT, "", "verbose", "", OPTION_SWITCH, FIELD(verbose),
     "Print what runs where, with which settings, and when it ended"},
    {GROUP_INFORMATION, "cb", "check-build", "", OPTION_SWITCH, FIELD(check_build),
     "Show what this build can do, and end"},
    {GROUP_INFORMATION, "v", "version", "", OPTION_SWITCH, FIELD(version), "Show the version, and end"},
    {GROUP_INFORMATION, "h", "help", "", OPTION_SWITCH, FIELD(help), "Show this text, and end"},
};
const int option_count = sizeof option_table / sizeof *option_table;

/* What a word on the command line names: one of the three, or nothing. */
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

static hvd_code out_of_memory(hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while reading the options");
}

hvd_code options_give(struct options *options, const struct setting *setting, const char *value,
                      const char *source, hvd_status *status)
{
    char text[VALUE_BYTES];
    if (strlen(value) >= sizeof text)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: the value is too long", source);
    hvd_code code = setting_value_from_flag(setting, value, source, text, sizeof text, status);
    if (code)
        return code;
    char **place = &options->values[setting - setting_table];
    free(*place);
    *place = strdup(text);
    return *place ? HVD_OK : out_of_memory(status);
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
    double maximum = option->kind == OPTION_PORT ? 65535 : setting_by_key("size")->maximum;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < 1 || number > maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be a whole number from 1 to %.0f", source,
                          value, maximum);
    *(int64_t *)field = number;
    return HVD_OK;
}

static hvd_code unknown_option(const char *word, const char *name, hvd_status *status)
{
    const char *nearest = option_nearest(name);
    if (!nearest)
        return status_set(status, HVD_INVALID_ARGUMENT, "there is no option %s", word);
    return status_set(status, HVD_INVALID_ARGUMENT, "there is no option %s; did you mean %s%s?", word,
                      flag_find(nearest).option && strlen(nearest) < 3 ? "-" : "--", nearest);
}

/* How many words follow it. */
static int flag_values(const struct flag *flag)
{
    if (flag->option)
        return flag->option->kind != OPTION_SWITCH;
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

/* Joins the values, the first of which may stand behind '=' in the option's own word, by blanks. Leaves *argv
 * behind them. */
static hvd_code take_values(char ***argv, int count, const char *own, const char *word, char *text,
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

/* Takes the option at *argv, and the words that are its value; leaves *argv behind them. */
static hvd_code take_option(struct options *options, char ***argv, hvd_status *status)
{
    char *argument = **argv, *own = strchr(argument, '=');
    char word[256], text[VALUE_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(argument, "="), argument);
    const char *name = word + strspn(word, "-");
    struct flag flag = flag_find(name);
    if (!flag.option && !flag.setting && !flag.foreign)
        return unknown_option(word, name, status);
    ++*argv;
    int count = flag_values(&flag);
    if (count == 0 && own)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s takes no value", word);
    /* The value of a flag that no word follows; take_values replaces it for the others. */
    snprintf(text, sizeof text, "%d", !flag.negated);
    hvd_code code = take_values(argv, count, own ? own + 1 : NULL, word, text, sizeof text, status);
    if (code)
        return code;
    /* Options keep the text itself, and `text` ends with this call: they get the word of argv. */
    if (flag.option)
        return give_option(options, flag.option, own ? own + 1 : (*argv)[-1], word, status);
    if (flag.setting)
        return options_give(options, flag.setting, text, word, status);
    return foreign_take(options, flag.foreign, text, word, status);
}

hvd_code options_parse(struct options *options, char **argv, hvd_status *status)
{
    memset(options, 0, sizeof *options);
    options->values = calloc((size_t)setting_count, sizeof *options->values);
    options->foreign = calloc((size_t)foreign_count, sizeof *options->foreign);
    if (!options->values || !options->foreign)
        return out_of_memory(status);
    /* The name of the program; even that may be missing. */
    argv += *argv != NULL;
    /* A dash alone is no option but a command. */
    while (*argv && argv[0][0] == '-' && argv[0][1]) {
        if (strcmp(*argv, "--") == 0) {
            argv++;
            break;
        }
        hvd_code code = take_option(options, &argv, status);
        if (code)
            return code;
    }
    options->command = argv;
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
