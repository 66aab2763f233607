/* input.c - stdin of rank 0, where that runs on another host: read here, as much as its agent has room for.
 */
#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static void read_input(struct job *job)
{
    struct remotes *remotes = job->remotes;
    struct frames *to = &remotes->list[0].frames;
    uint8_t bytes[16384];
    while (!remotes->input_ended && remotes->input_credit > 0 &&
           poll(&(struct pollfd){.fd = job->input, .events = POLLIN}, 1, 0) > 0) {
        size_t limit = remotes->input_credit < sizeof bytes ? remotes->input_credit : sizeof bytes;
        ssize_t count = read(job->input, bytes, limit);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        count = count > 0 ? count : 0;
        size_t begin = frame_begin(to, FRAME_INPUT);
        wire_put_raw(&to->stream.out, bytes, (size_t)count);
        frame_end(to, begin);
        remotes->input_credit -= (size_t)count;
        remotes->input_ended = count == 0;
    }
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    read_input(poll->data); /* without credit the next turn reads, when there is some */
}

void input_open(struct job *job)
{
    struct remotes *remotes = job->remotes;
    int flags = fcntl(job->input, F_GETFL);
    remotes->input_credit = FRAME_WINDOW;
    remotes->input_polled = uv_poll_init(&job->loop, &remotes->input, job->input) == 0;
    remotes->input.data = job;
    fcntl(job->input, F_SETFL, flags); /* libuv has made it non-blocking for all processes that share it */
}

/* Regular files can't be polled, and need not be: they are always readable. */
void input_watch(struct job *job)
{
    struct remotes *remotes = job->remotes;
    bool wanted = !remotes->input_ended && remotes->input_credit > 0;
    if (!remotes->input_polled && wanted)
        read_input(job);
    else if (remotes->input_polled && wanted && !uv_is_active((uv_handle_t *)&remotes->input))
        uv_poll_start(&remotes->input, UV_READABLE, on_input);
    else if (remotes->input_polled && !wanted)
        uv_poll_stop(&remotes->input);
}
