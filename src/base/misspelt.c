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

/* Families whose members are many, or those of the tests. */
static const char *const families[] = {"HOROVOD_TEST_", "HOROVOD_WITH_", "HOROVOD_WITHOUT_"};

static int smallest(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

static bool same(char a, char b)
{
    return toupper((unsigned char)a) == toupper((unsigned char)b);
}

/* By rows of the usual table: rows[0][j] is the distance of the first i letters of `from` to the first j of
 * `to`, rows[1] and rows[2] are those of i - 1 and i - 2. */
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
            int replaced = rows[1][j - 1] + !same(from[i - 1], to[j - 1]);
            rows[0][j] = smallest(rows[1][j] + 1, rows[0][j - 1] + 1, replaced);
            if (i > 1 && j > 1 && same(from[i - 1], to[j - 2]) && same(from[i - 2], to[j - 1]) &&
                rows[2][j - 2] + 1 < rows[0][j])
                rows[0][j] = rows[2][j - 2] + 1;
        }
    }
    return rows[0][width];
}

struct search {
    const char *name, *right;
    int least; /* edits of `right` */
    bool known;
};

/* HOROVOD_EPOCHS is not HOROVOD_EPOCH. */
static bool is_plural(const char *name, const char *of)
{
    size_t length = strlen(of);
    return strncmp(name, of, length) == 0 && strcmp(name + length, "S") == 0;
}

/* `name`: a spelling that stands for `right`. */
static void consider(struct search *search, const char *name, const char *right)
{
    int edits = misspelt_distance(search->name, name);
    bool other = is_plural(search->name, right) && strlen(right) < SHORT_NAME;
    search->known = search->known || strcmp(search->name, right) == 0;
    if (edits < search->least && !other) {
        search->least = edits;
        search->right = right;
    }
}

/* "cycle-time-ms" and cycle_time_ms: HOROVOD_cycle_time_ms. */
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

/* A mistake may also be in the prefix: it is compared with beginnings of several lengths. */
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

static int edits_allowed(const char *name)
{
    size_t length = strlen(name);
    return length < SHORT_NAME ? 1 : length < LONG_NAME ? 2 : 3;
}

/* The right name, or NULL where this is one, or is like none. */
static const char *right_name(const char *name)
{
    struct search search = {.name = name, .least = edits_allowed(name) + 1};
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
