/* hosts.c - reads -H, the host file and the allocation of a batch system, and lays out the ranks. One thread.
 */
#include "hosts.h"

#include "base/settings.h"
#include "base/status.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_MAXIMUM    65535
#define BLANKS          " \t\r" /* a line of Windows ends in \r\n */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

/* ---- names --------------------------------------------------------------------------------------------- */

/* Only an address of this host can be bound. */
static bool is_own_address(const char *text)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM}, *address;
    if (getaddrinfo(text, NULL, &hints, &address))
        return false;
    int file = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool own = file >= 0 && bind(file, address->ai_addr, address->ai_addrlen) == 0;
    if (file >= 0)
        close(file);
    freeaddrinfo(address);
    return own;
}

/* Asks DNS once for all hosts of a list: it may take seconds. */
static bool is_full_name(const char *name, const char *here)
{
    static char full[256];
    static bool known;
    struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_DGRAM}, *found;
    if (!known && getaddrinfo(here, NULL, &hints, &found) == 0) {
        snprintf(full, sizeof full, "%s", found->ai_canonname ? found->ai_canonname : "");
        freeaddrinfo(found);
    }
    known = true;
    return *full && strcasecmp(name, full) == 0;
}

/* Other names are not looked up: that may take long, and would end in an error anyway. */
static bool is_this_host(const char *name)
{
    char here[256] = "", shorter[256];
    gethostname(here, sizeof here - 1);
    snprintf(shorter, sizeof shorter, "%.*s", (int)strcspn(here, "."), here);
    return strcasecmp(name, "localhost") == 0 || strcasecmp(name, here) == 0 ||
           strcasecmp(name, shorter) == 0 || is_own_address(name) || is_full_name(name, here);
}

/* Finds characters that pages and editors leave next to a name, and that nobody would see in the error of an
 * unknown host. Returns the position of the first one, from 1 on, or 0. */
static size_t invisible_at(const char *text)
{
    static const char *const invisible[] = {
        "\xc2\xa0" /* no-break space */,       "\xc2\xad" /* soft hyphen */,
        "\xe2\x80\x8b" /* zero width space */, "\xe2\x81\xa0" /* word joiner */,
        "\xe2\x80\xaf" /* narrow space */,     BYTE_ORDER_MARK,
    };
    for (size_t i = 0; i < sizeof invisible / sizeof *invisible; i++) {
        const char *at = strstr(text, invisible[i]);
        if (at)
            return (size_t)(at - text) + 1;
    }
    return 0;
}

/* Parses "[user@]name"; a name with colons, an IPv6 address, is in brackets. */
static hvd_code parse_name(struct host *host, const char *text, const char *source, hvd_status *status)
{
    const char *at = strrchr(text, '@'), *name = at ? at + 1 : text;
    size_t length = strlen(name), user = at ? (size_t)(at - text) : 0;
    bool printable = true;
    for (const char *letter = text; *letter; letter++)
        printable = printable && !iscntrl((unsigned char)*letter);
    if (!printable || text[strcspn(text, " '`\"$\\;&<>|(){}")]) /* as ssh does */
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: '%s' is no name of a host", source, text);
    size_t invisible = invisible_at(text);
    if (invisible)
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "%s: '%s' is no name of a host: the character at byte %zu is invisible; type the name anew",
            source, text, invisible);
    if (length > 2 && *name == '[' && name[length - 1] == ']') {
        name++;
        length -= 2;
    } else if (memchr(name, ':', length)) {
        return status_set(
            status, HVD_INVALID_ARGUMENT,
            "%s: '%s' is no name of a host; an IPv6 address stands in brackets, e.g. [fd00::7]:4", source,
            text);
    }
    /* A name that begins with a dash would be an option of ssh. */
    if (length == 0 || length >= sizeof host->name || *name == '-' || (at && (user == 0 || *text == '-')) ||
        user >= sizeof host->user)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: '%s' is no name of a host", source, text);
    memcpy(host->name, name, length);
    memcpy(host->user, text, user);
    return HVD_OK;
}

