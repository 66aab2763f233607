/* fuzz_signature.c - any bytes as two signatures: well-formed ones can be kept, compared, and their
 * difference described in a text that fits. The first two bytes are the size of the set and the length of the
 * first signature. */
#include "coordinate/mismatch.h"
#include "coordinate/table.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 48, CHUNK = 16 << 10 };

static void check_words(const char *words)
{
    if (!memchr(words, '\0', WORDS))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    hvd_status status;
    struct form *a = NULL, *b = NULL;
    struct form_store store = {0};
    if (length < 2)
        return 0;
    pool_init(&store.pool, CHUNK, CHUNK);
    int size = bytes[0] % 8 + 1;
    size_t cut = bytes[1] < length - 2 ? bytes[1] : length - 2;
    struct signature first = {(uint8_t *)bytes + 2, (uint32_t)cut};
    struct signature second = {(uint8_t *)bytes + 2 + cut, (uint32_t)(length - 2 - cut)};
    bool two = !form_find(&store, &first, size, &a, &status) & !form_find(&store, &second, size, &b, &status);
    if (two && (a == b) != signature_equal(&first, &second))
        abort();
    if (two && a != b) {
        char what[WORDS], says_a[WORDS], says_b[WORDS];
        memset(what, 'x', sizeof what);
        memset(says_a, 'x', sizeof says_a);
        memset(says_b, 'x', sizeof says_b);
        signature_difference(&a->signature, &b->signature, NULL, what, says_a, says_b, WORDS);
        check_words(what);
        check_words(says_a);
        check_words(says_b);
    }
    form_release(a);
    form_release(b);
    map_free(&store.map);
    pool_fini(&store.pool);
    return 0;
}
