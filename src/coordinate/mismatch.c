/* mismatch.c - the error text of a round that failed because requests of one name differ. No state. */
#include "coordinate/state.h"

#include "base/status.h"
#include "base/types.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_LIMIT 256

struct text {
    const int *names; /* of the ranks */
    char *bytes;
    size_t capacity;
};

/* The name as the user gave it, from the wire name ("grouped_allreduce.grad"). */
static const char *plain_name(const struct entry *entry, const char *operation)
{
    const char *name = entry->name;
    const char *group = "grouped_";
    if (strncmp(name, group, strlen(group)) == 0)
        name += strlen(group);
    size_t prefix = strlen(operation);
    bool prefixed = strncmp(name, operation, prefix) == 0 && name[prefix] == '.' && name[prefix + 1];
    return prefixed ? name + prefix + 1 : entry->name;
}

static int compare_variants(const void *a, const void *b)
{
    const struct variant *x = a;
    const struct variant *y = b;
    int first = x->ranks.ranges[0].first;
    int second = y->ranks.ranges[0].first;
    return (first > second) - (first < second);
}

static void append_variant(struct text *text, char separator, const struct variant *variant,
                           const char *value)
{
    char ranks[TEXT_LIMIT];
    struct rank_set named = rank_set_named(&variant->ranks, text->names);
    rank_set_text(&named, ranks, sizeof ranks);
    bool one = named.count == 1 && !named.others && named.ranges[0].first == named.ranges[0].last;
    append_text(text->bytes, text->capacity, "%c %s %s %s", separator, ranks, one ? "has" : "have", value);
}

/* One field: how variant `first` differs from variant 0, and all later ones that differ in the same field.
 * Bits of `covered`: variants that the text has; returns them with the new ones. */
static unsigned append_difference(struct text *text, const struct variants *variants, int first,
                                  unsigned covered)
{
    char what[2][TEXT_LIMIT], base_value[TEXT_LIMIT], value[TEXT_LIMIT];
    const struct signature *form = &variants->list[0].form->signature;
    signature_difference(form, &variants->list[first].form->signature, text->names, what[0], base_value,
                         value, TEXT_LIMIT);
    append_text(text->bytes, text->capacity, "%s on %s", covered == 1 ? "" : "; and", what[0]);
    append_variant(text, ':', &variants->list[0], base_value);
    for (int i = first; i < variants->count; i++) {
        if (covered >> i & 1)
            continue;
        signature_difference(form, &variants->list[i].form->signature, text->names, what[1], base_value,
                             value, TEXT_LIMIT);
        if (strcmp(what[0], what[1]) != 0)
            continue;
        append_variant(text, ',', &variants->list[i], value);
        covered |= 1u << i;
    }
    return covered;
}

void mismatch_text(const struct entry *entry, const int *names, char *bytes, size_t capacity)
{
    struct variants *variants = entry->round->variants;
    /* The lowest ranks first, so that the text does not depend on the order of arrival. */
    qsort(variants->list, (size_t)variants->count, sizeof variants->list[0], compare_variants);
    const char *operation = hvd_operation_name(variants->list[0].form->summary.operation);
    struct text text = {names, bytes, capacity};
    /* Variant 0 is what all others are compared with. */
    unsigned covered = 1;
    *bytes = '\0';
    append_text(bytes, capacity, "%s \"%.200s\": the ranks disagree", operation,
                plain_name(entry, operation));
    for (int i = 1; i < variants->count; i++) {
        if (!(covered >> i & 1))
            covered = append_difference(&text, variants, i, covered);
    }
    append_text(bytes, capacity, "%s. This round ran nowhere; the job can go on",
                variants->others ? ", and so on" : "");
}
