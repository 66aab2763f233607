/* bootstrap.c - the ways by which the ranks of a job learn where the rendezvous is. What this process has
 * arranged is process-wide: process sets and later lives of the job use it again, after any context, until
 * they are given another rendezvous, secret or job. */
#include "bootstrap/bootstrap.h"

#include "base/status.h"
#include "base/thread.h"
#include "bootstrap/munge.h"
#include "bootstrap/pmi.h"
#include "net/addresses.h"
#include "net/crypto.h"
#include "rendezvous/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_DIGITS  64
#define RETRY_INTERVAL (CLOCK_SECOND / 20)
#define ATTEMPT_TIME   (3 * CLOCK_SECOND) /* to connect by an offer that may be an earlier job's */
#define EVERYBODY_ELSE (S_IRWXG | S_IRWXO)
#define GROUPS_LIMIT   256
#define GIVEN_LIMIT    8192

#define WITHOUT_HOME                                                                                         \
    "If the hosts have no home folder in common, set on all ranks HOROVOD_SECRET_FILE and "                  \
    "HOROVOD_RENDEZVOUS=host:port, with rank 0's host"

static struct {
    pthread_mutex_t lock;
    bool done;
    char given[GIVEN_LIMIT]; /* starter, rendezvous and secret for which it is arranged */
    char address[PMI_VALUE_LIMIT], secret[PMI_VALUE_LIMIT];
    hvd_rendezvous *server; /* in rank 0 */
    char file[PATH_MAX];    /* in rank 0: removed at the end of the process; or "" */
    int pmi;                /* finalized at the end of the process; or -1 */
    struct atfork_handler watch;
} arranged = {.lock = PTHREAD_MUTEX_INITIALIZER, .pmi = -1};

/* The arguments of bootstrap_arrange. */
struct bootstrap {
    const struct starter *starter;
    struct settings *settings;
    int64_t deadline;
    const struct interrupt *interrupt;
};

/* ---- files that only this user can read ---------------------------------------------------------------- */

static bool is_own_group(gid_t group)
{
    gid_t groups[GROUPS_LIMIT];
    int count = getgroups(GROUPS_LIMIT, groups);
    for (int i = 0; i < count; i++) {
        if (groups[i] == group)
            return true;
    }
    return group == getegid();
}

/* Kubernetes lets a user other than root read a Secret only by a group of its pod. */
static bool others_may_read(const struct stat *info)
{
    mode_t others = info->st_mode & EVERYBODY_ELSE;
    return others && !(others == S_IRGRP && info->st_uid == 0 && is_own_group(info->st_gid));
}

/* Reads the first line of a file that nobody else can read. */
static hvd_code read_private(int folder, const char *name, const char *what, char *text, size_t capacity,
                             hvd_status *status)
{
    struct stat info;
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 || fstat(file, &info) ? -1 : read(file, text, capacity - 1);
    int error = errno;
    socket_close(&file);
    if (length < 0)
        return status_set_errno(status, error, "can't read %s", what);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s belongs to user %u; it must belong to you or to root", what,
                          (unsigned)info.st_uid);
    if (others_may_read(&info))
        return status_set(status, HVD_INVALID_ARGUMENT, "%s can be read by others; run: chmod 600 %s", what,
                          name);
    text[length] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    return HVD_OK;
}

hvd_code bootstrap_read_secret(struct settings *settings, hvd_status *status)
{
    char what[PATH_MAX + 32], secret[4096];
    if (*settings->secret)
        return HVD_OK;
    if (!*settings->secret_file)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "a job of several ranks needs a secret: start it with horovodrun, or set "
                          "HOROVOD_SECRET_FILE or HOROVOD_SECRET to the same secret on every rank");
    snprintf(what, sizeof what, "HOROVOD_SECRET_FILE=%s", settings->secret_file);
    TRY(read_private(AT_FDCWD, settings->secret_file, what, secret, sizeof secret, status));
    if (!*secret)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: its first line is empty; it must hold the secret", what);
    return settings_set(settings, setting_by_key("secret"), secret, "HOROVOD_SECRET_FILE", status);
}

/* ---- at the port of rank 0's host that all ranks know ------------------------------------------------- */

static bool is_known(const struct starter *starter)
{
    return *starter->host && !starter->one_host;
}

/* Returns one of HOROVOD_PORTS, if there are any: the same on all ranks. */
static int known_port(const struct bootstrap *bootstrap)
{
    return ports_pick(bootstrap->settings->ports, bootstrap->starter->number, bootstrap->starter->port);
}

