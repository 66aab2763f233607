/* ssh.c - makes the command (ssh, or srun) that starts the agent of a host, and explains its failures to the
 * user. One thread. */
#include "ssh.h"
#include "agent_prepare.h"

#include "base/status.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define WORDS_LIMIT       64
#define DESTINATION_LIMIT (sizeof((struct host *)0)->name + sizeof((struct host *)0)->user)
#define SETUP_FAILED      97
#define SSH_FAILED        255

/* ---- the command --------------------------------------------------------------------------------------- */

struct words {
    char **list;
    int count;
    bool failed;
};

static void add_part(struct words *words, const char *text, size_t length)
{
    char *word = words->count < WORDS_LIMIT ? strndup(text, length) : NULL;
    words->failed = words->failed || !word;
    if (word)
        words->list[words->count++] = word;
}

static void add(struct words *words, const char *text)
{
    add_part(words, text, strlen(text));
}

/* Adds the words of "ssh -q", which are separated by blanks. */
static void add_split(struct words *words, const char *text)
{
    while (*(text += strspn(text, " "))) {
        size_t length = strcspn(text, " ");
        add_part(words, text, length);
        text += length;
    }
}

/* Appends the text in single quotes, which any shell understands. */
static void quote(char *to, size_t capacity, const char *text)
{
    append_text(to, capacity, "'");
    for (; *text; text++)
        append_text(to, capacity, *text == '\'' ? "'\\''" : "%c", *text);
    append_text(to, capacity, "'");
}

/* The script finds horovodrun: with --host-setup on the PATH, otherwise first at its path on this host.
 * file_limit is a limit to be set, or 0. */
static void write_script(const char *setup, uint64_t file_limit, char *script, size_t capacity)
{
    char path[PATH_MAX], program[8192] = "";
    /* This also works without /proc. */
    quote(program, sizeof program, realpath((const char *)getauxval(AT_EXECFN), path) ? path : "");
    if (file_limit)
        append_text(script, capacity, "ulimit -S -n %llu; ", (unsigned long long)file_limit);
    if (setup)
        /* The agent gets the environment before the setup, so that it knows what the setup has changed; start
         * files of the shell have already run by then. It also gets stdin, stdout and stderr back, whatever
         * the setup does with them. `<(env -0)` would need /proc. */
        append_text(script, capacity,
                    "exec {_hvd_stdin}<&0\nenv -0 </dev/null {_hvd_stdin}<&- | {\n"
                    "exec {_hvd_before}<&0 </dev/null\n{ :; %s\n} </dev/null >&2 2>&1 || exit %d\n"
                    "_hvd_program=$(command -v horovodrun) || _hvd_program=%s\n"
                    "\"$_hvd_program\" --agent %d<&$_hvd_before {_hvd_before}<&- <&$_hvd_stdin "
                    "{_hvd_stdin}<&-\n}; exit $?",
                    setup, SETUP_FAILED, program, AGENT_ENVIRONMENT);
    else
        append_text(script, capacity, "if [ -x %s ]; then exec %s --agent; else exec horovodrun --agent; fi",
                    program, program);
}

static const char *destination_of(const struct host *host, char text[DESTINATION_LIMIT])
{
    snprintf(text, DESTINATION_LIMIT, "%s%s%s", host->user, *host->user ? "@" : "", host->name);
    return text;
}

static const char *rsh_agent(const struct options *options)
{
    const char *agent = options->rsh_agent ? options->rsh_agent : getenv("OMPI_MCA_plm_rsh_agent");
    return agent && *agent ? agent : NULL;
}

/* Open MPI's variable may list alternatives, "ssh : rsh". */
static void add_agent(struct words *words, const struct options *options)
{
    const char *agent = rsh_agent(options);
    char *first = strndup(agent, options->rsh_agent ? strlen(agent) : strcspn(agent, ":"));
    if (first)
        add_split(words, first);
    words->failed = words->failed || !first;
    free(first);
}

/* The step runs concurrently with others, with all resources of the job there. It is unbuffered, since frames
 * have no lines. SSH_CONNECTION would be that of the login node. */
static void add_srun(struct words *words, const struct host *host)
{
    add_split(words, "srun --quiet --nodes=1 --ntasks=1 --overlap --unbuffered --cpu-bind=none --mpi=none");
    add(words, "--nodelist");
    add(words, host->name);
    add_split(words, "env -u SSH_CONNECTION sh -c");
}

static void add_host(struct words *words, const struct table *table, const struct host *host)
{
    const struct options *options = table->options;
    const char *arguments = getenv("OMPI_MCA_plm_rsh_args");
    int64_t port = host->port ? host->port : options->ssh_port;
    char destination[DESTINATION_LIMIT];
    if (rsh_agent(options)) {
        add_agent(words, options);
    } else {
        add(words, "ssh");
        /* There is no terminal for a prompt. Other sessions must not share this connection. */
        add_split(words, "-T -x -o BatchMode=yes -o ControlMaster=no");
        /* ssh's own heartbeats, which a user may have configured, would end the connection in an outage. */
        if (table->settings->timeout_seconds > 0)
            add_split(words, "-o ServerAliveInterval=0");
    }
    if (arguments)
        add_split(words, arguments);
    if (port) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)port);
        add(words, "-p");
        add(words, text);
    }
    if (options->identity) {
        add(words, "-i");
        add(words, options->identity);
    }
    add(words, destination_of(host, destination));
}

