/* test_epoch.c - processes that continue as other ranks: surviving and new processes form the next epoch, by
 * their slots; a late one is refused, and an old epoch leaves nothing at the rendezvous. */
#include "group.h"

#include "base/clock.h"
#include "base/types.h"
#include "rendezvous/server.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECONDS 120.0 /* of one wait */

enum { SLOTS = 4 };
static const char *const slots[SLOTS] = {"a", "b", "c", "d"};

/* The rank of each slot in an epoch; -1: it is not in it. */
struct layout {
    int ranks[SLOTS];
};

static int size_of(const struct layout *layout)
{
    int size = 0;
    for (int slot = 0; slot < SLOTS; slot++)
        size += layout->ranks[slot] >= 0;
    return size;
}

static void publish(hvd_rendezvous *rendezvous, int epoch, const struct layout *layout)
{
    hvd_assignment places[SLOTS];
    for (int slot = 0; slot < SLOTS; slot++)
        places[slot] = (hvd_assignment){slots[slot], layout->ranks[slot], slot % 2 ? "odd" : "even"};
    CHECK_OK(hvd_rendezvous_assign(rendezvous, "epochs", epoch, places, SLOTS, &check_status));
}

static hvd_code enter(const char *address, int slot, int epoch, hvd_context **context, hvd_status *status)
{
    char number[16];
    snprintf(number, sizeof number, "%d", epoch);
    const char *const settings[] = {"rendezvous",
                                    address,
                                    "secret",
                                    "test secret",
                                    "job",
                                    "epochs",
                                    "slot",
                                    slots[slot],
                                    "epoch",
                                    number,
                                    "rank",
                                    "7",
                                    "size",
                                    "9",
                                    "start_timeout_seconds",
                                    "3600",
                                    "stall_warning_seconds",
                                    "0",
                                    NULL};
    hvd_config *config = hvd_config_create();
    CHECK(config, "out of memory");
    for (const char *const *setting = settings; *setting; setting += 2)
        CHECK_OK(hvd_config_set(config, setting[0], setting[1], &check_status));
    hvd_code code = hvd_init(config, context, status);
    hvd_config_free(config);
    return code;
}

static void wait_for_entries(const hvd_rendezvous *rendezvous, size_t expected)
{
    for (int64_t end = clock_after(SECONDS); rendezvous_entries(rendezvous) != expected; usleep(1000))
        CHECK(clock_now() < end, "%zu entries at the rendezvous, not %zu", rendezvous_entries(rendezvous),
              expected);
}

/* ---- all operations ----------------------------------------------------------------------------------- */

/* Each rank gives `size` rows that hold its number. */
static void check_operation(hvd_context *context, int rank, int size, hvd_operation operation)
{
    int32_t rows[SLOTS];
    int64_t shape[] = {size};
    hvd_tensor tensor = tensor_of(rows, HVD_INT32, shape, 1), outputs[2];
    hvd_request request = request_of(operation, "op", &tensor);
    bool makes = operation_makes_results(operation);
    int sum = size * (size - 1) / 2;
    for (int i = 0; i < size; i++)
        rows[i] = rank;
    request.root = size - 1;
    if (operation == HVD_BARRIER || operation == HVD_JOIN)
        request.count = 0;
    CHECK_OK(hvd_run(context, &request, makes ? outputs : NULL, &check_status));
    const int32_t *result = makes ? outputs[0].data : rows;
    int64_t count = makes ? outputs[0].shape[0] : size;
    CHECK(!makes || count == (operation == HVD_ALLGATHER  ? size * size
                              : operation == HVD_ALLTOALL ? size
                                                          : 1),
          "%s: %d rows", hvd_operation_name(operation), (int)count);
    for (int i = 0; i < count && request.count; i++) {
        int expected = operation == HVD_BROADCAST   ? size - 1
                       : operation == HVD_ALLGATHER ? i / size
                       : operation == HVD_ALLTOALL  ? i
                                                    : sum;
        CHECK(result[i] == expected, "%s: row %d of rank %d is %d, not %d", hvd_operation_name(operation), i,
              rank, result[i], expected);
    }
    for (int i = 0; makes && i < 1 + (operation == HVD_ALLTOALL); i++)
        hvd_free(outputs[i].data);
}

