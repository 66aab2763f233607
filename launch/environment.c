/* environment.c - makes the environment of ranks and agents. One thread. Of several sources that set a
 * variable the first one counts. */
#include "environment.h"

#include "base/platform_cores.h"
#include "base/status.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_ENTRIES 17 /* variables that are added to the settings, at most, and a NULL */

/* ---- merging ------------------------------------------------------------------------------------------- */

struct entry {
    char *text; /* "NAME=value" */
    size_t name, order;
};

static int compare_names(const struct entry *a, const struct entry *b)
{
    int order = memcmp(a->text, b->text, a->name < b->name ? a->name : b->name);
    return order ? order : (a->name > b->name) - (a->name < b->name);
}

static int compare(const void *one, const void *other)
{
    const struct entry *a = one, *b = other;
    int order = compare_names(a, b);
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

/* Sorts the entries, since there may be tens of thousands. */
char **environment_merge(char *const *const *lists)
{
    size_t count = 0, kept = 0;
    for (char *const *const *list = lists; *list; list++) {
        for (char *const *text = *list; *text; text++)
            count++;
    }
    struct entry *entries = calloc(count + 1, sizeof *entries), *next = entries;
    char **merged = calloc(count + 1, sizeof *merged);
    for (; entries && *lists; lists++) {
        for (char *const *text = *lists; *text; text++, next++)
            *next = (struct entry){*text, strcspn(*text, "="), (size_t)(next - entries)};
    }
    if (entries && merged) {
        qsort(entries, count, sizeof *entries, compare);
        for (size_t i = 0; i < count; i++) {
            bool first = i == 0 || compare_names(&entries[i - 1], &entries[i]) != 0;
            if (first && entries[i].text[entries[i].name] == '=')
                merged[kept++] = entries[i].text;
        }
    } else {
        free(merged);
        merged = NULL;
    }
    free(entries);
    return merged;
}

/* ---- what is inherited --------------------------------------------------------------------------------- */

/* The first list names variables of a host, its user or session. The second one names variables of another
 * starter, which the engine would read instead of those that are set here. */
static const char *const of_a_host[] = {"HOME",
                                        "USER",
                                        "LOGNAME",
                                        "SHELL",
                                        "PWD",
                                        "OLDPWD",
                                        "HOSTNAME",
                                        "HOST",
                                        "MAIL",
                                        "SHLVL",
                                        "_",
                                        "TMPDIR",
                                        "TMP",
                                        "TEMP",
                                        "DISPLAY",
                                        "XAUTHORITY",
                                        "XDG_*",
                                        "DBUS_*",
                                        "SSH_*",
                                        "KRB5CCNAME",
                                        "BASH_FUNC_*",
                                        "*_VISIBLE_DEVICES",
                                        "GPU_DEVICE_ORDINAL",
                                        "ZE_AFFINITY_MASK",
                                        "SLURMD_NODENAME",
                                        "SLURM_NODEID",
                                        "HOROVOD_SECRET*",
                                        "HOROVOD_HOSTNAME",
                                        "HOROVOD_HOST_ID",
                                        "HOROVOD_ADVERTISED_ADDRESS",
                                        "HOROVOD_PAGE",
                                        NULL};
static const char *const of_another_starter[] = {"HOROVOD_SECRET_FILE", "HOROVOD_SLOT", "HOROVOD_EPOCH",
                                                 "HOROVOD_PAGE", NULL};

static bool matches(const char *entry, const char *const *patterns)
{
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(entry, "="), entry);
    for (; *patterns; patterns++) {
        if (fnmatch(*patterns, name, 0) == 0)
            return true;
    }
    return false;
}

/* Returns this process's entries, without those that match; they are not copied. Returns NULL if memory is
 * out. */
static char **inherited_without(const char *const *patterns)
{
    size_t count = 0;
    while (environ[count])
        count++;
    char **kept = calloc(count + 1, sizeof *kept), **next = kept;
    for (char **entry = environ; kept && *entry; entry++) {
        if (!matches(*entry, patterns))
            *next++ = *entry;
    }
    return kept;
}

