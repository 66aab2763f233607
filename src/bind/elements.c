/* elements.c - see elements.h. */
#include "bind/elements.h"

#include <stdio.h>
#include <string.h>

/* Of two rows with one letter the one of the buffer's item size counts. */
static const struct element {
    hvd_dtype dtype;
    uint8_t code, bits;  /* of DLPack */
    uint8_t alignment;   /* in bytes */
    char *format;        /* of the buffer protocol; "": there is none */
    const char *letters; /* that may mean it, too */
} elements[] = {
#define DTYPE(name, text, storage, compute, family, dlpack, format, letters)                                 \
    {HVD_##name, DL_##dlpack, 8 * sizeof(storage), _Alignof(storage), format, letters},
#include "base/dtypes.def"
#undef DTYPE
};

enum { ELEMENTS = sizeof elements / sizeof *elements };

static const struct element *find(hvd_dtype dtype)
{
    int i = 0;
    while (elements[i].dtype != dtype)
        i++;
    return &elements[i];
}

bool element_from_dlpack(DLDataType type, hvd_dtype *dtype, char *text, size_t size)
{
    static const char *const names[] = {[DL_INT] = "int",
                                        [DL_UINT] = "uint",
                                        [DL_FLOAT] = "float",
                                        [DL_BFLOAT] = "bfloat",
                                        [DL_COMPLEX] = "complex"};
    for (int i = 0; i < ELEMENTS; i++) {
        if (type.lanes == 1 && elements[i].code == type.code && elements[i].bits == type.bits) {
            *dtype = elements[i].dtype;
            return true;
        }
    }
    if (type.code < sizeof names / sizeof *names && names[type.code])
        snprintf(text, size, "%s%d", names[type.code], type.bits);
    else
        snprintf(text, size, "number %d of DLPack, %d bits", type.code, type.bits);
    return false;
}

static bool means(const char *format, const struct element *element)
{
    if (element->format[0] && !strcmp(element->format, format))
        return true;
    return format[0] && !format[1] && strchr(element->letters, format[0]);
}

bool element_from_buffer(const Py_buffer *buffer, hvd_dtype *dtype, char *text, size_t size)
{
    const char *format = buffer->format ? buffer->format : "B";
    /* Marks of the byte order that is this machine's, or of none; with another one the format matches
     * nothing. */
    const char *letters = *format && strchr("@=<|", *format) ? format + 1 : format;
    for (int i = 0; i < ELEMENTS; i++) {
        if (means(letters, &elements[i]) && elements[i].bits == 8 * buffer->itemsize) {
            *dtype = elements[i].dtype;
            return true;
        }
    }
    snprintf(text, size, "'%s' (in the struct module's letters), %zd bytes", format, buffer->itemsize);
    return false;
}

size_t element_alignment(hvd_dtype dtype)
{
    return find(dtype)->alignment;
}

DLDataType element_to_dlpack(hvd_dtype dtype)
{
    const struct element *element = find(dtype);
    return (DLDataType){element->code, element->bits, 1};
}

char *element_to_format(hvd_dtype dtype)
{
    char *format = find(dtype)->format;
    return *format ? format : NULL;
}
