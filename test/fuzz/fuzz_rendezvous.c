/* fuzz_rendezvous.c - any bytes as the messages of members before they have links: questions to the store
 * (over an authenticated connection), answers, address records, offers of memory, fault records, news for
 * slots and their reports. The first byte selects one of them. */
#include "base/fault.h"
#include "base/platform_memory.h"
#include "rendezvous/connection.h"
#include "rendezvous/slots.h"
#include "transport/address_record.h"
#include "transport/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHANNELS 2

enum { AS_QUESTIONS, AS_QUESTION, AS_ANSWER, AS_RECORD, AS_OFFER, AS_FAULT, AS_NEWS, AS_REPORT, MODES };

/* Frames are made around what the input gives, so that lengths are right often enough. */
static void ask_server(const uint8_t *bytes, size_t length)
{
    int ends[2];
    struct store store = {0};
    hvd_status status = {0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends))
        abort();
    struct connection *connection = connection_create(ends[0], "secret");
    connection->proven = true;
    hvd_code code = HVD_OK;
    while (length > 1 && !code) {
        uint8_t answers[4096];
        size_t body = bytes[0] < length ? bytes[0] : length - 1;
        uint8_t header[STREAM_HEADER_BYTES] = {(uint8_t)body};
        ssize_t ignored = send(ends[1], header, sizeof header, MSG_NOSIGNAL);
        ignored = send(ends[1], bytes + 1, body, MSG_NOSIGNAL);
        code = connection_advance(connection, &store, &status);
        ignored = recv(ends[1], answers, sizeof answers, 0);
        (void)ignored;
        bytes += 1 + body;
        length -= 1 + body;
    }
    connection_free(connection, &store);
    store_free(&store);
    close(ends[1]);
}

/* What is accepted must lie inside the memory. */
static void offer_memory(const uint8_t *bytes, size_t length)
{
    enum { MEMORY = 8192 };
    struct ring rings[CHANNELS];
    uint8_t *offer = calloc(1, segment_offer_bytes(CHANNELS));
    int fd = platform_memory_create(MEMORY, true);
    if (!offer || fd < 0)
        abort();
    memcpy(offer, bytes, length < segment_offer_bytes(CHANNELS) ? length : segment_offer_bytes(CHANNELS));
    struct segment *segment = segment_accept(offer, fd, rings, CHANNELS);
    for (int channel = 0; segment && channel < CHANNELS; channel++) {
        const uint8_t *end = (const uint8_t *)segment->memory + MEMORY;
        if (rings[channel].memory->bytes + rings[channel].size > end)
            abort();
        ring_write(&rings[channel], bytes, length);
    }
    segment_release(segment);
    close(fd);
    free(offer);
}

/* A record's addresses are read to their end, in the order in which a rank with the same ones tries them. */
static void read_record(const uint8_t *bytes, size_t length)
{
    struct address_record record = {0};
    if (address_record_decode(&record, bytes, length))
        for (int row = 0; transport_at(row); row++)
            for (int i = 0; record.addresses[row] && address_record_get(&record, &record, row, i); i++)
                if (i > TRANSPORT_ADDRESSES)
                    abort();
    address_record_free(&record);
}

/* A record that is accepted is written as the same bytes. */
static void read_fault(const uint8_t *bytes, size_t length)
{
    hvd_fault fault;
    struct wire_writer again = {0};
    struct wire_reader reader = wire_reader_of(bytes, length);
    if (!fault_get(&reader, &fault))
        return;
    fault_put(&again, &fault);
    /* Without a cause there is no host. */
    if (fault.status.cause && (again.length != length || memcmp(again.bytes, bytes, length) != 0))
        abort();
    wire_writer_free(&again);
}

/* What is accepted must be a place, or a reason that ends; and it is what the bytes say. */
static void read_news(const uint8_t *bytes, size_t length)
{
    struct slot_news news;
    struct wire_writer again = {0};
    if (!slot_news_decode(&news, bytes, length))
        return;
    if (!memchr(news.reason, 0, sizeof news.reason) || news.epoch < 0 || news.kind > HVD_NEWS_OVER ||
        (news.kind == HVD_NEWS_EPOCH && (news.rank < 0 || news.rank >= news.size)))
        abort();
    wire_put_u8(&again, (uint8_t)news.kind);
    wire_put_u32(&again, (uint32_t)news.epoch);
    wire_put_u32(&again, (uint32_t)news.rank);
    wire_put_u32(&again, (uint32_t)news.size);
    wire_put_u32(&again, (uint32_t)news.notice);
    wire_put_string(&again, news.reason);
    if (again.length != length || memcmp(again.bytes, bytes, length) != 0)
        abort();
    wire_writer_free(&again);
}

/* A report that is accepted says the same when it is written again. */
static void read_report(const uint8_t *bytes, size_t length)
{
    static const char *const words[] = {"", "entered", "ready", "waits", "done"};
    struct slot_report report, again;
    char text[2 * SLOT_REPORT_LIMIT], numbers[SLOT_REPORT_LIMIT] = "";
    if (!slot_report_read(&report, bytes, length))
        return;
    if (report.kind == SLOT_WAITS)
        snprintf(numbers, sizeof numbers, " %d %d %d", report.after, report.holds_state, report.lost_rank);
    snprintf(text, sizeof text, "%s%s%s", words[report.kind], numbers, report.leaves ? " leaves" : "");
    if (!slot_report_read(&again, text, strlen(text)) || again.kind != report.kind ||
        again.leaves != report.leaves || again.after != report.after || again.lost_rank != report.lost_rank ||
        again.holds_state != report.holds_state)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct question question;
    struct answer answer;
    if (!length)
        return 0;
    switch (bytes[0] % MODES) {
    case AS_QUESTIONS:
        ask_server(bytes + 1, length - 1);
        break;
    case AS_QUESTION:
        question_decode(&question, bytes + 1, length - 1);
        break;
    case AS_ANSWER:
        answer_decode(&answer, bytes + 1, length - 1);
        break;
    case AS_RECORD:
        read_record(bytes + 1, length - 1);
        break;
    case AS_OFFER:
        offer_memory(bytes + 1, length - 1);
        break;
    case AS_FAULT:
        read_fault(bytes + 1, length - 1);
        break;
    case AS_NEWS:
        read_news(bytes + 1, length - 1);
        break;
    case AS_REPORT:
        read_report(bytes + 1, length - 1);
        break;
    }
    return 0;
}