static void known_address(const struct bootstrap *bootstrap, char *text, size_t capacity)
{
    const char *host = bootstrap->starter->host;
    snprintf(text, capacity, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, known_port(bootstrap));
}

/* Finds where to listen so that "name:port" leads here, also on this host, on which the name may mean
 * loopback: at all interfaces (no address), or at the allowed ones. *own: the addresses for other hosts. */
static hvd_code find_places(const struct bootstrap *bootstrap, const char *name, struct addresses *own,
                            struct addresses *at, hvd_status *status)
{
    const char *interfaces = bootstrap->settings->network_interface;
    TRY(addresses_find(interfaces, "", own, status));
    *at = *interfaces ? *own : (struct addresses){0};
    if (*interfaces)
        addresses_add_loopback(at, name);
    return HVD_OK;
}

/* ---- rank 0 serves ------------------------------------------------------------------------------------- */

static hvd_code start_server(const struct addresses *at, const char *ports, const char *secret,
                             hvd_status *status)
{
    char text[ADDRESSES_TEXT];
    addresses_to_listen(at, ports, text);
    return arranged.server ? HVD_OK : hvd_rendezvous_start(text, secret, &arranged.server, status);
}

/* Starts at any allowed port except `kept`, if possible: above it, below it, or at any. */
static hvd_code start_beside(const struct addresses *at, const char *ports, int kept, const char *secret,
                             hvd_status *status)
{
    char part[32];
    int first, last;
    TRY(ports_parse(ports, &first, &last, status));
    const int parts[][2] = {{kept + 1, last}, {first, kept - 1}};
    for (int i = 0; i < 2; i++) {
        if (kept < first || kept > last || parts[i][0] > parts[i][1])
            continue;
        snprintf(part, sizeof part, "%d-%d", parts[i][0], parts[i][1]);
        if (start_server(at, part, secret, status) == HVD_OK)
            return HVD_OK;
    }
    return start_server(at, ports, secret, status);
}

/* Starts the server and writes "secret,address,address...". */
static hvd_code offer(const struct bootstrap *bootstrap, char text[PMI_VALUE_LIMIT], hvd_status *status)
{
    const struct settings *settings = bootstrap->settings;
    bool loopback = bootstrap->starter->one_host;
    struct addresses own = addresses_of_loopback;
    if (!loopback)
        TRY(addresses_find(settings->network_interface, "", &own, status));
    TRY(crypto_random_hex(text, SECRET_DIGITS, status));
    TRY(start_beside(&own, settings->ports, known_port(bootstrap), text, status));
    text[SECRET_DIGITS] = ',';
    addresses_to_connect(&own, loopback ? "" : settings->advertised_address,
                         hvd_rendezvous_port(arranged.server), text + SECRET_DIGITS + 1,
                         PMI_VALUE_LIMIT - SECRET_DIGITS - 1);
    return HVD_OK;
}

/* ---- the others search --------------------------------------------------------------------------------- */

static hvd_code try_offer(const struct bootstrap *bootstrap, const char *text, hvd_status *status)
{
    const char *comma = strchr(text, ',');
    struct rendezvous_client *client = NULL;
    if (!comma)
        return status_set(status, HVD_REFUSED, "rank 0 has published no address of the rendezvous");
    snprintf(arranged.secret, sizeof arranged.secret, "%.*s", (int)(comma - text), text);
    snprintf(arranged.address, sizeof arranged.address, "%s", comma + 1);
    int64_t end = clock_earlier(bootstrap->deadline, clock_now() + ATTEMPT_TIME);
    hvd_code code = rendezvous_connect(arranged.address, arranged.secret, bootstrap->settings->encryption,
                                       end, bootstrap->interrupt, &client, status);
    rendezvous_close(client);
    return code;
}

/* ---- by PMI -------------------------------------------------------------------------------------------- */

static hvd_code meet_by_pmi(const struct bootstrap *bootstrap, hvd_status *status)
{
    char text[PMI_VALUE_LIMIT] = "";
    const struct starter *starter = bootstrap->starter;
    struct stat info;
    if (fstat(starter->pmi, &info) || !S_ISSOCK(info.st_mode))
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "PMI_FD=%d is not a connection to the process manager in process %d, so it can't be "
            "rank %lld. A program that the rank starts inherits its variables (%s), but not "
            "this connection: call hvd.init() in the rank's own process only, or start the "
            "program without these variables",
            starter->pmi, (int)getpid(), (long long)starter->rank, starter->variables);
    if (starter->rank == 0)
        TRY(offer(bootstrap, text, status));
    /* The MPI library may close the starter's descriptor. */
    socket_close(&arranged.pmi);
    arranged.pmi = fcntl(starter->pmi, F_DUPFD_CLOEXEC, 0);
    TRY(pmi_broadcast(arranged.pmi, starter->rank == 0, text, bootstrap->deadline, bootstrap->interrupt,
                      status));
    return try_offer(bootstrap, text, status);
}

