/* check.c - what must hold in every run. */
#include "coordinate/request.h"
#include "random.h"
#include "world.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one name in one round ----------------------------------------------------------------------------- */

static int epoch_of(const struct set *set, int code)
{
    int epoch = 0;
    while (code % set->program.rounds >= set->program.starts[epoch + 1])
        epoch++;
    return epoch;
}

/* Every rank had made its request or joined by that time, and long waits were reported. */
static void check_ready(struct set *set, int code, int64_t time)
{
    const struct program *program = &set->program;
    const struct requested *requested = &set->requested[code];
    int name = code / program->rounds, round = code % program->rounds, epoch = epoch_of(set, code);
    if (requested->count != program->plans[code].requesters || requested->last > time)
        violation(set->world, "set %d: name %d of round %d is decided when %d of %d ranks have requested it",
                  set->id, name, round, requested->count, program->plans[code].requesters);
    for (int m = 0; m < set->size; m++) {
        int64_t joined = set->join_times[epoch * set->size + m];
        if (!program_requests(program, m, epoch, round) && (!joined || joined > time + 1))
            violation(set->world,
                      "set %d: name %d of round %d is decided before member %d requests it or joins", set->id,
                      name, round, m);
    }
    int64_t limit = 3 * set->world->scenario.stall_time;
    if (limit && requested->last - requested->first > limit && !requested->reported)
        violation(set->world, "set %d: it was not reported that name %d of round %d waited for %" PRId64,
                  set->id, name, round, requested->last - requested->first);
}

/* ---- one batch ----------------------------------------------------------------------------------------- */

static uint64_t hash(const uint8_t *bytes, size_t length)
{
    uint64_t value = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < length; i++)
        value = (value ^ bytes[i]) * UINT64_C(1099511628211);
    return value;
}

static uint64_t hash_form(const struct signature *signature)
{
    return hash(signature->bytes, signature->length);
}

static uint64_t hash_result(const struct batch *batch)
{
    struct signature_summary summary;
    signature_summarize(batch->members[0].signature, &summary);
    return batch->result ? hash(batch->result, summary.bytes) : 0;
}

uint64_t eager_word(const struct set *set, int code, int member)
{
    return random_mix(set->program.seed + ((uint64_t)code << 20) + (uint64_t)member);
}

/* The sum of what all requesters have contributed. */
static void check_result(const struct virtual_rank *member, const struct slot *slot,
                         const struct batch *batch)
{
    const struct set *set = member->set;
    int code = code_of(slot), epoch = epoch_of(set, code);
    uint64_t sum = 0, requesters = 0, word;
    for (int m = 0; m < set->size; m++) {
        bool requests = program_requests(&set->program, m, epoch, slot->round);
        sum += requests ? eager_word(set, code, m) : 0;
        requesters += requests;
    }
    for (uint64_t i = 0; i < slot->pending.eager_bytes / sizeof word; i++) {
        memcpy(&word, batch->result + i * sizeof word, sizeof word);
        if (word != sum + i * requesters) {
            violation(set->world, "rank %d gets another result for \"%s\" than the sum", member->rank,
                      slot->text);
            return;
        }
    }
}

/* One short batch runs beside two long ones. */
static void check_length(struct virtual_rank *member, const struct batch *batch, uint64_t bytes)
{
    struct world *world = member->set->world;
    int running_long = member->running - member->running_short;
    if (batch->is_short && (!bytes || bytes > 64 << 10))
        violation(world, "rank %d runs %llu bytes as a short batch", member->rank, (unsigned long long)bytes);
    if (batch->is_short ? member->running_short > 0 : running_long > 1)
        violation(world, "rank %d starts a batch beside %d short and %d long ones", member->rank,
                  member->running_short, running_long);
    world->tally->passing += batch->is_short && running_long > 0;
}

