/* form.c - see form.h. Driver only. */
#include "coordinate/form.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

hvd_code form_create(const struct signature *signature, int size, struct form **form, hvd_status *status)
{
    struct form *created = malloc(sizeof *created + signature->length);
    if (!created)
        return status_set(status, HVD_OUT_OF_MEMORY, "out of memory for a request of %u bytes",
                          (unsigned)signature->length);
    *created = (struct form){1, {(uint8_t *)(created + 1), signature->length}, {0}};
    memcpy(created + 1, signature->bytes, signature->length);
    hvd_code code = HVD_OK;
    if (!signature_summarize(&created->signature, &created->summary))
        code = status_set(status, HVD_INVALID_ARGUMENT, "a request is malformed");
    else if (created->summary.operation == HVD_BROADCAST && created->summary.root >= size)
        code = status_set(status, HVD_INVALID_ARGUMENT,
                          "broadcast: the root rank %d is outside the job, whose ranks are 0 to %d",
                          (int)created->summary.root, size - 1);
    if (code) {
        free(created);
        return code;
    }
    *form = created;
    return HVD_OK;
}

struct form *form_share(struct form *form)
{
    form->references++;
    return form;
}

void form_release(struct form *form)
{
    if (form && --form->references == 0)
        free(form);
}
