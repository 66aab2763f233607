/* mpirun.c - runs horovodrun --mpi: this process becomes the mpirun of the MPI whose collectives move the
 * bytes. One thread. */
#include "mpirun.h"
#include "environment.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <wordexp.h>

enum kind { OPENMPI, MPICH, INTEL, UNKNOWN };

static enum kind kind_of_mpirun(void)
{
    static const struct {
        const char *text;
        enum kind kind;
    } marks[] = {{"Open MPI", OPENMPI},
                 {"OpenRTE", OPENMPI},
                 {"Intel(R) MPI", INTEL},
                 {"HYDRA", MPICH},
                 {"MPICH", MPICH}};
    enum kind kind = UNKNOWN;
    char line[1024];
    FILE *answer = popen("mpirun --version 2>/dev/null </dev/null", "re");
    while (answer && fgets(line, sizeof line, answer))
        for (size_t i = 0; kind == UNKNOWN && i < sizeof marks / sizeof *marks; i++)
            if (strstr(line, marks[i].text))
                kind = marks[i].kind;
    if (answer)
        pclose(answer);
    return kind;
}

/* A command line under construction. Its words are never freed: the process becomes another program. */
struct words {
    const char **list;
    size_t count;
    bool failed;
};

static void add(struct words *words, const char *word)
{
    const char **list = word ? realloc(words->list, (words->count + 2) * sizeof *list) : NULL;
    if (!list) {
        words->failed = true;
        return;
    }
    words->list = list;
    list[words->count++] = word;
    list[words->count] = NULL;
}

static void add_pair(struct words *words, const char *option, const char *value)
{
    add(words, option);
    add(words, value);
}

/* "a:2,b:2" */
static const char *list_hosts(const struct hosts *hosts)
{
    char *list = NULL;
    size_t length;
    FILE *file = open_memstream(&list, &length);
    for (int i = 0; file && i < hosts->count; i++) {
        if (!hosts->list[i].ranks)
            continue;
        fprintf(file, "%s%s:%d", ftell(file) > 0 ? "," : "", hosts->list[i].name, hosts->list[i].ranks);
    }
    return file && !fclose(file) ? list : NULL;
}

/* Returns the path of such a list, with a host on each line, in a file that mpirun inherits. */
static const char *file_of_hosts(const struct hosts *hosts)
{
    char *path = NULL;
    int file = memfd_create("hosts", 0);
    for (int i = 0; file >= 0 && i < hosts->count; i++)
        if (hosts->list[i].ranks)
            dprintf(file, "%s:%d\n", hosts->list[i].name, hosts->list[i].ranks);
    return file < 0 || asprintf(&path, "/dev/fd/%d", file) < 0 ? NULL : path;
}

/* MPICH and Intel MPI pass the whole environment on; Open MPI passes named variables on to other hosts. */
static void name_variables(struct words *words, const struct environment *environment)
{
    for (char **entry = environment->entries; *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        if (strspn(*entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != length)
            continue;
        char *name = strndup(*entry, length);
        add_pair(words, "-x", name);
        if (words->failed)
            free(name);
    }
}

static hvd_code add_mpi_args(struct words *words, const char *text, hvd_status *status)
{
    wordexp_t split;
    int error = text ? wordexp(text, &split, WRDE_NOCMD) : 0;
    if (error)
        return status_set(status, HVD_INVALID_ARGUMENT, "--mpi-args: '%s' can't be split into words", text);
    for (size_t i = 0; text && i < split.we_wordc; i++)
        add(words, split.we_wordv[i]);
    return HVD_OK;
}

static hvd_code check(const struct options *options, const struct hosts *hosts, enum kind kind,
                      hvd_status *status)
{
    if (kind == UNKNOWN)
        return status_set(
            status, HVD_UNSUPPORTED,
            "--mpi: there is no mpirun of Open MPI, MPICH or Intel MPI on the PATH; install one on "
            "every host");
    const char *other = options->timestamp                   ? "prefix-output-with-timestamp"
                        : options->host_setup                ? "host-setup"
                        : options->rsh_agent                 ? "rsh-agent"
                        : options->metrics_port              ? "metrics-port"
                        : options->metrics_discovery         ? "metrics-discovery"
                        : options->metrics_file              ? "metrics-file"
                        : options->metrics_address           ? "metrics-address"
                        : options->metrics_token_file        ? "metrics-token-file"
                        : options->metrics_ranks             ? "metrics-ranks"
                        : options->report                    ? "report"
                        : options->output && kind != OPENMPI ? "output-filename"
                                                             : NULL;
    if (other)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "--%s can't be used with --mpi, since mpirun starts the ranks; see --mpi-args",
                          other);
    if (options->identity && strpbrk(options->identity, " \t"))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "-i '%s': mpirun takes no path with blanks; give it in ~/.ssh/config",
                          options->identity);
    for (int i = 0; i < hosts->count; i++)
        if (*hosts->list[i].user || hosts->list[i].port)
            return status_set(
                status, HVD_INVALID_ARGUMENT,
                "host %s: mpirun takes no user and no port of a host; give them in ~/.ssh/config",
                hosts->list[i].name);
    return HVD_OK;
}

