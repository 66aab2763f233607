/* form.h - one well-formed signature in memory, shared by all who mean it: counts, cached agreements. A
 * coordinator has each but once, whatever the number of names, so equal forms are one. */
#ifndef HVD_COORDINATE_FORM_H
#define HVD_COORDINATE_FORM_H

#include "base/map.h"
#include "base/pool.h"
#include "coordinate/request.h"

/* A coordinator's. */
struct form_store {
    struct map map; /* by signature */
    struct pool pool;
};

struct form {
    int references;
    struct form_store *store;
    struct signature signature; /* `bytes` */
    struct signature_summary summary;
    uint8_t bytes[];
};

/* The one that is there, or a new one. HVD_INVALID_ARGUMENT: it is no signature of a set of `size` ranks. */
hvd_code form_find(struct form_store *store, const struct signature *signature, int size, struct form **form,
                   hvd_status *status);
struct form *form_share(struct form *form);
void form_release(struct form *form); /* NULL is fine */

#endif
