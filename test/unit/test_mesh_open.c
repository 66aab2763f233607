/* test_mesh_open.c - opening a mesh: what is missing or wrong is named, unauthenticated peers do no harm,
 * every address is tried, nothing leaks. */
#include "closed_port.h"
#include "mesh_group.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "transport/address_record.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- opening fails ------------------------------------------------------------------------------------ */

static void open_with_wrong_secret(struct member *member)
{
    set(&member->settings, "secret", "another secret");
    hvd_code code = open_mesh(&member->settings, DEADLINE, &member->mesh, &member->status);
    CHECK(code == HVD_REFUSED && strstr(member->status.text, "HOROVOD_SECRET"), "%s", member->status.text);
}

TEST(test_wrong_secret_is_refused)
{
    run_each(1, (struct group_options){
                    .transport = "auto", .fn = open_with_wrong_secret, .opens_by_itself = true});
}

static void open_without_ranks_2_and_3(struct member *member)
{
    static const int peers[2][3] = {{1, 2, 3}, {0, 2, 3}};
    if (member->rank > 1)
        return;
    struct address_record mine = {.host = "here"};
    struct mesh_config config = {.settings = &member->settings,
                                 .peers = peers[member->rank],
                                 .peer_count = 3,
                                 .channels = CHANNELS,
                                 .deadline = clock_after(DEADLINE)};
    CHECK(meet(&config, &member->status) == HVD_OK, "%s", member->status.text);
    CHECK(address_record_publish(&config, &mine, &member->status) == HVD_OK, "%s", member->status.text);
    pthread_barrier_wait(&barrier); /* both have joined before the time of either is over */
    config.deadline = clock_after(2);
    hvd_code code = mesh_open(&config, &member->mesh, &member->status);
    rendezvous_close(config.rendezvous);
    CHECK(code == HVD_TIMED_OUT, "%s", member->status.text);
    CHECK(strstr(member->status.text, "ranks 2 and 3 have not joined within"), "%s", member->status.text);
}

TEST(test_missing_ranks_are_named)
{
    run_each(4, (struct group_options){
                    .transport = "auto", .fn = open_without_ranks_2_and_3, .opens_by_itself = true});
}

static void open_with_own_transport(struct member *member)
{
    const char *const *choice = member->argument;
    set(&member->settings, "transport", choice[member->rank]);
    hvd_code code = open_mesh(&member->settings, DEADLINE, &member->mesh, &member->status);
    if (choice[2]) {
        CHECK(code == HVD_OK, "%s", member->status.text);
        CHECK(strcmp(mesh_transport_name(member->mesh, 1 - member->rank), choice[2]) == 0, "wrong transport");
        pthread_barrier_wait(&barrier);
    } else {
        CHECK(code == HVD_UNSUPPORTED && strstr(member->status.text, "no transport in common"), "%s",
              member->status.text);
    }
    mesh_close(member->mesh);
}

TEST(test_ranks_with_different_settings)
{
    const char *choices[][3] = {{"auto", "tcp", "tcp"}, {"shm", "auto", "shm"}, {"shm", "tcp", NULL}};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        run_each(2, (struct group_options){.transport = "auto",
                                           .fn = open_with_own_transport,
                                           .argument = choices[i],
                                           .opens_by_itself = true});
}

static void take_memory_from_rank_1(int rank)
{
    struct rlimit little = {4096, 4096};
    signal(SIGXFSZ, SIG_IGN);
    CHECK(rank != 1 || setrlimit(RLIMIT_FSIZE, &little) == 0, "can't set a limit");
}

static void expect_next_row_with_rank_1(struct member *member)
{
    for (int peer = 0; peer < member->size; peer++) {
        const char *wanted = member->rank == 1 || peer == 1 ? transport_at(1)->name : "shm";
        if (peer != member->rank)
            CHECK(strcmp(mesh_transport_name(member->mesh, peer), wanted) == 0, "%d and %d use %s",
                  member->rank, peer, mesh_transport_name(member->mesh, peer));
    }
}

TEST(test_without_memory_the_next_row_takes_over)
{
    struct group_options options = {
        .transport = "auto", .fn = expect_next_row_with_rank_1, .prepare = take_memory_from_rank_1};
    run_processes(3, &options, -1);
}

