/* mismatch.c - compares two signatures field by field, and writes which ranks submitted which values. No
 * state; any thread. */
#include "coordinate/mismatch.h"

#include "base/status.h"
#include "base/types.h"
#include "coordinate/name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- two signatures ------------------------------------------------------------------------------------ */

struct diff_out {
    char *what, *a, *b;
    size_t capacity;
};

/* The functions below return false if the two are equal; then nothing is written. */
static bool diff_text(struct diff_out *to, const char *what, const char *a, const char *b)
{
    if (strcmp(a, b) == 0)
        return false;
    snprintf(to->what, to->capacity, "%s", what);
    snprintf(to->a, to->capacity, "%s", a);
    snprintf(to->b, to->capacity, "%s", b);
    return true;
}

static bool diff_integer(struct diff_out *to, const char *what, int a, int b)
{
    char texts[2][16];
    snprintf(texts[0], sizeof texts[0], "%d", a);
    snprintf(texts[1], sizeof texts[1], "%d", b);
    return diff_text(to, what, texts[0], texts[1]);
}

static bool diff_real(struct diff_out *to, const char *what, double a, double b)
{
    char texts[2][32];
    snprintf(texts[0], sizeof texts[0], "%.17g", a);
    snprintf(texts[1], sizeof texts[1], "%.17g", b);
    return diff_text(to, what, texts[0], texts[1]);
}

static bool devices_differ(int a, int b, struct diff_out *to)
{
    char texts[2][16];
    for (int i = 0; i < 2; i++) {
        int type = i ? b : a;
        snprintf(texts[i], sizeof texts[i], type == HVD_CPU ? "CPU" : type == HVD_CUDA ? "CUDA" : "%d", type);
    }
    return diff_text(to, "the type of device", texts[0], texts[1]);
}

static bool roots_differ(const struct signature_head *a, const struct signature_head *b, const int *names,
                         struct diff_out *to)
{
    /* `root` is a rank, or an id of a process set; otherwise it is 0 on both sides. */
    bool rooted = operation_takes(a->operation, ARGUMENT_root);
    if (rooted && names)
        return diff_integer(to, "the root rank", names[a->root], names[b->root]);
    const char *what = operation_takes(a->operation, ARGUMENT_members) ? "the least id" : "the process set";
    return diff_integer(to, rooted ? "the root rank" : what, a->root, b->root);
}

static bool heads_differ(const struct signature_head *a, const struct signature_head *b, const int *names,
                         struct diff_out *to)
{
    return diff_text(to, "the operation", hvd_operation_name(a->operation),
                     hvd_operation_name(b->operation)) ||
           diff_text(to, "the reduction", reduction_name(a->reduction), reduction_name(b->reduction)) ||
           diff_real(to, "the prescale factor", a->prescale, b->prescale) ||
           diff_real(to, "the postscale factor", a->postscale, b->postscale) ||
           roots_differ(a, b, names, to) || diff_integer(to, "the priority", a->priority, b->priority) ||
           devices_differ(a->device_type, b->device_type, to) ||
           diff_text(to, "grouping", a->grouped ? "a group" : "a single tensor",
                     b->grouped ? "a group" : "a single tensor") ||
           diff_integer(to, "the number of tensors", a->count, b->count);
}

/* Writes "[2, 3]", or "[*, 3]" if the first extent may differ by rank. */
static void write_shape(const struct signature_head *head, const struct signature_tensor *tensor, char *text,
                        size_t capacity)
{
    if (!head->first_dimension) {
        shape_text(tensor->shape, tensor->ndim, text, capacity);
        return;
    }
    char rest[128];
    shape_text(tensor->shape + 1, tensor->ndim - 1, rest, sizeof rest);
    /* rest + 1 skips the opening bracket. */
    snprintf(text, capacity, "[*%s%s", tensor->ndim > 1 ? ", " : "", rest + 1);
}

static void write_part(const struct signature_tensor *tensor, char *text, size_t capacity)
{
    if (tensor->part)
        snprintf(text, capacity, "some of an earlier tensor (so it runs in step %d)", tensor->part + 1);
    else
        snprintf(text, capacity, "its own");
}

static bool tensors_differ(const struct signature_head *head, const struct signature_tensor *a,
                           const struct signature_tensor *b, int index, struct diff_out *to)
{
    char what[48];
    char texts[2][160];
    snprintf(what, sizeof what, "the type of tensor %d", index);
    if (diff_text(to, what, hvd_dtype_name(a->dtype), hvd_dtype_name(b->dtype)))
        return true;
    snprintf(what, sizeof what, "the shape of tensor %d", index);
    write_shape(head, a, texts[0], sizeof texts[0]);
    write_shape(head, b, texts[1], sizeof texts[1]);
    if (diff_text(to, what, texts[0], texts[1]))
        return true;
    snprintf(what, sizeof what, "the memory of tensor %d", index);
    write_part(a, texts[0], sizeof texts[0]);
    write_part(b, texts[1], sizeof texts[1]);
    return diff_text(to, what, texts[0], texts[1]);
}

/* Writes "[0, 1, 5]", of many ranks only the first. */
static void write_ranks(struct wire_reader *ranks, char *text, size_t capacity)
{
    *text = '\0';
    while (!wire_done(ranks) && strlen(text) + 16 < capacity)
        append_text(text, capacity, "%s%u", *text ? ", " : "[", (unsigned)wire_get_u32(ranks));
    append_text(text, capacity, wire_done(ranks) ? "]" : ", ...]");
}