static void check_all_operations(hvd_context *context, int rank, int size)
{
    static const hvd_operation operations[] = {HVD_ALLREDUCE,     HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL,
                                               HVD_REDUCESCATTER, HVD_BARRIER,   HVD_JOIN};
    struct member member = {.context = context, .rank = rank, .size = size};
    int32_t all[] = {0, 1, 2, 3}, set;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        check_operation(context, rank, size, operations[i]);
    CHECK_OK(hvd_process_set_add(context, all, size, &set, &check_status));
    CHECK_OK(hvd_process_set_remove(context, set, &check_status));
    check_allreduce_works(&member, "after all");
}

static void check_place(hvd_context *context, const struct layout *layout, int slot)
{
    hvd_placement place = hvd_get_placement(context);
    int local_size = 0;
    for (int other = slot % 2; other < SLOTS; other += 2)
        local_size += layout->ranks[other] >= 0;
    CHECK(place.rank == layout->ranks[slot] && place.size == size_of(layout) &&
              place.local_size == local_size,
          "slot %s is rank %d of %d, %d on its host", slots[slot], place.rank, place.size, place.local_size);
}

/* ---- processes ---------------------------------------------------------------------------------------- */

/* Leaves at once; on the next byte; after a peer is lost; is refused. */
enum fate { LEAVES, STAYS, LOSES, LATE };

struct command {
    enum fate fate;
    int epoch;
    struct layout layout;
    char address[32];
};

struct process {
    pid_t pid;
    int commands, replies; /* pipes */
};

/* In the child. */
static void obey(int slot, int commands, int replies)
{
    struct command command;
    while (read(commands, &command, sizeof command) == sizeof command) {
        hvd_status status;
        hvd_context *context;
        hvd_code code = enter(command.address, slot, command.epoch, &context, &status);
        if (command.fate == LATE) {
            CHECK(code == HVD_REFUSED &&
                      strstr(status.text, "is in epoch 0 of the job, but epoch 2 has begun"),
                  "%s: %s", hvd_code_name(code), status.text);
            CHECK(write(replies, "", 1) == 1, "no pipe");
            continue;
        }
        CHECK(!code, "slot %s in epoch %d: %s", slots[slot], command.epoch, status.text);
        check_place(context, &command.layout, slot);
        check_all_operations(context, command.layout.ranks[slot], size_of(&command.layout));
        CHECK(write(replies, "", 1) == 1, "no pipe");
        char byte;
        if (command.fate == STAYS)
            CHECK(read(commands, &byte, 1) == 1, "no pipe");
        if (command.fate == LOSES) {
            hvd_request request = request_of(HVD_BARRIER, "never", NULL);
            code = hvd_run(context, &request, NULL, &status);
            CHECK(code == HVD_PEER_LOST && strstr(status.text, "rank 1"), "%s: %s", hvd_code_name(code),
                  status.text);
        }
        hvd_shutdown(context);
        CHECK(write(replies, "", 1) == 1, "no pipe");
    }
    _exit(0);
}

static void start(struct process *process, int slot)
{
    int commands[2], replies[2];
    CHECK(pipe(commands) == 0 && pipe(replies) == 0, "no pipe");
    process->pid = fork();
    CHECK(process->pid >= 0, "no process");
    if (process->pid == 0) {
        close(commands[1]);
        close(replies[0]);
        obey(slot, commands[0], replies[1]);
    }
    close(commands[0]);
    close(replies[1]);
    process->commands = commands[1];
    process->replies = replies[0];
}

static void wait_for(const struct process *process, const char *what)
{
    char byte;
    struct pollfd poller = {process->replies, POLLIN, 0};
    CHECK(poll(&poller, 1, (int)(SECONDS * 1000)) == 1, "process %d: %s takes too long", (int)process->pid,
          what);
    CHECK(read(process->replies, &byte, 1) == 1, "process %d has ended before: %s", (int)process->pid, what);
}

static void command(struct process *processes, const struct command *given, const enum fate *fates)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        struct command own = *given;
        own.fate = fates[slot];
        if (given->layout.ranks[slot] >= 0)
            CHECK(write(processes[slot].commands, &own, sizeof own) == sizeof own, "no pipe");
    }
    for (int slot = 0; slot < SLOTS; slot++)
        if (given->layout.ranks[slot] >= 0)
            wait_for(&processes[slot], "all operations");
}