/* Rings of a gigabyte each: they are made small enough instead. */
TEST(test_rings_stay_bounded)
{
    run_each(3, (struct group_options){.transport = "shm",
                                       .settings = {"shm_ring_bytes", "1073741824"},
                                       .fn = exchange_with_all});
}

/* ---- intruders ---------------------------------------------------------------------------------------- */

#define SILENT 40

enum {
#define TRANSPORT(name) ROW_##name,
#include "transport/transports.def"
#undef TRANSPORT
    ROWS
};

/* Garbage, half a hello, nothing at all; returns the connections that stay open. */
static int disturb(const struct address_record *victim, int silent[SILENT])
{
    static const struct {
        const char *bytes;
        size_t length;
    } texts[] = {{"GET / HTTP/1.1\r\n\r\n", 18}, {"HHVD", 4},
                 {"HHVD\1\0\377\377", 8},        {"", 0},
                 {"HHVD\1\0\2\0\2\1", 10},       {"\0\0\0\0\0\0\0\0\0\0", 10}};
    int count = 0;
    for (int i = 0; i < 2 * SILENT; i++) {
        int row = i / 2 % ROWS;
        int fd = transport_at(row)->dial(victim->addresses[row]);
        CHECK(fd >= 0 && socket_wait(fd, POLLOUT, clock_after(DEADLINE)), "can't connect");
        ssize_t ignored = send(fd, texts[i % 6].bytes, texts[i % 6].length, MSG_NOSIGNAL);
        (void)ignored;
        if (i % 2)
            close(fd);
        else
            silent[count++] = fd;
    }
    return count;
}

/* A well-formed attempt; `word`: why it is refused, NULL: it is not. Returns the connection. */
static int knock(const struct address_record *victim, const char *secret, struct handshake_claim claim,
                 const char *word)
{
    hvd_status status;
    struct handshake handshake;
    int64_t deadline = clock_after(DEADLINE);
    int fd = transport_tcp.dial(victim->addresses[ROW_tcp]);
    CHECK(fd >= 0 && socket_wait(fd, POLLOUT, deadline), "can't connect");
    CHECK(handshake_initiate(&handshake, secret, &claim, "rank 0", &status) == HVD_OK, "%s", status.text);
    hvd_code code;
    while ((code = handshake_advance(&handshake, fd, &status)) == HVD_IN_PROGRESS)
        CHECK(socket_wait(fd, stream_events(&handshake.stream), deadline), "no answer");
    CHECK(word ? code == HVD_REFUSED && strstr(status.text, word) : code == HVD_OK, "%d %s", code,
          status.text);
    return fd;
}

static const struct handshake_claim right = {
    .role = HANDSHAKE_LINK + ROW_tcp, .job = "mesh", .from = 1, .to = 0};

static void knock_wrongly(const struct address_record *victim)
{
    const struct {
        const char *secret;
        struct handshake_claim claim;
        const char *word;
    } attempts[] = {
        {"guessed", right, "secret"},
        {SECRET, {HANDSHAKE_LINK + ROW_tcp, "mesh", 1, 1, 0, 0, 0, false}, "earlier or later start"},
        {SECRET, {HANDSHAKE_LINK + ROW_tcp, "other", 0, 1, 0, 0, 0, false}, "another job"},
        {SECRET, {HANDSHAKE_LINK + ROW_shm, "mesh", 0, 1, 0, 0, 0, false}, "another kind"},
        {SECRET, {HANDSHAKE_LINK + ROW_tcp, "mesh", 0, 1, 7, 0, 0, false}, "HOROVOD_RANK"},
        {SECRET, {HANDSHAKE_LINK + ROW_tcp, "mesh", 0, 1, 0, 0, 0, true}, "HOROVOD_ENCRYPTION"},
        /* Who it is counts only once it is proven; these are dropped then. */
        {SECRET, {HANDSHAKE_LINK + ROW_tcp, "mesh", 0, 5, 0, 0, 0, false}, NULL},
        {SECRET, {HANDSHAKE_LINK + ROW_tcp, "mesh", 0, 1, 0, 1000, 0, false}, NULL},
    };
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts; i++)
        close(knock(victim, attempts[i].secret, attempts[i].claim, attempts[i].word));
}