static bool sets_differ(struct wire_reader *a, struct wire_reader *b, struct diff_out *to)
{
    struct wire_reader ranks[2];
    char texts[2][160];
    if (!signature_read_ranks(a, &ranks[0]) || !signature_read_ranks(b, &ranks[1]))
        return false;
    write_ranks(&ranks[0], texts[0], sizeof texts[0]);
    write_ranks(&ranks[1], texts[1], sizeof texts[1]);
    return diff_text(to, "the ranks of the process set", texts[0], texts[1]);
}

void signature_difference(const struct signature *a, const struct signature *b, const int *names, char *what,
                          char *value_a, char *value_b, size_t capacity)
{
    struct diff_out to = {what, value_a, value_b, capacity};
    struct wire_reader readers[] = {wire_reader_of(a->bytes, a->length), wire_reader_of(b->bytes, b->length)};
    struct signature_head heads[2];
    if (!signature_read_head(&readers[0], &heads[0]) || !signature_read_head(&readers[1], &heads[1])) {
        diff_text(&to, "the request", "one form", "another");
        return;
    }
    if (heads_differ(&heads[0], &heads[1], names, &to))
        return;
    if (operation_takes(heads[0].operation, ARGUMENT_members) && sets_differ(&readers[0], &readers[1], &to))
        return;
    for (int i = 0; i < heads[0].count; i++) {
        struct signature_tensor tensors[2];
        if (!signature_read_tensor(&readers[0], &heads[0], &tensors[0]) ||
            !signature_read_tensor(&readers[1], &heads[1], &tensors[1]))
            break;
        if (tensors_differ(&heads[0], &tensors[0], &tensors[1], i, &to))
            return;
    }
    diff_text(&to, "the request", "one form", "another");
}

/* ---- a round ------------------------------------------------------------------------------------------- */

#define TEXT_LIMIT 256

struct text {
    const struct coordinator_config *config;
    char *bytes;
    size_t capacity;
};

static int compare_variants(const void *a, const void *b)
{
    const struct variant *x = a;
    const struct variant *y = b;
    int first = x->ranks.ranges[0].first;
    int second = y->ranks.ranges[0].first;
    return (first > second) - (first < second);
}

static struct rank_set name_ranks(const struct coordinator_config *config, const struct rank_set *places)
{
    struct rank_set named = {.others = places->others};
    for (int i = 0; i < places->count; i++) {
        for (int place = places->ranges[i].first; place <= places->ranges[i].last; place++)
            rank_set_add(&named, name_at(config, place), name_at(config, place));
    }
    return named;
}

static void append_variant(struct text *text, char separator, const struct variant *variant,
                           const char *value)
{
    char ranks[TEXT_LIMIT];
    struct rank_set named = name_ranks(text->config, &variant->ranks);
    rank_set_text(&named, ranks, sizeof ranks);
    bool one = named.count == 1 && !named.others && named.ranges[0].first == named.ranges[0].last;
    append_text(text->bytes, text->capacity, "%c %s %s %s", separator, ranks, one ? "has" : "have", value);
}

/* Appends one field: how variant `first` differs from variant 0, and all later ones that differ in the same
 * field. The bits of `covered` are the variants in the text so far; returns them with the new ones. */
static unsigned append_difference(struct text *text, const struct variants *variants, int first,
                                  unsigned covered)
{
    char what[2][TEXT_LIMIT], base_value[TEXT_LIMIT], value[TEXT_LIMIT];
    const struct signature *form = &variants->list[0].form->signature;
    signature_difference(form, &variants->list[first].form->signature, text->config->names, what[0],
                         base_value, value, TEXT_LIMIT);
    append_text(text->bytes, text->capacity, "%s on %s", covered == 1 ? "" : "; and", what[0]);
    append_variant(text, ':', &variants->list[0], base_value);
    for (int i = first; i < variants->count; i++) {
        if (covered >> i & 1)
            continue;
        signature_difference(form, &variants->list[i].form->signature, text->config->names, what[1],
                             base_value, value, TEXT_LIMIT);
        if (strcmp(what[0], what[1]) != 0)
            continue;
        append_variant(text, ',', &variants->list[i], value);
        covered |= 1u << i;
    }
    return covered;
}

void mismatch_text(const struct coordinator_config *config, const struct entry *entry, char *bytes,
                   size_t capacity)
{
    struct variants *variants = entry->round->variants;
    /* The variant of the lowest ranks is first, so the text does not depend on the order of arrival. */
    qsort(variants->list, (size_t)variants->count, sizeof variants->list[0], compare_variants);
    hvd_operation operation = variants->list[0].form->summary.operation;
    struct text text = {config, bytes, capacity};
    /* All others are compared with variant 0. */
    unsigned covered = 1;
    *bytes = '\0';
    append_text(bytes, capacity, "%s \"%.200s\": the ranks disagree", operation_name(operation),
                name_plain(operation, entry->name));
    for (int i = 1; i < variants->count; i++) {
        if (!(covered >> i & 1))
            covered = append_difference(&text, variants, i, covered);
    }
    append_text(bytes, capacity, "%s. This round ran nowhere; the job can go on",
                variants->others ? ", and so on" : "");
}