/* ---- by a credential ----------------------------------------------------------------------------------- */

/* The text is "job secret,address,...", since another job of the user may serve at this port. */
static hvd_code serve_credential(const struct bootstrap *bootstrap, const char *text, hvd_status *status)
{
    char whole[PMI_VALUE_LIMIT], address[STARTER_TEXT + 16];
    struct addresses own, at;
    known_address(bootstrap, address, sizeof address);
    TRY(find_places(bootstrap, address, &own, &at, status));
    int length = snprintf(whole, sizeof whole, "%.200s %s", bootstrap->starter->job, text);
    if ((size_t)length >= sizeof whole)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "too many addresses for a credential: set HOROVOD_NETWORK_INTERFACE");
    return munge_serve(&at, known_port(bootstrap), whole, status);
}

static hvd_code try_credential(const struct bootstrap *bootstrap, hvd_status *status)
{
    char address[STARTER_TEXT + 16], text[PMI_VALUE_LIMIT], job[STARTER_TEXT];
    int64_t end = clock_earlier(bootstrap->deadline, clock_now() + ATTEMPT_TIME);
    known_address(bootstrap, address, sizeof address);
    TRY(munge_fetch(address, text, end, bootstrap->interrupt, status));
    int length = snprintf(job, sizeof job, "%.200s ", bootstrap->starter->job);
    if (strncmp(text, job, (size_t)length) != 0)
        return status_set(status, HVD_REFUSED, "%s serves another job", address);
    return try_offer(bootstrap, text + length, status);
}

/* ---- by a file, or a credential ----------------------------------------------------------------------- */

static hvd_code open_folder(const char *path, int *folder, hvd_status *status)
{
    struct stat info;
    if (mkdir(path, S_IRWXU) && errno != EEXIST)
        return status_set_errno(status, errno, "can't make the folder %s for the secret of the job", path);
    *folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (*folder < 0 || fstat(*folder, &info))
        return status_set_errno(status, errno, "can't open the folder %s", path);
    if (info.st_uid == geteuid() && !(info.st_mode & (S_IWGRP | S_IWOTH)))
        return HVD_OK;
    return status_set(status, HVD_INVALID_ARGUMENT,
                      "the folder %s can be written by others; it must be yours: chmod 700 %s", path, path);
}

/* Renames the file once it is complete, so that no reader finds half of it. */
static hvd_code write_private(int folder, const char *path, const char *name, const char *text,
                              hvd_status *status)
{
    char fresh[NAME_MAX + 1];
    snprintf(fresh, sizeof fresh, ".%.200s-%d", name, (int)getpid());
    struct held_signals held = signals_hold();
    unlinkat(folder, fresh, 0);
    int file = openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    bool written = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) &&
                   renameat(folder, fresh, folder, name) == 0;
    int error = errno;
    signals_release(&held);
    socket_close(&file);
    return written ? HVD_OK : status_set_errno(status, error, "can't write %s", path);
}

static hvd_code publish(const char *folder_path, const char *name, const char *text, hvd_status *status)
{
    char path[PATH_MAX];
    int folder = -1;
    snprintf(path, sizeof path, "%.2000s/%s", folder_path, name);
    hvd_code code = open_folder(folder_path, &folder, status);
    if (!code)
        code = write_private(folder, path, name, text, status);
    if (!code)
        memcpy(arranged.file, path, sizeof path);
    socket_close(&folder);
    return code;
}

/* Opens the folder each time: then a network file system asks its server. */
static hvd_code try_file(const struct bootstrap *bootstrap, const char *folder_path, const char *name,
                         bool *has_folder, hvd_status *status)
{
    char path[PATH_MAX], text[PMI_VALUE_LIMIT];
    int folder = -1;
    snprintf(path, sizeof path, "%.2000s/%s", folder_path, name);
    hvd_code code = open_folder(folder_path, &folder, status);
    *has_folder = code == HVD_OK;
    if (!code)
        code = read_private(folder, name, path, text, sizeof text, status);
    socket_close(&folder);
    return code ? code : try_offer(bootstrap, text, status);
}