static void add_for_openmpi(struct words *words, const struct options *options, const struct hosts *hosts,
                            const struct environment *environment)
{
    bool remote = false;
    for (int i = 0; i < hosts->count; i++)
        remote |= !hosts->list[i].local;
    if (geteuid() == 0)
        add(words, "--allow-run-as-root");
    add(words, "--tag-output");
    add_pair(words, "--bind-to", "none");
    add_pair(words, "--map-by", "slot");
    add_pair(words, "--host", list_hosts(hosts));
    if (options->output)
        add_pair(words, "--output-filename", options->output);
    if (remote)
        name_variables(words, environment);
}

/* Removes variables that would place the ranks differently than mpirun does. */
static void clear_placement(void)
{
    static const char *const names[] = {"RANK",       "SIZE",       "LOCAL_RANK", "LOCAL_SIZE",  "CROSS_RANK",
                                        "CROSS_SIZE", "RENDEZVOUS", "SECRET",     "SECRET_FILE", "SLOT",
                                        "EPOCH",      "JOB",        "HOSTNAME"};
    char name[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "HOROVOD_%s", names[i]);
        unsetenv(name);
    }
}

/* Appends to what the user has given. Each of the variables is read by one of Open MPI 4 and 5, MPICH and
 * Intel MPI. */
static void set_ssh_arguments(const struct options *options)
{
    static const char *const names[] = {"OMPI_MCA_plm_rsh_args", "PRTE_MCA_plm_ssh_args",
                                        "HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS"};
    char arguments[4096] = "";
    if (options->ssh_port)
        append_text(arguments, sizeof arguments, " -p %d", (int)options->ssh_port);
    if (options->identity)
        append_text(arguments, sizeof arguments, " -i %s", options->identity);
    for (size_t i = 0; *arguments && i < sizeof names / sizeof *names; i++) {
        char text[8192];
        const char *given = getenv(names[i]);
        snprintf(text, sizeof text, "%s%s", given ? given : "", given ? arguments : arguments + 1);
        setenv(names[i], text, 1);
    }
}

static void set_environment(const struct options *options)
{
    clear_placement();
    set_ssh_arguments(options);
    for (int i = 0; i < setting_count; i++)
        if (options->values[i])
            setenv(setting_table[i].environment, options->values[i], 1);
    setenv("HOROVOD_CPU_OPERATIONS", "mpi", 1);
}

static hvd_code run_mpirun(struct words *words, const struct options *options, const struct hosts *hosts,
                           const struct environment *environment, enum kind kind, hvd_status *status)
{
    char *size = NULL;
    add(words, "mpirun");
    add_pair(words, "-np", asprintf(&size, "%d", hosts->size) < 0 ? NULL : size);
    if (kind == OPENMPI) {
        add_for_openmpi(words, options, hosts, environment);
    } else {
        add(words, "-l");
        if (kind == INTEL) /* its -hosts takes no numbers of ranks */
            add_pair(words, "-machinefile", file_of_hosts(hosts));
        else
            add_pair(words, "-hosts", list_hosts(hosts));
    }
    TRY(add_mpi_args(words, options->mpi_args, status));
    for (char **word = options->command; *word; word++)
        add(words, *word);
    if (words->failed)
        return status_no_memory(status);
    if (options->verbose) {
        fprintf(stderr, "horovodrun: starting");
        for (size_t i = 0; i < words->count; i++)
            fprintf(stderr, " %s", words->list[i]);
        fprintf(stderr, "\n");
    }
    execvp("mpirun", (char **)words->list);
    return status_set_errno(status, errno, "can't start mpirun");
}

hvd_code mpirun_become(const struct options *options, const struct hosts *hosts, hvd_status *status)
{
    struct words words = {0};
    struct environment environment = {0};
    enum kind kind = kind_of_mpirun();
    TRY(check(options, hosts, kind, status));
    set_environment(options);
    TRY(environment_for_hosts(&environment, options, status));
    hvd_code code = run_mpirun(&words, options, hosts, &environment, kind, status);
    environment_free(&environment);
    free(words.list);
    return code;
}
