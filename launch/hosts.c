/* hosts.c - reads -H and the host file. */
#include "hosts.h"

#include "base/settings.h"
#include "base/status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool is_this_host(const char *name)
{
    char here[256] = "";
    gethostname(here, sizeof here - 1);
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 || strcasecmp(name, here) == 0)
        return true;
    here[strcspn(here, ".")] = '\0';
    return strcasecmp(name, here) == 0;
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

hvd_code hosts_count_ranks(const struct hosts *hosts, int64_t asked, int *ranks, hvd_status *status)
{
    if (!asked && !hosts->slots)
        return status_set(status, HVD_INVALID_ARGUMENT, "how many ranks? Say -np N or -H localhost:N");
    if (hosts->slots && asked > hosts->slots)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "-np %" PRId64 " asks for more ranks than the hosts have slots (%" PRId64 ")",
                          asked, hosts->slots);
    int64_t count = asked ? asked : hosts->slots;
    if (count > setting_by_key("size")->maximum)
        return status_set(status, HVD_INVALID_ARGUMENT, "%" PRId64 " ranks are too many for one job", count);
    *ranks = (int)count;
    return HVD_OK;
}
