/* test_mesh.c - meshes of n ranks, each a thread of this process, over every transport: bytes arrive whole
 * and in order, no wake-up is lost, deaths are reported, unauthenticated peers do no harm, nothing leaks. */
#include "base/clock.h"
#include "base/platform.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "random.h"
#include "test.h"
#include "transport/address_record.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET         "the secret of this test"
#define SIZE_MAX_RANKS 8
#define CHANNELS       2
#define DEADLINE       60.0

static const char *const transports[] = {
#define TRANSPORT(name) #name,
#include "transport/transports.def"
#undef TRANSPORT
};

/* A failed check in a thread ends the program: cmocka's own checks belong to the main thread. */
#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: check failed: %s: ", __FILE__, __LINE__, #condition);                    \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fputc('\n', stderr);                                                                             \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* ---- ranks as threads --------------------------------------------------------------------------------- */

struct member {
    int rank, size;
    struct settings settings;
    struct mesh *mesh; /* NULL when opening failed */
    hvd_status status;
    void (*fn)(struct member *member);
    void *argument;
    pthread_t thread;
};

struct group_options {
    const char *transport;
    const char *settings[5]; /* key, value, ..., NULL */
    void (*fn)(struct member *member);
    void *argument;
    bool opens_by_itself;
    void (*prepare)(int rank); /* in its process */
};

static void set(struct settings *settings, const char *key, const char *value)
{
    hvd_status status;
    CHECK(settings_set(settings, setting_by_key(key), value, key, &status) == HVD_OK, "%s", status.text);
}

static void set_number(struct settings *settings, const char *key, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    set(settings, key, text);
}

static hvd_code meet(struct mesh_config *config, hvd_status *status)
{
    const struct settings *settings = config->settings;
    hvd_code code = rendezvous_connect(settings->rendezvous, settings->secret, settings->encryption,
                                       config->deadline, NULL, &config->rendezvous, status);
    if (!code)
        code = rendezvous_enter(config->rendezvous, settings->job, 0, (int)settings->rank,
                                (int)settings->size, &config->generation, status);
    if (!code)
        rendezvous_scope(config->rendezvous, config->generation, 0);
    return code;
}

/* Connects to the neighbours; NULL: to all ranks of the job. */
static hvd_code open_mesh_to(const struct settings *settings, const int *neighbours, int neighbour_count,
                             double seconds, struct mesh **mesh, hvd_status *status)
{
    int peers[SIZE_MAX_RANKS], count = 0;
    struct mesh_config config = {.settings = settings,
                                 .peers = peers,
                                 .neighbours = neighbours,
                                 .neighbour_count = neighbour_count,
                                 .channels = CHANNELS,
                                 .deadline = clock_after(seconds)};
    for (int rank = 0; rank < (int)settings->size; rank++) {
        if (rank != (int)settings->rank)
            peers[count++] = rank;
    }
    config.peer_count = count;
    hvd_code code = meet(&config, status);
    if (!code)
        code = mesh_open(&config, mesh, status);
    rendezvous_close(config.rendezvous);
    return code;
}

static hvd_code open_mesh(const struct settings *settings, double seconds, struct mesh **mesh,
                          hvd_status *status)
{
    return open_mesh_to(settings, NULL, 0, seconds, mesh, status);
}

static void settings_for(struct settings *settings, int rank, int size, const char *rendezvous,
                         const char *transport)
{
    hvd_status status;
    CHECK(settings_init(settings, &status) == HVD_OK, "%s", status.text);
    set_number(settings, "rank", rank);
    set_number(settings, "size", size);
    set(settings, "rendezvous", rendezvous);
    set(settings, "secret", SECRET);
    set(settings, "job", "mesh");
    set(settings, "transport", transport);
}

static void *run_member(void *argument)
{
    struct member *member = argument;
    hvd_code code = open_mesh(&member->settings, DEADLINE, &member->mesh, &member->status);
    CHECK(code == HVD_OK, "rank %d: %s", member->rank, member->status.text);
    member->fn(member);
    mesh_close(member->mesh);
    return NULL;
}

static void *run_member_bare(void *argument)
{
    struct member *member = argument;
    member->fn(member);
    return NULL;
}