static void check_fusion(struct virtual_rank *member, const struct batch *batch)
{
    struct world *world = member->set->world;
    struct signature_summary first = {0}, summary;
    uint64_t bytes = 0;
    for (int i = 0; i < batch->count; i++) {
        signature_summarize(batch->members[i].signature, &summary);
        first = i ? first : summary;
        bytes += summary.bytes;
        if (batch->count > 1 &&
            (!summary.may_fuse || memcmp(first.fusion_key, summary.fusion_key, FUSION_KEY_LENGTH)))
            violation(world, "rank %d runs requests together that may not share a batch", member->rank);
        bool mixed = (summary.types & (summary.types - 1)) != 0;
        if (mixed && (batch->count > 1 || batch->result))
            violation(world, "rank %d runs a group of several types as one of one type", member->rank);
        world->tally->mixed += mixed;
        /* The engine makes the identity, to which no factor applies. */
        if (batch->count > 1 && summary.prescaled && !batch->requests[i])
            violation(world, "rank %d would scale its part in what it did not request", member->rank);
        world->tally->unscaled += summary.prescaled && !batch->requests[i];
    }
    if (batch->count > 1 && bytes > member->set->fusion_threshold)
        violation(world, "rank %d runs a batch of %llu bytes", member->rank, (unsigned long long)bytes);
    if (!batch->result)
        check_length(member, batch, bytes);
    world->tally->results += batch->result != NULL;
    world->tally->batches++;
    world->tally->set_ran += member->set->id > 0;
    world->tally->fused += batch->count > 1;
    world->tally->full += member->running == 1;
}

/* The first member with a request of its own shows which request it is. */
static void resolve(struct virtual_rank *member, struct decided *decided, int index, int code)
{
    struct set *set = member->set;
    enum outcome outcome = set->program.plans[code].outcome;
    set->codes[decided->first + index] = code;
    check_ready(set, code, decided->time);
    if (outcome != OUTCOME_RUNS)
        violation(set->world, "rank %d runs name %d of round %d, which must fail as case %d", member->rank,
                  code / set->program.rounds, code % set->program.rounds, (int)outcome);
}

static uint64_t hash_rows(const struct batch *batch)
{
    const struct runs *rows = batch->members[0].rows;
    return rows ? hash(rows->bytes, rows->length) : 0;
}

static bool are_rows_unknown(const struct batch *batch)
{
    struct signature_summary summary;
    signature_summarize(batch->members[0].signature, &summary);
    return (summary.operation == HVD_ALLGATHER || summary.operation == HVD_ALLTOALL) &&
           !batch->members[0].rows;
}

/* The rows of all ranks are those that they have requested, and none of those that have joined. They may be
 * unknown only if the list is long. */
static void check_rows(struct virtual_rank *member, const struct slot *slot, const struct runs *rows)
{
    const struct set *set = member->set;
    const struct program *program = &set->program;
    int code = code_of(slot), epoch = epoch_of(set, code);
    int numbers = program_row_numbers(program, slot->name, slot->round);
    set->world->tally->rows_known += numbers && rows;
    set->world->tally->rows_unknown += numbers && !rows;
    if (numbers && !rows && numbers * set->size * program_row_bytes(&program->plans[code]) <= 4096)
        violation(set->world, "rank %d does not get the rows of \"%s\"", member->rank, slot->text);
    if (!rows)
        return;
    if (!runs_check(rows->bytes, rows->length, (uint64_t)numbers * (uint64_t)set->size)) {
        violation(set->world, "rank %d gets other numbers of rows of \"%s\" than %d for each of %d ranks",
                  member->rank, slot->text, numbers, set->size);
        return;
    }
    struct runs_reader reader = runs_reader_of(rows->bytes, rows->length);
    for (int place = 0; place < set->size; place++) {
        int m = set->topology.rank_at[place];
        bool requests = program_requests(program, m, epoch, slot->round);
        for (int i = 0; i < numbers; i++) {
            uint64_t wanted = requests ? program_rows(program, slot->name, slot->round, m, i) : 0;
            uint64_t number = runs_get(&reader);
            if (number != wanted) {
                violation(set->world, "rank %d gets %llu rows of member %d of \"%s\", which has %llu",
                          member->rank, (unsigned long long)number, m, slot->text,
                          (unsigned long long)wanted);
                return;
            }
        }
    }
}

static bool same_choice(struct choice a, struct choice b)
{
    return a.backend == b.backend && a.algorithm == b.algorithm && a.piece_exponent == b.piece_exponent;
}

