/* sets.c - the table of process sets that user threads read, under a lock of its own. Any thread. */
#include "engine/sets.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

void sets_init(struct sets *sets)
{
    *sets = (struct sets){0};
    pthread_mutex_init(&sets->lock, NULL);
}

void sets_fini(struct sets *sets)
{
    for (int i = 0; i < sets->count; i++)
        free(sets->list[i].ranks);
    free(sets->list);
    pthread_mutex_destroy(&sets->lock);
}

static int compare_ranks(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y); /* unchecked ranks may differ by more than an int holds */
}

void ranks_sort(int *ranks, int count)
{
    qsort(ranks, (size_t)count, sizeof *ranks, compare_ranks);
}

int ranks_find(const int *ranks, int size, int rank_of_job)
{
    const int *found = bsearch(&rank_of_job, ranks, (size_t)size, sizeof *ranks, compare_ranks);
    return found ? (int)(found - ranks) : -1;
}

/* Called under the lock; returns NULL if there is no such set. */
static struct process_set *find(const struct sets *sets, int id)
{
    for (int i = 0; i < sets->count; i++) {
        if (sets->list[i].id == id)
            return &sets->list[i];
    }
    return NULL;
}

/* Makes room for one more set; ids are ascending. NULL: out of memory. */
static struct process_set *make_room(struct sets *sets, int id)
{
    if (sets->count == sets->capacity) {
        int capacity = sets->capacity ? 2 * sets->capacity : 8;
        struct process_set *list = realloc(sets->list, (size_t)capacity * sizeof *list);
        if (!list)
            return NULL;
        sets->list = list;
        sets->capacity = capacity;
    }
    int place = sets->count++;
    for (; place > 0 && sets->list[place - 1].id > id; place--)
        sets->list[place] = sets->list[place - 1];
    return &sets->list[place];
}

hvd_code sets_add(struct sets *sets, int id, const int *ranks, int size, int rank_of_job, hvd_status *status)
{
    int *copy = malloc((size_t)size * sizeof *copy);
    pthread_mutex_lock(&sets->lock);
    struct process_set *set = copy ? make_room(sets, id) : NULL;
    if (set) {
        memcpy(copy, ranks, (size_t)size * sizeof *copy);
        *set = (struct process_set){id, ranks_find(ranks, size, rank_of_job), size, copy};
    }
    pthread_mutex_unlock(&sets->lock);
    if (set)
        return HVD_OK;
    free(copy);
    return status_no_memory(status);
}

void sets_remove(struct sets *sets, int id)
{
    pthread_mutex_lock(&sets->lock);
    struct process_set *set = find(sets, id);
    if (set) {
        free(set->ranks);
        sets->count--;
        memmove(set, set + 1, (size_t)(sets->list + sets->count - set) * sizeof *set);
    }
    pthread_mutex_unlock(&sets->lock);
}

static hvd_code resolve(const struct process_set *set, int id, int rank_of_job, int *root, int *size,
                        hvd_status *status)
{
    if (!set)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "there is no process set %d: it was removed, or never added", id);
    if (set->rank < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "rank %d is not a member of process set %d; only its members may submit to it",
                          rank_of_job, id);
    int place = *root < 0 ? -1 : ranks_find(set->ranks, set->size, *root);
    if (*root >= 0 && place < 0)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "the root, rank %d of the job, is not a member of process set %d", *root, id);
    *root = place;
    *size = set->size;
    return HVD_OK;
}

hvd_code sets_resolve(struct sets *sets, int id, int rank_of_job, int *root, int *size, hvd_status *status)
{
    pthread_mutex_lock(&sets->lock);
    hvd_code code = resolve(find(sets, id), id, rank_of_job, root, size, status);
    pthread_mutex_unlock(&sets->lock);
    return code;
}

int sets_ids(struct sets *sets, int32_t *ids, int capacity)
{
    pthread_mutex_lock(&sets->lock);
    int count = sets->count;
    for (int i = 0; i < count && i < capacity; i++)
        ids[i] = sets->list[i].id;
    pthread_mutex_unlock(&sets->lock);
    return count;
}

int sets_ranks(struct sets *sets, int id, int32_t *ranks, int capacity)
{
    pthread_mutex_lock(&sets->lock);
    const struct process_set *set = find(sets, id);
    int size = set ? set->size : -1;
    for (int i = 0; i < size && i < capacity; i++)
        ranks[i] = set->ranks[i];
    pthread_mutex_unlock(&sets->lock);
    return size;
}
