/* fuzz_files.c - any text where people write: -H, the host file, the configuration file, the value
 * of a setting, horovodrun's options, and what a discovery script prints. First byte: which of them. */
#include "base/settings.h"
#include "launch/hosts.h"
#include "launch/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HOSTS, HOST_FILE, CONFIG_FILE, SETTING, OPTIONS, DISCOVERED, MODES };

static void read_hosts(const char *text, const char *path)
{
    hvd_status status;
    struct hosts hosts = {0};
    hvd_code code = path ? hosts_read_file(&hosts, path, &status) : hosts_parse(&hosts, text, &status);
    if (!code && (hosts.count < 1 || (!hosts_layout(&hosts, 0, &status) && hosts.size < hosts.count)))
        abort();
    hosts_free(&hosts);
}

static void read_config_file(const char *path)
{
    hvd_status status;
    struct options options;
    char *nothing[] = {"horovodrun", NULL};
    if (!options_parse(&options, nothing, &status))
        config_file_read(&options, path, &status);
    options_free(&options);
}

/* Every line is a word. */
static void parse_options(char *text)
{
    enum { WORDS = 64 };
    hvd_status status;
    struct options options;
    char *words[WORDS + 2] = {"horovodrun"}, *rest;
    int count = 1;
    for (char *word = strtok_r(text, "\n", &rest); word && count <= WORDS; word = strtok_r(NULL, "\n", &rest))
        words[count++] = word;
    if (!options_parse(&options, words, &status) && options.command > words + count)
        abort();
    options_free(&options);
}

/* Slots are those of each line, or, if the text starts with a digit, that many for lines without any. */
static void read_discovered(char *text)
{
    hvd_status status;
    struct hosts hosts = {.apart = true};
    int64_t slots = *text >= '0' && *text <= '9' ? *text - '0' : 0;
    char *rest = NULL;
    for (char *line = text; line; line = rest) {
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = '\0';
        hosts_add_line(&hosts, line, slots, "a fuzzer", &status);
    }
    for (int i = 0; i < hosts.count; i++)
        if (!*hosts.list[i].name || hosts.list[i].slots < 0)
            abort();
    hosts_free(&hosts);
}

static void give_setting(const char *text)
{
    hvd_status status;
    struct settings settings;
    if (settings_init(&settings, &status))
        abort();
    if (text[0]) {
        const struct setting *setting = &setting_table[(unsigned char)text[0] % setting_count];
        settings_set(&settings, setting, text + 1, "a fuzzer", &status);
    }
    settings_free(&settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    char path[64];
    if (!length)
        return 0;
    char *text = malloc(length);
    int file = memfd_create("input", MFD_CLOEXEC);
    if (!text || file < 0 || write(file, bytes + 1, length - 1) != (ssize_t)length - 1)
        abort();
    memcpy(text, bytes + 1, length - 1);
    text[length - 1] = '\0';
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int mode = bytes[0] % MODES;
    if (mode == HOSTS || mode == HOST_FILE)
        read_hosts(text, mode == HOST_FILE ? path : NULL);
    else if (mode == CONFIG_FILE)
        read_config_file(path);
    else if (mode == SETTING)
        give_setting(text);
    else if (mode == DISCOVERED)
        read_discovered(text);
    else
        parse_options(text);
    close(file);
    free(text);
    return 0;
}