/* The first member that runs a batch sets what all others must run. */
static void record(struct virtual_rank *member, const struct batch *batch)
{
    struct set *set = member->set;
    if (member->number != 0)
        violation(set->world, "rank %d runs batch %d before the root", member->rank, member->batches);
    check_fusion(member, batch);
    if (!batch->result && !same_choice(batch->choice, set->chosen))
        violation(set->world, "a batch runs by back end %d, algorithm %d, pieces of 2^%d, not as was chosen",
                  batch->choice.backend, batch->choice.algorithm, batch->choice.piece_exponent);
    if (!batch->result && are_rows_unknown(batch) != set->rows_unknown)
        violation(set->world, "the root chose as if rows were %s", set->rows_unknown ? "unknown" : "known");
    struct decided *decided = &set->decided[set->decided_count++];
    *decided = (struct decided){.sequence = batch->sequence,
                                .time = set->world->now,
                                .choice = batch->choice,
                                .is_short = batch->is_short,
                                .result = hash_result(batch),
                                .rows = hash_rows(batch),
                                .first = set->member_count,
                                .count = batch->count};
    for (int i = 0; i < batch->count; i++) {
        set->hashes[decided->first + i] = hash_form(batch->members[i].signature);
        set->codes[decided->first + i] = -1;
    }
    set->member_count += batch->count;
}

/* A batch has no request of this member only if it made none. */
static void check_absent(const struct virtual_rank *member, int code)
{
    const struct set *set = member->set;
    int round = code % set->program.rounds;
    if (program_requests(&set->program, member->number, epoch_of(set, code), round))
        violation(set->world, "rank %d is left out of name %d of round %d, which it requested", member->rank,
                  code / set->program.rounds, round);
}

static void compare(struct virtual_rank *member, const struct batch *batch)
{
    struct set *set = member->set;
    struct decided *decided = &set->decided[member->batches];
    if (batch->sequence != decided->sequence || batch->count != decided->count ||
        !same_choice(batch->choice, decided->choice) || batch->is_short != decided->is_short ||
        hash_result(batch) != decided->result || hash_rows(batch) != decided->rows) {
        violation(set->world, "rank %d: batch %d of set %d is decision %llu, not %llu", member->rank,
                  member->batches, set->id, (unsigned long long)batch->sequence,
                  (unsigned long long)decided->sequence);
        return;
    }
    for (int i = 0; i < batch->count; i++) {
        const struct slot *slot = batch->requests[i] ? batch->requests[i]->owner : NULL;
        int known = set->codes[decided->first + i];
        if (hash_form(batch->members[i].signature) != set->hashes[decided->first + i] ||
            (slot && known >= 0 && code_of(slot) != known))
            violation(set->world, "rank %d: member %d of batch %d is \"%s\" of round %d", member->rank, i,
                      member->batches, slot ? slot->text : "?", slot ? slot->round : 0);
        else if (slot && known < 0) {
            resolve(member, decided, i, code_of(slot));
            check_rows(member, slot, batch->members[i].rows);
        } else if (!slot && known >= 0)
            check_absent(member, known);
    }
}

void check_batch(struct virtual_rank *member, const struct batch *batch)
{
    struct set *set = member->set;
    int most = set->program.names * set->program.rounds;
    for (int i = 0; i < batch->count; i++) {
        const struct slot *slot = batch->requests[i] ? batch->requests[i]->owner : NULL;
        bool sound = slot ? slot->member == member && slot->state == SLOT_ASKED : member->joined;
        if (!sound || member->closed) {
            violation(set->world, "rank %d runs \"%s\", which is not in flight", member->rank,
                      slot ? slot->text : "?");
            return;
        }
        if (slot && slot->pending.apart && batch->count > 1)
            violation(set->world, "rank %d runs \"%s\" with others, which must share no batch", member->rank,
                      slot->text);
        set->world->tally->apart += slot && slot->pending.apart;
        if (slot && batch->result && member->apart_asked > slot->asked_at)
            violation(set->world, "rank %d: the data of \"%s\" were read before an apart request ran",
                      member->rank, slot->text);
        if (slot && !signature_equal(&slot->pending.signature, batch->members[i].signature))
            violation(set->world, "rank %d runs \"%s\" in a form that it did not request", member->rank,
                      slot->text);
    }
    if (member->batches == set->decided_count && set->member_count + batch->count <= most)
        record(member, batch);
    bool first = batch->result && batch->requests[0] && member->batches < set->decided_count &&
                 set->codes[set->decided[member->batches].first] < 0;
    if (first)
        check_result(member, batch->requests[0]->owner, batch);
    if (member->batches < set->decided_count) {
        findings_check(member, batch, &set->decided[member->batches]);
        compare(member, batch);
    } else
        violation(set->world, "rank %d runs more than was ever requested", member->rank);
}

