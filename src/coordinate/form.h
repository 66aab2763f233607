/* form.h - one well-formed signature in memory, shared by all who mean it: counts, cached agreements. */
#ifndef HVD_COORDINATE_FORM_H
#define HVD_COORDINATE_FORM_H

#include "coordinate/request.h"

struct form {
    int references;
    struct signature signature; /* the bytes lie behind the struct */
    struct signature_summary summary;
};

/* Copies the bytes. HVD_INVALID_ARGUMENT when they are no signature of a set of `size` ranks. */
hvd_code form_create(const struct signature *signature, int size, struct form **form, hvd_status *status);
struct form *form_share(struct form *form);
void form_release(struct form *form); /* NULL is fine */

static inline bool form_equal(const struct form *a, const struct form *b)
{
    return a == b || signature_equal(&a->signature, &b->signature);
}

#endif