/* Rank 1 is played by hand, so that rank 0 is still open for connections meanwhile. */
static void disturb_then_join(struct member *member)
{
    hvd_status status;
    struct address_record victim = {0};
    struct address_record mine = {.host = "elsewhere", .addresses[ROW_tcp] = "127.0.0.1 port 1"};
    struct mesh_config config = {.settings = &member->settings, .deadline = clock_after(DEADLINE)};
    int silent[SILENT], links[CHANNELS];
    CHECK(meet(&config, &status) == HVD_OK, "%s", status.text);
    CHECK(address_record_publish(&config, &mine, &status) == HVD_OK, "%s", status.text);
    CHECK(address_record_fetch(&config, 0, clock_after(DEADLINE), &victim, &status) == HVD_OK, "%s",
          status.text);
    rendezvous_close(config.rendezvous);
    int count = disturb(&victim, silent);
    knock_wrongly(&victim);
    for (int channel = 0; channel < CHANNELS; channel++) {
        struct handshake_claim claim = right;
        claim.channel = (uint32_t)channel;
        links[channel] = knock(&victim, SECRET, claim, NULL);
        if (channel == 0)
            close(knock(&victim, SECRET, claim, NULL)); /* the channel is taken: this one is dropped */
    }
    CHECK(send(links[1], "x", 1, MSG_NOSIGNAL) == 1, "can't send");
    pthread_barrier_wait(&barrier);
    while (count)
        close(silent[--count]);
    close(links[0]);
    close(links[1]);
    address_record_free(&victim);
}

static void open_among_intruders(struct member *member)
{
    if (member->rank == 1) {
        disturb_then_join(member);
        return;
    }
    char byte = 0;
    struct iovec part = {&byte, 1};
    int64_t deadline = clock_after(DEADLINE);
    CHECK(open_mesh(&member->settings, DEADLINE, &member->mesh, &member->status) == HVD_OK, "%s",
          member->status.text);
    while (link_receive(mesh_link(member->mesh, 1, 1), &part, 1) == 0 && clock_now() < deadline)
        mesh_poll(member->mesh);
    CHECK(byte == 'x', "the true rank 1 does not get through");
    CHECK(mesh_next_lost(member->mesh, &member->status) == -1, "%s", member->status.text);
    pthread_barrier_wait(&barrier);
    mesh_close(member->mesh);
}

/* "auto": rank 0 then listens on both kinds of socket. */
TEST(test_intruders_do_no_harm)
{
    run_each(
        2, (struct group_options){.transport = "auto", .fn = open_among_intruders, .opens_by_itself = true});
}

/* ---- several addresses -------------------------------------------------------------------------------- */

/* A port at which connections end up nowhere: refused, accepted by the kernel and never answered, or answered
 * by another rendezvous, which refuses a rank. */
enum { REFUSED, SILENT_PORT, FOREIGN, WRONG_ADDRESSES };

struct wrong_addresses {
    int ports[WRONG_ADDRESSES], fds[2];
    hvd_rendezvous *foreign;
};

static void open_wrong_addresses(struct wrong_addresses *wrong)
{
    hvd_status status;
    *wrong = (struct wrong_addresses){0};
    wrong->fds[REFUSED] = closed_port(&wrong->ports[REFUSED]);
    wrong->fds[SILENT_PORT] = socket_listen("127.0.0.1", &wrong->ports[SILENT_PORT]);
    CHECK(wrong->fds[SILENT_PORT] >= 0, "can't listen");
    CHECK(hvd_rendezvous_start("127.0.0.1", SECRET, &wrong->foreign, &status) == HVD_OK, "%s", status.text);
    wrong->ports[FOREIGN] = hvd_rendezvous_port(wrong->foreign);
}

static void close_wrong_addresses(struct wrong_addresses *wrong)
{
    socket_close(&wrong->fds[REFUSED]);
    socket_close(&wrong->fds[SILENT_PORT]);
    hvd_rendezvous_stop(wrong->foreign);
}

