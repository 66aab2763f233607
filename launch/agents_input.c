/* agents_input.c - reads stdin and sends it to the host on which rank 0 runs, as long as rank 0 takes it:
 * input_credit is what the host has room for. One thread, the loop's. */
#include "agents_input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static void read_input(struct table *table)
{
    struct agents *agents = table->agents;
    struct frames *to = &agents->input_to->frames;
    uint8_t bytes[16384];
    while (!agents->input_ended && agents->input_credit > 0 &&
           poll(&(struct pollfd){.fd = table->input, .events = POLLIN}, 1, 0) > 0) {
        size_t limit = agents->input_credit < sizeof bytes ? agents->input_credit : sizeof bytes;
        ssize_t count = read(table->input, bytes, limit);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        count = count > 0 ? count : 0;
        size_t begin = frame_begin(to, FRAME_INPUT);
        wire_put_raw(&to->stream.out, bytes, (size_t)count);
        frame_end(to, begin);
        agents->input_credit -= (size_t)count;
        agents->input_ended = count == 0;
    }
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    read_input(poll->data); /* without credit, a later turn reads */
}

void agents_input_open(struct table *table)
{
    struct agents *agents = table->agents;
    int flags = fcntl(table->input, F_GETFL);
    agents->input_credit = FRAME_WINDOW;
    agents->input_polled = uv_poll_init(&table->loop, &agents->input, table->input) == 0;
    agents->input.data = table;
    fcntl(table->input, F_SETFL, flags); /* libuv has made it non-blocking for all processes that share it */
}

/* Another host than that of rank 0 was sent nothing. */
void agents_input_taken(struct remote *remote, uint32_t bytes)
{
    struct agents *agents = remote->table->agents;
    if (remote == agents->input_to && bytes <= FRAME_WINDOW - agents->input_credit)
        agents->input_credit += bytes;
}

void agents_input_turn(struct table *table)
{
    struct agents *agents = table->agents;
    bool wanted = !agents->input_ended && agents->input_credit > 0;
    /* Regular files can't be polled, and are always readable. */
    if (!agents->input_polled && wanted)
        read_input(table);
    else if (agents->input_polled && wanted && !uv_is_active((uv_handle_t *)&agents->input))
        uv_poll_start(&agents->input, UV_READABLE, on_input);
    else if (agents->input_polled && !wanted)
        uv_poll_stop(&agents->input);
}