static void run_group(int size, const struct group_options *options)
{
    hvd_status status;
    hvd_rendezvous *rendezvous;
    char address[32];
    struct member *members = calloc((size_t)size, sizeof *members);
    CHECK(hvd_rendezvous_start("127.0.0.1", SECRET, &rendezvous, &status) == HVD_OK, "%s", status.text);
    snprintf(address, sizeof address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    for (int rank = 0; rank < size; rank++) {
        struct member *member = &members[rank];
        *member =
            (struct member){.rank = rank, .size = size, .fn = options->fn, .argument = options->argument};
        settings_for(&member->settings, rank, size, address, options->transport);
        for (int i = 0; options->settings[i]; i += 2)
            set(&member->settings, options->settings[i], options->settings[i + 1]);
        CHECK(pthread_create(&member->thread, NULL, options->opens_by_itself ? run_member_bare : run_member,
                             member) == 0,
              "no thread");
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2 * (time_t)DEADLINE;
    for (int rank = 0; rank < size; rank++) {
        CHECK(pthread_timedjoin_np(members[rank].thread, NULL, &until) == 0, "rank %d of %d over %s hangs",
              rank, size, options->transport);
        settings_free(&members[rank].settings);
    }
    hvd_rendezvous_stop(rendezvous);
    free(members);
}

static pthread_barrier_t barrier; /* of two ranks */

/* As run_group, over every transport, where the options name none. */
static void run_each(int size, struct group_options options)
{
    const char *only = options.transport;
    for (size_t i = 0; i < sizeof transports / sizeof *transports && !(only && i); i++) {
        options.transport = only ? only : transports[i];
        pthread_barrier_init(&barrier, NULL, 2);
        run_group(size, &options);
        pthread_barrier_destroy(&barrier);
    }
}

/* As run_group, with a process for each rank, so that memory is really passed. A rank that the test kills
 * ends by SIGKILL; the others must end well. */
static void run_processes(int size, const struct group_options *options, int killed)
{
    hvd_status status;
    hvd_rendezvous *rendezvous;
    char address[32];
    pid_t children[SIZE_MAX_RANKS];
    int gate[2]; /* nobody starts before all are forked: the server's thread must not hold a lock meanwhile */
    CHECK(pipe(gate) == 0, "no pipe");
    CHECK(hvd_rendezvous_start("127.0.0.1", SECRET, &rendezvous, &status) == HVD_OK, "%s", status.text);
    snprintf(address, sizeof address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    for (int rank = 0; rank < size; rank++) {
        children[rank] = fork();
        CHECK(children[rank] >= 0, "no fork");
        if (children[rank] == 0) {
            char nothing;
            close(gate[1]);
            CHECK(read(gate[0], &nothing, 1) == 0, "the gate is broken");
            close(gate[0]);
            struct member member = {.rank = rank, .size = size, .fn = options->fn};
            settings_for(&member.settings, rank, size, address, options->transport);
            if (options->prepare)
                options->prepare(rank);
            alarm(2 * (unsigned)DEADLINE);
            run_member(&member);
            _exit(0);
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int rank = 0; rank < size; rank++) {
        int outcome;
        CHECK(waitpid(children[rank], &outcome, 0) == children[rank], "lost a child");
        CHECK(rank == killed ? WIFSIGNALED(outcome) && WTERMSIG(outcome) == SIGKILL : outcome == 0,
              "process of rank %d ended with %d", rank, outcome);
    }
    hvd_rendezvous_stop(rendezvous);
}

/* Drives a mesh as the engine does: turn by turn, sleeping when a turn moved nothing. */
static void drive(struct member *member, bool (*turn)(struct member *member, void *state, bool *done),
                  void *state)
{
    int64_t deadline = clock_after(DEADLINE);
    bool done = false;
    while (!done) {
        CHECK(clock_now() < deadline, "rank %d of %d hangs", member->rank, member->size);
        if (turn(member, state, &done) || done)
            continue;
        mesh_poll(member->mesh);
        if (turn(member, state, &done) || done)
            continue;
        if (mesh_arm(member->mesh))
            mesh_sleep(member->mesh, deadline);
        mesh_disarm(member->mesh);
    }
}

/* ---- all pairs ---------------------------------------------------------------------------------------- */

#define MESSAGES 24
#define LARGEST  150000 /* several times the small rings of this test */
#define ELEMENT  8

/* One direction of one link: both ends compute the same lengths and bytes. */
struct flow {
    struct link *link;
    bool sends;
    uint64_t lengths; /* state of the generator */
    uint64_t pattern;
    int message;
    size_t length, done;
    uint8_t *buffer;
};

/* Messages are pieces of one text: filled and compared as a whole, which sanitizers look at once. */
static uint8_t text[LARGEST + 256];

static const uint8_t *text_of(const struct flow *flow)
{
    return text + (uint8_t)flow->pattern;
}

static void next_message(struct flow *flow)
{
    static const size_t special[] = {1, 3, 8, 64, 65, 4096, 16384, LARGEST};
    uint64_t r = random_next(&flow->lengths);
    size_t kinds = sizeof special / sizeof *special;
    flow->length = r % 3 ? special[(r >> 8) % kinds] : (r >> 8) % 20000;
    flow->done = 0;
    if (flow->sends)
        memcpy(flow->buffer, text_of(flow), flow->length);
}

static void end_message(struct flow *flow)
{
    CHECK(flow->sends || memcmp(flow->buffer, text_of(flow), flow->length) == 0,
          "rank %d channel %d message %d of %zu bytes is wrong", flow->link->peer, flow->link->channel,
          flow->message, flow->length);
    if (flow->sends)
        flow->link->operations->end_send(flow->link);
    else
        flow->link->operations->end_receive(flow->link);
    flow->pattern++;
    flow->message++;
    if (flow->message < MESSAGES)
        next_message(flow);
}

/* In place, whole elements only, as a reduction does. */
static ssize_t view_some(struct flow *flow)
{
    const void *data;
    size_t element = flow->length % ELEMENT ? 1 : ELEMENT;
    ssize_t n = flow->link->operations->view(flow->link, &data, flow->length - flow->done);
    if (n <= 0)
        return n;
    CHECK((uintptr_t)data % element == 0, "a view is not aligned");
    CHECK(flow->done || (uintptr_t)data % 16 == 0, "a message does not start aligned");
    size_t whole = (size_t)n - (size_t)n % element;
    memcpy(flow->buffer + flow->done, data, whole);
    if (whole)
        flow->link->operations->consume(flow->link, whole);
    return (ssize_t)whole;
}

static ssize_t move_some(struct flow *flow)
{
    size_t left = flow->length - flow->done, first = left / 3;
    uint8_t *at = flow->buffer + flow->done;
    struct iovec parts[2] = {{at, first}, {at + first, left - first}};
    if (flow->sends)
        return link_send(flow->link, parts, 2);
    if (flow->message % 2)
        return link_receive(flow->link, parts, 2);
    return view_some(flow);
}

static bool advance_flow(struct flow *flow)
{
    bool moved = false;
    while (flow->message < MESSAGES) {
        ssize_t n = flow->length ? move_some(flow) : 0;
        CHECK(n >= 0, "the link to rank %d broke", flow->link->peer);
        flow->done += (size_t)n;
        if (!n && flow->length)
            break;
        moved = true;
        if (flow->done == flow->length)
            end_message(flow);
    }
    bool *want = flow->sends ? &flow->link->want_write : &flow->link->want_read;
    *want = flow->message < MESSAGES;
    link_await(flow->link);
    return moved;
}

struct flows {
    struct flow all[SIZE_MAX_RANKS * CHANNELS * 2];
    int count;
};

static bool flows_turn(struct member *member, void *state, bool *done)
{
    struct flows *flows = state;
    bool moved = false;
    (void)member;
    *done = true;
    for (int i = 0; i < flows->count; i++) {
        moved |= advance_flow(&flows->all[i]);
        *done &= flows->all[i].message == MESSAGES;
    }
    return moved;
}

static void exchange_with_all(struct member *member)
{
    struct flows *flows = calloc(1, sizeof *flows);
    for (int peer = 0; peer < member->size; peer++) {
        for (int i = 0; peer != member->rank && i < CHANNELS * 2; i++) {
            struct flow *flow = &flows->all[flows->count++];
            flow->link = mesh_link(member->mesh, peer, i / 2);
            flow->sends = i % 2;
            int from = flow->sends ? member->rank : peer, to = flow->sends ? peer : member->rank;
            flow->lengths = (uint64_t)(from * 100 + to * 10 + i / 2);
            flow->pattern = flow->lengths * 3;
            flow->buffer = malloc(LARGEST);
            CHECK(flow->link && flow->link->peer == peer && flow->link->channel == i / 2, "wrong link");
            CHECK(strcmp(mesh_transport_name(member->mesh, peer), member->settings.transport) == 0,
                  "wrong transport");
            next_message(flow);
        }
    }
    CHECK(!mesh_link(member->mesh, member->rank, 0), "a rank has a link to itself");
    drive(member, flows_turn, flows);
    for (int i = 0; i < flows->count; i++)
        free(flows->all[i].buffer);
    free(flows);
}

static int write_text(void **state)
{
    uint64_t random = 1;
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)random_next(&random);
    return 0;
}

const struct test_hooks test_hooks = {.before_all = write_text};

/* What a rank sent before it closed must arrive: nobody waits for the others here. */
TEST(test_all_pairs)
{
    for (int size = 2; size <= SIZE_MAX_RANKS; size++)
        run_each(size,
                 (struct group_options){.settings = {"shm_ring_bytes", "16384"}, .fn = exchange_with_all});
}

static const char *const faulty[] = {"faulty-shm", "faulty-tcp"};

TEST(test_all_pairs_over_faulty_links)
{
    for (int i = 0; i < 2; i++)
        run_group(4, &(struct group_options){.transport = faulty[i],
                                             .settings = {"shm_ring_bytes", "16384"},
                                             .fn = exchange_with_all});
}

TEST(test_all_pairs_encrypted)
{
    const char *const over[] = {"tcp", "faulty-tcp"};
    for (int i = 0; i < 2; i++)
        run_group(4, &(struct group_options){
                         .transport = over[i], .settings = {"encryption", "1"}, .fn = exchange_with_all});
}

TEST(test_all_pairs_of_processes)
{
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        struct group_options options = {.transport = transports[i], .fn = exchange_with_all};
        run_processes(4, &options, -1);
    }
}

static void expect_shm(struct member *member)
{
    CHECK(strcmp(mesh_transport_name(member->mesh, 1 - member->rank), "shm") == 0, "one host, but no shm");
}

TEST(test_auto_shares_memory_inside_a_host)
{
    run_each(2, (struct group_options){.transport = "auto", .fn = expect_shm});
}

/* ---- cores --------------------------------------------------------------------------------------------- */

static int first_core(const cpu_set_t *cores)
{
    int core = 0;
    while (!CPU_ISSET(core, cores))
        core++;
    return core;
}

/* Both say that they wait on one core; rank 1 is bound to it when `argument` says so. */
static void share_core(struct member *member)
{
    cpu_set_t before, after;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0, "no cores");
    int core = first_core(&before);
    bool bound = member->argument && member->rank == 1;
    mesh_shares_core(member->mesh, core);
    pthread_barrier_wait(&barrier);
    CHECK(mesh_shares_core(member->mesh, core), "nobody else on core %d", core);
    pthread_barrier_wait(&barrier);
    if (member->rank == 1) {
        CHECK(!mesh_shares_core(member->mesh, core + 1), "somebody on core %d", core + 1);
        mesh_shares_core(member->mesh, core);
    }
    pthread_barrier_wait(&barrier);
    if (member->rank == 1)
        CHECK(platform_thread_bind(core), "can't bind to core %d", core);
    if (member->rank == 1 && !bound)
        CHECK(sched_setaffinity(0, sizeof before, &before) == 0, "can't unbind"); /* it is still there */
    int now = core;
    for (int i = 0; i < 50 && now == core; i++) { /* the system may move it back at once */
        mesh_leave_core(member->mesh, core);
        now = sched_getcpu();
    }
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0, "no cores");
    CHECK(CPU_COUNT(&after) == (bound ? 1 : CPU_COUNT(&before)), "%d cores are left", CPU_COUNT(&after));
    CHECK(member->rank == 0 || (now == core) == (bound || CPU_COUNT(&before) == 1), "now on core %d", now);
    pthread_barrier_wait(&barrier);
}

