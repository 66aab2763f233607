/* cgroup.c - reads the files of control groups. No state; any thread. */
#include "base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LIMIT 4096

/* A control group: its folder, and that of the top of its hierarchy, which may be all that a container sees.
 */
struct group {
    char folder[PATH_MAX];
    size_t top; /* length of the top's path */
};

static bool has_word(const char *words, size_t length, const char *word)
{
    for (const char *at = words; at < words + length; at += strcspn(at, ",:") + 1) {
        size_t here = strcspn(at, ",:");
        if (here == strlen(word) && strncmp(at, word, here) == 0)
            return true;
    }
    return false;
}

/* Finds the group of a controller of version 1, or, if `controller` is "", that of version 2. A line of the
 * list is "4:cpu,cpuacct:/path"; the controllers of version 2 are "". */
static bool find_group(const char *list, const char *mount, const char *controller, struct group *group)
{
    char line[TEXT_LIMIT];
    bool found = false;
    FILE *file = fopen(list, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *words = strchr(line, ':'), *path = words ? strchr(words + 1, ':') : NULL;
        if (!path)
            continue;
        size_t length = (size_t)(path - ++words);
        line[strcspn(line, "\n")] = '\0';
        if (*controller ? !has_word(words, length, controller) : length > 0)
            continue;
        group->top = (size_t)snprintf(group->folder, sizeof group->folder, "%s%s%.*s", mount,
                                      *controller ? "/" : "", (int)length, words);
        found =
            group->top < sizeof group->folder &&
            (size_t)snprintf(group->folder + group->top, sizeof group->folder - group->top, "%s",
                             strcmp(path + 1, "/") == 0 ? "" : path + 1) < sizeof group->folder - group->top;
    }
    if (file)
        fclose(file);
    return found;
}

/* Goes to the group above; false at the top. */
static bool ascend(struct group *group)
{
    char *slash = strrchr(group->folder, '/');
    if (!slash || (size_t)(slash - group->folder) < group->top)
        return false;
    *slash = '\0';
    return true;
}

/* Reads a whole small file as text. */
static bool read_file(const struct group *group, const char *name, char text[TEXT_LIMIT])
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", group->folder, name);
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, TEXT_LIMIT - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = '\0';
    return length > 0;
}

/* Version 2: "150000 100000", or "max 100000". Version 1: -1 is no limit. */
static double quota_of(const struct group *group, bool second)
{
    char text[TEXT_LIMIT], period[TEXT_LIMIT];
    double quota = 0, each = 0;
    if (second) {
        if (!read_file(group, "cpu.max", text) || sscanf(text, "%lf %lf", &quota, &each) != 2)
            return 0;
    } else {
        if (!read_file(group, "cpu.cfs_quota_us", text) || !read_file(group, "cpu.cfs_period_us", period))
            return 0;
        quota = strtod(text, NULL);
        each = strtod(period, NULL);
    }
    return quota > 0 && each > 0 ? quota / each : 0;
}

double cgroup_processors(const char *list, const char *mount)
{
    double least = 0;
    struct group group;
    for (int second = 0; second < 2; second++) {
        if (!find_group(list, mount, second ? "" : "cpu", &group))
            continue;
        do {
            double quota = quota_of(&group, second);
            if (quota > 0 && (!least || quota < least))
                least = quota;
        } while (ascend(&group));
    }
    return least;
}

/* Both versions have a line "oom_kill 3". */
static int64_t kills_of(const struct group *group, const char *name)
{
    char text[TEXT_LIMIT];
    if (!read_file(group, name, text))
        return -1;
    const char *line = strncmp(text, "oom_kill ", 9) == 0 ? text : strstr(text, "\noom_kill ");
    return line ? strtoll(strchr(line, ' '), NULL, 10) : -1;
}

/* Without the group's own folder, as in a container that has no namespace for it, the one above that can be
 * read is the container's. */
int64_t cgroup_memory_kills(const char *list, const char *mount)
{
    struct group group;
    for (int second = 0; second < 2; second++) {
        if (!find_group(list, mount, second ? "" : "memory", &group))
            continue;
        do {
            int64_t kills = kills_of(&group, second ? "memory.events" : "memory.oom_control");
            if (kills >= 0)
                return kills;
        } while (ascend(&group));
    }
    return -1;
}