/* ---- the end of a request ------------------------------------------------------------------------------ */

/* A list of ranks of the job in a text, as " 0-2, 5": members, and who made no request has joined, of all
 * that are listed together. Returns its end. */
static const char *check_list(struct set *set, const char *at, int code)
{
    const struct program *program = &set->program;
    bool requested = true, joined = true;
    while (*at == ' ' && isdigit((unsigned char)at[1])) {
        char *end;
        long first = strtol(at + 1, &end, 10);
        long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (!*end)
            return end; /* it may be cut */
        for (long rank = first; rank <= last; rank++) {
            const struct virtual_rank *member =
                rank < set->world->scenario.size ? find_member(set, (int)rank) : NULL;
            if (!member) {
                violation(set->world, "set %d has no rank %ld", set->id, rank);
                return end;
            }
            int epoch = epoch_of(set, code);
            requested &= program_requests(program, member->number, epoch, code % program->rounds);
            joined &= set->join_times[epoch * set->size + member->number] != 0;
        }
        at = end + (*end == ',');
    }
    if (!requested && !joined)
        violation(set->world, "a text of set %d lists ranks without a request", set->id);
    return at;
}

/* What follows "rank" or "ranks". All members get the same text. */
static void check_names(struct set *set, const char *text, int code)
{
    uint64_t value = hash((const uint8_t *)text, strlen(text));
    if (value == set->text_checked)
        return;
    set->text_checked = value;
    for (const char *at = strstr(text, "rank"); at && !set->world->violated; at = strstr(at, "rank")) {
        at += strlen("rank");
        at = check_list(set, at + (*at == 's'), code);
    }
    if (set->world->violated && !set->world->corrupt)
        printf("the text: %s\n", text);
}

static bool check_mismatch(struct slot *slot, const hvd_status *status)
{
    struct set *set = slot->member->set;
    struct tally *tally = set->world->tally;
    enum outcome outcome = set->program.plans[code_of(slot)].outcome;
    check_ready(set, code_of(slot), set->world->now);
    check_names(set, status->text, code_of(slot));
    tally->mismatches += outcome == OUTCOME_MISMATCH;
    tally->obstacles += outcome == OUTCOME_JOINED;
    return (outcome == OUTCOME_MISMATCH && strstr(status->text, "the ranks disagree")) ||
           (outcome == OUTCOME_JOINED && strstr(status->text, "joined"));
}

static bool check_leave(const struct slot *slot, const hvd_status *status)
{
    const struct set *set = slot->member->set;
    char removal[40];
    snprintf(removal, sizeof removal, "process set %d was removed", set->id);
    set->world->tally->removals += set->id > 0;
    set->world->tally->shut_down += set->id == 0;
    return strstr(status->text, set->id ? removal : " has left the job");
}

void check_finish(struct slot *slot, const hvd_status *status)
{
    const struct set *set = slot->member->set;
    struct world *world = set->world;
    const struct scenario *scenario = &world->scenario;
    bool sound = false;
    if (status->code == HVD_MISMATCH)
        sound = check_mismatch(slot, status);
    else if (status->code == HVD_SHUT_DOWN)
        sound = check_leave(slot, status);
    else if (status->code == HVD_PEER_LOST)
        sound =
            scenario->cuts + scenario->losses + scenario->split && strncmp(status->text, "lost: ", 6) == 0;
    else if (status->code == HVD_REFUSED)
        sound = scenario->garbage && strstr(status->text, " sent rank ");
    else if (status->code == HVD_TIMED_OUT)
        sound = (scenario->mute && strstr(status->text, " has waited ")) ||
                (scenario->split && strstr(status->text, "silent: ")) ||
                (scenario->split && strstr(status->text, "cut off: ")) ||
                (scenario->broken && strncmp(status->text, "broken: ", 8) == 0);
    world->tally->failed += status->code != HVD_MISMATCH && status->code != HVD_SHUT_DOWN;
    if (!sound)
        violation(world, "rank %d: \"%s\" of set %d in round %d ended with %s: %s", slot->member->rank,
                  slot->text, set->id, slot->round, hvd_code_name(status->code), status->text);
}

