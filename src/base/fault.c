/* fault.c - the bytes of a fault record and of its status, and the function of horovod.h that reads a record.
 * No state; any thread. */
#include "base/fault.h"

#include "base/status.h"

#define FAULT_VERSION 1

void cause_put(struct wire_writer *writer, const hvd_status *cause)
{
    wire_put_u8(writer, (uint8_t)cause->code);
    wire_put_u8(writer, (uint8_t)cause->cause);
    wire_put_u32(writer, (uint32_t)cause->lost_rank);
    wire_put_string(writer, cause->cause ? cause->host : "");
    wire_put_string(writer, cause->text);
}

bool cause_get(struct wire_reader *reader, hvd_status *cause)
{
    cause->code = (hvd_code)wire_get_u8(reader);
    cause->cause = (hvd_cause)wire_get_u8(reader);
    cause->lost_rank = (int32_t)wire_get_u32(reader);
    bool known = cause->code > HVD_IN_PROGRESS && strcmp(hvd_code_name(cause->code), "unknown") != 0 &&
                 strcmp(hvd_cause_name(cause->cause), "unknown") != 0 && cause->lost_rank >= -1;
    return known && wire_get_string(reader, cause->host, sizeof cause->host) &&
           wire_get_string(reader, cause->text, sizeof cause->text);
}

void fault_put(struct wire_writer *writer, const hvd_fault *fault)
{
    wire_put_u8(writer, FAULT_VERSION);
    wire_put_u32(writer, (uint32_t)fault->rank);
    wire_put_u8(writer, fault->status.code != HVD_OK);
    if (fault->status.code)
        cause_put(writer, &fault->status);
    wire_put_string(writer, fault->exception);
    wire_put_string(writer, fault->file);
    wire_put_u32(writer, (uint32_t)fault->line);
    wire_put_string(writer, fault->function);
}

bool fault_get(struct wire_reader *reader, hvd_fault *fault)
{
    uint8_t version = wire_get_u8(reader);
    *fault = (hvd_fault){.struct_size = sizeof *fault, .rank = (int32_t)wire_get_u32(reader)};
    uint8_t stopped = wire_get_u8(reader);
    if (reader->failed || version != FAULT_VERSION || fault->rank < 0 || stopped > 1 ||
        (stopped && !cause_get(reader, &fault->status)) ||
        !wire_get_string(reader, fault->exception, sizeof fault->exception) ||
        !wire_get_string(reader, fault->file, sizeof fault->file))
        return false;
    fault->line = (int32_t)wire_get_u32(reader);
    return wire_get_string(reader, fault->function, sizeof fault->function) && wire_done(reader) &&
           (stopped || *fault->exception);
}

hvd_code hvd_read_fault(const void *value, size_t length, hvd_fault *fault, hvd_status *status)
{
    hvd_fault found;
    struct wire_reader reader = wire_reader_of(value, length);
    size_t size = fault->struct_size;
    if (!fault_get(&reader, &found))
        return status_set(status, HVD_REFUSED,
                          "a fault record of %zu bytes is malformed, or of another version", length);
    found.struct_size = size;
    memcpy(fault, &found, size < sizeof found ? size : sizeof found);
    return status_ok(status);
}
