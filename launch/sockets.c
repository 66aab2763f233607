/* sockets.c - see sockets.h. */
#include "sockets.h"

#include "base/status.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ESTABLISHED  1 /* the kernel's number of the state */
#define ANSWER_BYTES 32768

static hvd_code add_socket(struct sockets *sockets, const struct socket_view *socket, hvd_status *status)
{
    if (sockets->count == sockets->capacity) {
        int capacity = sockets->capacity ? 2 * sockets->capacity : 8;
        struct socket_view *list = reallocarray(sockets->list, (size_t)capacity, sizeof *list);
        if (!list)
            return status_no_memory(status);
        sockets->list = list;
        sockets->capacity = capacity;
    }
    sockets->list[sockets->count++] = *socket;
    return HVD_OK;
}

void sockets_free(struct sockets *sockets)
{
    free(sockets->list);
    *sockets = (struct sockets){0};
}

/* ---- which sockets are of these processes -------------------------------------------------------------- */

struct inode {
    uint32_t number;
    int process; /* its index */
};

struct inodes {
    struct inode *list; /* by number */
    size_t count, capacity;
};

static hvd_code add_inode(struct inodes *inodes, struct inode inode, hvd_status *status)
{
    if (inodes->count == inodes->capacity) {
        size_t capacity = inodes->capacity ? 2 * inodes->capacity : 64;
        struct inode *list = reallocarray(inodes->list, capacity, sizeof *list);
        if (!list)
            return status_no_memory(status);
        inodes->list = list;
        inodes->capacity = capacity;
    }
    inodes->list[inodes->count++] = inode;
    return HVD_OK;
}

/* A process that has ended, or can't be seen, has none. */
static hvd_code add_inodes(int id, int process, struct inodes *inodes, hvd_status *status)
{
    char path[64], target[64];
    struct inode inode = {.process = process};
    hvd_code code = HVD_OK;
    snprintf(path, sizeof path, "/proc/%d/fd", id);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; !code && folder && (entry = readdir(folder));) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        if (sscanf(target, "socket:[%" SCNu32 "]", &inode.number) == 1)
            code = add_inode(inodes, inode, status);
    }
    if (folder)
        closedir(folder);
    return code;
}

static int compare_inodes(const void *one, const void *other)
{
    uint32_t a = ((const struct inode *)one)->number, b = ((const struct inode *)other)->number;
    return (a > b) - (a < b);
}

static const struct inode *find_inode(const struct inodes *inodes, uint32_t number)
{
    const struct inode key = {.number = number};
    return inodes->count ? bsearch(&key, inodes->list, inodes->count, sizeof key, compare_inodes) : NULL;
}

/* ---- what the kernel says of them ---------------------------------------------------------------------- */

static struct socket_end end_of(int family, const uint32_t address[4], uint16_t port)
{
    struct socket_end end = {.port = ntohs(port)};
    if (family == AF_INET6) {
        memcpy(end.address, address, sizeof end.address);
    } else {
        memset(end.address + 10, 0xff, 2);
        memcpy(end.address + 12, address, 4);
    }
    return end;
}

/* An older kernel sends less of the structure. */
static struct tcp_info find_info(const struct nlmsghdr *message)
{
    struct tcp_info info = {0};
    const struct inet_diag_msg *answer = NLMSG_DATA(message);
    const struct rtattr *attribute = (const struct rtattr *)(answer + 1);
    int left = (int)message->nlmsg_len - (int)NLMSG_LENGTH(sizeof *answer);
    for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
        size_t length = RTA_PAYLOAD(attribute);
        if (attribute->rta_type == INET_DIAG_INFO)
            memcpy(&info, RTA_DATA(attribute), length < sizeof info ? length : sizeof info);
    }
    return info;
}

static hvd_code read_socket(const struct nlmsghdr *message, const struct inodes *inodes,
                            struct sockets *sockets, hvd_status *status)
{
    const struct inet_diag_msg *answer = NLMSG_DATA(message);
    if (message->nlmsg_len < NLMSG_LENGTH(sizeof *answer))
        return HVD_OK;
    const struct inode *inode = find_inode(inodes, answer->idiag_inode);
    if (!inode)
        return HVD_OK;
    const struct inet_diag_sockid *id = &answer->id;
    struct tcp_info info = find_info(message);
    struct socket_view socket = {.local = end_of(answer->idiag_family, id->idiag_src, id->idiag_sport),
                                 .remote = end_of(answer->idiag_family, id->idiag_dst, id->idiag_dport),
                                 .bytes = info.tcpi_bytes_acked,
                                 .busy = (uint64_t)info.tcpi_busy_time * 1000,
                                 .receiver_limited = (uint64_t)info.tcpi_rwnd_limited * 1000,
                                 .retransmitted = info.tcpi_total_retrans};
    return add_socket(&sockets[inode->process], &socket, status);
}

