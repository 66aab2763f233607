/* ranks.h - a set of ranks as few ranges, for the texts of errors: bounded, so that no message grows with the
 * job. */
#ifndef HVD_COORDINATE_RANKS_H
#define HVD_COORDINATE_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#define RANK_RANGE_LIMIT 8

struct rank_range {
    int first, last;
};

struct rank_set {
    int count;
    bool others;                                /* there are more, at higher ranks than the kept ones */
    struct rank_range ranges[RANK_RANGE_LIMIT]; /* ascending, not touching */
};

void rank_set_add(struct rank_set *set, int first, int last);
void rank_set_merge(struct rank_set *set, const struct rank_set *from);
/* "rank 3", "ranks 0-2, 5 and others" */
const char *rank_set_text(const struct rank_set *set, char *text, size_t capacity);

#endif
