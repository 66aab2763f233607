/* round.h - counting who asked for a name, and for what (docs/coordination.md, "Counting"). Driver only. */
#ifndef HVD_COORDINATE_ROUND_H
#define HVD_COORDINATE_ROUND_H

#include "coordinate/table.h"
#include "coordinate/tree.h"

/* In the entry's open round. This rank asks for `form`. */
hvd_code round_add_own(struct entry *entry, const struct tree_node *tree, struct form *form,
                       hvd_status *status);
/* The whole subtree of a child asks for `form`. */
hvd_code round_add_child(struct entry *entry, const struct tree_node *tree, int child, struct form *form,
                         hvd_status *status);
/* The subtree of a child asks for several things; the forms are shared, not taken over. */
hvd_code round_add_variants(struct entry *entry, const struct tree_node *tree, int child,
                            const struct variants *variants, hvd_status *status);

bool round_has_child(const struct entry *entry, int child);

void round_clear(struct round *round);            /* releases what it holds */
void variants_release(struct variants *variants); /* the forms only */

#endif