TEST(test_survivors_and_a_newcomer)
{
    enum { A, B, C, D };
    static const enum fate loses[] = {LOSES, STAYS, LOSES, LOSES},
                           leave[SLOTS] = {LEAVES, LEAVES, LEAVES, LEAVES},
                           stay[SLOTS] = {STAYS, STAYS, STAYS, STAYS}, late[SLOTS] = {LATE, LATE, LATE, LATE};
    struct process processes[SLOTS];
    hvd_rendezvous *rendezvous;
    struct command given = {.epoch = 0, .layout = {{0, 1, 2, -1}}};
    for (int slot = 0; slot < SLOTS; slot++) /* while this process has one thread */
        start(&processes[slot], slot);
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &rendezvous, &check_status));
    snprintf(given.address, sizeof given.address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));

    publish(rendezvous, 0, &given.layout);
    command(processes, &given, loses);
    kill(processes[B].pid, SIGKILL);
    wait_for(&processes[A], "shutdown after a lost peer");
    wait_for(&processes[C], "shutdown after a lost peer");
    wait_for_entries(rendezvous, SLOTS + 2); /* the table, and the fault records of A and C */

    given.epoch = 1;
    given.layout = (struct layout){{2, -1, 0, 1}};
    publish(rendezvous, 1, &given.layout);
    command(processes, &given, leave);
    wait_for(&processes[A], "shutdown");
    wait_for(&processes[C], "shutdown");
    wait_for(&processes[D], "shutdown");
    wait_for_entries(rendezvous, SLOTS);

    given.epoch = 2;
    given.layout = (struct layout){{-1, -1, -1, 0}};
    publish(rendezvous, 2, &given.layout);
    command(processes, &given, stay);
    wait_for_entries(rendezvous, SLOTS + 1); /* and the rank */
    given.epoch = 0;
    given.layout = (struct layout){{0, -1, -1, -1}};
    command(processes, &given, late);
    CHECK(write(processes[D].commands, "", 1) == 1, "no pipe");
    wait_for(&processes[D], "shutdown");
    wait_for_entries(rendezvous, SLOTS);

    for (int slot = 0; slot < SLOTS;
         slot++) /* all first: later processes hold the earlier ones' pipes, too */
        close(processes[slot].commands);
    for (int slot = 0; slot < SLOTS; slot++) {
        int outcome;
        CHECK(waitpid(processes[slot].pid, &outcome, 0) == processes[slot].pid, "no child");
        CHECK(slot == B ? WIFSIGNALED(outcome) : outcome == 0, "slot %s ended with %x", slots[slot], outcome);
        close(processes[slot].replies);
    }
    hvd_rendezvous_stop(rendezvous);
}

/* ---- random sequences, with threads -------------------------------------------------------------------- */

enum { EPOCHS = 30 };

struct script {
    struct layout layouts[EPOCHS];
    int numbers[EPOCHS]; /* of the epochs: some are left out */
    int leaver[EPOCHS];  /* the slot that leaves while the others wait for it; -1: none */
    char address[32];
    atomic_int ready; /* members that have done their work, of all epochs so far */
};

struct actor {
    struct script *script;
    int slot;
    pthread_t thread;
};

static void make_script(struct script *script, uint64_t *random)
{
    for (int epoch = 0, number = 0; epoch < EPOCHS; epoch++) {
        struct layout *layout = &script->layouts[epoch];
        int size = 0, order[SLOTS] = {0, 1, 2, 3};
        for (int i = SLOTS - 1; i > 0; i--) {
            int other = (int)random_below(random, i + 1), kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
        size = 1 + (int)random_below(random, SLOTS);
        for (int i = 0; i < SLOTS; i++)
            layout->ranks[order[i]] = i < size ? i : -1;
        script->leaver[epoch] = size > 1 && random_below(random, 2) ? order[random_below(random, size)] : -1;
        script->numbers[epoch] = number;
        number += 1 + (int)random_below(random, 3);
    }
}

/* Epoch by epoch, as a survivor, a newcomer, or one that is late. */
static void *act(void *argument)
{
    struct actor *actor = argument;
    struct script *script = actor->script;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        hvd_status status;
        hvd_context *context;
        const struct layout *layout = &script->layouts[epoch];
        int rank = layout->ranks[actor->slot], size = size_of(layout);
        if (rank < 0)
            continue;
        CHECK(enter(script->address, actor->slot, script->numbers[epoch], &context, &status) == HVD_OK,
              "slot %s in epoch %d: %s", slots[actor->slot], script->numbers[epoch], status.text);
        check_place(context, layout, actor->slot);
        check_all_operations(context, rank, size);
        atomic_fetch_add(&script->ready, 1);
        if (script->leaver[epoch] >= 0 && script->leaver[epoch] != actor->slot) {
            hvd_request request = request_of(HVD_BARRIER, "never", NULL);
            hvd_code code = hvd_run(context, &request, NULL, &status);
            CHECK(code == HVD_SHUT_DOWN, "%s: %s", hvd_code_name(code), status.text);
        }
        hvd_shutdown(context);
    }
    return NULL;
}