void check_joined(struct virtual_rank *member, int last_rank)
{
    struct set *set = member->set;
    struct world *world = set->world;
    int *agreed = &set->last_joined[member->epoch];
    if (set->joined[member->epoch] != set->size)
        violation(world, "rank %d: its join is done when %d of %d ranks have joined", member->rank,
                  set->joined[member->epoch], set->size);
    if (!*agreed && last_rank != set->last_received)
        violation(world,
                  "member %d of set %d is said to have joined last; the root has last received that of %d",
                  last_rank, set->id, set->last_received);
    *agreed = *agreed ? *agreed : last_rank + 1;
    if (last_rank < 0 || last_rank >= set->size || *agreed != last_rank + 1)
        violation(world, "rank %d is notified that rank %d joined last, others that rank %d did",
                  member->rank, last_rank, *agreed - 1);
    if (coordinator_pending_count(member->coordinator))
        violation(world, "rank %d: its join is done, and %d requests are left", member->rank,
                  coordinator_pending_count(member->coordinator));
}

/* ---- stalls -------------------------------------------------------------------------------------------- */

static bool has_rank(const struct rank_set *ranks, int rank)
{
    for (int i = 0; i < ranks->count; i++) {
        if (ranks->ranges[i].first <= rank && rank <= ranks->ranges[i].last)
            return true;
    }
    return false;
}

/* When a member made the request or joined; never: -1. */
static int64_t ready_since(const struct virtual_rank *member, int name, int round)
{
    const struct slot *slot = &member->slots[name];
    if (slot->state == SLOT_ASKED && slot->round == round)
        return slot->asked_at;
    return member->joined ? member->set->join_times[member->epoch * member->set->size + member->number] - 1
                          : -1;
}

/* "grouped_allreduce.tensor3": the operation is that of any of those that wait. */
static int find_name(const struct set *set, const char *title)
{
    char text[48];
    const char *name = strchr(title, '.');
    for (int n = 0; n < set->program.names; n++) {
        int round = set->latest[n];
        if (n == set->program.unnamed)
            snprintf(text, sizeof text, "noname.%llu", (unsigned long long)set->numbers[round] - 1);
        else
            program_name(&set->program, n, round, text, sizeof text);
        if (name && strcmp(text, name + (n == set->program.unnamed)) == 0)
            return n;
    }
    return -1;
}

static void check_member_of_stall(const struct virtual_rank *member, int name, const struct stall *stall)
{
    const struct set *set = member->set;
    struct world *world = set->world;
    if (member->left || (member->coordinator && coordinator_health(member->coordinator, NULL)))
        return; /* its requests have ended, which the root need not know yet */
    int64_t since = ready_since(member, name, set->latest[name]);
    bool missing = has_rank(stall->missing, member->rank);
    bool arrives = !world->scenario.cuts &&
                   !world->scenario.split; /* what is on a cut edge gets lost before anybody notices */
    if (missing && arrives && since >= 0 && since <= world->now - world->scenario.stall_time)
        violation(world, "\"%s\" is said to wait for rank %d, which is ready since %" PRId64, stall->name,
                  member->rank, since);
    if (!missing && since < 0 && !stall->missing->others)
        violation(world, "\"%s\" is not said to wait for rank %d", stall->name, member->rank);
}

void check_stall(struct virtual_rank *member, const struct stall *stall)
{
    struct set *set = member->set;
    struct world *world = set->world;
    int name = find_name(set, stall->name);
    if (member->number != 0 || name < 0) {
        violation(world, "rank %d reports the stall of \"%s\"", member->rank, stall->name);
        return;
    }
    struct requested *requested = &set->requested[name * set->program.rounds + set->latest[name]];
    requested->reported = true;
    world->tally->stalls++;
    if (stall->waited < world->scenario.stall_time || stall->waited > world->now - requested->first)
        violation(world, "\"%s\" is said to have waited %" PRId64 ", it was %" PRId64, stall->name,
                  stall->waited, world->now - requested->first);
    for (int m = 0; m < set->size; m++)
        check_member_of_stall(&set->members[m], name, stall);
}

/* ---- the end of a run ---------------------------------------------------------------------------------- */

static bool has_failed(const struct virtual_rank *member)
{
    hvd_code health = member->coordinator ? coordinator_health(member->coordinator, NULL) : HVD_OK;
    return health != HVD_OK && health != HVD_SHUT_DOWN;
}

