/* hosts.c - reads -H and the host file. */
#include "hosts.h"

#include "base/settings.h"
#include "base/status.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* Only an address of this host can be bound to. */
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

static bool is_full_name(const char *name, const char *here)
{
    struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_DGRAM}, *found;
    if (getaddrinfo(here, NULL, &hints, &found))
        return false;
    bool same = found->ai_canonname && strcasecmp(name, found->ai_canonname) == 0;
    freeaddrinfo(found);
    return same;
}

/* Names that are not this host's own are not looked up: that may take long, and ends in an error anyway. */
static bool is_this_host(const char *name)
{
    char here[256] = "", shorter[256];
    gethostname(here, sizeof here - 1);
    snprintf(shorter, sizeof shorter, "%.*s", (int)strcspn(here, "."), here);
    return strcasecmp(name, "localhost") == 0 || strcasecmp(name, here) == 0 ||
           strcasecmp(name, shorter) == 0 || is_own_address(name) || is_full_name(name, here);
}

static hvd_code add_host(struct hosts *hosts, const char *name, const char *slots, const char *source,
                         hvd_status *status)
{
    char *end;
    errno = 0;
    long long number = strtoll(slots, &end, 10);
    if (errno || end == slots || *end || number < 1 || number > setting_by_key("size")->maximum)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: '%s' is not a number of slots; it must be a whole number >= 1", source, slots);
    if (!is_this_host(name))
        return status_set(status, HVD_UNSUPPORTED,
                          "%s: '%s' is not this host; remote hosts are not supported in this version, use "
                          "localhost:%s",
                          source, name, slots);
    if (!hosts->slots)
        snprintf(hosts->name, sizeof hosts->name, "%s", name);
    hosts->slots += number;
    return HVD_OK;
}

hvd_code hosts_parse(struct hosts *hosts, const char *list, hvd_status *status)
{
    char entry[300];
    while (true) {
        size_t length = strcspn(list, ",");
        const char *colon = memchr(list, ':', length);
        if (!colon || colon == list || length >= sizeof entry)
            return status_set(status, HVD_INVALID_ARGUMENT,
                              "--hosts: '%.*s' is not of the form host:slots, e.g. localhost:4", (int)length,
                              list);
        snprintf(entry, sizeof entry, "%.*s", (int)length, list);
        entry[colon - list] = '\0';
        hvd_code code = add_host(hosts, entry, entry + (colon - list) + 1, "--hosts", status);
        if (code || !list[length])
            return code;
        list += length + 1;
    }
}

static hvd_code add_line(struct hosts *hosts, char *line, const char *source, hvd_status *status)
{
    line[strcspn(line, "#\r\n")] = '\0';
    char *rest = NULL;
    const char *name = strtok_r(line, " \t", &rest);
    if (!name)
        return HVD_OK;
    const char *slots = strtok_r(NULL, " \t", &rest);
    if (!slots || strncmp(slots, "slots=", 6) != 0 || strtok_r(NULL, " \t", &rest))
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: expected 'host slots=N', e.g. 'localhost slots=4'", source);
    return add_host(hosts, name, slots + 6, source, status);
}

hvd_code hosts_read_file(struct hosts *hosts, const char *path, hvd_status *status)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return status_set_errno(status, errno, "can't read the host file %s", path);
    char line[1024], source[512];
    hvd_code code = HVD_OK;
    for (int number = 1; !code && fgets(line, sizeof line, file); number++) {
        snprintf(source, sizeof source, "%s:%d", path, number);
        code = add_line(hosts, line, source, status);
    }
    if (!code && ferror(file))
        code = status_set_errno(status, errno, "can't read the host file %s", path);
    fclose(file);
    if (!code && !hosts->slots)
        code = status_set(status, HVD_INVALID_ARGUMENT, "the host file %s names no host", path);
    return code;
}

hvd_code hosts_count_ranks(const struct hosts *hosts, int64_t wanted, int *ranks, hvd_status *status)
{
    if (!wanted && !hosts->slots)
        return status_set(status, HVD_INVALID_ARGUMENT, "how many ranks? Say -np N or -H localhost:N");
    if (hosts->slots && wanted > hosts->slots)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "-np %" PRId64 " asks for more ranks than the hosts have slots (%" PRId64 ")",
                          wanted, hosts->slots);
    int64_t count = wanted ? wanted : hosts->slots;
    if (count > setting_by_key("size")->maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%" PRId64 " ranks are too many for one job", count);
    *ranks = (int)count;
    return HVD_OK;
}