/* Reads answers until the one that ends them. */
static hvd_code read_answers(int fd, const struct inodes *inodes, struct sockets *sockets, hvd_status *status)
{
    _Alignas(struct nlmsghdr) char answers[ANSWER_BYTES];
    for (;;) {
        ssize_t length = recv(fd, answers, sizeof answers, 0);
        if (length < 0 && errno == EINTR)
            continue;
        if (length <= 0)
            return status_set_errno(status, errno, "can't ask the kernel about connections");
        int left = (int)length;
        for (const struct nlmsghdr *each = (void *)answers; NLMSG_OK(each, left);
             each = NLMSG_NEXT(each, left)) {
            if (each->nlmsg_type == NLMSG_DONE || each->nlmsg_type == NLMSG_ERROR)
                return HVD_OK; /* a kernel without sockets of this family refuses the question */
            TRY(read_socket(each, inodes, sockets, status));
        }
    }
}

static hvd_code ask(int fd, int family, hvd_status *status)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 question;
    } message = {.header = {.nlmsg_len = sizeof message,
                            .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                            .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .question = {.sdiag_family = (uint8_t)family,
                              .sdiag_protocol = IPPROTO_TCP,
                              .idiag_ext = 1 << (INET_DIAG_INFO - 1),
                              .idiag_states = 1 << ESTABLISHED}};
    if (send(fd, &message, sizeof message, 0) != (ssize_t)sizeof message)
        return status_set_errno(status, errno, "can't ask the kernel about connections");
    return HVD_OK;
}

hvd_code sockets_read(const int *processes, int count, struct sockets *sockets, hvd_status *status)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct inodes inodes = {0};
    hvd_code code = HVD_OK;
    for (int i = 0; i < count; i++)
        sockets[i] = (struct sockets){0};
    for (int i = 0; !code && i < count; i++)
        code = add_inodes(processes[i], i, &inodes, status);
    if (inodes.count)
        qsort(inodes.list, inodes.count, sizeof *inodes.list, compare_inodes);
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (!code && fd < 0)
        code = status_set_errno(status, errno, "can't ask the kernel about connections");
    for (size_t i = 0; !code && i < sizeof families / sizeof *families; i++) {
        code = ask(fd, families[i], status);
        if (!code)
            code = read_answers(fd, &inodes, sockets, status);
    }
    if (fd >= 0)
        close(fd);
    free(inodes.list);
    for (int i = 0; code && i < count; i++)
        sockets_free(&sockets[i]);
    return code;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static void put_end(const struct socket_end *end, struct wire_writer *body)
{
    wire_put_raw(body, end->address, sizeof end->address);
    wire_put_u16(body, end->port);
}

static void get_end(struct socket_end *end, struct wire_reader *body)
{
    const uint8_t *address = wire_get_raw(body, sizeof end->address);
    if (address)
        memcpy(end->address, address, sizeof end->address);
    end->port = wire_get_u16(body);
}

void sockets_put(const struct sockets *sockets, struct wire_writer *body)
{
    int count = sockets->count < SOCKETS_LIMIT ? sockets->count : SOCKETS_LIMIT;
    wire_put_u32(body, (uint32_t)count);
    for (int i = 0; i < count; i++) {
        const struct socket_view *socket = &sockets->list[i];
        put_end(&socket->local, body);
        put_end(&socket->remote, body);
        wire_put_u64(body, socket->bytes);
        wire_put_u64(body, socket->busy);
        wire_put_u64(body, socket->receiver_limited);
        wire_put_u64(body, socket->retransmitted);
    }
}

bool sockets_get(struct sockets *sockets, struct wire_reader *body)
{
    hvd_status status;
    uint32_t count = wire_get_u32(body);
    *sockets = (struct sockets){0};
    if (count > SOCKETS_LIMIT)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct socket_view socket;
        get_end(&socket.local, body);
        get_end(&socket.remote, body);
        socket.bytes = wire_get_u64(body);
        socket.busy = wire_get_u64(body);
        socket.receiver_limited = wire_get_u64(body);
        socket.retransmitted = wire_get_u64(body);
        if (body->failed || add_socket(sockets, &socket, &status))
            return false;
    }
    return !body->failed;
}