static hvd_code parse_number(int64_t *number, const char *text, int64_t maximum, const char *what,
                             const char *source, hvd_status *status)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    if (errno || end == text || *end || *number < 1 || *number > maximum)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: '%s' is not a %s; it must be a whole number from 1 to %" PRId64, source, text,
                          what, maximum);
    return HVD_OK;
}

static hvd_code parse_slots(struct host *host, const char *text, const char *source, hvd_status *status)
{
    return parse_number(&host->slots, text, (int64_t)setting_by_key("size")->maximum, "number of slots",
                        source, status);
}

/* ---- the list ------------------------------------------------------------------------------------------ */

hvd_code hosts_append(struct hosts *hosts, const struct host *host, hvd_status *status)
{
    struct host *list = realloc(hosts->list, (size_t)(hosts->count + 1) * sizeof *list);
    if (!list)
        return status_no_memory(status);
    hosts->list = list;
    list[hosts->count++] = *host;
    return HVD_OK;
}

static bool same_entry(const struct host *one, const struct host *other)
{
    return strcasecmp(one->name, other->name) == 0 && strcmp(one->user, other->user) == 0 &&
           one->port == other->port;
}

const struct host *hosts_find(const struct hosts *hosts, const struct host *host)
{
    for (int i = 0; i < hosts->count; i++) {
        if (same_entry(&hosts->list[i], host))
            return &hosts->list[i];
    }
    return NULL;
}

static hvd_code add_host(struct hosts *hosts, struct host *host, hvd_status *status)
{
    host->local = !*host->user && !host->port && is_this_host(host->name);
    for (int i = 0; i < hosts->count; i++) {
        struct host *earlier = &hosts->list[i];
        if (same_entry(earlier, host) || (earlier->local && host->local && !hosts->apart)) {
            int64_t most = setting_by_key("size")->maximum;
            earlier->slots += host->slots < most - earlier->slots ? host->slots : most - earlier->slots;
            return HVD_OK;
        }
    }
    return hosts_append(hosts, host, status);
}

hvd_code hosts_add(struct hosts *hosts, const char *name, int64_t slots, const char *source,
                   hvd_status *status)
{
    struct host host = {.slots = slots};
    TRY(parse_name(&host, name, source, status));
    if (slots < 1 || slots > (int64_t)setting_by_key("size")->maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%s: %" PRId64 " is not a number of slots for %s",
                          source, slots, name);
    return add_host(hosts, &host, status);
}

/* Parses "name:slots"; changes the text. */
static hvd_code parse_entry(struct host *host, char *entry, const char *source, hvd_status *status)
{
    char *colon = strrchr(entry, ':');
    if (!colon || colon == entry || strchr(colon, ']')) /* the last one of an IPv6 address */
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: '%s' is not of the form host:slots, e.g. localhost:4", source, entry);
    *colon = '\0';
    TRY(parse_slots(host, colon + 1, source, status));
    return parse_name(host, entry, source, status);
}

/* The last colon of an address in brackets is in front of its slots. */
static bool says_slots(const char *entry)
{
    return strchr(*entry == '[' ? entry + strcspn(entry, "]") : entry, ':') != NULL;
}

hvd_code hosts_parse(struct hosts *hosts, const char *list, hvd_status *status)
{
    char entry[400];
    while (true) {
        size_t length = strcspn(list, ",");
        struct host host = {0};
        if (length >= sizeof entry)
            return status_set(status, HVD_INVALID_ARGUMENT, "--hosts: '%.40s...' is no name of a host", list);
        snprintf(entry, sizeof entry, "%.*s", (int)length, list);
        text_close_up(entry, ":");
        if (hosts->slots && !says_slots(entry))
            append_text(entry, sizeof entry, ":%" PRId64, hosts->slots);
        TRY(parse_entry(&host, entry, "--hosts", status));
        TRY(add_host(hosts, &host, status));
        if (!list[length])
            return HVD_OK;
        list += length + 1;
    }
}