/* The first address of every rank is wrong, and the second right. */
TEST(test_the_next_address_is_tried)
{
    struct wrong_addresses wrong;
    open_wrong_addresses(&wrong);
    for (int i = 0; i < WRONG_ADDRESSES; i++) {
        char advertised[32];
        snprintf(advertised, sizeof advertised, "127.0.0.1:%d", wrong.ports[i]);
        run_each(3, (struct group_options){.transport = "tcp",
                                           .settings = {"advertised_address", advertised},
                                           .fn = exchange_with_all});
    }
    close_wrong_addresses(&wrong);
}

struct two_ranks {
    struct wrong_addresses wrong;
    const char *words[4];
    hvd_code code;
};

/* Rank 0, by hand, publishes nothing but wrong addresses. */
static void meet_wrong_addresses(struct member *member)
{
    const struct two_ranks *two = member->argument;
    const int *ports = two->wrong.ports;
    char addresses[128];
    hvd_status status;
    if (member->rank == 1) {
        double seconds = two->code == HVD_TIMED_OUT ? 4 : DEADLINE;
        hvd_code code = open_mesh(&member->settings, seconds, &member->mesh, &member->status);
        CHECK(code == two->code && member->status.code == code, "%d %s", code, member->status.text);
        CHECK(code != HVD_PEER_LOST || member->status.lost_rank == 0, "%s", member->status.text);
        for (int i = 0; two->words[i]; i++)
            CHECK(strstr(member->status.text, two->words[i]), "'%s' is not in '%s'", two->words[i],
                  member->status.text);
        pthread_barrier_wait(&barrier);
        mesh_close(member->mesh);
        return;
    }
    snprintf(addresses, sizeof addresses, "127.0.0.1 port %d\n127.0.0.1 port %d",
             ports[two->code == HVD_PEER_LOST ? REFUSED : FOREIGN],
             ports[two->code == HVD_TIMED_OUT ? SILENT_PORT : REFUSED]);
    struct address_record records[2] = {{.process = 7, .host = "b", .addresses[ROW_tcp] = addresses}};
    struct mesh_config config = {.settings = &member->settings, .deadline = clock_after(DEADLINE)};
    CHECK(meet(&config, &status) == HVD_OK, "%s", status.text);
    CHECK(address_record_fetch(&config, 1, clock_after(DEADLINE), &records[1], &status) == HVD_OK, "%s",
          status.text);
    CHECK(address_record_publish_table(&config, 0, records, &status) == HVD_OK, "%s", status.text);
    pthread_barrier_wait(&barrier);
    rendezvous_close(config.rendezvous);
    address_record_free(&records[1]);
}

/* Without an end of all attempts the time to start is over; with one, the first address has the word. */
TEST(test_the_outcome_at_each_address_is_named)
{
    struct two_ranks two = {.words = {"rank 0 (pid 7, host b) has joined, but within", "; rank 1 (host ",
                                      " (from 127.0.0.1): no end of the handshake"},
                            .code = HVD_TIMED_OUT};
    open_wrong_addresses(&two.wrong);
    struct group_options options = {
        .transport = "tcp", .fn = meet_wrong_addresses, .argument = &two, .opens_by_itself = true};
    run_each(2, options);
    two.code = HVD_REFUSED;
    two.words[0] = "rank 0 (pid 7, host b) refused this connection";
    two.words[2] = "Connection refused";
    run_each(2, options);
    two.code = HVD_PEER_LOST; /* the rank that has published them is gone */
    two.words[0] = "rank 0 (pid 7, host b) has probably ended";
    two.words[1] = "connecting to it fails";
    run_each(2, options);
    close_wrong_addresses(&two.wrong);
}

/* ---- nothing leaks ------------------------------------------------------------------------------------ */

static void open_and_close_often(struct member *member)
{
    for (int i = 0; i < 500; i++) {
        CHECK(open_mesh(&member->settings, DEADLINE, &member->mesh, &member->status) == HVD_OK,
              "opening %d: %s", i, member->status.text);
        mesh_close(member->mesh);
    }
}

TEST(test_a_thousand_opens_leak_no_descriptor)
{
    int before = count_entries("/proc/self/fd");
    run_each(2, (struct group_options){.fn = open_and_close_often, .opens_by_itself = true});
    assert_int_equal(count_entries("/proc/self/fd"), before);
}
