/* agent_prepare.c - prepares the host of an agent: the environment of the launcher's job, its folder,
 * settings and command. One thread, the loop's. */
#include "agent_prepare.h"
#include "environment.h"

#include "base/status.h"
#include "base/topology.h"
#include "net/addresses.h"
#include "rendezvous/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_LIMIT    4096
#define REACH_SECONDS 5.0 /* for the rendezvous to be reached */

/* ---- the environment ----------------------------------------------------------------------------------- */

/* Reads the environment before --host-setup. Returns false if it can't be read. */
static bool read_first_environment(struct wire_writer *text)
{
    char piece[4096];
    ssize_t count;
    while ((count = read(AGENT_ENVIRONMENT, piece, sizeof piece)) > 0)
        wire_put_raw(text, piece, (size_t)count);
    close(AGENT_ENVIRONMENT);
    wire_put_u8(text, 0);
    return count == 0 && !text->failed && text->length > 1;
}

static bool contains(const struct wire_writer *text, const char *entry)
{
    for (size_t at = 0; at < text->length; at += strlen((char *)text->bytes + at) + 1) {
        if (strcmp((char *)text->bytes + at, entry) == 0)
            return true;
    }
    return false;
}

/* Returns the entries that --host-setup has changed; a name alone is a variable that it has unset. Their text
 * is in `first`, the environment before it. Returns NULL if that can't be read. */
static char **changes_of_setup(struct wire_writer *first)
{
    size_t count = 0, next = 0, length;
    if (!read_first_environment(first))
        return NULL;
    while (environ[count])
        count++;
    char **changes = calloc(count + first->length + 1, sizeof *changes);
    for (size_t i = 0; changes && i < count; i++) {
        if (!contains(first, environ[i]))
            changes[next++] = environ[i];
    }
    for (size_t at = 0; changes && at < first->length; at += length + 1) {
        char *entry = (char *)first->bytes + at;
        length = strlen(entry);
        entry[strcspn(entry, "=")] = '\0';
        if (*entry && !getenv(entry))
            changes[next++] = entry;
    }
    return changes;
}

/* Variables that --host-setup has changed take precedence over those of the launcher, and these over those of
 * this host. */
static bool merge_environment(const struct preparation *preparation)
{
    struct wire_writer first = {0};
    char **changes = preparation->setup ? changes_of_setup(&first) : calloc(1, sizeof *changes);
    char **merged = NULL;
    if (changes)
        merged = environment_merge((char *const *const[]){changes, preparation->environment, environ, NULL});
    if (merged)
        environ = merged;
    free(changes);
    wire_writer_free(&first);
    return merged;
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* Returns a shell's exit code: 0, 126 (the file can't be executed) or 127 (there is none). */
static int check_program(const char *path)
{
    struct stat info;
    if (stat(path, &info))
        return errno == EACCES ? 126 : 127;
    return S_ISREG(info.st_mode) && access(path, X_OK) == 0 ? 0 : 126;
}

/* Searches as execvp does. */
static int check_command(const char *command)
{
    const char *path = getenv("PATH");
    int found = 127;
    if (strchr(command, '/'))
        return check_program(command);
    for (path = path ? path : "/bin:/usr/bin";; path++) {
        char candidate[PATH_LIMIT];
        int length = (int)strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s%s%s", length, path, length ? "/" : "", command);
        int exit_code = check_program(candidate);
        found = exit_code < found ? exit_code : found;
        path += length;
        if (!exit_code || !*path)
            return found;
    }
}

/* ---- the rendezvous ------------------------------------------------------------------------------------ */

static hvd_code check_rendezvous(const struct preparation *preparation, const struct settings *settings,
                                 hvd_status *status)
{
    struct rendezvous_client *client;
    if (!*preparation->rendezvous)
        return HVD_OK;
    TRY(rendezvous_connect(preparation->rendezvous, preparation->secret, settings->encryption,
                           clock_after(REACH_SECONDS), NULL, &client, status));
    rendezvous_close(client);
    return HVD_OK;
}

/* ---- all ----------------------------------------------------------------------------------------------- */

int agent_prepare(const struct preparation *preparation, struct settings *settings, char *text,
                  size_t capacity)
{
    static const char *const texts[] = {
        "'%s' can't be executed there; is it a file, and has it the permission? chmod +x sets it",
        "'%s' was not found; is it on the PATH there? --host-setup can set it for each host"};
    struct addresses addresses;
    hvd_status status;
    *text = '\0';
    if (!merge_environment(preparation)) {
        append_text(text, capacity,
                    "can't find out what --host-setup has changed: there is no program `env` with -0, or "
                    "memory is out");
        return 1;
    }
    if (settings_load_environment(settings, &status)) {
        append_text(text, capacity, "%s", status.text);
        return 2;
    }
    if (chdir(preparation->folder)) {
        append_text(text, capacity,
                    "there is no folder %s, in which horovodrun was started; make it, or start from one that "
                    "all hosts have",
                    preparation->folder);
        return 1;
    }
    if (addresses_find(settings->network_interface, "", &addresses, &status)) {
        append_text(text, capacity, "%s", status.text);
        return 1;
    }
    int exit_code = check_command(*preparation->command);
    if (exit_code) {
        append_text(text, capacity, texts[exit_code - 126], *preparation->command);
    } else if (check_rendezvous(preparation, settings, &status)) {
        exit_code = 1;
        append_text(text, capacity,
                    "it does not reach the host of horovodrun, as each host of an elastic job must: %s",
                    status.text);
    }
    return exit_code;
}

/* Ranks inherit the name, and so agree with the launcher, for which each node is a host. */
void agent_name_host(char *identity, size_t capacity, int node)
{
    const char *given = getenv("HOROVOD_HOST_ID");
    topology_own_host(given ? given : "", identity, capacity);
    if (given && *given)
        return;
    if (node >= 0)
        append_text(identity, capacity, "/node %d", node);
    setenv("HOROVOD_HOST_ID", identity, 1);
}