static void check_late(const struct script *script, int epoch, int slot)
{
    char words[128];
    hvd_status status;
    hvd_context *context;
    snprintf(words, sizeof words, "in epoch %d of the job, but epoch %d has begun",
             script->numbers[epoch - 1], script->numbers[epoch]);
    hvd_code code = enter(script->address, slot, script->numbers[epoch - 1], &context, &status);
    CHECK(code == HVD_REFUSED && strstr(status.text, words), "%s: %s", hvd_code_name(code), status.text);
}

TEST(test_random_sequences)
{
    struct script script = {0};
    struct actor actors[SLOTS];
    hvd_rendezvous *rendezvous;
    uint64_t random = test_seed();
    int expected = 0;
    make_script(&script, &random);
    CHECK_OK(hvd_rendezvous_start("127.0.0.1", "test secret", &rendezvous, &check_status));
    snprintf(script.address, sizeof script.address, "127.0.0.1:%d", hvd_rendezvous_port(rendezvous));
    for (int slot = 0; slot < SLOTS; slot++) {
        actors[slot] = (struct actor){.script = &script, .slot = slot};
        CHECK(pthread_create(&actors[slot].thread, NULL, act, &actors[slot]) == 0, "no thread");
    }
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        publish(rendezvous, script.numbers[epoch], &script.layouts[epoch]);
        if (epoch)
            check_late(&script, epoch, (int)random_below(&random, SLOTS));
        expected += size_of(&script.layouts[epoch]);
        for (int64_t end = clock_after(SECONDS); atomic_load(&script.ready) < expected; usleep(1000))
            CHECK(clock_now() < end, "%d of %d have done epoch %d", atomic_load(&script.ready), expected,
                  script.numbers[epoch]);
    }
    for (int slot = 0; slot < SLOTS; slot++)
        pthread_join(actors[slot].thread, NULL);
    wait_for_entries(rendezvous, SLOTS);
    hvd_rendezvous_stop(rendezvous);
}

/* ---- an epoch that is over before its ranks know ------------------------------------------------------ */

static void begin_next(const struct member *member)
{
    struct rendezvous_client *client;
    CHECK_OK(rendezvous_connect(member->address, "test secret", false, clock_after(SECONDS), NULL, &client,
                                &check_status));
    CHECK_OK(rendezvous_enter(client, &(struct rendezvous_place){"group", 1, -1, 0}, NULL, &check_status));
    CHECK_OK(rendezvous_put(client, "key", "", 0, &check_status));
    rendezvous_close(client);
}

/* What needs no rendezvous goes on. */
static void run_into_the_next(struct member *member)
{
    static const char *const settings[] = {"epoch", "1", NULL};
    hvd_status status;
    int32_t ranks[] = {0, 1}, set;
    if (member->rank == 0)
        begin_next(member);
    check_allreduce_works(member, "has begun");
    hvd_code code = hvd_process_set_add(member->context, ranks, 2, &set, &status);
    CHECK(code && strstr(status.text, "in epoch 0 of the job, but epoch 1 has begun"), "%s: %s",
          hvd_code_name(code), status.text);
    check_allreduce_works(member, "goes on");
    hvd_shutdown(member->context);
    member->settings = settings;
    member->context = join_job(member, "group", member->size - 1 - member->rank, member->size);
    CHECK_OK(hvd_process_set_add(member->context, ranks, 2, &set, &check_status));
}

GROUP_TEST(test_begun_meanwhile, run_into_the_next, 2, 2, EVERY_TRANSPORT)
