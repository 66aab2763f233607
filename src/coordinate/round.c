/* round.c - see round.h. As long as all reports agree, a round is one form and a bit per child; ranks are
 * stored only once they differ. */
#include "coordinate/round.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

bool round_has_child(const struct entry *entry, int child)
{
    return entry->round && (entry->round->reported[child / 64] >> (child % 64) & 1);
}

void variants_release(struct variants *variants)
{
    for (int i = 0; i < variants->count; i++)
        form_release(variants->list[i].form);
    variants->count = 0;
}

void round_clear(struct round *round)
{
    form_release(round->common);
    round->common = NULL;
    if (round->variants)
        variants_release(round->variants);
    free(round->variants);
    round->variants = NULL;
}

/* The ranks of all reports so far. */
static void write_reported(const struct entry *entry, const struct tree_node *tree, struct rank_set *ranks)
{
    if (entry->round->own)
        rank_set_add(ranks, tree->rank, tree->rank);
    for (int i = 0; i < tree->child_count; i++) {
        if (round_has_child(entry, i))
            rank_set_add(ranks, tree->children[i], tree_child_last(tree, i));
    }
}

static void add_variant(struct variants *variants, struct form *form, const struct rank_set *ranks)
{
    for (int i = 0; i < variants->count; i++) {
        if (variants->list[i].form == form) {
            rank_set_merge(&variants->list[i].ranks, ranks);
            return;
        }
    }
    if (variants->count == VARIANT_LIMIT) {
        variants->others = true;
        return;
    }
    variants->list[variants->count++] = (struct variant){form_share(form), *ranks};
}

/* From here on the round stores which ranks submitted which form. */
static hvd_code differ(struct entry *entry, const struct tree_node *tree, hvd_status *status)
{
    struct round *round = entry->round;
    if (round->variants)
        return HVD_OK;
    round->variants = calloc(1, sizeof *round->variants);
    if (!round->variants)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a request that differs by rank");
    if (round->common) {
        struct rank_set ranks = {0};
        write_reported(entry, tree, &ranks);
        add_variant(round->variants, round->common, &ranks);
        form_release(round->common);
        round->common = NULL;
    }
    return HVD_OK;
}

static hvd_code add_form(struct entry *entry, const struct tree_node *tree, struct form *form, int first,
                         int last, hvd_status *status)
{
    struct round *round = entry->round;
    /* Equal forms are one in memory (form.h), so pointers are compared. */
    if (!round->common && !round->variants) {
        round->common = form_share(form);
    } else if (round->variants || round->common != form) {
        hvd_code code = differ(entry, tree, status);
        if (code)
            return code;
        struct rank_set ranks = {0};
        rank_set_add(&ranks, first, last);
        add_variant(round->variants, form, &ranks);
    }
    round->missing--;
    return HVD_OK;
}

static void mark_child(struct entry *entry, int child)
{
    entry->round->reported[child / 64] |= UINT64_C(1) << (child % 64);
}

hvd_code round_add_own(struct entry *entry, const struct tree_node *tree, struct form *form,
                       hvd_status *status)
{
    hvd_code code = add_form(entry, tree, form, tree->rank, tree->rank, status);
    entry->round->own = !code;
    return code;
}

hvd_code round_add_child(struct entry *entry, const struct tree_node *tree, int child, struct form *form,
                         hvd_status *status)
{
    hvd_code code = add_form(entry, tree, form, tree->children[child], tree_child_last(tree, child), status);
    if (!code)
        mark_child(entry, child);
    return code;
}

hvd_code round_add_variants(struct entry *entry, const struct tree_node *tree, int child,
                            const struct variants *variants, hvd_status *status)
{
    hvd_code code = differ(entry, tree, status);
    if (code)
        return code;
    for (int i = 0; i < variants->count; i++)
        add_variant(entry->round->variants, variants->list[i].form, &variants->list[i].ranks);
    entry->round->variants->others |= variants->others;
    entry->round->missing--;
    mark_child(entry, child);
    return HVD_OK;
}