TEST(test_the_higher_rank_leaves_a_shared_core)
{
    run_each(2, (struct group_options){.transport = "shm", .fn = share_core});
}

TEST(test_a_bound_thread_stays_on_its_core)
{
    run_each(2, (struct group_options){.transport = "shm", .fn = share_core, .argument = "bound"});
}

/* ---- no wake-up is lost -------------------------------------------------------------------------------- */

#define ROUNDS 3000

struct rally {
    struct link *link;
    uint32_t round; /* the next byte to send or to receive */
    bool mine;
    uint64_t random;
};

static void pause_randomly(uint64_t r)
{
    for (volatile unsigned spin = 0; r % 3 == 1 && spin < (r >> 8) % 2000;)
        spin++;
    if (r % 3 == 2)
        sched_yield();
    if (r % 97 == 0)
        usleep((useconds_t)((r >> 8) % 200));
}

static bool rally_turn(struct member *member, void *state, bool *done)
{
    struct rally *rally = state;
    uint32_t value = rally->round;
    struct iovec part = {&value, sizeof value};
    (void)member;
    pause_randomly(random_next(&rally->random));
    ssize_t n = rally->mine ? link_send(rally->link, &part, 1) : link_receive(rally->link, &part, 1);
    CHECK(n == 0 || n == sizeof value, "moved %zd bytes", n);
    rally->link->want_read = !rally->mine;
    link_await(rally->link);
    if (n) {
        CHECK(value == rally->round, "round %u came in round %u", value, rally->round);
        if (rally->mine)
            rally->link->operations->end_send(rally->link);
        else
            rally->link->operations->end_receive(rally->link);
        rally->mine = !rally->mine;
        rally->round++;
    }
    *done = rally->round == ROUNDS;
    return n > 0;
}

