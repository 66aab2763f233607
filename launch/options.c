/* options.c - reads the command line. Options may have one dash or two, values follow as the next word or
 * after '='; the first word that is no option is the command, and all after it belongs to the command. */
#include "options.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(field) offsetof(struct options, field)

const struct option option_table[] = {
    {"np", "num-proc", "N", OPTION_COUNT, FIELD(num_proc),
     "Number of ranks; may be left out when the hosts say it"},
    {"H", "hosts", "HOST:SLOTS", OPTION_TEXT, FIELD(hosts),
     "Hosts and how many ranks each may take, e.g. localhost:4. This version runs ranks on this host only"},
    {"", "hostfile", "FILE", OPTION_TEXT, FIELD(hostfile),
     "The same from a file with one 'host slots=N' per line"},
    {"", "config-file", "FILE", OPTION_TEXT, FIELD(config),
     "Settings in YAML; the command line wins over it"},
    {"", "output-filename", "FOLDER", OPTION_TEXT, FIELD(output),
     "Also keep what the ranks print, in FOLDER/rank.<rank>/stdout and stderr"},
    {"prefix-timestamp", "prefix-output-with-timestamp", "", OPTION_SWITCH, FIELD(timestamp),
     "Put the time in front of every line of output"},
    {"", "verbose", "", OPTION_SWITCH, FIELD(verbose),
     "Tell what runs where, with which settings, and when it ended"},
    {"cb", "check-build", "", OPTION_SWITCH, FIELD(check_build), "Show what this build can do, and end"},
    {"v", "version", "", OPTION_SWITCH, FIELD(version), "Show the version, and end"},
    {"h", "help", "", OPTION_SWITCH, FIELD(help), "Show this text, and end"},
};
const int option_count = sizeof option_table / sizeof *option_table;

/* What a word on the command line names: one of the two, or nothing. */
struct flag {
    const struct option *option;
    const struct setting *setting;
    bool negated; /* --no-<flag> */
};

static struct flag flag_find(const char *name)
{
    for (int i = 0; i < option_count; i++) {
        if (strcmp(option_table[i].name, name) == 0 || (*name && strcmp(option_table[i].shorter, name) == 0))
            return (struct flag){.option = &option_table[i]};
    }
    const struct setting *setting = setting_by_flag(name);
    if (setting)
        return (struct flag){.setting = setting};
    setting = strncmp(name, "no-", 3) == 0 ? setting_by_flag(name + 3) : NULL;
    if (setting && setting->kind == SETTING_BOOLEAN)
        return (struct flag){.setting = setting, .negated = true};
    return (struct flag){0};
}

static hvd_code out_of_memory(hvd_status *status)
{
    return status_set(status, HVD_OUT_OF_MEMORY, "out of memory while reading the options");
}

hvd_code options_give(struct options *options, const struct setting *setting, const char *value,
                      const char *source, hvd_status *status)
{
    char text[4096];
    if (strlen(value) >= sizeof text)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: the value is too long", source);
    hvd_code code = setting_value_from_flag(setting, value, source, text, sizeof text, status);
    if (code)
        return code;
    struct settings trial;
    code = settings_init(&trial, status);
    if (code)
        return code;
    code = settings_set(&trial, setting, text, source, status);
    settings_free(&trial);
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
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end || number < 1 || number > setting_by_key("size")->maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s=%s must be a whole number from 1 to %.0f", source,
                          value, setting_by_key("size")->maximum);
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

static bool flag_wants_value(const struct flag *flag)
{
    return flag->option ? flag->option->kind != OPTION_SWITCH : flag->setting->kind != SETTING_BOOLEAN;
}

/* Takes the option at *argv, and the next word when that is its value; leaves *argv behind them. */
static hvd_code take_option(struct options *options, char ***argv, hvd_status *status)
{
    char *value = strchr(**argv, '=');
    char word[256];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(**argv, "="), **argv);
    const char *name = word + strspn(word, "-");
    struct flag flag = flag_find(name);
    ++*argv;
    if (!flag.option && !flag.setting)
        return unknown_option(word, name, status);
    bool wants_value = flag_wants_value(&flag);
    if (!wants_value && value)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s takes no value", word);
    if (value)
        value++;
    else if (wants_value && **argv)
        value = *(*argv)++;
    if (wants_value && !value)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s needs a value", word);
    if (flag.option)
        return give_option(options, flag.option, value, word, status);
    return options_give(options, flag.setting, wants_value ? value : flag.negated ? "0" : "1", word, status);
}

hvd_code options_parse(struct options *options, char **argv, hvd_status *status)
{
    memset(options, 0, sizeof *options);
    options->values = calloc((size_t)setting_count, sizeof *options->values);
    if (!options->values)
        return out_of_memory(status);
    argv += *argv != NULL;
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
    options->values = NULL;
}
