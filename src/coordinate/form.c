/* form.c - see form.h. Called with the progress lock held. */
#include "coordinate/form.h"

#include "base/status.h"

#include <string.h>

static size_t bytes_of(const struct signature *signature)
{
    return sizeof(struct form) + signature->length;
}

static hvd_code check(struct form *form, int size, hvd_status *status)
{
    if (!signature_summarize(&form->signature, &form->summary))
        return status_set(status, HVD_INVALID_ARGUMENT, "a request is malformed");
    if (form->summary.operation == HVD_BROADCAST && form->summary.root >= size)
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "broadcast: the root rank %d is outside the job, whose ranks are 0 to %d",
                          (int)form->summary.root, size - 1);
    return HVD_OK;
}

static hvd_code create(struct form_store *store, const struct signature *signature, int size,
                       struct form **form, hvd_status *status)
{
    size_t bytes = bytes_of(signature);
    struct form *created = pool_take(&store->pool, bytes);
    hvd_code code = created ? HVD_OK : HVD_OUT_OF_MEMORY;
    if (created) {
        /* A copy: the given bytes may lie in a message or in a request that ends first. */
        *created = (struct form){1, store, {created->bytes, signature->length}, {0}};
        memcpy(created->bytes, signature->bytes, signature->length);
        code = check(created, size, status);
        if (!code && !map_put(&store->map, created->bytes, signature->length, created))
            code = HVD_OUT_OF_MEMORY;
    }
    if (code == HVD_OUT_OF_MEMORY)
        status_set(status, code, "out of memory for a request of %u bytes", (unsigned)signature->length);
    if (code)
        pool_give(&store->pool, created, bytes);
    else
        *form = created;
    return code;
}

hvd_code form_find(struct form_store *store, const struct signature *signature, int size, struct form **form,
                   hvd_status *status)
{
    struct form *known = map_get(&store->map, signature->bytes, signature->length);
    if (!known)
        return create(store, signature, size, form, status);
    *form = form_share(known);
    return HVD_OK;
}

struct form *form_share(struct form *form)
{
    form->references++;
    return form;
}

void form_release(struct form *form)
{
    if (!form || --form->references)
        return;
    map_remove(&form->store->map, form->bytes, form->signature.length);
    pool_give(&form->store->pool, form, bytes_of(&form->signature));
}
