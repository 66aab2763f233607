/* misspelt.c - finds variables of the environment that almost have a known name. A false alarm about a
 * variable of another program would be worse than silence, so few edits are allowed, and fewer in short
 * names. */
#include "base/misspelt.h"

#include "base/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PREFIX     "HOROVOD_"
#define NAME_LIMIT 64
#define SHORT_NAME 16
#define LONG_NAME  24

static const char *const others[] = {
#define VARIABLE(name) #name,
#include "base/variables.def"
#undef VARIABLE
};

/* Families with many members, and those of the tests. */
static const char *const families[] = {"HOROVOD_TEST_", "HOROVOD_WITH_", "HOROVOD_WITHOUT_"};

static bool same(char a, char b)
{
    return toupper((unsigned char)a) == toupper((unsigned char)b);
}

/* Keeps three rows of the usual table: rows[0][j] is the distance between the first i letters of `from` and
 * the first j of `to`; rows[1] and rows[2] are those of i - 1 and i - 2. */
int misspelt_distance(const char *from, const char *to)
{
    int rows[3][MISSPELT_FAR];
    int width = (int)strlen(to), height = (int)strlen(from);
    if (width >= MISSPELT_FAR || height >= MISSPELT_FAR)
        return MISSPELT_FAR;
    for (int j = 0; j <= width; j++)
        rows[0][j] = j;
    for (int i = 1; i <= height; i++) {
        memcpy(rows[2], rows[1], sizeof rows[2]);
        memcpy(rows[1], rows[0], sizeof rows[1]);
        rows[0][0] = i;
        for (int j = 1; j <= width; j++) {
            int least = rows[1][j - 1] + !same(from[i - 1], to[j - 1]); /* equal or replaced */
            if (rows[1][j] + 1 < least)
                least = rows[1][j] + 1; /* removed */
            if (rows[0][j - 1] + 1 < least)
                least = rows[0][j - 1] + 1; /* inserted */
            if (i > 1 && j > 1 && same(from[i - 1], to[j - 2]) && same(from[i - 2], to[j - 1]) &&
                rows[2][j - 2] + 1 < least)
                least = rows[2][j - 2] + 1; /* swapped */
            rows[0][j] = least;
        }
    }
    return rows[0][width];
}

struct search {
    const char *name, *right;
    int least; /* edits of `right` */
    bool known;
};

/* `name`: a spelling that stands for `right`. */
static void consider(struct search *search, const char *name, const char *right)
{
    int edits = misspelt_distance(search->name, name);
    size_t length = strlen(right);
    /* The plural of a short name is not a misspelling: HOROVOD_EPOCHS may be another program's. */
    bool plural = length < SHORT_NAME && strncmp(search->name, right, length) == 0 &&
                  strcmp(search->name + length, "S") == 0;
    search->known = search->known || strcmp(search->name, right) == 0;
    if (edits < search->least && !plural) {
        search->least = edits;
        search->right = right;
    }
}

/* Compares with HOROVOD_cycle_time_ms for the words "cycle-time-ms" or "cycle_time_ms". */
static void consider_words(struct search *search, const char *words, const char *right)
{
    char name[NAME_LIMIT + sizeof PREFIX] = PREFIX;
    size_t length = strlen(words);
    if (length == 0 || length >= NAME_LIMIT)
        return;
    for (size_t i = 0; i <= length; i++)
        name[sizeof PREFIX - 1 + i] = words[i] == '-' ? '_' : words[i];
    consider(search, name, right);
}

/* The mistake may be in the prefix, so beginnings of several lengths are compared with it. */
static bool may_be_ours(const char *name)
{
    char begin[sizeof PREFIX + 2];
    bool ours = false;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strncmp(name, families[i], strlen(families[i])) == 0)
            return false;
    }
    for (size_t length = sizeof PREFIX - 3; !ours && length < sizeof begin; length++) {
        snprintf(begin, sizeof begin, "%.*s", (int)length, name);
        ours = misspelt_distance(begin, PREFIX) <= 2;
    }
    return ours;
}

/* Returns the right name, or NULL if this is one or is like none. */
static const char *right_name(const char *name)
{
    size_t length = strlen(name);
    int allowed = length < SHORT_NAME ? 1 : length < LONG_NAME ? 2 : 3;
    struct search search = {.name = name, .least = allowed + 1};
    for (int i = 0; i < setting_count; i++) {
        const struct setting *setting = &setting_table[i];
        consider(&search, setting->environment, setting->environment);
        consider_words(&search, setting->key, setting->environment);
        consider_words(&search, setting->flag, setting->environment);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        consider(&search, others[i], others[i]);
    return search.known ? NULL : search.right;
}

void misspelt_variables(char *const *environment,
                        void (*found)(void *owner, const char *name, const char *right), void *owner)
{
    for (; *environment; environment++) {
        char name[NAME_LIMIT];
        size_t length = strcspn(*environment, "=");
        if (length >= sizeof name || !(*environment)[length] || !(*environment)[length + 1])
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, *environment);
        const char *right = may_be_ours(name) ? right_name(name) : NULL;
        if (right)
            found(owner, name, right);
    }
}