hvd_code hosts_add_line(struct hosts *hosts, char *line, int64_t slots, const char *source,
                        hvd_status *status)
{
    struct host host = {.slots = slots};
    text_close_up(line, ":");
    line += strspn(line, BLANKS);
    size_t length = strlen(line);
    while (length && strchr(BLANKS, line[length - 1]))
        line[--length] = '\0';
    if (!length)
        return HVD_OK;
    if (says_slots(line))
        TRY(parse_entry(&host, line, source, status));
    else if (!slots)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: '%.100s' says no slots; print host:slots, or give --slots-per-host", source,
                          line);
    else
        TRY(parse_name(&host, line, source, status));
    return add_host(hosts, &host, status);
}

/* Parses one of "slots=2", "max_slots=4", "port=2222". */
static hvd_code parse_word(struct host *host, const char *word, int64_t *most, const char *source,
                           hvd_status *status)
{
    const char *value = strchr(word, '=');
    size_t length = value ? (size_t)(value - word) : 0;
    int64_t port = 0;
    if (length == 5 && strncmp(word, "slots", length) == 0)
        return parse_slots(host, value + 1, source, status);
    if (length == 9 && (strncmp(word, "max_slots", length) == 0 || strncmp(word, "max-slots", length) == 0))
        return parse_number(most, value + 1, INT64_MAX, "number of slots", source, status);
    if (length != 4 || strncmp(word, "port", length) != 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: '%s' is not understood; expected 'host slots=N [max_slots=N] [port=N]' or "
                          "'host:N'",
                          source, word);
    TRY(parse_number(&port, value + 1, PORT_MAXIMUM, "port", source, status));
    host->port = (int)port;
    return HVD_OK;
}

static hvd_code add_line(struct hosts *hosts, char *line, const char *source, hvd_status *status)
{
    line[strcspn(line, "#\n")] = '\0';
    text_close_up(line, ":=");
    char *rest = NULL, *name = strtok_r(line, BLANKS, &rest);
    struct host host = {0};
    int64_t most = INT64_MAX;
    if (!name)
        return HVD_OK;
    for (const char *word; (word = strtok_r(NULL, BLANKS, &rest));)
        TRY(parse_word(&host, word, &most, source, status));
    if (!host.slots && says_slots(name)) {
        TRY(parse_entry(&host, name, source, status));
    } else {
        host.slots = host.slots ? host.slots : hosts->slots ? hosts->slots : 1;
        TRY(parse_name(&host, name, source, status));
    }
    if (host.slots > most)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: slots=%" PRId64 " is more than max_slots=%" PRId64, source, host.slots, most);
    return add_host(hosts, &host, status);
}

hvd_code hosts_read_file(struct hosts *hosts, const char *path, hvd_status *status)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return status_set_errno(status, errno, "can't read the host file %s", path);
    char *line = NULL, source[512];
    size_t capacity = 0;
    ssize_t length;
    hvd_code code = HVD_OK;
    for (int number = 1; !code && (length = getline(&line, &capacity, file)) >= 0; number++) {
        size_t mark = number == 1 && strncmp(line, BYTE_ORDER_MARK, 3) == 0 ? 3 : 0;
        snprintf(source, sizeof source, "%s:%d", path, number);
        if (strlen(line) < (size_t)length)
            code = status_set(status, HVD_INVALID_ARGUMENT, "%s: there is a NUL byte; write it in UTF-8",
                              source);
        else
            code = add_line(hosts, line + mark, source, status);
    }
    if (!code && ferror(file))
        code = status_set_errno(status, errno, "can't read the host file %s", path);
    free(line);
    fclose(file);
    if (!code && !hosts->count)
        code = status_set(status, HVD_INVALID_ARGUMENT, "the host file %s names no host", path);
    return code;
}

void hosts_free(struct hosts *hosts)
{
    free(hosts->list);
    free(hosts->places);
}

void host_title(const struct host *host, char *name, size_t capacity)
{
    name[0] = '\0';
    if (strcmp(host->name, "localhost") != 0 || gethostname(name, capacity - 1))
        append_text(name, capacity, "%s", host->name);
}

void hosts_merge(struct hosts *hosts, int earlier, int later)
{
    hosts->list[earlier].slots += hosts->list[later].slots;
    hosts->count--;
    memmove(&hosts->list[later], &hosts->list[later + 1],
            (size_t)(hosts->count - later) * sizeof *hosts->list);
}

/* ---- the layout ---------------------------------------------------------------------------------------- */

