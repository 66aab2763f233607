/* page_waitings.c - see page_waitings.h. A flight is a request in flight on one rank. The flights of one
 * title in one process set are one request of the job, which a hash table finds: a job of 1,000 ranks may
 * have 161,000 flights, too many to sort by their titles. */
#include "watch/page_waitings.h"

#include "base/map.h"
#include "base/status.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NO_FLIGHT UINT8_MAX /* in place of a page_part */

/* What distinguishes the requests of a job. It is the key of the map, up to the end of the title. */
struct name {
    int process_set;
    char title[PAGE_TITLE];
};

struct names {
    struct map map;    /* of the list's elements */
    struct name *list; /* [total + 1] */
    int count;
    int *of_flights; /* [total] an index into the list for each flight */
};

static bool is_flight(const struct page_request *request)
{
    return !request->held && request->operation != HVD_JOIN;
}

/* ---- what a page says of its rank in one process set --------------------------------------------------- */

struct standing {
    int size; /* of the set; 0: the rank is not in it, or the page has no place for it */
    bool joined;
    bool whole; /* all requests of the set are there, with their names */
};

static int size_of_set(const struct page_summary *page, int id)
{
    for (int i = 0; i < page->set_count; i++) {
        if (page->sets[i].id == id)
            return page->sets[i].size;
    }
    return 0;
}

static struct standing standing_of(const struct page_summary *page, int set)
{
    struct standing standing = {.size = size_of_set(page, set), .whole = !page->dropped};
    for (int i = 0; i < page->request_count; i++) {
        const struct page_request *request = &page->requests[i];
        if (request->process_set != set)
            continue;
        standing.joined |= request->operation == HVD_JOIN;
        standing.whole &= !request->nameless || request->held || request->decided;
    }
    return standing;
}

/* Returns the part of a rank whose page has no flight of the name. */
static enum page_part part_of(const struct standing *standing, bool nameless)
{
    if (standing->size <= 0 || standing->joined)
        return PART_NONE;
    return standing->whole && !nameless ? PART_MISSING : PART_UNKNOWN;
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

/* Finds the name of each flight. */
static hvd_code find_names(const struct page_summary *pages, int count, struct names *names,
                           hvd_status *status)
{
    int *of_flight = names->of_flights;
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < pages[i].request_count; j++) {
            const struct page_request *request = &pages[i].requests[j];
            struct name *name = &names->list[names->count];
            if (!is_flight(request))
                continue;
            size_t length = strlen(request->title);
            name->process_set = request->process_set;
            memcpy(name->title, request->title, length + 1);
            void **place = map_place(&names->map, name, offsetof(struct name, title) + length, name);
            if (!place)
                return status_no_memory(status);
            names->count += *place == name;
            *of_flight++ = (int)((struct name *)*place - names->list);
        }
    }
    return HVD_OK;
}

/* A rank that knows the decision is not missing. */
static void add_flights(const struct page_summary *pages, int count, const int *of_flight,
                        const struct page_waitings *waitings)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < pages[i].request_count; j++) {
            const struct page_request *request = &pages[i].requests[j];
            if (!is_flight(request))
                continue;
            uint8_t *part = &waitings->parts[(size_t)*of_flight * (size_t)count + (size_t)i];
            struct page_waiting *waiting = &waitings->list[*of_flight++];
            if (*part != PART_WAITS) /* nameless requests of one operation share a title */
                *part = request->decided ? PART_NONE : PART_WAITS;
            if (request->decided || (waiting->request && waiting->since <= request->submitted))
                continue;
            waiting->request = request;
            waiting->since = request->submitted;
        }
    }
}

/* Adds the ranks without a flight of the name: one that has joined is not missing; one whose request is held
 * back is, since the other ranks can't know of it. */
static void add_others(const struct standing *standings, int count, struct page_waiting *waiting)
{
    int known = 0, size = 0;
    for (int page = 0; page < count; page++) {
        const struct standing *standing = &standings[page];
        if (waiting->parts[page] == NO_FLIGHT)
            waiting->parts[page] = (uint8_t)part_of(standing, waiting->request->nameless);
        enum page_part part = waiting->parts[page];
        size = standing->size > size ? standing->size : size;
        waiting->waits += part == PART_WAITS;
        waiting->missing += part == PART_MISSING;
        known += part == PART_WAITS || (standing->size > 0 && part != PART_UNKNOWN);
    }
    waiting->hidden = size > known ? size - known : !size;
}

static int compare_sets(const void *one, const void *other)
{
    const struct page_waiting *a = one, *b = other;
    int x = a->request->process_set, y = b->request->process_set;
    return (x > y) - (x < y);
}

/* The one that has waited longest first. */
static int compare_waitings(const void *one, const void *other)
{
    const struct page_waiting *a = one, *b = other;
    int order = (a->since > b->since) - (a->since < b->since);
    order = order ? order : compare_sets(one, other);
    return order ? order : strcmp(a->request->title, b->request->title);
}

static hvd_code compare_pages(const struct page_summary *pages, int count, const struct names *names,
                              struct page_waitings *waitings, hvd_status *status)
{
    struct standing *standings = calloc((size_t)count, sizeof *standings);
    size_t parts = (size_t)names->count * (size_t)count;
    waitings->list = calloc((size_t)names->count + 1, sizeof *waitings->list);
    waitings->parts = malloc(parts + 1);
    if (!standings || !waitings->list || !waitings->parts) {
        free(standings);
        return status_no_memory(status);
    }
    memset(waitings->parts, NO_FLIGHT, parts);
    for (int i = 0; i < names->count; i++)
        waitings->list[i].parts = waitings->parts + (size_t)i * (size_t)count;
    add_flights(pages, count, names->of_flights, waitings);
    for (int i = 0; i < names->count; i++) { /* without those that all ranks have decided */
        if (waitings->list[i].request)
            waitings->list[waitings->count++] = waitings->list[i];
    }
    qsort(waitings->list, (size_t)waitings->count, sizeof *waitings->list, compare_sets);
    for (int i = 0; i < waitings->count; i++) {
        struct page_waiting *waiting = &waitings->list[i];
        for (int j = 0; j < count && (!i || compare_sets(waiting - 1, waiting) != 0); j++)
            standings[j] = standing_of(&pages[j], waiting->request->process_set);
        add_others(standings, count, waiting);
    }
    qsort(waitings->list, (size_t)waitings->count, sizeof *waitings->list, compare_waitings);
    free(standings);
    return HVD_OK;
}

hvd_code page_waitings_find(const struct page_summary *pages, int count, struct page_waitings *waitings,
                            hvd_status *status)
{
    size_t total = 0;
    *waitings = (struct page_waitings){0};
    for (int i = 0; i < count; i++)
        total += (size_t)pages[i].request_count;
    if (!total)
        return HVD_OK;
    struct names names = {.list = calloc(total + 1, sizeof *names.list),
                          .of_flights = calloc(total, sizeof *names.of_flights)};
    hvd_code code = names.list && names.of_flights ? HVD_OK : status_no_memory(status);
    if (!code)
        code = find_names(pages, count, &names, status);
    if (!code)
        code = compare_pages(pages, count, &names, waitings, status);
    map_free(&names.map);
    free(names.list);
    free(names.of_flights);
    return code;
}

void page_waitings_free(struct page_waitings *waitings)
{
    free(waitings->list);
    free(waitings->parts);
    *waitings = (struct page_waitings){0};
}