char **ssh_words(const struct table *table, const struct host *host)
{
    size_t setup = table->options->host_setup ? strlen(table->options->host_setup) : 0;
    size_t capacity = 8 * setup + 32768;
    struct words words = {.list = calloc(WORDS_LIMIT + 1, sizeof(char *))};
    char *script = calloc(capacity, 1), *command = calloc(capacity, 1);
    const char *shell = setup ? "bash" : "sh";
    if (words.list && script && command) {
        bool by_srun = table->hosts->by_srun && !rsh_agent(table->options);
        /* A local shell and srun inherit this process's limits. */
        write_script(table->options->host_setup, host->local || by_srun ? table->file_limit : 0, script,
                     capacity);
        if (host->local) {
            add(&words, shell);
            add(&words, "-c");
            add(&words, script);
        } else {
            if (by_srun)
                add_srun(&words, host);
            else
                add_host(&words, table, host);
            append_text(command, capacity, "exec %s -c ", shell);
            quote(command, capacity, script);
            add(&words, command);
        }
    }
    bool made = words.list && script && command && !words.failed;
    free(script);
    free(command);
    if (made)
        return words.list;
    words_free(words.list);
    return NULL;
}

/* ---- its failures -------------------------------------------------------------------------------------- */

#define KEY_CHANGED "IDENTIFICATION HAS CHANGED"
#define KEY_FAILED  "Host key verification failed" /* ssh's last line of both */

static const struct failure {
    const char *words, *problem, *remedy; /* %s: the host, as words for ssh or a name in known_hosts */
    int exit_code; /* the exit code that ssh then has: --host-setup may have printed the words */
    bool known;    /* a name in known_hosts */
} failures[] = {
    {"Could not resolve hostname", "its name is unknown",
     "check the spelling, DNS, /etc/hosts or ~/.ssh/config", SSH_FAILED, false},
    {"Connection refused", "nothing listens at its ssh port", "start sshd there, or give the port by -p",
     SSH_FAILED, false},
    {"timed out", "it does not answer", "is it up, and does a firewall let ssh through?", SSH_FAILED, false},
    {"No route to host", "there is no route to it", "is it up, and is its address right?", SSH_FAILED, false},
    {"Network is unreachable", "there is no route to it", "is this host's network up?", SSH_FAILED, false},
    {KEY_CHANGED, "its host key has changed", "if that is right, remove the old one: ssh-keygen -R %s",
     SSH_FAILED, true},
    {KEY_FAILED, "its host key is unknown", "check and accept it once: ssh %s true, or add it to known_hosts",
     SSH_FAILED, false},
    {"Permission denied", "it requires a password", "install a key that needs none: ssh-copy-id %s",
     SSH_FAILED, false},
    {"Too many authentication failures", "it requires a password", "name the right key by -i", SSH_FAILED,
     false},
    {"no option --agent", "its horovodrun is of another release", "install the same release on all hosts", 2,
     false},
    {"not found", "there is no horovodrun",
     "install it there, at the same path or on the PATH of a login without terminal, or name it by "
     "--host-setup",
     127, false},
};

/* Cuts the last line off the text, and returns it. */
static const char *last_line(char *text)
{
    size_t length = strlen(text);
    while (length && strchr("\r\n ", text[length - 1]))
        text[--length] = '\0';
    char *end = strrchr(text, '\n');
    if (end)
        *end = '\0';
    return end ? end + 1 : text;
}

/* An exit_code of 0 stands for any. */
static const struct failure *failure_of_line(const char *line, int exit_code)
{
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        if (strstr(line, failures[i].words) && (!exit_code || failures[i].exit_code == exit_code))
            return &failures[i];
    }
    return NULL;
}

/* Searches the last lines first: a banner may be above them. */
static const struct failure *find_failure(const char *errors, int exit_code)
{
    const struct failure *failure = NULL;
    char *rest = strdup(errors);
    for (const char *line = NULL; rest && line != rest && !failure;)
        failure = failure_of_line(line = last_line(rest), exit_code);
    free(rest);
    if (failure && strcmp(failure->words, KEY_FAILED) == 0 && strstr(errors, KEY_CHANGED))
        failure = failure_of_line(KEY_CHANGED, 0);
    return failure;
}

static void put_remedy(const struct table *table, const struct host *host, const struct failure *failure,
                       char *text, size_t capacity)
{
    char destination[DESTINATION_LIMIT], words[DESTINATION_LIMIT + 32] = "";
    int port = host->port ? host->port : (int)table->options->ssh_port;
    const char *name = failure->known ? host->name : destination_of(host, destination);
    if (!port)
        append_text(words, sizeof words, "%s", name);
    else if (failure->known)
        append_text(words, sizeof words, "[%s]:%d", name, port);
    else
        append_text(words, sizeof words, "-p %d %s", port, name);
    append_text(text, capacity, "%s; ", failure->problem);
    append_text(text, capacity, failure->remedy, words);
}

void ssh_explain(const struct table *table, const struct host *host, int exit_code, char *errors, char *text,
                 size_t capacity)
{
    const struct failure *failure =
        exit_code == SETUP_FAILED ? NULL : find_failure(errors, table->options->host_setup ? exit_code : 0);
    *text = '\0';
    if (failure) {
        put_remedy(table, host, failure, text, capacity);
        return;
    }
    const char *line = last_line(errors);
    if (exit_code == SETUP_FAILED)
        append_text(text, capacity, "its --host-setup has failed");
    else
        append_text(text, capacity,
                    table->options->host_setup
                        ? "its --host-setup, or what should start horovodrun there, ended with exit code %d"
                        : "what should start horovodrun there ended with exit code %d",
                    exit_code);
    append_text(text, capacity, *line ? ": %s" : "%s", line);
}