static hvd_code count_ranks(struct hosts *hosts, int64_t wanted, hvd_status *status)
{
    int64_t slots = 0;
    for (int i = 0; i < hosts->count; i++)
        slots += hosts->list[i].slots;
    if (wanted > slots && *hosts->source)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "-np %" PRId64 " asks for more ranks than %s has slots (%" PRId64
                          "); ask for a larger allocation, or name the hosts and their slots by -H",
                          wanted, hosts->source, slots);
    if (wanted > slots)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "-np %" PRId64 " asks for more ranks than the hosts have slots (%" PRId64 ")",
                          wanted, slots);
    int64_t count = wanted ? wanted : slots;
    if (count < 1 || count > setting_by_key("size")->maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%" PRId64 " ranks are too many for one job", count);
    hosts->size = (int)count;
    return HVD_OK;
}

/* `before` counts, by local rank, the earlier hosts that have a rank of this number. */
static int fill_host(struct hosts *hosts, int index, int rank, int *before)
{
    struct host *host = &hosts->list[index];
    int left = hosts->size - rank;
    host->ranks = host->slots < left ? (int)host->slots : left;
    for (int i = 0; i < host->ranks; i++, rank++)
        hosts->places[rank] = (struct place){.host = index,
                                             .rank = rank,
                                             .local_rank = i,
                                             .local_size = host->ranks,
                                             .cross_rank = before[i]++};
    return rank;
}

hvd_code hosts_layout(struct hosts *hosts, int64_t wanted, hvd_status *status)
{
    if (!wanted && !hosts->count)
        return status_set(status, HVD_INVALID_ARGUMENT, "how many ranks? Say -np N or -H localhost:N");
    if (!hosts->count)
        TRY(add_host(hosts, &(struct host){.name = "localhost", .slots = wanted}, status));
    TRY(count_ranks(hosts, wanted, status));
    if (!hosts->places)
        hosts->places = calloc((size_t)hosts->size, sizeof *hosts->places);
    int *with = calloc((size_t)hosts->size, sizeof *with); /* hosts that have a rank of this local rank */
    if (!hosts->places || !with) {
        free(with);
        return status_no_memory(status);
    }
    for (int i = 0, rank = 0; i < hosts->count; i++)
        rank = fill_host(hosts, i, rank, with);
    for (int rank = 0; rank < hosts->size; rank++)
        hosts->places[rank].cross_size = with[hosts->places[rank].local_rank];
    free(with);
    return HVD_OK;
}

static const char *look_up(const struct variables *variables, const char *name)
{
    const char *value = variables->get(variables->owner, name);
    return value ? value : "";
}

/* ---- the allocation of a batch system: Slurm, "a[1-3],b" and "2(x3),1" --------------------------------- */

struct nodes {
    struct hosts *hosts;
    const char *tasks, *at; /* the list, and its entry for this node */
    long repeats;           /* of that entry that are left */
    hvd_code code;
    hvd_status *status;
};

static bool add_node(void *owner, const char *name)
{
    struct nodes *nodes = owner;
    char *end;
    long slots = strtol(nodes->at, &end, 10);
    long times = strncmp(end, "(x", 2) == 0 ? strtol(end + 2, &end, 10) : 1;
    end += *end == ')';
    if (slots < 1 || times < 1 || (*end != ',' && *end)) {
        nodes->code =
            status_set(nodes->status, HVD_INVALID_ARGUMENT,
                       "SLURM_TASKS_PER_NODE=%s has no number of tasks for node %s", nodes->tasks, name);
        return false;
    }
    nodes->code = hosts_add(nodes->hosts, name, slots, "SLURM_JOB_NODELIST", nodes->status);
    nodes->repeats = (nodes->repeats ? nodes->repeats : times) - 1;
    if (!nodes->repeats)
        nodes->at = end + (*end == ',');
    return !nodes->code;
}

