/* fuzz_history.c - any bytes as messages with the requests of a rank. The first two bytes say where the
 * second message begins. */
#include "watch/history.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct history *history)
{
    if (history->count > PAGE_RECORDS || history->title_count > history->count)
        abort();
    for (int i = 1; i < history->step_count; i++) {
        if (history->step_count > PAGE_STEPS || history->steps[i].count <= history->steps[i - 1].count)
            abort();
    }
    for (int i = 0; i < history->count; i++) {
        const struct history_request *request = &history->list[i];
        if (request->title >= (uint32_t)history->title_count || request->submitted < 0 ||
            (request->decided && request->decided < request->submitted) ||
            (request->ended && request->ended < request->submitted))
            abort();
        for (const char *at = history->titles[request->title]; *at; at++) {
            if (*at < ' ' || *at > '~')
                abort();
        }
    }
}

/* What was read can be written and read again. */
static void check_copy(const struct history *history)
{
    struct history copy = {0};
    for (int first = 0; first < history->count;) {
        struct wire_writer out = {0};
        first = history_put(history, first, 300, &out);
        struct wire_reader body = wire_reader_of(out.bytes, out.length);
        if (!history_get(&copy, &body))
            abort();
        wire_writer_free(&out);
    }
    if (copy.count != history->count || (copy.count && copy.step_count != history->step_count))
        abort();
    for (int i = 0; i < copy.count; i++) {
        if (copy.list[i].ended != history->list[i].ended ||
            strcmp(copy.titles[copy.list[i].title], history->titles[history->list[i].title]) != 0)
            abort();
    }
    history_free(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    if (length < 2)
        return 0;
    struct history history = {0};
    size_t first = (size_t)bytes[0] << 8 | bytes[1], left = length - 2;
    first = first < left ? first : left;
    struct wire_reader one = wire_reader_of(bytes + 2, first);
    struct wire_reader other = wire_reader_of(bytes + 2 + first, left - first);
    bool valid = history_get(&history, &one) && history_get(&history, &other);
    check(&history);
    if (valid)
        check_copy(&history);
    history_free(&history);
    return 0;
}