/* Tries repeatedly: an earlier job of this name may have left its file when it was killed. */
static hvd_code look_for_offer(const struct bootstrap *bootstrap, const char *folder_path, const char *name,
                               hvd_status *status)
{
    const struct starter *starter = bootstrap->starter;
    hvd_status of_file, of_credential, latest;
    status_set(&of_credential, HVD_UNSUPPORTED, "the host of rank 0 is not known");
    for (;;) {
        bool has_folder;
        if (try_file(bootstrap, folder_path, name, &has_folder, &of_file) == HVD_OK ||
            (is_known(starter) && try_credential(bootstrap, &latest) == HVD_OK))
            return HVD_OK;
        if (is_known(starter) && (latest.code != HVD_TIMED_OUT || of_credential.code == HVD_UNSUPPORTED))
            of_credential = latest; /* an attempt that the deadline has ended says less */
        if (of_file.code == HVD_INTERRUPTED || interrupt_is_set(bootstrap->interrupt))
            return status_set(status, HVD_INTERRUPTED, "interrupted while waiting for %.1000s/%s",
                              folder_path, name);
        if (!has_folder && of_credential.code == HVD_UNSUPPORTED)
            return status_set(status, of_file.code, "%.700s. " WITHOUT_HOME, of_file.text);
        if (clock_now() >= bootstrap->deadline)
            return status_set(status, HVD_TIMED_OUT,
                              "rank %lld of %lld (%s) has not met rank 0 within the time to start "
                              "(HOROVOD_START_TIMEOUT) by %.1000s/%s, which rank 0 writes: %.200s; nor by "
                              "MUNGE: %.200s. " WITHOUT_HOME,
                              (long long)starter->rank, (long long)starter->size, starter->name, folder_path,
                              name, of_file.text, of_credential.text);
        nanosleep(&(struct timespec){0, RETRY_INTERVAL}, NULL);
    }
}

/* Publishes the offer as a file and as a credential, one of which is enough. */
static hvd_code make_offer(const struct bootstrap *bootstrap, const char *folder_path, const char *name,
                           hvd_status *status)
{
    char text[PMI_VALUE_LIMIT];
    hvd_status problem;
    TRY(offer(bootstrap, text, status));
    bool served = is_known(bootstrap->starter) && serve_credential(bootstrap, text, &problem) == HVD_OK;
    if (is_known(bootstrap->starter) && !served)
        log_debug(0, "ranks without this home folder get no credential: %s", problem.text);
    hvd_code code = publish(folder_path, name, text, &problem);
    if (code && !served)
        return status_set(status, code, "%.700s. " WITHOUT_HOME, problem.text);
    return try_offer(bootstrap, text, status);
}

static hvd_code meet_by_file(const struct bootstrap *bootstrap, hvd_status *status)
{
    char folder_path[PATH_MAX], name[STARTER_TEXT];
    const struct starter *starter = bootstrap->starter;
    const char *home = getenv("HOME");
    snprintf(folder_path, sizeof folder_path, "%.2000s/.horovod", home && *home ? home : ".");
    snprintf(name, sizeof name, "%.200s", starter->job);
    for (char *at = name; (at = strchr(at, '/'));)
        *at = '-';
    return starter->rank ? look_for_offer(bootstrap, folder_path, name, status)
                         : make_offer(bootstrap, folder_path, name, status);
}

/* ---- at an address that all know ----------------------------------------------------------------------- */

/* Rank 0 will connect to the given address first, then to its own ones: the name may mean another host here.
 */
static hvd_code serve_at(const struct bootstrap *bootstrap, const char *address, const char *port,
                         hvd_status *status)
{
    struct addresses own = {0}, at = {0};
    char text[PMI_VALUE_LIMIT];
    if (addresses_are_loopback(address)) {
        addresses_add_loopback(&at, address);
        return at.count ? start_server(&at, port, arranged.secret, status)
                        : status_set(status, HVD_INVALID_ARGUMENT, "this host has no such address");
    }
    TRY(find_places(bootstrap, address, &own, &at, status));
    TRY(start_server(&at, port, arranged.secret, status));
    addresses_text(&own, hvd_rendezvous_port(arranged.server), text);
    if (strlen(address) + strlen(text) + 1 < sizeof arranged.address)
        append_text(arranged.address, sizeof arranged.address, ",%s", text);
    return HVD_OK;
}

