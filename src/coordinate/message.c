/* message.c - see message.h. No state; any thread. */
#include "coordinate/message.h"

#include <string.h>

static bool get_name(struct wire_reader *reader, const char **name, uint32_t *length)
{
    *name = (const char *)wire_get_blob(reader, REQUEST_NAME_LIMIT - 1, length);
    return *name && *length && !memchr(*name, '\0', *length);
}

static bool get_signature(struct wire_reader *reader, struct signature *signature)
{
    /* Never written through: the bytes are the message's. */
    signature->bytes = (uint8_t *)wire_get_blob(reader, REQUEST_SIGNATURE_LIMIT, &signature->length);
    return signature->bytes;
}

static void put_name(struct wire_writer *writer, const struct entry *entry)
{
    wire_put_blob(writer, entry->name, entry->name_length);
}

static void put_form(struct wire_writer *writer, const struct form *form)
{
    wire_put_blob(writer, form->signature.bytes, form->signature.length);
}

/* ---- reports ----------------------------------------------------------------------------------------- */

void report_put_agreed(struct wire_writer *writer, uint64_t id)
{
    wire_put_u8(writer, REPORT_AGREED);
    wire_put_u64(writer, id);
}

void report_put_common(struct wire_writer *writer, const struct entry *entry)
{
    wire_put_u8(writer, REPORT_COMMON);
    put_name(writer, entry);
    put_form(writer, entry->round.common);
}

void report_put_variants(struct wire_writer *writer, const struct entry *entry)
{
    const struct variants *variants = entry->round.variants;
    wire_put_u8(writer, REPORT_VARIANTS);
    put_name(writer, entry);
    wire_put_u8(writer, variants->others);
    wire_put_u8(writer, (uint8_t)variants->count);
    for (int i = 0; i < variants->count; i++) {
        const struct rank_set *ranks = &variants->list[i].ranks;
        put_form(writer, variants->list[i].form);
        wire_put_u8(writer, ranks->others);
        wire_put_u8(writer, (uint8_t)ranks->count);
        for (int r = 0; r < ranks->count; r++) {
            wire_put_u32(writer, (uint32_t)ranks->ranges[r].first);
            wire_put_u32(writer, (uint32_t)ranks->ranges[r].last);
        }
    }
}

static bool get_ranks(struct wire_reader *reader, int first, int last, struct rank_set *ranks)
{
    *ranks = (struct rank_set){.others = wire_get_u8(reader)};
    int count = wire_get_u8(reader);
    if (count < 1 || count > RANK_RANGE_LIMIT)
        return false;
    for (int i = 0; i < count; i++) {
        uint32_t low = wire_get_u32(reader);
        uint32_t high = wire_get_u32(reader);
        if (reader->failed || low < (uint32_t)first || high > (uint32_t)last || low > high)
            return false;
        rank_set_add(ranks, (int)low, (int)high);
    }
    return true;
}

static bool get_variants(struct wire_reader *reader, int first, int last, struct report *report)
{
    report->others = wire_get_u8(reader);
    report->count = wire_get_u8(reader);
    if (report->count < 2 || report->count > VARIANT_LIMIT)
        return false;
    for (int i = 0; i < report->count; i++) {
        if (!get_signature(reader, &report->variants[i].signature) ||
            !get_ranks(reader, first, last, &report->variants[i].ranks))
            return false;
    }
    return true;
}

bool report_get(struct wire_reader *reader, int first, int last, struct report *report)
{
    report->kind = wire_get_u8(reader);
    switch (report->kind) {
    case REPORT_AGREED:
        report->id = wire_get_u64(reader);
        return !reader->failed;
    case REPORT_COMMON:
        report->count = 1;
        return get_name(reader, &report->name, &report->name_length) &&
               get_signature(reader, &report->variants[0].signature);
    case REPORT_VARIANTS:
        return get_name(reader, &report->name, &report->name_length) &&
               get_variants(reader, first, last, report);
    }
    return false;
}

/* ---- decisions --------------------------------------------------------------------------------------- */

void decision_put_assign(struct wire_writer *writer, const struct entry *entry, const struct form *form)
{
    wire_put_u8(writer, DECISION_ASSIGN);
    put_name(writer, entry);
    put_form(writer, form);
}

void decision_put_evict(struct wire_writer *writer, uint64_t id)
{
    wire_put_u8(writer, DECISION_EVICT);
    wire_put_u64(writer, id);
}

void decision_put_batch(struct wire_writer *writer, uint16_t algorithm, const uint64_t *ids, int count)
{
    wire_put_u8(writer, DECISION_BATCH);
    wire_put_u16(writer, algorithm);
    wire_put_u32(writer, (uint32_t)count);
    for (int i = 0; i < count; i++)
        wire_put_u64(writer, ids[i]);
}

void decision_put_fail(struct wire_writer *writer, const struct entry *entry, const char *text)
{
    wire_put_u8(writer, DECISION_FAIL);
    put_name(writer, entry);
    wire_put_string(writer, text);
}

void decision_put_close(struct wire_writer *writer, int rank)
{
    wire_put_u8(writer, DECISION_CLOSE);
    wire_put_u32(writer, (uint32_t)rank);
}

static bool get_batch(struct wire_reader *reader, struct decision *decision)
{
    decision->algorithm = wire_get_u16(reader);
    uint32_t count = wire_get_u32(reader);
    if (count < 1 || count > BATCH_LIMIT)
        return false;
    const uint8_t *ids = wire_get_raw(reader, (size_t)count * sizeof(uint64_t));
    decision->count = (int)count;
    decision->ids = wire_reader_of(ids, (size_t)count * sizeof(uint64_t));
    return ids;
}

bool decision_get(struct wire_reader *reader, struct decision *decision)
{
    decision->kind = wire_get_u8(reader);
    switch (decision->kind) {
    case DECISION_ASSIGN:
        return get_name(reader, &decision->name, &decision->name_length) &&
               get_signature(reader, &decision->signature);
    case DECISION_EVICT:
        decision->id = wire_get_u64(reader);
        return !reader->failed;
    case DECISION_BATCH:
        return get_batch(reader, decision);
    case DECISION_FAIL:
        return get_name(reader, &decision->name, &decision->name_length) &&
               wire_get_string(reader, decision->text, sizeof decision->text);
    case DECISION_CLOSE: {
        uint32_t rank = wire_get_u32(reader);
        decision->rank = (int)rank;
        return !reader->failed && rank <= INT32_MAX;
    }
    }
    return false;
}