static void play(struct member *member)
{
    struct rally rally = {.link = mesh_link(member->mesh, 1 - member->rank, 1),
                          .mine = member->rank == 0,
                          .random = (uint64_t)member->rank};
    drive(member, rally_turn, &rally);
}

TEST(test_no_wake_up_is_lost)
{
    run_each(2, (struct group_options){.fn = play});
}

/* A writer that sleeps because the ring is full must wake when the reader makes room, and a sleeping reader
 * when something comes: only the other's doorbell can end these sleeps. */
static bool pour_turn(struct member *member, void *state, bool *done)
{
    size_t *left = state;
    static const uint8_t zeros[50000];
    uint8_t sink[3000];
    struct link *link = mesh_link(member->mesh, 1 - member->rank, 1);
    struct iovec part = {member->rank == 0 ? (void *)zeros : sink,
                         member->rank == 0 ? sizeof zeros : sizeof sink};
    if (part.iov_len > *left)
        part.iov_len = *left;
    ssize_t n = member->rank == 0 ? link_send(link, &part, 1) : link_receive(link, &part, 1);
    CHECK(n >= 0, "the link broke");
    *left -= (size_t)n;
    *done = !*left;
    link->want_write = member->rank == 0;
    link->want_read = member->rank == 1;
    link_await(link);
    return n > 0;
}