/* Without faults all members run the same, and either everything or until somebody left. */
static void check_orderly_end(struct virtual_rank *member, bool closing)
{
    struct set *set = member->set;
    struct world *world = set->world;
    if (member->batches != set->decided_count)
        violation(world, "rank %d ran %d of %d batches of set %d", member->rank, member->batches,
                  set->decided_count, set->id);
    if (member->running)
        violation(world, "rank %d: %d batches of set %d never end", member->rank, member->running, set->id);
    if (closing != member->closed)
        violation(world, "rank %d: set %d is %s at the end", member->rank, set->id,
                  closing ? "not closed" : "closed");
    if (!closing && !member->through)
        violation(world, "rank %d is not through with set %d", member->rank, set->id);
}

static void check_member_end(struct virtual_rank *member, bool failed, bool closing)
{
    struct set *set = member->set;
    struct world *world = set->world;
    if (!member->coordinator) {
        if (!failed)
            violation(world, "rank %d never got set %d", member->rank, set->id);
        return;
    }
    if (coordinator_pending_count(member->coordinator))
        violation(world, "rank %d has %d requests of set %d that never end", member->rank,
                  coordinator_pending_count(member->coordinator), set->id);
    for (int n = 0; n < set->program.names; n++) {
        if (member->slots[n].state == SLOT_ASKED)
            violation(world, "rank %d: \"%s\" of round %d never ended", member->rank, member->slots[n].text,
                      member->slots[n].round);
    }
    /* Once set 0 has closed nothing ends a batch of another set before the processes do. */
    if (!failed && world->scenario.split && member->running && !world->sets[0]->members[member->rank].closed)
        violation(world, "rank %d runs a batch of set %d that never ends", member->rank, set->id);
    else if (!failed && !world->scenario.split)
        check_orderly_end(member, closing);
    else if (failed && !has_failed(member) && !member->closed)
        violation(world, "rank %d does not know in set %d that the job failed", member->rank, set->id);
}

/* Without the rank that found it: a process that ends is lost by several at once. */
static size_t length_of_cause(const char *text)
{
    const char *end = strstr(text, " by rank ");
    return end ? (size_t)(end - text) : strlen(text);
}

/* Ranks that reach each other name one cause. */
static void check_cause(const struct virtual_rank *member, const struct virtual_rank *other)
{
    hvd_status one, another;
    if (has_failed(member) && has_failed(other) && coordinator_health(member->coordinator, &one) &&
        coordinator_health(other->coordinator, &another) &&
        (length_of_cause(one.text) != length_of_cause(another.text) ||
         memcmp(one.text, another.text, length_of_cause(one.text)) != 0))
        violation(member->set->world, "rank %d: %s; rank %d: %s", member->rank, one.text, other->rank,
                  another.text);
}

void check_end(struct world *world)
{
    bool any = false;
    bool closing[SETS_LIMIT + 1] = {false};
    int *component = split_components(world);
    const struct virtual_rank **failed = calloc((size_t)world->scenario.size, sizeof *failed);
    for (int s = 0; s <= SETS_LIMIT; s++) {
        for (int m = 0; world->sets[s] && m < world->sets[s]->size; m++) {
            const struct virtual_rank *member = &world->sets[s]->members[m];
            if (split_has_lost(world, member->rank))
                continue;
            any |= has_failed(member);
            closing[s] |= member->left;
            if (has_failed(member) && !failed[component[member->rank]])
                failed[component[member->rank]] = member;
        }
    }
    world->tally->aborts += any;
    world->tally->closes += closing[0] && !any;
    world->tally->deadlines += any && world->scenario.mute;
    if (!any && world->scenario.mute)
        violation(world, "a rank never makes a request, and the job does not end");
    for (int s = 0; s <= SETS_LIMIT; s++) {
        for (int m = 0; world->sets[s] && m < world->sets[s]->size && !world->violated; m++) {
            struct virtual_rank *member = &world->sets[s]->members[m];
            if (split_has_lost(world, member->rank))
                continue;
            const struct virtual_rank *other = failed[component[member->rank]];
            check_member_end(member, other, closing[s]);
            /* Another set may have a path that set 0 lacks. */
            if (other && (world->scenario.broken || (world->scenario.split && s == 0)))
                check_cause(member, other);
        }
    }
    free(component);
    free(failed);
}