/* ---- what is set here ---------------------------------------------------------------------------------- */

static bool put(struct environment *environment, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool put(struct environment *environment, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t next = 0;
    while (environment->own[next])
        next++;
    bool made = vasprintf(&environment->own[next], format, arguments) >= 0;
    va_end(arguments);
    if (!made)
        environment->own[next] = NULL;
    return made;
}

static bool put_place(struct environment *environment, const struct process *process)
{
    const struct table *table = process->table;
    const struct place *place = &process->place;
    return put(environment, "HOROVOD_RANK=%d", place->rank) &&
           put(environment, "HOROVOD_SIZE=%d", process->size) &&
           put(environment, "HOROVOD_LOCAL_RANK=%d", place->local_rank) &&
           put(environment, "HOROVOD_LOCAL_SIZE=%d", place->local_size) &&
           put(environment, "HOROVOD_CROSS_RANK=%d", place->cross_rank) &&
           put(environment, "HOROVOD_CROSS_SIZE=%d", place->cross_size) &&
           put(environment, "HOROVOD_HOSTNAME=%s", process_host(process)->name) &&
           put(environment, "HOROVOD_RENDEZVOUS=%s", table->rendezvous_address) &&
           put(environment, "HOROVOD_JOB=%s", table->id) &&
           put(environment, "HOROVOD_SECRET=%s", table->secret) &&
           put(environment, "HOROVOD_SLOT=%d", process->slot) &&
           put(environment, "HOROVOD_EPOCH=%d", process->epoch) &&
           (!table->elastic || put(environment, "HOROVOD_ELASTIC=1")) &&
           (process->page < 0 ||
            put(environment, "HOROVOD_PAGE=/proc/%d/fd/%d", (int)getpid(), process->page));
}

/* Libraries start a thread for each core that they see, also where a quota grants less of their time. */
static bool put_threads(struct environment *environment, const struct process *process)
{
    double granted = platform_processors();
    const struct place *place = &process->place;
    int threads = (int)(granted / place->local_size);
    if (getenv("OMP_NUM_THREADS") || granted >= platform_cores())
        return true;
    threads = threads > 1 ? threads : 1;
    if (place->local_rank == 0)
        log_info(-1, "a CPU quota grants %.3g of %d cores to %d ranks: OMP_NUM_THREADS=%d", granted,
                 platform_cores(), place->local_size, threads);
    return put(environment, "OMP_NUM_THREADS=%d", threads);
}

static hvd_code make(struct environment *environment, const struct options *options,
                     const struct process *process, hvd_status *status)
{
    char **inherited = inherited_without(process ? of_another_starter : of_a_host);
    bool done = inherited && (environment->own = calloc((size_t)setting_count + OWN_ENTRIES, sizeof(char *)));
    if (done && process)
        done = put_place(environment, process) && put_threads(environment, process);
    for (int i = 0; done && i < setting_count; i++) {
        if (options->values[i])
            done = put(environment, "%s=%s", setting_table[i].environment, options->values[i]);
    }
    /* stdout is a pipe: keep Python's output unbuffered. */
    if (done && process && !getenv("PYTHONUNBUFFERED"))
        done = put(environment, "PYTHONUNBUFFERED=1");
    if (done)
        environment->entries = environment_merge((char *const *const[]){environment->own, inherited, NULL});
    free(inherited);
    return environment->entries ? HVD_OK : status_no_memory(status);
}

hvd_code environment_of_rank(struct environment *environment, const struct process *process,
                             hvd_status *status)
{
    return make(environment, process->table->options, process, status);
}

hvd_code environment_for_hosts(struct environment *environment, const struct options *options,
                               hvd_status *status)
{
    return make(environment, options, NULL, status);
}

void environment_free(struct environment *environment)
{
    for (char **entry = environment->own; entry && *entry; entry++)
        free(*entry);
    free(environment->own);
    free(environment->entries);
}
