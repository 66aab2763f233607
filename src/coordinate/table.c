/* table.c - forms, names, rounds and agreements of one coordinator, and the counting of reporters in a round.
 * Under the progress lock. */
#include "coordinate/table.h"

#include "base/status.h"
#include "base/types.h"
#include "coordinate/name.h"

#include <stdlib.h>
#include <string.h>

/* ---- forms --------------------------------------------------------------------------------------------- */

static size_t bytes_of(const struct signature *signature)
{
    return sizeof(struct form) + signature->length;
}

static hvd_code check(struct form *form, int size, hvd_status *status)
{
    if (!signature_summarize(&form->signature, &form->summary))
        return status_set(status, HVD_INVALID_ARGUMENT, "a request is malformed");
    if (operation_takes(form->summary.operation, ARGUMENT_root) && form->summary.root >= size)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "%s: the root rank %d is outside the job, whose ranks are 0 to %d",
                          hvd_operation_name(form->summary.operation), (int)form->summary.root, size - 1);
    return HVD_OK;
}

static hvd_code create(struct form_store *store, const struct signature *signature, int size,
                       struct form **form, hvd_status *status)
{
    size_t bytes = bytes_of(signature);
    struct form *created = pool_alloc(&store->pool, bytes);
    hvd_code code = created ? HVD_OK : HVD_OUT_OF_MEMORY;
    if (created) {
        /* Copied, since the given bytes may be in a message or in a request that ends first. */
        *created = (struct form){1, store, {created->bytes, signature->length}, {0}};
        memcpy(created->bytes, signature->bytes, signature->length);
        code = check(created, size, status);
        if (!code && !map_put(&store->map, created->bytes, signature->length, created))
            code = HVD_OUT_OF_MEMORY;
    }
    if (code == HVD_OUT_OF_MEMORY)
        status_no_memory(status);
    if (code)
        pool_free(&store->pool, created, bytes);
    else
        *form = created;
    return code;
}

hvd_code form_find(struct form_store *store, const struct signature *signature, int size, struct form **form,
                   hvd_status *status)
{
    struct form *known = map_get(&store->map, signature->bytes, signature->length);
    if (!known)
        return create(store, signature, size, form, status);
    *form = form_share(known);
    return HVD_OK;
}

struct form *form_share(struct form *form)
{
    form->references++;
    return form;
}

void form_release(struct form *form)
{
    if (!form || --form->references)
        return;
    map_remove(&form->store->map, form->bytes, form->signature.length);
    pool_free(&form->store->pool, form, bytes_of(&form->signature));
}

/* ---- names and rounds ---------------------------------------------------------------------------------- */

static size_t entry_bytes(uint32_t name_length)
{
    return sizeof(struct entry) + name_length + 1;
}

static size_t round_bytes(const struct table *table)
{
    return sizeof(struct round) + ((size_t)table->reporters + 63) / 64 * sizeof(uint64_t);
}

size_t round_parts_bytes(const struct table *table, const struct round *round)
{
    return (size_t)(table->reporters - 1) * round->part_bytes;
}

size_t round_rows_bytes(const struct table *table)
{
    return (size_t)(table->reporters - 1) * sizeof(struct runs *);
}

struct entry *table_entry(struct table *table, const char *name, uint32_t length)
{
    struct entry *entry = map_get(&table->names, name, length);
    if (entry)
        return entry;
    entry = pool_alloc(&table->pool, entry_bytes(length));
    if (!entry)
        return NULL;
    *entry = (struct entry){.name_length = length};
    memcpy(entry->name, name, length);
    entry->name[length] = '\0';
    if (map_put(&table->names, entry->name, length, entry))
        return entry;
    pool_free(&table->pool, entry, entry_bytes(length));
    return NULL;
}

static bool make_round(struct table *table, struct entry *entry, int64_t now)
{
    size_t bytes = round_bytes(table);
    struct round *round = pool_alloc(&table->pool, bytes);
    if (!round)
        return false;
    memset(round, 0, bytes);
    round->missing = table->reporters;
    round->opened = table->last_apart;
    round->since = now;
    entry->round = round;
    table->open++;
    return true;
}

