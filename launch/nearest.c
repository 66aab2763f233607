/* nearest.c - compares a misspelt name with all known ones, letter by letter and word by word: "stall-warnng"
 * is near "stall-check-warning-time-seconds", and "tmeline" is near "timeline-filename". No state; any
 * thread.
 */
#include "nearest.h"
#include "options.h"

#include "base/misspelt.h"

#include <stdio.h>
#include <string.h>

struct search {
    const char *best;
    int least; /* edits of `best`; at first those that are too many */
};

/* Cuts the first word off the text, and returns the next one. */
static const char *first_word(const char *text, char word[MISSPELT_FAR])
{
    size_t length = strcspn(text, "-");
    snprintf(word, MISSPELT_FAR, "%.*s", (int)length, text);
    return text + length + (text[length] != '\0');
}

/* Returns the edits after which the words of `name` are, or begin, words of `whole` in this order. */
static int edits_of_words(const char *name, const char *whole)
{
    char own[MISSPELT_FAR], other[MISSPELT_FAR];
    int edits = 1; /* a whole name is nearer than a part of one */
    name = first_word(name, own);
    while (*whole) {
        whole = first_word(whole, other);
        int length = (int)strlen(own), misspelt = misspelt_distance(own, other);
        if (length > 1 && strncmp(own, other, (size_t)length) == 0)
            misspelt = 0;
        if (misspelt > length / 4)
            continue;
        edits += misspelt;
        if (!*name)
            return edits;
        name = first_word(name, own);
    }
    return MISSPELT_FAR;
}

/* `spelling` stands for `known`, from which it is `edits` apart. */
static void consider(struct search *search, const char *name, const char *spelling, const char *known,
                     int edits)
{
    char own[MISSPELT_FAR], other[MISSPELT_FAR];
    const char *const texts[] = {name, spelling};
    char *const copies[] = {own, other};
    if (!*known)
        return;
    for (int i = 0; i < 2; i++) {
        snprintf(copies[i], MISSPELT_FAR, "%s", texts[i]);
        for (char *at = copies[i]; *(at += strcspn(at, "_."));)
            *at = '-';
    }
    int letters = strncmp(own, other, strlen(own)) == 0 ? 0 : misspelt_distance(own, other);
    int words = edits_of_words(own, other);
    edits += words < letters ? words : letters;
    if (edits < search->least) {
        search->least = edits;
        search->best = known;
    }
}

/* Names that differ more are no help. */
static int limit_of(const char *name)
{
    int length = (int)strlen(name), limit = 2 + length / 3;
    return limit < length ? limit : length;
}

const char *nearest_option(const char *name)
{
    struct search search = {.least = limit_of(name)};
    for (int i = 0; i < option_count; i++) {
        if (option_table[i].group == GROUP_COUNT)
            continue;
        consider(&search, name, option_table[i].shorter, option_table[i].shorter, 0);
        consider(&search, name, option_table[i].name, option_table[i].name, 0);
    }
    for (int i = 0; i < setting_count; i++)
        consider(&search, name, setting_table[i].flag, setting_table[i].flag, 0);
    for (int i = 0; i < foreign_count; i++) {
        consider(&search, name, foreign_table[i].shorter, foreign_table[i].shorter, 0);
        consider(&search, name, foreign_table[i].name, foreign_table[i].name, 0);
    }
    return search.best;
}

static const char *without_section(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

/* A right name in a wrong section is near, too. */
const char *nearest_config_key(const char *key)
{
    const char *name = without_section(key);
    struct search search = {.least = limit_of(name)};
    for (int i = 0; strlen(name) > 1 && i < setting_count + foreign_count; i++) {
        const char *known =
            i < setting_count ? setting_table[i].config_key : foreign_table[i - setting_count].config_key;
        consider(&search, key, known, known, 0);
        consider(&search, name, without_section(known), known, 2);
    }
    return search.best;
}