static void pour(struct member *member)
{
    size_t left = (size_t)8 << 20;
    drive(member, pour_turn, &left);
}

TEST(test_room_wakes_the_writer)
{
    run_each(2, (struct group_options){.settings = {"shm_ring_bytes", "4096"}, .fn = pour});
    for (int i = 0; i < 2; i++)
        run_group(2, &(struct group_options){
                         .transport = faulty[i], .settings = {"shm_ring_bytes", "4096"}, .fn = pour});
    run_group(2, &(struct group_options){.transport = "tcp", .settings = {"encryption", "1"}, .fn = pour});
}

static void *wake_later(void *argument)
{
    usleep(20000);
    mesh_wake(argument);
    return NULL;
}

static void sleep_and_be_woken(struct member *member)
{
    pthread_t waker;
    mesh_poll(member->mesh); /* new sockets tell that they can be written */
    int64_t start = clock_now();
    CHECK(mesh_arm(member->mesh), "news in a quiet mesh");
    mesh_sleep(member->mesh, clock_after(0.03));
    CHECK(clock_now() - start >= CLOCK_SECOND / 50, "the sleep ended by itself");
    CHECK(pthread_create(&waker, NULL, wake_later, member->mesh) == 0, "no thread");
    mesh_sleep(member->mesh, CLOCK_NEVER);
    mesh_disarm(member->mesh);
    pthread_join(waker, NULL);
    mesh_wake(member->mesh); /* counts for the next sleep */
    mesh_sleep(member->mesh, CLOCK_NEVER);
}

