/* environment.c - see environment.h. */
#include "environment.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_ENTRIES 16 /* at most so many are added besides the settings */

struct list {
    char **entries;
    size_t count;
    bool failed;
};

static char **find(const struct list *list, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < list->count; i++) {
        if (strncmp(list->entries[i], name, length) == 0 && list->entries[i][length] == '=')
            return &list->entries[i];
    }
    return NULL;
}

static void list_put(struct list *list, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void list_put(struct list *list, const char *name, const char *format, ...)
{
    char *value = NULL, *entry = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&value, format, arguments) < 0)
        value = NULL;
    va_end(arguments);
    if (!value || asprintf(&entry, "%s=%s", name, value) < 0) {
        list->failed = true;
        free(value);
        return;
    }
    free(value);
    char **place = find(list, name);
    if (!place)
        place = &list->entries[list->count++];
    free(*place);
    *place = entry;
}

static void list_remove(struct list *list, const char *name)
{
    char **place = find(list, name);
    if (!place)
        return;
    free(*place);
    *place = list->entries[--list->count];
    list->entries[list->count] = NULL;
}

static void copy_inherited(struct list *list)
{
    for (char **entry = environ; *entry; entry++) {
        char *copy = strdup(*entry);
        if (copy)
            list->entries[list->count++] = copy;
        else
            list->failed = true;
    }
}

static void put_place(struct list *list, const struct rank *rank)
{
    const struct job *job = rank->job;
    list_put(list, "HOROVOD_RANK", "%d", rank->rank);
    list_put(list, "HOROVOD_SIZE", "%d", job->size);
    list_put(list, "HOROVOD_LOCAL_RANK", "%d", rank->rank);
    list_put(list, "HOROVOD_LOCAL_SIZE", "%d", job->size);
    list_put(list, "HOROVOD_CROSS_RANK", "0");
    list_put(list, "HOROVOD_CROSS_SIZE", "1");
    list_put(list, "HOROVOD_HOST_SIZES", "%d", job->size);
    list_put(list, "HOROVOD_HOSTNAME", "%s", job->hosts->name);
    list_put(list, "HOROVOD_RENDEZVOUS", "127.0.0.1:%d", hvd_rendezvous_port(job->rendezvous));
    list_put(list, "HOROVOD_JOB", "%s", job->id);
    list_put(list, "HOROVOD_SECRET", "%s", job->secret);
    list_remove(list, "HOROVOD_SECRET_FILE"); /* the secret is the launcher's */
}

static void put_settings(struct list *list, const struct options *options)
{
    for (int i = 0; i < setting_count; i++) {
        if (options->values[i])
            list_put(list, setting_table[i].environment, "%s", options->values[i]);
    }
}

char **environment_of(const struct rank *rank)
{
    size_t inherited = 0;
    while (environ[inherited])
        inherited++;
    struct list list = {calloc(inherited + (size_t)setting_count + OWN_ENTRIES, sizeof(char *)), 0, false};
    if (!list.entries)
        return NULL;
    copy_inherited(&list);
    put_settings(&list, rank->job->options);
    put_place(&list, rank);
    if (!find(&list, "PYTHONUNBUFFERED"))
        list_put(&list, "PYTHONUNBUFFERED",
                 "1"); /* stdout is a pipe; lines shall come when they are printed */
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
