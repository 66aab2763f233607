/* environment.c - see environment.h. */
#include "environment.h"

#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_ENTRIES 16 /* at most so many are added besides the settings */

static bool is_named(const char *entry, const char *name, size_t length)
{
    return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

static bool put(struct environment *environment, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool put(struct environment *environment, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool made = vasprintf(&environment->entries[environment->own], format, arguments) >= 0;
    va_end(arguments);
    environment->own += made;
    return made;
}

static bool put_place(struct environment *environment, const struct rank *rank)
{
    const struct job *job = rank->job;
    return put(environment, "HOROVOD_RANK=%d", rank->rank) &&
           put(environment, "HOROVOD_SIZE=%d", job->size) &&
           put(environment, "HOROVOD_LOCAL_RANK=%d", rank->rank) &&
           put(environment, "HOROVOD_LOCAL_SIZE=%d", job->size) && put(environment, "HOROVOD_CROSS_RANK=0") &&
           put(environment, "HOROVOD_CROSS_SIZE=1") && put(environment, "HOROVOD_HOST_SIZES=%d", job->size) &&
           put(environment, "HOROVOD_HOSTNAME=%s", job->hosts->name) &&
           put(environment, "HOROVOD_RENDEZVOUS=127.0.0.1:%d", hvd_rendezvous_port(job->rendezvous)) &&
           put(environment, "HOROVOD_JOB=%s", job->id) && put(environment, "HOROVOD_SECRET=%s", job->secret);
}

static bool has_own(const struct environment *environment, const char *name, size_t length)
{
    for (size_t i = 0; i < environment->own; i++) {
        if (is_named(environment->entries[i], name, length))
            return true;
    }
    return false;
}

/* The rank's place wins over everything, options over what is inherited. */
static bool put_own(struct environment *environment, const struct rank *rank)
{
    bool done = put_place(environment, rank);
    for (int i = 0; done && i < setting_count; i++) {
        const char *name = setting_table[i].environment, *value = rank->job->options->values[i];
        if (value && !has_own(environment, name, strlen(name)))
            done = put(environment, "%s=%s", name, value);
    }
    /* Its stdout is a pipe, but lines shall come when they are printed. */
    return done && (getenv("PYTHONUNBUFFERED") || put(environment, "PYTHONUNBUFFERED=1"));
}

hvd_code environment_make(struct environment *environment, const struct rank *rank, hvd_status *status)
{
    static const char secret_file[] = "HOROVOD_SECRET_FILE"; /* the secret is the launcher's */
    size_t count = (size_t)setting_count + OWN_ENTRIES;
    for (char **entry = environ; *entry; entry++)
        count++;
    *environment = (struct environment){.entries = calloc(count + 1, sizeof(char *))};
    if (!environment->entries || !put_own(environment, rank))
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for rank %d's environment", rank->rank);
    char **next = environment->entries + environment->own;
    for (char **entry = environ; *entry; entry++) {
        if (!has_own(environment, *entry, strcspn(*entry, "=")) &&
            !is_named(*entry, secret_file, strlen(secret_file)))
            *next++ = *entry;
    }
    return HVD_OK;
}

void environment_free(struct environment *environment)
{
    for (size_t i = 0; i < environment->own; i++)
        free(environment->entries[i]);
    free(environment->entries);
}