static void sleep_together(struct member *member)
{
    pthread_barrier_wait(&barrier);
    sleep_and_be_woken(member);
    pthread_barrier_wait(&barrier);
}

TEST(test_sleep_ends_by_deadline_or_wake)
{
    run_each(2, (struct group_options){.fn = sleep_together});
}

/* ---- losses ------------------------------------------------------------------------------------------- */

static void await_loss(struct mesh *mesh, int rank, const char *word)
{
    hvd_status status;
    int lost;
    int64_t deadline = clock_after(DEADLINE);
    while ((lost = mesh_next_lost(mesh, &status)) < 0 && clock_now() < deadline) {
        if (mesh_arm(mesh))
            mesh_sleep(mesh, clock_earlier(deadline, mesh_deadline(mesh)));
        mesh_disarm(mesh);
        mesh_poll(mesh);
    }
    CHECK(lost == rank, "lost %d, not %d", lost, rank);
    CHECK(status.code == HVD_PEER_LOST && strstr(status.text, word), "%s", status.text);
    CHECK(clock_now() < deadline, "only the deadline ended the sleep");
    CHECK(mesh_next_lost(mesh, &status) == -1, "reported twice");
}

static void lose_rank_1(struct member *member)
{
    char byte = 'x';
    struct iovec part = {&byte, 1};
    char word[64];
    struct link *link = mesh_link(member->mesh, member->rank == 1 ? 0 : 1, 0);
    snprintf(word, sizeof word, "lost rank 1 (pid %d, host ", (int)getpid());
    if (member->rank == 1) {
        CHECK(link_send(link, &part, 1) == 1, "can't send");
        return;
    }
    await_loss(member->mesh, 1, word);
    if (member->rank == 0) { /* its last words are still there */
        byte = 0;
        CHECK(link_receive(link, &part, 1) == 1 && byte == 'x', "the last words are gone");
        CHECK(link_receive(link, &part, 1) == -1, "the link is not broken");
    }
    CHECK(link_send(link, &part, 1) == -1, "bytes go to a lost rank");
}

static void lose_rank_1_together(struct member *member)
{
    lose_rank_1(member);
    if (member->rank != 1)
        pthread_barrier_wait(&barrier);
}

TEST(test_closed_peer_is_reported)
{
    run_each(3, (struct group_options){.fn = lose_rank_1_together});
}

static void kill_rank_1(struct member *member)
{
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct link *link = mesh_link(member->mesh, 1 - member->rank, 0);
    if (member->rank == 1) {
        CHECK(link_send(link, &part, 1) == 1, "can't send");
        raise(SIGKILL);
    }
    await_loss(member->mesh, 1, "it was probably killed or crashed");
    byte = 0;
    CHECK(link_receive(link, &part, 1) == 1 && byte == 'x', "the last words are gone");
}

TEST(test_killed_process_is_reported)
{
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        struct group_options options = {.transport = transports[i], .fn = kill_rank_1};
        run_processes(2, &options, 1);
    }
}

