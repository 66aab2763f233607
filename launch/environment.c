/* environment.c - see environment.h. */
#include "environment.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_ENTRIES 16 /* at most so many are added besides the settings */

struct list {
    char **entries; /* "NAME=value"; ends with NULL */
    bool failed;
};

static void put(struct list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An entry takes the place of the one with its name. */
static void put(struct list *list, const char *format, ...)
{
    char *entry, **place = list->entries;
    va_list arguments;
    va_start(arguments, format);
    bool made = vasprintf(&entry, format, arguments) >= 0;
    va_end(arguments);
    if (!made) {
        list->failed = true;
        return;
    }
    while (*place && strncmp(*place, entry, strcspn(entry, "=") + 1) != 0)
        place++;
    free(*place);
    *place = entry;
}

static void put_inherited(struct list *list)
{
    static const char secret_file[] = "HOROVOD_SECRET_FILE="; /* the secret is the launcher's */
    for (char **entry = environ; *entry; entry++) {
        if (strncmp(*entry, secret_file, strlen(secret_file)) != 0)
            put(list, "%s", *entry);
    }
}

static void put_settings(struct list *list, const struct options *options)
{
    for (int i = 0; i < setting_count; i++) {
        if (options->values[i])
            put(list, "%s=%s", setting_table[i].environment, options->values[i]);
    }
}

static void put_place(struct list *list, const struct rank *rank)
{
    const struct job *job = rank->job;
    put(list, "HOROVOD_RANK=%d", rank->rank);
    put(list, "HOROVOD_SIZE=%d", job->size);
    put(list, "HOROVOD_LOCAL_RANK=%d", rank->rank);
    put(list, "HOROVOD_LOCAL_SIZE=%d", job->size);
    put(list, "HOROVOD_CROSS_RANK=0");
    put(list, "HOROVOD_CROSS_SIZE=1");
    put(list, "HOROVOD_HOST_SIZES=%d", job->size);
    put(list, "HOROVOD_HOSTNAME=%s", job->hosts->name);
    put(list, "HOROVOD_RENDEZVOUS=127.0.0.1:%d", hvd_rendezvous_port(job->rendezvous));
    put(list, "HOROVOD_JOB=%s", job->id);
    put(list, "HOROVOD_SECRET=%s", job->secret);
}

char **environment_of(const struct rank *rank)
{
    size_t inherited = 0;
    while (environ[inherited])
        inherited++;
    struct list list = {calloc(inherited + (size_t)setting_count + OWN_ENTRIES, sizeof(char *)), false};
    if (!list.entries)
        return NULL;
    /* In this order, since the later entry wins: the user's PYTHONUNBUFFERED over ours, options over
     * inherited variables, the rank's place over everything. */
    put(&list, "PYTHONUNBUFFERED=1"); /* stdout is a pipe; lines shall come when they are printed */
    put_inherited(&list);
    put_settings(&list, rank->job->options);
    put_place(&list, rank);
    if (!list.failed)
        return list.entries;
    environment_free(list.entries);
    return NULL;
}

void environment_free(char **environment)
{
    for (char **entry = environment; entry && *entry; entry++)
        free(*entry);
    free(environment);
}
