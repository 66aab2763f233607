/* message.h - encoding of the messages between coordinators (docs/coordination.md has the table). Decoders
 * check every bound; decoded pointers point into the message. Numbers are little-endian, see base/wire.h. Any
 * thread.
 *
 * A message ends once it has passed MESSAGE_SOFT_LIMIT, and one item is at most 8 signatures of 1 MiB, so no
 * message reaches MESSAGE_LIMIT. */
#ifndef HVD_COORDINATE_MESSAGE_H
#define HVD_COORDINATE_MESSAGE_H

#include "base/types.h"
#include "base/wire.h"
#include "coordinate/table.h"
#include "coordinate/tree.h"

#define MESSAGE_SOFT_LIMIT (16u << 10)
#define MESSAGE_LIMIT      (16u << 20)
#define BATCH_LIMIT        65536 /* members of one batch */
#define EAGER_LIMIT        65536 /* bytes of the data of one request in a report or decision */
#define ROWS_LIMIT         65536 /* bytes of the numbers of rows in a report or decision */
#define FINDINGS_LIMIT     4096  /* bytes of the findings in a report or decision */

/* The first byte. */
enum message_kind {
    MESSAGE_REPORT = 1,    /* up: seen (u64), then reports to the end */
    MESSAGE_LEAVE,         /* up: the rank (u32) that leaves */
    MESSAGE_SHUTDOWN_DONE, /* up: after a close, this subtree has run all its batches */
    MESSAGE_STALLED,       /* up: name, operation, grouped (u8 each), since how long (u64, ns), ranges of the
                              missing ranks */
    MESSAGE_DECISIONS,     /* down: number of the first (u64), then decisions to the end */
    MESSAGE_SHUTDOWN_ACK,  /* down: every subtree has sent SHUTDOWN_DONE */
    MESSAGE_ABORT,         /* any way: a cause (base/fault.h) */
    MESSAGE_SILENT, /* any way: a silent place (u32), and the place of the rank (u32) that reports it */
    MESSAGE_BROKEN, /* any way: text about a network path that is broken */
    MESSAGE_PRESENT /* any way: a place (u32) that answers: its rank or host was reported as silent */
};

/* A rank has found NaN or infinity in what it gives to a request. */
struct finding {
    int place;
    hvd_operation operation;
    const char *name; /* not terminated */
    uint32_t name_length;
};

void finding_put(struct wire_writer *writer, const struct finding *finding);
/* Returns false if it is malformed, or of a place outside [first, last]. */
bool finding_get(struct wire_reader *reader, int first, int last, struct finding *finding);

/* ---- reports: a whole subtree has submitted a name --------------------------------------------------- */

/* Flags that are added to the kind. */
#define REPORT_PARTIAL  0x80 /* ranks that have joined are excluded */
#define REPORT_ROOTLESS 0x40 /* the root of the broadcast is one of them */
#define REPORT_APART    0x20 /* some rank requires that it is alone in its batch */
#define REPORT_EAGER    0x10 /* the subtree's reduced data follow the item (u32 length, bytes) */
#define REPORT_ROWS     0x08 /* numbers of rows follow the item and its data (u32 length, runs.h) */
#define REPORT_FLAGS    (REPORT_PARTIAL | REPORT_ROOTLESS | REPORT_APART | REPORT_EAGER | REPORT_ROWS)

enum report_kind {
    REPORT_AGREED = 1, /* id (u64): all ranks have submitted the agreed form */
    REPORT_COMMON,     /* name, signature: all ranks have submitted this form */
    REPORT_JOINED,     /* rank (u32) that has joined, UNNAMED_KINDS counters (u64) */
    REPORT_VARIANTS,   /* name, others (u8), count (u8), per variant: signature, others (u8), ranges */
    REPORT_TURN,       /* a process set (u32) that asks for a turn in the order of decisions */
    REPORT_FINDINGS    /* findings of the subtree (u32 length, bytes) */
};

struct report_variant {
    struct signature signature;
    struct rank_set ranks;
};

