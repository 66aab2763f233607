/* form.h - interned signatures, reference-counted: shared by rounds and cached agreements of any number of
 * names. A coordinator has each only once, so equal forms have equal addresses. */
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
