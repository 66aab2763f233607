/* message.c - writes and reads the items of reports and decisions, and checks every bound that it reads. No
 * state; any thread. */
#include "coordinate/message.h"

#include <string.h>

static bool get_name(struct wire_reader *reader, const char **name, uint32_t *length)
{
    *name = (const char *)wire_get_blob(reader, REQUEST_NAME_LIMIT - 1, length);
    return *name && *length && !memchr(*name, '\0', *length);
}

static bool get_signature(struct wire_reader *reader, struct signature *signature)
{
    /* No caller writes through this pointer: the bytes belong to the message. */
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

static bool get_rank(struct wire_reader *reader, int first, int last, int *rank)
{
    uint32_t number = wire_get_u32(reader);
    *rank = (int)number;
    return !reader->failed && number >= (uint32_t)first && number <= (uint32_t)last;
}

void finding_put(struct wire_writer *writer, const struct finding *finding)
{
    wire_put_u32(writer, (uint32_t)finding->place);
    wire_put_u8(writer, (uint8_t)finding->operation);
    wire_put_blob(writer, finding->name, finding->name_length);
}

bool finding_get(struct wire_reader *reader, int first, int last, struct finding *finding)
{
    if (!get_rank(reader, first, last, &finding->place))
        return false;
    finding->operation = (hvd_operation)wire_get_u8(reader);
    return operation_known((int)finding->operation) &&
           get_name(reader, &finding->name, &finding->name_length);
}

static bool get_findings(struct wire_reader *reader, const uint8_t **findings, uint32_t *bytes)
{
    *findings = wire_get_blob(reader, FINDINGS_LIMIT, bytes);
    return *findings && *bytes;
}

/* ---- reports ----------------------------------------------------------------------------------------- */

/* The kind is in the low bits, the flags are above them. */
static void put_kind(struct wire_writer *writer, enum report_kind kind, const struct entry *entry,
                     const uint8_t *data, const struct wire_writer *rows)
{
    const struct round *round = entry->round;
    int flags = (round->partial ? REPORT_PARTIAL : 0) | (round->rootless ? REPORT_ROOTLESS : 0) |
                (round->apart ? REPORT_APART : 0) | (data ? REPORT_EAGER : 0) | (rows ? REPORT_ROWS : 0);
    wire_put_u8(writer, (uint8_t)(kind | flags));
}

static void put_data(struct wire_writer *writer, const struct entry *entry, const uint8_t *data)
{
    if (data)
        wire_put_blob(writer, data, (uint32_t)entry->round->common->summary.bytes);
}

static void put_rows(struct wire_writer *writer, const struct wire_writer *rows)
{
    if (rows)
        wire_put_blob(writer, rows->bytes, (uint32_t)rows->length);
}

void report_put_agreed(struct wire_writer *writer, const struct entry *entry, const uint8_t *data,
                       const struct wire_writer *rows)
{
    put_kind(writer, REPORT_AGREED, entry, data, rows);
    wire_put_u64(writer, entry->agreed->id);
    put_data(writer, entry, data);
    put_rows(writer, rows);
}

void report_put_common(struct wire_writer *writer, const struct entry *entry, const uint8_t *data,
                       const struct wire_writer *rows)
{
    put_kind(writer, REPORT_COMMON, entry, data, rows);
    put_name(writer, entry);
    put_form(writer, entry->round->common);
    put_data(writer, entry, data);
    put_rows(writer, rows);
}

static void put_ranks(struct wire_writer *writer, const struct rank_set *ranks)
{
    wire_put_u8(writer, ranks->others);
    wire_put_u8(writer, (uint8_t)ranks->count);
    for (int r = 0; r < ranks->count; r++) {
        wire_put_u32(writer, (uint32_t)ranks->ranges[r].first);
        wire_put_u32(writer, (uint32_t)ranks->ranges[r].last);
    }
}

void report_put_variants(struct wire_writer *writer, const struct entry *entry)
{
    const struct variants *variants = entry->round->variants;
    put_kind(writer, REPORT_VARIANTS, entry, NULL, NULL);
    put_name(writer, entry);
    wire_put_u8(writer, variants->others);
    wire_put_u8(writer, (uint8_t)variants->count);
    for (int i = 0; i < variants->count; i++) {
        const struct rank_set *ranks = &variants->list[i].ranks;
        put_form(writer, variants->list[i].form);
        put_ranks(writer, ranks);
    }
}

static void put_unnamed(struct wire_writer *writer, const uint64_t *unnamed)
{
    for (int i = 0; i < UNNAMED_KINDS; i++)
        wire_put_u64(writer, unnamed[i]);
}

static bool get_unnamed(struct wire_reader *reader, uint64_t *unnamed)
{
    for (int i = 0; i < UNNAMED_KINDS; i++)
        unnamed[i] = wire_get_u64(reader);
    return !reader->failed;
}

void report_put_joined(struct wire_writer *writer, int rank, const uint64_t *unnamed)
{
    wire_put_u8(writer, REPORT_JOINED);
    wire_put_u32(writer, (uint32_t)rank);
    put_unnamed(writer, unnamed);
}

static bool get_set(struct wire_reader *reader, int *set)
{
    uint32_t number = wire_get_u32(reader);
    *set = (int)number;
    return !reader->failed && number >= 1 && number <= INT32_MAX;
}

void report_put_turn(struct wire_writer *writer, int set)
{
    wire_put_u8(writer, REPORT_TURN);
    wire_put_u32(writer, (uint32_t)set);
}

void report_put_findings(struct wire_writer *writer, const struct wire_writer *findings)
{
    wire_put_u8(writer, REPORT_FINDINGS);
    wire_put_blob(writer, findings->bytes, (uint32_t)findings->length);
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
    /* One variant alone is a common report. */
    if (report->count < 2 || report->count > VARIANT_LIMIT)
        return false;
    for (int i = 0; i < report->count; i++) {
        if (!get_signature(reader, &report->variants[i].signature) ||
            !get_ranks(reader, first, last, &report->variants[i].ranks))
            return false;
    }
    return true;
}

static bool get_data(struct wire_reader *reader, const uint8_t **data, uint32_t *bytes)
{
    *data = wire_get_blob(reader, EAGER_LIMIT, bytes);
    return *data && *bytes;
}

static bool get_rows(struct wire_reader *reader, const uint8_t **rows, uint32_t *bytes)
{
    *rows = wire_get_blob(reader, ROWS_LIMIT, bytes);
    return *rows;
}

static bool get_item(struct wire_reader *reader, int first, int last, struct report *report)
{
    switch (report->kind) {
    case REPORT_AGREED:
        report->id = wire_get_u64(reader);
        return !reader->failed;
    case REPORT_COMMON:
        report->count = 1;
        return get_name(reader, &report->name, &report->name_length) &&
               get_signature(reader, &report->variants[0].signature);
    case REPORT_JOINED:
        return get_rank(reader, first, last, &report->rank) && get_unnamed(reader, report->unnamed);
    case REPORT_TURN:
        return get_set(reader, &report->set);
    case REPORT_FINDINGS:
        return get_findings(reader, &report->findings, &report->findings_bytes);
    case REPORT_VARIANTS:
        return get_name(reader, &report->name, &report->name_length) &&
               get_variants(reader, first, last, report);
    }
    return false;
}

bool report_get(struct wire_reader *reader, int first, int last, struct report *report)
{
    uint8_t kind = wire_get_u8(reader);
    report->kind = kind & ~REPORT_FLAGS;
    report->partial = kind & REPORT_PARTIAL;
    report->rootless = kind & REPORT_ROOTLESS;
    report->apart = kind & REPORT_APART;
    report->data = report->rows = NULL;
    bool is_request = report->kind == REPORT_AGREED || report->kind == REPORT_COMMON;
    if (!get_item(reader, first, last, report) || (kind & (REPORT_EAGER | REPORT_ROWS) && !is_request))
        return false;
    return (!(kind & REPORT_EAGER) || get_data(reader, &report->data, &report->data_bytes)) &&
           (!(kind & REPORT_ROWS) || get_rows(reader, &report->rows, &report->rows_bytes));
}

void stall_put(struct wire_writer *writer, const struct entry *entry, const struct stall_report *stall)
{
    put_name(writer, entry);
    wire_put_u8(writer, (uint8_t)stall->operation);
    wire_put_u8(writer, stall->grouped);
    wire_put_u64(writer, (uint64_t)stall->waited);
    put_ranks(writer, &stall->missing);
}

bool stall_get(struct wire_reader *reader, int first, int last, const char **name, uint32_t *length,
               struct stall_report *stall)
{
    bool named = get_name(reader, name, length);
    stall->operation = (hvd_operation)wire_get_u8(reader);
    stall->grouped = wire_get_u8(reader);
    uint64_t nanoseconds = wire_get_u64(reader);
    stall->waited = (int64_t)nanoseconds;
    return named && operation_known((int)stall->operation) && nanoseconds <= INT64_MAX &&
           get_ranks(reader, first, last, &stall->missing) && wire_done(reader);
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

void decision_put_batch(struct wire_writer *writer, struct choice choice, const struct entry *first,
                        int count)
{
    wire_put_u8(writer, DECISION_BATCH);
    wire_put_u8(writer, choice.backend);
    wire_put_u8(writer, choice.algorithm);
    wire_put_u8(writer, choice.piece_exponent);
    wire_put_u32(writer, (uint32_t)count);
    for (const struct entry *entry = first; entry; entry = entry->round->next)
        wire_put_u64(writer, entry->round->id);
}

void decision_put_fail(struct wire_writer *writer, const struct entry *entry, const char *text)
{
    wire_put_u8(writer, DECISION_FAIL);
    put_name(writer, entry);
    wire_put_string(writer, text);
}

void decision_put_joined(struct wire_writer *writer, int last, const uint64_t *unnamed)
{
    wire_put_u8(writer, DECISION_JOINED);
    wire_put_u32(writer, (uint32_t)last);
    put_unnamed(writer, unnamed);
}

void decision_put_turn(struct wire_writer *writer, int set)
{
    wire_put_u8(writer, DECISION_TURN);
    wire_put_u32(writer, (uint32_t)set);
}

void decision_put_close(struct wire_writer *writer, int rank)
{
    wire_put_u8(writer, DECISION_CLOSE);
    wire_put_u32(writer, (uint32_t)rank);
}

void decision_put_result(struct wire_writer *writer, const struct entry *entry, const uint8_t *data)
{
    wire_put_u8(writer, DECISION_RESULT);
    wire_put_u64(writer, entry->round->id);
    put_data(writer, entry, data);
}

void decision_put_rows(struct wire_writer *writer, uint64_t id, const struct wire_writer *rows)
{
    wire_put_u8(writer, DECISION_ROWS);
    wire_put_u64(writer, id);
    put_rows(writer, rows);
}

void decision_put_findings(struct wire_writer *writer, const struct wire_writer *findings)
{
    wire_put_u8(writer, DECISION_FINDINGS);
    wire_put_blob(writer, findings->bytes, (uint32_t)findings->length);
}

static bool get_ids(struct wire_reader *reader, int count, struct decision *decision)
{
    const uint8_t *ids = wire_get_raw(reader, (size_t)count * sizeof(uint64_t));
    decision->count = count;
    decision->ids = wire_reader_of(ids, (size_t)count * sizeof(uint64_t));
    return ids;
}

static bool get_batch(struct wire_reader *reader, struct decision *decision)
{
    decision->choice.backend = wire_get_u8(reader);
    decision->choice.algorithm = wire_get_u8(reader);
    decision->choice.piece_exponent = wire_get_u8(reader);
    uint32_t count = wire_get_u32(reader);
    if (count < 1 || count > BATCH_LIMIT)
        return false;
    return get_ids(reader, (int)count, decision);
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
    case DECISION_JOINED:
        return get_rank(reader, 0, INT32_MAX, &decision->rank) && get_unnamed(reader, decision->unnamed);
    case DECISION_TURN:
        return get_set(reader, &decision->set);
    case DECISION_CLOSE:
        return get_rank(reader, 0, INT32_MAX, &decision->rank);
    case DECISION_ROWS:
        decision->id = wire_get_u64(reader);
        return get_rows(reader, &decision->rows, &decision->rows_bytes);
    case DECISION_FINDINGS:
        return get_findings(reader, &decision->findings, &decision->findings_bytes);
    case DECISION_RESULT:
        return get_ids(reader, 1, decision) && get_data(reader, &decision->data, &decision->data_bytes);
    }
    return false;
}
