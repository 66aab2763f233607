/* c_locale.h - the "C" locale, whatever the program has chosen: numbers and words of settings and files are
 * no prose. In some locales numbers have a comma, and "info" is not "INFO" in small letters. */
#ifndef HVD_BASE_C_LOCALE_H
#define HVD_BASE_C_LOCALE_H

#include <locale.h>

static inline locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", NULL); /* the library's own constant: nothing to free */
}

#endif
