/* table.c - see table.h. */
#include "coordinate/table.h"

#include "base/status.h"
#include "coordinate/round.h"
#include "coordinate/stall.h"

#include <string.h>

static size_t entry_bytes(uint32_t name_length)
{
    return sizeof(struct entry) + name_length + 1;
}

static size_t round_bytes(const struct table *table)
{
    return sizeof(struct round) + ((size_t)table->reporters + 63) / 64 * sizeof(uint64_t);
}

struct entry *table_entry(struct table *table, const char *name, uint32_t length)
{
    struct entry *entry = map_get(&table->names, name, length);
    if (entry)
        return entry;
    entry = pool_take(&table->pool, entry_bytes(length));
    if (!entry)
        return NULL;
    *entry = (struct entry){.name_length = length};
    memcpy(entry->name, name, length);
    entry->name[length] = '\0';
    if (map_put(&table->names, entry->name, length, entry))
        return entry;
    pool_give(&table->pool, entry, entry_bytes(length));
    return NULL;
}

bool table_open_round(struct table *table, struct entry *entry)
{
    if (entry->round)
        return true;
    size_t bytes = round_bytes(table);
    struct round *round = pool_take(&table->pool, bytes);
    if (!round)
        return false;
    memset(round, 0, bytes);
    round->missing = table->reporters;
    entry->round = round;
    table->open++;
    return true;
}

void table_close_round(struct table *table, struct entry *entry)
{
    if (!entry->round)
        return;
    stall_drop(entry, -1);
    round_clear(entry->round);
    pool_give(&table->pool, entry->round, round_bytes(table));
    entry->round = NULL;
    table->open--;
}

static void entry_free(struct table *table, struct entry *entry)
{
    pool_give(&table->pool, entry, entry_bytes(entry->name_length));
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