static void leave_politely(struct member *member)
{
    hvd_status status;
    struct link *link = mesh_link(member->mesh, 1 - member->rank, 0);
    char byte = 0;
    struct iovec part = {&byte, 1};
    if (member->rank == 1)
        return;
    mesh_expect_end(member->mesh, 1);
    int64_t deadline = clock_after(DEADLINE);
    while (link_receive(link, &part, 1) != -1 && clock_now() < deadline)
        mesh_poll(member->mesh);
    CHECK(clock_now() < deadline, "the end was not noticed");
    CHECK(mesh_next_lost(member->mesh, &status) == -1, "an expected end is no loss: %s", status.text);
}

TEST(test_expected_end_is_no_loss)
{
    run_each(2, (struct group_options){.fn = leave_politely});
}

/* A child of fork() that has abandoned the mesh must not keep the connections open. */
static void fork_and_leave(struct member *member)
{
    int hold[2];
    char word[32] = "lost rank 1";
    if (member->rank == 0) {
        await_loss(member->mesh, 1, word);
        pthread_barrier_wait(&barrier);
        return;
    }
    CHECK(pipe(hold) == 0, "no pipe");
    pid_t child = fork();
    CHECK(child >= 0, "no fork");
    if (child == 0) {
        char byte;
        int before = count_entries("/proc/self/fd");
        mesh_abandon(member->mesh);
        int own = strcmp(member->settings.transport, "shm") ? CHANNELS : 1; /* links, or the doorbell */
        CHECK(before - count_entries("/proc/self/fd") == own + 5,
              "the child keeps descriptors of its parent");
        close(hold[1]);
        ssize_t n = read(hold[0], &byte, 1); /* until the parent is done */
        _exit(n == 0 ? 0 : 1);
    }
    close(hold[0]);
    mesh_close(member->mesh);
    member->mesh = NULL;
    pthread_barrier_wait(&barrier);
    close(hold[1]);
    int outcome;
    CHECK(waitpid(child, &outcome, 0) == child && outcome == 0, "the child failed");
}

static void open_and_fork(struct member *member)
{
    CHECK(open_mesh(&member->settings, DEADLINE, &member->mesh, &member->status) == HVD_OK, "%s",
          member->status.text);
    pthread_barrier_wait(&barrier);
    fork_and_leave(member);
    mesh_close(member->mesh);
}

TEST(test_forked_child_keeps_nothing_open)
{
    run_each(2, (struct group_options){.fn = open_and_fork, .opens_by_itself = true});
}

/* ---- links on first use -------------------------------------------------------------------------------- */

static struct link *await_link(struct mesh *mesh, int rank)
{
    int64_t deadline = clock_after(DEADLINE);
    struct link *link;
    while (!(link = mesh_link(mesh, rank, 0)) && clock_now() < deadline) {
        if (mesh_arm(mesh))
            mesh_sleep(mesh, clock_earlier(deadline, mesh_deadline(mesh)));
        mesh_disarm(mesh);
        mesh_poll(mesh);
    }
    CHECK(link, "no link to rank %d", rank);
    return link;
}

static hvd_code open_line(struct member *member)
{
    int neighbours[2], count = 0;
    if (member->rank > 0)
        neighbours[count++] = member->rank - 1;
    if (member->rank < member->size - 1)
        neighbours[count++] = member->rank + 1;
    return open_mesh_to(&member->settings, neighbours, count, DEADLINE, &member->mesh, &member->status);
}

static pthread_barrier_t all; /* ranks of the group */

/* Each rank has its neighbours only; then all pairs, which both ends ask for in an order of their own. */
static void open_as_needed(struct member *member)
{
    CHECK(open_line(member) == HVD_OK, "%s", member->status.text);
    for (int peer = 0, next = -1; peer < member->size; peer++) {
        bool beside = peer == member->rank - 1 || peer == member->rank + 1;
        CHECK(strcmp(mesh_transport_name(member->mesh, peer), "none") == 0 || beside, "%d is linked", peer);
        if (beside)
            next = mesh_next_peer(member->mesh, next);
        CHECK(!beside || next == peer, "%d, not %d, is linked", next, peer);
    }
    pthread_barrier_wait(&all);
    for (int distance = 1; distance < member->size; distance++)
        await_link(member->mesh, (member->rank + distance) % member->size);
    exchange_with_all(member);
    CHECK(mesh_deadline(member->mesh) == CLOCK_NEVER, "something is still under way");
    pthread_barrier_wait(&all);
    mesh_close(member->mesh);
}

