/* mesh_group.c - starts the ranks of a mesh as threads or processes; each runs the function of the test and
 * ends within a deadline. */
#include "mesh_group.h"

#include "random.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const transports[] = {
#define TRANSPORT(name) #name,
#include "transport/transports.def"
#undef TRANSPORT
};
const size_t transport_names = sizeof transports / sizeof *transports;
const char *const faulty[] = {"faulty-shm", "faulty-tcp", NULL};

void set(struct settings *settings, const char *key, const char *value)
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

hvd_code meet(struct mesh_config *config, hvd_status *status)
{
    const struct settings *settings = config->settings;
    hvd_code code = rendezvous_connect(settings->rendezvous, settings->secret, settings->encryption,
                                       config->deadline, NULL, &config->rendezvous, status);
    if (!code)
        code = rendezvous_enter(
            config->rendezvous,
            &(struct rendezvous_place){settings->job, 0, (int)settings->rank, (int)settings->size},
            &config->generation, status);
    if (!code)
        rendezvous_scope(config->rendezvous, config->generation, 0);
    return code;
}

hvd_code open_mesh_to(const struct settings *settings, const int *neighbours, int neighbour_count,
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

hvd_code open_mesh(const struct settings *settings, double seconds, struct mesh **mesh, hvd_status *status)
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

void run_group(int size, const struct group_options *options)
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

pthread_barrier_t barrier;

void run_each(int size, struct group_options options)
{
    const char *only = options.transport;
    for (size_t i = 0; i < transport_names && !(only && i); i++) {
        options.transport = only ? only : transports[i];
        pthread_barrier_init(&barrier, NULL, 2);
        run_group(size, &options);
        pthread_barrier_destroy(&barrier);
    }
}

void run_processes(int size, const struct group_options *options, int killed)
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

void drive(struct member *member, bool (*turn)(struct member *member, void *state, bool *done), void *state)
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

/* Messages are pieces of one text: filled and compared as a whole, which sanitizers check at once. */
static uint8_t text[LARGEST + 256];
static pthread_once_t text_is_written = PTHREAD_ONCE_INIT;

static void write_text(void)
{
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)random_next(&random);
}

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

void exchange_with_all(struct member *member)
{
    struct flows *flows = calloc(1, sizeof *flows);
    pthread_once(&text_is_written, write_text);
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
