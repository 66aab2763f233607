/* pmi.c - PMI-1 over the descriptor that the process manager has given. A request is one line, and so is its
 * answer; nothing else is received. */
#include "bootstrap/pmi.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define LINE_LIMIT    (PMI_VALUE_LIMIT + 512)
#define KEY           "horovod-rendezvous"
#define FINALIZE_TIME (10 * CLOCK_SECOND) /* a manager that ended is noticed earlier */

struct exchange {
    int fd;
    int64_t deadline;
    const struct interrupt *interrupt;
    char line[LINE_LIMIT]; /* the answer, without its newline */
};

static hvd_code wait_for_line(struct exchange *exchange, hvd_status *status)
{
    size_t length = 0;
    while (length < LINE_LIMIT) {
        char *next = &exchange->line[length];
        int64_t slice = interrupt_slice(exchange->interrupt, exchange->deadline);
        if (!socket_wait(exchange->fd, POLLIN, slice)) {
            if (interrupt_is_set(exchange->interrupt))
                return status_set(status, HVD_INTERRUPTED,
                                  "interrupted while waiting for the process manager");
            if (clock_now() >= exchange->deadline)
                return status_set(status, HVD_TIMED_OUT,
                                  "the process manager (PMI_FD) has not answered within the time to start "
                                  "(HOROVOD_START_TIMEOUT); has every rank called init?");
            continue;
        }
        /* Byte by byte: the bytes after the line belong to the MPI library. */
        ssize_t got = recv(exchange->fd, next, 1, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got <= 0)
            return status_set(status, HVD_PEER_LOST,
                              "the process manager (PMI_FD) has closed its connection");
        if (*next == '\n') {
            *next = '\0';
            return HVD_OK;
        }
        length++;
    }
    return status_set(status, HVD_REFUSED, "the process manager (PMI_FD) has sent too long a line");
}

static hvd_code ask(struct exchange *exchange, const char *expected, hvd_status *status, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));

static hvd_code ask(struct exchange *exchange, const char *expected, hvd_status *status, const char *format,
                    ...)
{
    char request[LINE_LIMIT];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(request, sizeof request, format, arguments);
    va_end(arguments);
    if (length >= LINE_LIMIT || send(exchange->fd, request, (size_t)length, MSG_NOSIGNAL) != length)
        return status_set(status, HVD_PEER_LOST, "the process manager (PMI_FD) takes no requests");
    hvd_code code = wait_for_line(exchange, status);
    if (!code && (strncmp(exchange->line, "cmd=", 4) != 0 || !strstr(exchange->line, expected)))
        code = status_set(status, HVD_REFUSED, "the process manager (PMI_FD) answers '%.200s', not '%s'",
                          exchange->line, expected);
    return code;
}

/* Copies the value of "name=value" in the answer. */
static hvd_code parse(const struct exchange *exchange, const char *name, char *value, size_t capacity,
                      hvd_status *status)
{
    const char *at = strstr(exchange->line, name);
    size_t length = at ? strcspn(at + strlen(name), " ") : 0;
    if (length == 0 || length >= capacity)
        return status_set(status, HVD_REFUSED, "the process manager (PMI_FD) answers '%.200s' without %s",
                          exchange->line, name);
    memcpy(value, at + strlen(name), length);
    value[length] = '\0';
    return HVD_OK;
}

hvd_code pmi_broadcast(int fd, bool own, char text[PMI_VALUE_LIMIT], int64_t deadline,
                       const struct interrupt *interrupt, hvd_status *status)
{
    struct exchange exchange = {.fd = fd, .deadline = deadline, .interrupt = interrupt};
    char space[256]; /* the name of the job's space of keys */
    TRY(ask(&exchange, "rc=0", status, "cmd=init pmi_version=1 pmi_subversion=1\n"));
    TRY(ask(&exchange, "cmd=my_kvsname", status, "cmd=get_my_kvsname\n"));
    TRY(parse(&exchange, " kvsname=", space, sizeof space, status));
    if (own)
        TRY(ask(&exchange, "rc=0", status, "cmd=put kvsname=%s key=" KEY " value=%s\n", space, text));
    TRY(ask(&exchange, "cmd=barrier_out", status, "cmd=barrier_in\n"));
    TRY(ask(&exchange, "rc=0", status, "cmd=get kvsname=%s key=" KEY "\n", space));
    return parse(&exchange, " value=", text, PMI_VALUE_LIMIT, status);
}

void pmi_finalize(int fd)
{
    struct exchange exchange = {.fd = fd, .deadline = clock_now() + FINALIZE_TIME};
    hvd_status unused;
    ask(&exchange, "cmd=finalize_ack", &unused, "cmd=finalize\n");
}