static hvd_code read_slurm(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    const char *list = look_up(variables, "SLURM_JOB_NODELIST"),
               *tasks = look_up(variables, "SLURM_TASKS_PER_NODE");
    if (!*tasks)
        tasks = look_up(variables, "SLURM_JOB_CPUS_PER_NODE");
    struct nodes nodes = {.hosts = hosts, .tasks = tasks, .at = tasks, .status = status};
    snprintf(hosts->source, sizeof hosts->source, "Slurm job %s", look_up(variables, "SLURM_JOB_ID"));
    hosts->by_srun = true;
    if (!nodelist_visit(list, add_node, &nodes))
        return status_set(status, HVD_INVALID_ARGUMENT, "SLURM_JOB_NODELIST=%s is malformed", list);
    return nodes.code;
}

/* ---- the allocation: files ----------------------------------------------------------------------------- */

/* Each line names a host, followed by its slots if `counted`; otherwise a line is one slot. */
static hvd_code read_file(struct hosts *hosts, const char *path, bool counted, hvd_status *status)
{
    char line[1024], name[1024] = "", *end;
    int64_t slots = 0;
    FILE *file = fopen(path, "re");
    if (!file)
        return status_set_errno(status, errno, "can't read the file of %s, %s", hosts->source, path);
    hvd_code code = HVD_OK;
    /* Equal lines follow each other: a host is added once, at the line of the next host. */
    while (!code && fgets(line, sizeof line, file)) {
        size_t length = strcspn(line, " \t\r\n");
        int64_t more = counted ? strtoll(line + length, &end, 10) : 1;
        if (length == 0)
            continue;
        if (*name && (strncmp(line, name, length) != 0 || name[length])) {
            code = hosts_add(hosts, name, slots, path, status);
            slots = 0;
        }
        snprintf(name, sizeof name, "%.*s", (int)length, line);
        slots += more;
    }
    if (!code && ferror(file))
        code = status_set_errno(status, errno, "can't read the file of %s, %s", hosts->source, path);
    fclose(file);
    if (!code && *name)
        code = hosts_add(hosts, name, slots, path, status);
    return code;
}

static hvd_code read_pbs(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    snprintf(hosts->source, sizeof hosts->source, "PBS job %s", look_up(variables, "PBS_JOBID"));
    return read_file(hosts, look_up(variables, "PBS_NODEFILE"), false, status);
}

static hvd_code read_sge(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    snprintf(hosts->source, sizeof hosts->source, "Grid Engine job %s", look_up(variables, "JOB_ID"));
    return read_file(hosts, look_up(variables, "PE_HOSTFILE"), true, status);
}

/* ---- the allocation: LSF ------------------------------------------------------------------------------- */

/* If the script runs on a node of its own, that is the first one, with a single slot. */
static void drop_batch_node(struct hosts *hosts)
{
    bool fewest = hosts->count > 1 && hosts->list[0].slots == 1;
    for (int i = 1; fewest && i < hosts->count; i++)
        fewest = hosts->list[i].slots > 1;
    if (hosts->count < 2 || (!fewest && strncasecmp(hosts->list[0].name, "batch", strlen("batch")) != 0))
        return;
    hosts->count--;
    memmove(&hosts->list[0], &hosts->list[1], (size_t)hosts->count * sizeof *hosts->list);
}

/* Parses "host1 2 host2 4". */
static hvd_code read_pairs(struct hosts *hosts, const char *pairs, hvd_status *status)
{
    char *copy = strdup(pairs), *rest = NULL;
    hvd_code code = copy ? HVD_OK : status_no_memory(status);
    for (char *name = copy ? strtok_r(copy, " ", &rest) : NULL; name && !code;
         name = strtok_r(NULL, " ", &rest)) {
        const char *slots = strtok_r(NULL, " ", &rest);
        code = hosts_add(hosts, name, slots ? strtoll(slots, NULL, 10) : 0, "LSB_MCPU_HOSTS", status);
    }
    free(copy);
    return code;
}

static hvd_code read_lsf(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    const char *file = look_up(variables, "LSB_DJOB_RANKFILE");
    snprintf(hosts->source, sizeof hosts->source, "LSF job %s", look_up(variables, "LSB_JOBID"));
    hvd_code code = *file ? read_file(hosts, file, false, status)
                          : read_pairs(hosts, look_up(variables, "LSB_MCPU_HOSTS"), status);
    drop_batch_node(hosts);
    return code;
}

