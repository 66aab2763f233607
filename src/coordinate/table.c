/* table.c - see table.h. */
#include "coordinate/table.h"

#include "base/status.h"
#include "coordinate/round.h"
#include "coordinate/stall.h"

#include <string.h>

static size_t bit_words(const struct table *table)
{
    return ((size_t)table->reporters + 63) / 64;
}

/* The bits of the children lie behind the name. */
static size_t bits_offset(uint32_t name_length)
{
    return (sizeof(struct entry) + name_length + 1 + 7) / 8 * 8;
}

static size_t entry_bytes(const struct table *table, uint32_t name_length)
{
    return bits_offset(name_length) + bit_words(table) * sizeof(uint64_t);
}

struct entry *table_entry(struct table *table, const char *name, uint32_t length)
{
    struct entry *entry = map_get(&table->names, name, length);
    if (entry)
        return entry;
    size_t bytes = entry_bytes(table, length);
    entry = pool_take(&table->pool, bytes);
    if (!entry)
        return NULL;
    memset(entry, 0, bytes);
    entry->reported = (uint64_t *)((char *)entry + bits_offset(length));
    entry->round.missing = table->reporters;
    entry->name_length = length;
    memcpy(entry->name, name, length);
    if (map_put(&table->names, entry->name, length, entry))
        return entry;
    pool_give(&table->pool, entry, bytes);
    return NULL;
}

static void entry_free(struct table *table, struct entry *entry)
{
    pool_give(&table->pool, entry, entry_bytes(table, entry->name_length));
}

void table_tidy(struct table *table, struct entry *entry)
{
    if (entry->agreements || entry->mine || entry->round.missing < table->reporters || entry->round.notes)
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
    struct agreement *agreement = pool_take(&table->pool, sizeof *agreement);
    if (agreement)
        *agreement = (struct agreement){.id = id, .entry = entry, .form = form};
    if (!agreement || !map_put(&table->ids, &agreement->id, sizeof agreement->id, agreement)) {
        pool_give(&table->pool, agreement, sizeof *agreement);
        form_release(form);
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for the cache of requests");
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
    pool_give(&table->pool, agreement, sizeof *agreement);
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
        pool_give(&table->pool, agreement, sizeof *agreement);
    }
    cursor = 0;
    while ((entry = map_next(&table->names, &cursor))) {
        round_clear(&entry->round);
        stall_forget(entry, -1);
        entry_free(table, entry);
    }
    map_free(&table->names);
    map_free(&table->ids);
    map_free(&table->forms.map);
    pool_fini(&table->forms.pool);
    pool_fini(&table->pool);
    *table = (struct table){0};
}
