/* elements.c - see elements.h. */
#include "bind/elements.h"

#include <stdio.h>
#include <string.h>

/* Of two rows with one letter the one of the buffer's item size counts. */
static const struct element {
    hvd_dtype dtype;
    uint8_t code, bits;  /* of DLPack */
    const char *formats; /* letters of the struct module that may mean it */
    char *format;        /* the one to write; NULL: there is none */
} elements[] = {
    {HVD_UINT8, DL_UINT, 8, "B", "B"},     {HVD_INT8, DL_INT, 8, "b", "b"},
    {HVD_INT32, DL_INT, 32, "il", "i"},    {HVD_INT64, DL_INT, 64, "qln", "q"},
    {HVD_FLOAT16, DL_FLOAT, 16, "e", "e"}, {HVD_FLOAT32, DL_FLOAT, 32, "f", "f"},
    {HVD_FLOAT64, DL_FLOAT, 64, "d", "d"}, {HVD_BFLOAT16, DL_BFLOAT, 16, "", NULL},
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
    if (type.code == DL_BOOL)
        snprintf(text, size, "bool");
    else if (type.code < sizeof names / sizeof *names && names[type.code])
        snprintf(text, size, "%s%d", names[type.code], type.bits);
    else
        snprintf(text, size, "number %d of DLPack, %d bits", type.code, type.bits);
    return false;
}

/* What the struct module's letters mean that the engine does not take, and NumPy's for complex numbers. */
static const char *name_format(const char *format)
{
    static const char *const names[][2] = {{"?", "bool"},       {"h", "int16"},      {"H", "uint16"},
                                           {"I", "uint32"},     {"L", "uint64"},     {"Q", "uint64"},
                                           {"Zf", "complex64"}, {"Zd", "complex128"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i][0], format))
            return names[i][1];
    }
    return NULL;
}

bool element_from_buffer(const Py_buffer *buffer, hvd_dtype *dtype, char *text, size_t size)
{
    const char *format = buffer->format ? buffer->format : "B";
    const char *letter = *format && strchr("@=<|", *format) ? format + 1 : format;
    bool single = letter[0] && !letter[1];
    for (int i = 0; single && i < ELEMENTS; i++) {
        if (strchr(elements[i].formats, *letter) && elements[i].bits == 8 * buffer->itemsize) {
            *dtype = elements[i].dtype;
            return true;
        }
    }
    const char *name = name_format(format);
    if (name)
        snprintf(text, size, "%s", name);
    else
        snprintf(text, size, "'%s' (in the struct module's letters), %zd bytes", format, buffer->itemsize);
    return false;
}

DLDataType element_to_dlpack(hvd_dtype dtype)
{
    const struct element *element = find(dtype);
    return (DLDataType){element->code, element->bits, 1};
}

char *element_to_format(hvd_dtype dtype)
{
    return find(dtype)->format;
}
