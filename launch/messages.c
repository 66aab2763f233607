/* messages.c - see messages.h. No state. */
#include "messages.h"

#include <stdlib.h>
#include <string.h>

#define SLOT_BYTES 20

static void put_words(char *const *words, struct wire_writer *body)
{
    uint32_t count = 0;
    while (words[count])
        count++;
    wire_put_u32(body, count);
    for (uint32_t i = 0; i < count; i++)
        wire_put_string(body, words[i]);
}

static char **take_words(struct wire_reader *body)
{
    uint32_t count = wire_get_u32(body);
    char **words = NULL;
    if (!body->failed && count <= (body->length - body->position) / sizeof count)
        words = calloc((size_t)count + 1, sizeof *words);
    for (uint32_t i = 0; words && i < count; i++) {
        uint32_t length;
        const uint8_t *bytes = wire_get_blob(body, UINT32_MAX, &length);
        words[i] = bytes ? strndup((const char *)bytes, length) : NULL;
        if (!words[i]) {
            words_free(words);
            return NULL;
        }
    }
    return words;
}

void words_free(char **words)
{
    for (char **word = words; word && *word; word++)
        free(*word);
    free(words);
}

void preparation_put(const struct preparation *preparation, struct wire_writer *body)
{
    wire_put_u8(body, preparation->setup);
    wire_put_string(body, preparation->folder);
    put_words(preparation->environment, body);
    put_words(preparation->command, body);
}

bool preparation_take(struct preparation *preparation, struct wire_reader *body)
{
    preparation->setup = wire_get_u8(body);
    return wire_get_string(body, preparation->folder, sizeof preparation->folder) &&
           (preparation->environment = take_words(body)) && (preparation->command = take_words(body)) &&
           *preparation->command && wire_done(body);
}

void start_put(const struct start *start, struct wire_writer *body)
{
    wire_put_string(body, start->id);
    wire_put_string(body, start->secret);
    wire_put_string(body, start->rendezvous);
    wire_put_string(body, start->host);
    wire_put_u32(body, (uint32_t)start->size);
    wire_put_u8(body, start->verbose);
    wire_put_u32(body, (uint32_t)start->count);
    for (int i = 0; i < start->count; i++) {
        const struct slot *slot = &start->slots[i];
        wire_put_u32(body, (uint32_t)slot->rank);
        wire_put_u32(body, (uint32_t)slot->local_rank);
        wire_put_u32(body, (uint32_t)slot->local_size);
        wire_put_u32(body, (uint32_t)slot->cross_rank);
        wire_put_u32(body, (uint32_t)slot->cross_size);
    }
}

bool start_take(struct start *start, struct wire_reader *body)
{
    if (!wire_get_string(body, start->id, sizeof start->id) ||
        !wire_get_string(body, start->secret, sizeof start->secret) ||
        !wire_get_string(body, start->rendezvous, sizeof start->rendezvous) ||
        !wire_get_string(body, start->host, sizeof start->host))
        return false;
    start->size = (int)wire_get_u32(body);
    start->verbose = wire_get_u8(body);
    uint32_t count = wire_get_u32(body);
    if (body->failed || count == 0 || count != (body->length - body->position) / SLOT_BYTES)
        return false;
    start->slots = calloc(count, sizeof *start->slots);
    start->count = (int)count;
    for (int i = 0; start->slots && i < start->count; i++) {
        struct slot *slot = &start->slots[i];
        slot->rank = (int)wire_get_u32(body);
        slot->local_rank = (int)wire_get_u32(body);
        slot->local_size = (int)wire_get_u32(body);
        slot->cross_rank = (int)wire_get_u32(body);
        slot->cross_size = (int)wire_get_u32(body);
    }
    return start->slots && wire_done(body);
}