bool table_open_round(struct table *table, struct entry *entry, int64_t now)
{
    if (!entry->round && !make_round(table, entry, now))
        return false;
    if (entry->round->missing == table->reporters) /* a stall report may have opened the round */
        entry->round->number = ++table->rounds;
    return true;
}

void table_close_round(struct table *table, struct entry *entry)
{
    if (!entry->round)
        return;
    stall_drop(entry, -1);
    form_release(entry->round->common);
    if (entry->round->variants)
        variants_release(entry->round->variants);
    free(entry->round->variants);
    pool_free(&table->pool, entry->round->parts, round_parts_bytes(table, entry->round));
    for (int child = 0; entry->round->rows && child < table->reporters - 1; child++)
        runs_release(entry->round->rows[child]);
    pool_free(&table->pool, entry->round->rows, round_rows_bytes(table));
    runs_release(entry->round->agreed_rows);
    pool_free(&table->pool, entry->round, round_bytes(table));
    entry->round = NULL;
    table->open--;
}

static void entry_free(struct table *table, struct entry *entry)
{
    pool_free(&table->pool, entry, entry_bytes(entry->name_length));
}

void table_tidy(struct table *table, struct entry *entry)
{
    if (entry->agreements || entry->round)
        return;
    map_remove(&table->names, entry->name, entry->name_length);
    entry_free(table, entry);
}

/* ---- agreements ------------------------------------------------------------------------------------- */

static void list_remove(struct agreement_list *list, struct agreement *agreement)
{
    *(agreement->previous ? &agreement->previous->next : &list->head) = agreement->next;
    *(agreement->next ? &agreement->next->previous : &list->tail) = agreement->previous;
    list->count--;
}

static void list_prepend(struct agreement_list *list, struct agreement *agreement)
{
    agreement->previous = NULL;
    agreement->next = list->head;
    *(list->head ? &list->head->previous : &list->tail) = agreement;
    list->head = agreement;
    list->count++;
}

static void list_append(struct agreement_list *list, struct agreement *agreement)
{
    agreement->next = NULL;
    agreement->previous = list->tail;
    *(list->tail ? &list->tail->next : &list->head) = agreement;
    list->tail = agreement;
    list->count++;
}

struct agreement *table_agreement(const struct table *table, uint64_t id)
{
    return map_get(&table->ids, &id, sizeof id);
}

hvd_code table_agree(struct table *table, struct entry *entry, uint64_t id, struct form *form,
                     hvd_status *status)
{
    struct agreement *agreement = pool_alloc(&table->pool, sizeof *agreement);
    if (agreement)
        *agreement = (struct agreement){.id = id, .entry = entry, .form = form};
    if (!agreement || !map_put(&table->ids, &agreement->id, sizeof agreement->id, agreement)) {
        pool_free(&table->pool, agreement, sizeof *agreement);
        form_release(form);
        return status_no_memory(status);
    }
    entry->agreed = agreement;
    entry->agreements++;
    list_prepend(&table->recent, agreement);
    return HVD_OK;
}

void table_touch(struct table *table, struct agreement *agreement)
{
    list_remove(&table->recent, agreement);
    list_prepend(&table->recent, agreement);
}

static void agreement_free(struct table *table, struct agreement *agreement)
{
    struct entry *entry = agreement->entry;
    map_remove(&table->ids, &agreement->id, sizeof agreement->id);
    form_release(agreement->form);
    runs_release(agreement->rows);
    pool_free(&table->pool, agreement, sizeof *agreement);
    entry->agreements--;
    table_tidy(table, entry);
}

void table_evict(struct table *table, struct agreement *agreement, uint64_t decision)
{
    list_remove(&table->recent, agreement);
    agreement->entry->agreed = NULL;
    agreement->evicted = decision;
    if (table->reporters > 1)
        list_append(&table->retired, agreement);
    else
        agreement_free(table, agreement);
}

void table_forget_retired(struct table *table, uint64_t seen_by_all)
{
    while (table->retired.head && table->retired.head->evicted <= seen_by_all) {
        struct agreement *agreement = table->retired.head;
        list_remove(&table->retired, agreement);
        agreement_free(table, agreement);
    }
}