static hvd_code meet_at(const struct bootstrap *bootstrap, const char *address, hvd_status *status)
{
    const char *colon = strrchr(address, ':');
    hvd_status problem;
    TRY(bootstrap_read_secret(bootstrap->settings, status));
    if (colon &&
        (colon[1 + strspn(colon + 1, "0123456789")] || atol(colon + 1) < 1 || atol(colon + 1) > 65535))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "the rendezvous at %s: '%s' is no port; it must be a whole number from 1 to 65535",
                          address, colon + 1);
    snprintf(arranged.secret, sizeof arranged.secret, "%s", bootstrap->settings->secret);
    snprintf(arranged.address, sizeof arranged.address, "%s", address);
    if (bootstrap->starter->rank > 0 || !colon || !serve_at(bootstrap, address, colon + 1, &problem))
        return HVD_OK;
    return status_set(status, problem.code,
                      "rank 0 serves the rendezvous at %s, but %.300s; set HOROVOD_RENDEZVOUS=host:port to a "
                      "free port of this host on every rank (or HOROVOD_JOB, if something else serves there)",
                      address, problem.text);
}

/* ---- the choice ---------------------------------------------------------------------------------------- */

static void leave(void)
{
    if (*arranged.file)
        unlink(arranged.file);
    if (arranged.pmi >= 0)
        pmi_finalize(arranged.pmi);
}

/* In a child of fork() the server and the file are the parent's, and the handler is no longer installed. */
static void forget(void *owner)
{
    (void)owner;
    socket_close(&arranged.pmi);
    struct atfork_handler *next = arranged.watch.next; /* the list is being walked */
    memset(&arranged, 0, sizeof arranged);
    pthread_mutex_init(&arranged.lock, NULL);
    arranged.watch.next = next;
    arranged.pmi = -1;
}

static hvd_code arrange(const struct bootstrap *bootstrap, hvd_status *status)
{
    const struct starter *starter = bootstrap->starter;
    char address[STARTER_TEXT + 16];
    if (!arranged.watch.in_child) {
        arranged.watch.in_child = forget;
        atfork_add(&arranged.watch);
        atexit(leave);
    }
    if (*bootstrap->settings->rendezvous)
        return meet_at(bootstrap, bootstrap->settings->rendezvous, status);
    if (starter->pmi >= 0)
        return meet_by_pmi(bootstrap, status);
    if (*bootstrap->settings->secret && is_known(starter)) {
        known_address(bootstrap, address, sizeof address);
        return meet_at(bootstrap, address, status);
    }
    if (*starter->job)
        return meet_by_file(bootstrap, status);
    return status_set(
        status, HVD_INVALID_ARGUMENT,
        "rank %lld of %lld (%s) has no rendezvous; start the job with horovodrun, or set "
        "HOROVOD_RENDEZVOUS=host:port, with rank 0's host, and HOROVOD_SECRET_FILE on all ranks",
        (long long)starter->rank, (long long)starter->size, starter->name);
}

static void withdraw_offer(void)
{
    munge_stop();
    if (*arranged.file)
        unlink(arranged.file);
    *arranged.file = '\0';
}

/* Afterwards neither another attempt nor another rank finds the offer. */
static void withdraw(void)
{
    hvd_rendezvous_stop(arranged.server);
    withdraw_offer();
    arranged.server = NULL;
    arranged.done = false;
}

void bootstrap_withdraw_offer(void)
{
    pthread_mutex_lock(&arranged.lock);
    withdraw_offer();
    pthread_mutex_unlock(&arranged.lock);
}

hvd_code bootstrap_arrange(const struct starter *starter, struct settings *settings, int64_t deadline,
                           const struct interrupt *interrupt, hvd_status *status)
{
    struct bootstrap bootstrap = {starter, settings, deadline, interrupt};
    hvd_code code = HVD_OK;
    char wanted[GIVEN_LIMIT];
    if (*settings->secret || *settings->secret_file)
        TRY(bootstrap_read_secret(settings, status));
    pthread_mutex_lock(&arranged.lock);
    /* Without the rank: the process that was rank 0 continues to serve when the ranks are numbered anew. */
    snprintf(wanted, sizeof wanted, "%s %s %s:%d %s %s", starter->name, starter->job, starter->host,
             starter->port, settings->rendezvous, settings->secret);
    if (arranged.done && strcmp(arranged.given, wanted) != 0)
        withdraw();
    if (!arranged.done) {
        memcpy(arranged.given, wanted, sizeof wanted);
        code = arrange(&bootstrap, status);
        arranged.done = !code;
        if (code)
            withdraw();
    }
    if (!code)
        code = settings_set(settings, setting_by_key("rendezvous"), arranged.address, starter->name, status);
    if (!code)
        code = settings_set(settings, setting_by_key("secret"), arranged.secret, starter->name, status);
    pthread_mutex_unlock(&arranged.lock);
    return code;
}
