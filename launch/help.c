/* help.c - prints --help from the rows of option_table, setting_table and foreign_table. One thread. */
#include "help.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_COLUMN 34
#define LAST_COLUMN 100

/* Prints words from TEXT_COLUMN on; `column` is where the cursor is. */
static void print_wrapped(const char *text, int column)
{
    if (column >= TEXT_COLUMN) {
        putchar('\n');
        column = 0;
    }
    printf("%*s", TEXT_COLUMN - column, "");
    column = TEXT_COLUMN;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > TEXT_COLUMN && column + 1 + length > LAST_COLUMN) {
            printf("\n%*s", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        }
        column += printf("%s%.*s", column > TEXT_COLUMN ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_flag(const char *shorter, const char *name, const char *argument, bool choice,
                       const char *help)
{
    int column = printf("  ");
    /* Prints an option with the dashes that scripts for Horovod use: -np N, -prefix-timestamp, but --min-np
     * N. */
    if (*shorter)
        column += printf("%s%s, ", strlen(shorter) > 2 && *argument ? "--" : "-", shorter);
    column += printf("--%s%s%s%s", choice ? "[no-]" : "", name, *argument ? " " : "", argument);
    print_wrapped(help, column);
}

static void print_setting(const struct setting *setting)
{
    /* Indexed by enum setting_kind. */
    static const char *const arguments[] = {"N", "X", "", "TEXT", "LIST"};
    char text[512], initial[64];
    snprintf(initial, sizeof initial, "%s", setting->initial);
    if (setting->kind == SETTING_BOOLEAN && setting->flag_unit < 0)
        snprintf(initial, sizeof initial, "%s: the option is on", setting->initial);
    else if (setting->flag_unit != 1)
        snprintf(initial, sizeof initial, "%.15g", atof(setting->initial) / setting->flag_unit);
    snprintf(text, sizeof text, "%s [%s%s%s]", setting->help, setting->environment,
             *initial ? ", default " : "", initial);
    print_flag("", setting->flag, arguments[setting->kind], setting->kind == SETTING_BOOLEAN, text);
}

static bool same_section(const struct setting *a, const struct setting *b)
{
    size_t length = strcspn(a->config_key, ".");
    return length == strcspn(b->config_key, ".") && strncmp(a->config_key, b->config_key, length) == 0;
}

/* Prints all rows that share the section of the config file with row `first`, unless an earlier row has the
 * same section. */
static void print_section(int first)
{
    const struct setting *setting = &setting_table[first];
    for (int i = 0; i < first; i++) {
        if (*setting_table[i].flag && same_section(&setting_table[i], setting))
            return;
    }
    if (strchr(setting->config_key, '.'))
        printf("\n%.*s:\n", (int)strcspn(setting->config_key, "."), setting->config_key);
    for (int i = first; i < setting_count; i++) {
        if (*setting_table[i].flag && same_section(&setting_table[i], setting))
            print_setting(&setting_table[i]);
    }
}

static void print_foreign(const char *heading, enum foreign_effect from, enum foreign_effect to)
{
    printf("\n%s:\n", heading);
    for (int i = 0; i < foreign_count; i++) {
        const struct foreign *row = &foreign_table[i];
        if (*row->name && row->effect >= from && row->effect <= to)
            print_flag(row->shorter, row->name, row->argument, row->kind == FOREIGN_CHOICE, row->text);
    }
}

void help_print(void)
{
    static const char *const headings[GROUP_COUNT] = {"Ranks",
                                                      "Other hosts",
                                                      "One command on each node",
                                                      "Ranks that come and go",
                                                      "Output",
                                                      "Metrics",
                                                      "Running jobs",
                                                      "Information"};
    printf(
        "usage: horovodrun [options] command [arguments]\n\n"
        "Starts the command as the ranks of one job, passes on what they print, and ends them all when one\n"
        "fails. Example: horovodrun -np 4 python train.py\n");
    for (int group = 0; group < GROUP_COUNT; group++) {
        printf("\n%s:\n", headings[group]);
        for (int i = 0; i < option_count; i++) {
            const struct option *row = &option_table[i];
            if ((int)row->group == group)
                print_flag(row->shorter, row->name, row->argument, false, row->help);
        }
    }
    printf("\nSettings of the ranks, by their section in the config file. The variable in brackets does the "
           "same,\nwith values as in docs/settings.md:\n");
    for (int i = 0; i < setting_count; i++) {
        if (*setting_table[i].flag)
            print_section(i);
    }
    print_foreign("Other names", FOREIGN_SAME, FOREIGN_OPPOSITE);
    print_foreign("Accepted for compatibility", FOREIGN_NEEDLESS, FOREIGN_NEEDLESS);
    print_foreign("Refused by this version", FOREIGN_REFUSED, FOREIGN_REFUSED);
}