/* ---- the allocation: the host file of an MPI ----------------------------------------------------------- */

/* Whoever starts `mpirun` in a container, such as the MPI Operator, names the file by a variable of the MPI.
 * Another one may have the slots of lines that say none; it may also be 0 or a word. */
static hvd_code read_host_file(struct hosts *hosts, const char *file, const char *slots,
                               const struct variables *variables, hvd_status *status)
{
    const char *number = *slots ? look_up(variables, slots) : "";
    snprintf(hosts->source, sizeof hosts->source, "the host file of %s", file);
    if (!hosts->slots && *number >= '1' && *number <= '9')
        TRY(parse_number(&hosts->slots, number, (int64_t)setting_by_key("size")->maximum, "number of slots",
                         slots, status));
    return hosts_read_file(hosts, look_up(variables, file), status);
}

static hvd_code read_orte(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    return read_host_file(hosts, "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_set_default_slots",
                          variables, status);
}

static hvd_code read_prte(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    return read_host_file(hosts, "PRTE_MCA_prte_default_hostfile", "PRTE_MCA_prte_set_default_slots",
                          variables, status);
}

static hvd_code read_intel(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    return read_host_file(hosts, "I_MPI_HYDRA_HOST_FILE", "I_MPI_PERHOST", variables, status);
}

static hvd_code read_hydra(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    return read_host_file(hosts, "HYDRA_HOST_FILE", "", variables, status);
}

static hvd_code read_dstack(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    return read_host_file(hosts, "DSTACK_MPI_HOSTFILE", "DSTACK_GPUS_PER_NODE", variables, status);
}

/* ---- the allocation: Azure Batch ----------------------------------------------------------------------- */

/* Parses "10.0.0.4,10.0.0.5". */
static hvd_code read_azure(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    char *copy = strdup(look_up(variables, "AZ_BATCH_HOST_LIST")), *rest = NULL;
    hvd_code code = copy ? HVD_OK : status_no_memory(status);
    snprintf(hosts->source, sizeof hosts->source, "Azure Batch");
    for (char *name = copy ? strtok_r(copy, ", ", &rest) : NULL; name && !code;
         name = strtok_r(NULL, ", ", &rest))
        code = hosts_add(hosts, name, hosts->slots ? hosts->slots : 1, "AZ_BATCH_HOST_LIST", status);
    free(copy);
    return code;
}

/* ---- the allocation: the table ------------------------------------------------------------------------- */

/* Batch systems are before what a program in their allocation may set. */
static const struct {
    const char *job, *list; /* the row fits if both are set */
    hvd_code (*read)(struct hosts *hosts, const struct variables *variables, hvd_status *status);
} systems[] = {
    {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", read_slurm},
    {"LSB_JOBID", "LSB_DJOB_RANKFILE", read_lsf},
    {"LSB_JOBID", "LSB_MCPU_HOSTS", read_lsf},
    {"PBS_JOBID", "PBS_NODEFILE", read_pbs},
    {"JOB_ID", "PE_HOSTFILE", read_sge},
    {"AZ_BATCH_HOST_LIST", "AZ_BATCH_HOST_LIST", read_azure},
    {"OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_default_hostfile", read_orte},
    {"PRTE_MCA_prte_default_hostfile", "PRTE_MCA_prte_default_hostfile", read_prte},
    {"I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE", read_intel},
    {"HYDRA_HOST_FILE", "HYDRA_HOST_FILE", read_hydra},
    {"DSTACK_MPI_HOSTFILE", "DSTACK_MPI_HOSTFILE", read_dstack},
};

hvd_code hosts_read_allocation(struct hosts *hosts, const struct variables *variables, hvd_status *status)
{
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        const char *list = look_up(variables, systems[i].list);
        if (!*look_up(variables, systems[i].job) || !*list)
            continue;
        TRY(systems[i].read(hosts, variables, status));
        /* Without hosts all ranks would run on this one. */
        return hosts->count ? HVD_OK
                            : status_set(status, HVD_INVALID_ARGUMENT, "%s: %s=%s names no host",
                                         hosts->source, systems[i].list, list);
    }
    return HVD_OK;
}