TEST(test_links_open_on_first_use)
{
    static const char *const over[] = {"shm", "tcp", "faulty-shm", "faulty-tcp"};
    for (int i = 0; i < 4; i++) {
        pthread_barrier_init(&all, NULL, 5);
        run_group(5, &(struct group_options){.transport = over[i],
                                             .settings = {"shm_ring_bytes", "16384"},
                                             .fn = open_as_needed,
                                             .opens_by_itself = true});
        pthread_barrier_destroy(&all);
    }
}

/* Rank 0 is gone, or stopped, when rank 2 needs it: rank 2 is not one of those who see its connection end. */
static void need_what_is_gone(struct member *member)
{
    const char *how = member->argument;
    char word[64];
    CHECK(open_line(member) == HVD_OK, "%s", member->status.text);
    pthread_barrier_wait(&all);
    if (member->rank == 0 && strcmp(how, "gone") == 0) {
        mesh_close(member->mesh);
        member->mesh = NULL;
    }
    pthread_barrier_wait(&all);
    if (member->rank == 2) {
        int64_t start = clock_now();
        snprintf(word, sizeof word, "rank 0 (pid %d, host ", (int)getpid());
        CHECK(!mesh_link(member->mesh, 0, 0), "a link to rank 0");
        await_loss(member->mesh, 0, word);
        CHECK(clock_now() - start >= CLOCK_SECOND / 5, "it was not tried for long");
        CHECK(!mesh_link(member->mesh, 0, 0) && mesh_deadline(member->mesh) == CLOCK_NEVER,
              "it is tried again");
    }
    pthread_barrier_wait(&all);
    mesh_close(member->mesh);
}

TEST(test_peer_that_ends_before_its_link_is_there_is_lost)
{
    static const char *const over[] = {"shm", "tcp", "auto", "faulty-shm", "faulty-tcp"};
    for (int i = 0; i < 2 * 5; i++) {
        pthread_barrier_init(&all, NULL, 3);
        run_group(3, &(struct group_options){.transport = over[i / 2],
                                             .settings = {"start_timeout_seconds", "0.3"},
                                             .fn = need_what_is_gone,
                                             .argument = i % 2 ? "gone" : "stopped",
                                             .opens_by_itself = true});
        pthread_barrier_destroy(&all);
    }
}

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
    if (member->rank > 1)
        return;
    hvd_code code = open_mesh(&member->settings, 0.3, &member->mesh, &member->status);
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

/* ---- strangers ---------------------------------------------------------------------------------------- */

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
        CHECK(fd >= 0 && socket_wait(fd, POLLOUT, clock_after(5)), "can't connect");
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

static void open_among_strangers(struct member *member)
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
TEST(test_strangers_do_no_harm)
{
    run_each(
        2, (struct group_options){.transport = "auto", .fn = open_among_strangers, .opens_by_itself = true});
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
    for (int i = REFUSED; i <= SILENT_PORT; i++)
        CHECK((wrong->fds[i] = socket_listen("127.0.0.1", &wrong->ports[i])) >= 0, "can't listen");
    socket_close(&wrong->fds[REFUSED]);
    CHECK(hvd_rendezvous_start("127.0.0.1", SECRET, &wrong->foreign, &status) == HVD_OK, "%s", status.text);
    wrong->ports[FOREIGN] = hvd_rendezvous_port(wrong->foreign);
}

static void close_wrong_addresses(struct wrong_addresses *wrong)
{
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
        hvd_code code = open_mesh(&member->settings, 1, &member->mesh, &member->status);
        CHECK(code == two->code, "%d %s", code, member->status.text);
        for (int i = 0; two->words[i]; i++)
            CHECK(strstr(member->status.text, two->words[i]), "'%s' is not in '%s'", two->words[i],
                  member->status.text);
        pthread_barrier_wait(&barrier);
        mesh_close(member->mesh);
        return;
    }
    snprintf(addresses, sizeof addresses, "127.0.0.1 port %d\n127.0.0.1 port %d", ports[FOREIGN],
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
