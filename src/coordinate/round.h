/* round.h - counting the reporters of a name, and the forms that they report (docs/coordination.md,
 * "Counting"). Called with the progress lock held. */
#ifndef HVD_COORDINATE_ROUND_H
#define HVD_COORDINATE_ROUND_H

#include "coordinate/table.h"
#include "coordinate/tree.h"

/* All in the entry's open round. This rank submits `form`. */
hvd_code round_add_own(struct entry *entry, const struct tree_node *tree, struct form *form,
                       hvd_status *status);
/* The whole subtree of a child has submitted `form`. */
hvd_code round_add_child(struct entry *entry, const struct tree_node *tree, int child, struct form *form,
                         hvd_status *status);
/* The subtree of a child has submitted different forms, which are shared, not taken over. */
hvd_code round_add_variants(struct entry *entry, const struct tree_node *tree, int child,
                            const struct variants *variants, hvd_status *status);

bool round_has_child(const struct entry *entry, int child);

void round_clear(struct round *round);            /* releases what it holds */
void variants_release(struct variants *variants); /* the forms only */

#endif