void table_free(struct table *table)
{
    size_t cursor = 0;
    struct entry *entry;
    struct agreement *agreement;
    while ((agreement = map_next(&table->ids, &cursor))) {
        form_release(agreement->form);
        runs_release(agreement->rows);
        pool_free(&table->pool, agreement, sizeof *agreement);
    }
    cursor = 0;
    while ((entry = map_next(&table->names, &cursor))) {
        table_close_round(table, entry);
        entry_free(table, entry);
    }
    map_free(&table->names);
    map_free(&table->ids);
    map_free(&table->forms.map);
    pool_fini(&table->forms.pool);
    pool_fini(&table->pool);
    *table = (struct table){0};
}

/* ---- counting in an open round ------------------------------------------------------------------------- */

bool round_has_child(const struct entry *entry, int child)
{
    return entry->round && (entry->round->reported[child / 64] >> (child % 64) & 1);
}

hvd_operation round_operation(const struct round *round, bool *grouped)
{
    const struct form *form = round->variants ? round->variants->list[0].form : round->common;
    *grouped = form ? form->summary.grouped : round->stalls->grouped;
    return form ? form->summary.operation : round->stalls->operation;
}

char *entry_title(const struct entry *entry, char *text, size_t capacity)
{
    bool grouped;
    hvd_operation operation = round_operation(entry->round, &grouped);
    return name_text(operation, grouped, entry->name, text, capacity);
}

void variants_release(struct variants *variants)
{
    for (int i = 0; i < variants->count; i++)
        form_release(variants->list[i].form);
    variants->count = 0;
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

/* While all reports agree, a round has one form and a bit per child. From here on it stores which ranks
 * submitted which form. */
static hvd_code differ(struct entry *entry, const struct tree_node *tree, hvd_status *status)
{
    struct round *round = entry->round;
    if (round->variants)
        return HVD_OK;
    round->variants = calloc(1, sizeof *round->variants);
    if (!round->variants)
        return status_no_memory(status);
    if (round->common) {
        struct rank_set ranks = {0};
        if (round->own)
            rank_set_add(&ranks, tree->place, tree->place);
        for (int i = 0; i < tree->child_count; i++) {
            if (round_has_child(entry, i))
                rank_set_add(&ranks, tree->children[i], tree_child_last(tree, i));
        }
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
    /* Equal forms have equal addresses. */
    if (!round->common && !round->variants) {
        round->common = form_share(form);
    } else if (round->variants || round->common != form) {
        TRY(differ(entry, tree, status));
        struct rank_set ranks = {0};
        rank_set_add(&ranks, first, last);
        add_variant(round->variants, form, &ranks);
    }
    round->missing--;
    return HVD_OK;
}

void stall_drop(struct entry *entry, int child)
{
    struct stall_report **at = entry->round ? &entry->round->stalls : NULL;
    while (at && *at) {
        struct stall_report *stall = *at;
        if (child >= 0 && stall->child != child) {
            at = &stall->next;
            continue;
        }
        *at = stall->next;
        free(stall);
    }
}

static void mark_child(struct entry *entry, int child)
{
    entry->round->reported[child / 64] |= UINT64_C(1) << (child % 64);
}

hvd_code round_add_own(struct entry *entry, const struct tree_node *tree, struct form *form,
                       hvd_status *status)
{
    hvd_code code = add_form(entry, tree, form, tree->place, tree->place, status);
    entry->round->own = !code;
    return code;
}

hvd_code round_add_child(struct entry *entry, const struct tree_node *tree, int child, struct form *form,
                         hvd_status *status)
{
    TRY(add_form(entry, tree, form, tree->children[child], tree_child_last(tree, child), status));
    mark_child(entry, child);
    return HVD_OK;
}

hvd_code round_add_variants(struct entry *entry, const struct tree_node *tree, int child,
                            const struct variants *variants, hvd_status *status)
{
    TRY(differ(entry, tree, status));
    for (int i = 0; i < variants->count; i++)
        add_variant(entry->round->variants, variants->list[i].form, &variants->list[i].ranks);
    entry->round->variants->others |= variants->others;
    entry->round->missing--;
    mark_child(entry, child);
    return HVD_OK;
}