struct report {
    enum report_kind kind;
    uint64_t id;
    const char *name; /* not terminated */
    uint32_t name_length;
    bool partial, rootless, apart;
    int rank;
    int set;
    uint64_t unnamed[UNNAMED_KINDS];
    const uint8_t *data; /* NULL: no data */
    uint32_t data_bytes;
    const uint8_t *rows; /* numbers of rows by place, none if unknown; NULL: those that the id has */
    uint32_t rows_bytes;
    const uint8_t *findings;
    uint32_t findings_bytes;
    bool others;
    int count; /* of variants; 1 in a common report */
    struct report_variant variants[VARIANT_LIMIT];
};

/* `data` has the bytes of the common form; NULL: no data. `rows`: see rows_find. */
void report_put_agreed(struct wire_writer *writer, const struct entry *entry, const uint8_t *data,
                       const struct wire_writer *rows);
void report_put_common(struct wire_writer *writer, const struct entry *entry, const uint8_t *data,
                       const struct wire_writer *rows);
void report_put_variants(struct wire_writer *writer, const struct entry *entry);
void report_put_joined(struct wire_writer *writer, int rank, const uint64_t *unnamed);
void report_put_turn(struct wire_writer *writer, int set);
void report_put_findings(struct wire_writer *writer, const struct wire_writer *findings);
/* Returns false if it is malformed, or names a rank outside [first, last]. */
bool report_get(struct wire_reader *reader, int first, int last, struct report *report);

void stall_put(struct wire_writer *writer, const struct entry *entry, const struct stall_report *stall);
/* Returns false if it is malformed, or names a rank outside [first, last]. */
bool stall_get(struct wire_reader *reader, int first, int last, const char **name, uint32_t *length,
               struct stall_report *stall);

/* ---- decisions --------------------------------------------------------------------------------------- */

enum decision_kind {
    DECISION_ASSIGN = 1, /* name, signature: agreed on; the id is the decision's number */
    DECISION_EVICT,      /* id (u64): the agreement ends */
    DECISION_BATCH,      /* back end, algorithm, piece exponent (u8 each), count (u32), ids (u64 each) */
    DECISION_FAIL,       /* name, text: the round ends with this mismatch */
    DECISION_JOINED,  /* rank (u32) that joined last, UNNAMED_KINDS counters (u64): all ranks have joined */
    DECISION_CLOSE,   /* rank (u32) that leaves: no more requests run */
    DECISION_RESULT,  /* id (u64), data reduced over all ranks (u32 length, bytes): it has run */
    DECISION_TURN,    /* process set (u32) that has a turn now */
    DECISION_ROWS,    /* id (u64), numbers of rows (u32 length, runs.h): those of its batches from now on */
    DECISION_FINDINGS /* findings (u32 length, bytes) */
};

struct decision {
    enum decision_kind kind;
    uint64_t id;
    const char *name; /* not terminated */
    uint32_t name_length;
    struct signature signature;
    struct choice choice;
    int count;
    struct wire_reader ids;
    const uint8_t *data;
    uint32_t data_bytes;
    const uint8_t *rows; /* numbers of rows by place; none: unknown */
    uint32_t rows_bytes;
    const uint8_t *findings;
    uint32_t findings_bytes;
    int rank;
    int set;
    uint64_t unnamed[UNNAMED_KINDS];
    char text[HVD_STATUS_TEXT];
};

void decision_put_assign(struct wire_writer *writer, const struct entry *entry, const struct form *form);
void decision_put_evict(struct wire_writer *writer, uint64_t id);
/* The members are `first` and those after it in its list, `count` in all. */
void decision_put_batch(struct wire_writer *writer, struct choice choice, const struct entry *first,
                        int count);
void decision_put_fail(struct wire_writer *writer, const struct entry *entry, const char *text);
void decision_put_joined(struct wire_writer *writer, int last, const uint64_t *unnamed);
void decision_put_turn(struct wire_writer *writer, int set);
void decision_put_close(struct wire_writer *writer, int rank);
void decision_put_result(struct wire_writer *writer, const struct entry *entry, const uint8_t *data);
void decision_put_rows(struct wire_writer *writer, uint64_t id, const struct wire_writer *rows);
void decision_put_findings(struct wire_writer *writer, const struct wire_writer *findings);
bool decision_get(struct wire_reader *reader, struct decision *decision);

#endif
