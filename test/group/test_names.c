/* test_names.c - what a name means: ranks whose operations of one name differ get an error at once, several
 * operations of one name run one after the other, and the names of users, bindings and the engine never
 * collide. */
#include "group.h"

#include <stdio.h>
#include <string.h>

enum { TENSORS = 3, ROWS = 12 };

/* A request under a name: `count` tensors, of so many rows each. */
struct form {
    hvd_operation operation;
    int32_t count, grouped, generated;
    int64_t rows[TENSORS];
};

struct running {
    float data[TENSORS][ROWS], output[TENSORS][ROWS];
    hvd_tensor tensors[TENSORS], outputs[TENSORS];
    hvd_handle *handle;
};

static hvd_code start(struct member *member, const struct form *form, const char *name,
                      struct running *running, hvd_status *status)
{
    for (int i = 0; i < form->count; i++) {
        for (int row = 0; row < ROWS; row++)
            running->data[i][row] = (float)(member->rank + 1);
        running->tensors[i] = tensor_of(running->data[i], HVD_FLOAT32, &form->rows[i], 1);
        running->outputs[i] = tensor_of(running->output[i], HVD_FLOAT32, &form->rows[i], 1);
    }
    hvd_request request = request_of(form->operation, name, running->tensors);
    request.count = form->count;
    request.inputs = form->count ? running->tensors : NULL;
    request.grouped = form->grouped;
    request.generated = form->generated;
    if (form->operation == HVD_ALLREDUCE || form->operation == HVD_BROADCAST)
        request.outputs = running->outputs;
    return hvd_submit(member->context, &request, &running->handle, status);
}

static const struct form single = {HVD_ALLREDUCE, 1, .rows = {ROWS}};
static const struct form group = {HVD_ALLREDUCE, 1, .grouped = 1, .rows = {ROWS}};
static const struct form gather = {HVD_ALLGATHER, 1, .rows = {ROWS}};
static const struct form cast = {HVD_BROADCAST, 1, .rows = {ROWS}};
static const struct form barrier = {.operation = HVD_BARRIER};

/* Rank 0 makes one request under the name, the others make the other one. */
static void differ(struct member *member)
{
    static const struct form pair = {HVD_ALLREDUCE, 2, .grouped = 1, .rows = {2, 3}};
    static const struct form turned = {HVD_ALLREDUCE, 2, .grouped = 1, .rows = {3, 2}};
    static const struct form three = {HVD_ALLREDUCE, 3, .grouped = 1, .rows = {2, 3, 4}};
    static const struct form gathers = {HVD_ALLGATHER, 2, .grouped = 1, .rows = {2, 3}};
    static const struct form scatter = {HVD_REDUCESCATTER, 1, .rows = {ROWS}};
    static const struct form exchange = {HVD_ALLTOALL, 1, .rows = {ROWS}};
    const struct {
        const struct form *first, *second;
        const char *name, *text;
    } cases[] = {{&single, &group, "a", "\"a\": the ranks disagree on grouping: rank 0 has a single tensor"},
                 {&group, &single, "a", "grouping: rank 0 has a group"},
                 {&single, &gather, "a", "the operation: rank 0 has allreduce, rank"},
                 {&cast, &single, "a", "the operation: rank 0 has broadcast"},
                 {&scatter, &exchange, "a", "the operation: rank 0 has reducescatter"},
                 {&barrier, &single, "a", "the operation: rank 0 has barrier"},
                 {&single, &gathers, "a", "the operation: rank 0 has allreduce"},
                 {&pair, &three, "a", "the number of tensors: rank 0 has 2"},
                 {&pair, &turned, "a", "the shape of tensor 0: rank 0 has [2]"},
                 {&single, &group, NULL, "grouping: rank 0 has a single tensor"},
                 {&gather, &single, NULL, "the operation: rank 0 has allgather"},
                 {&single, &group, "", "\"\": the ranks disagree on grouping"}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const struct form *form = member->rank ? cases[i / 2].second : cases[i / 2].first;
        struct running running;
        hvd_status status;
        CHECK_OK(start(member, form, cases[i / 2].name, &running, &check_status));
        hvd_code code = hvd_wait(running.handle, 60, &status);
        CHECK(code == HVD_MISMATCH && strstr(status.text, cases[i / 2].text), "case %zu: %s: %s", i / 2,
              hvd_code_name(code), status.text);
        hvd_release(running.handle);
        check_allreduce_works(member, i % 2 ? "a" : "other");
    }
}

static void check_result(struct member *member, const struct form *form, const struct running *running)
{
    float expected = form->operation == HVD_ALLREDUCE ? (float)sum_of(member) : 1;
    hvd_tensor joined;
    if (form->operation == HVD_ALLGATHER)
        CHECK_OK(hvd_output(running->handle, 0, &joined, &check_status));
    else if (form->operation != HVD_BARRIER)
        CHECK(running->output[0][ROWS - 1] == expected, "%s: %g, not %g", hvd_operation_name(form->operation),
              running->output[0][ROWS - 1], expected);
}

/* All in flight at once on rank 0, before the others submit any; several times, as they are cached then. */
static void one_after_the_other(struct member *member)
{
    static const struct form *const forms[] = {&single, &group, &gather, &barrier, &cast};
    enum { FORMS = sizeof forms / sizeof *forms };
    for (int round = 0; round < 4; round++) {
        struct running running[FORMS];
        hvd_status status;
        for (int i = 0; i < FORMS && !member->rank; i++)
            CHECK_OK(start(member, forms[i], "a", &running[i], &check_status));
        if (!member->rank && member->size > 1) { /* alone it may be done by now */
            struct running again;
            CHECK(start(member, forms[2], "a", &again, &status) == HVD_DUPLICATE_NAME, "%s", status.text);
        }
        check_allreduce_works(member, "go");
        for (int i = 0; i < FORMS && member->rank; i++)
            CHECK_OK(start(member, forms[i], "a", &running[i], &check_status));
        for (int i = 0; i < FORMS; i++) {
            CHECK_OK(hvd_wait(running[i].handle, 60, &check_status));
            check_result(member, forms[i], &running[i]);
            hvd_release(running[i].handle);
        }
    }
}

/* What waits for its name keeps its place among those that use its memory. */
static void memory_keeps_its_order(struct member *member)
{
    for (int round = 0; round < 20; round++) {
        float first = 1, second = (float)(member->rank + 1);
        hvd_tensor tensors[] = {tensor_of(&first, HVD_FLOAT32, (int64_t[]){1}, 1),
                                tensor_of(&second, HVD_FLOAT32, (int64_t[]){1}, 1)};
        hvd_request sum = request_of(HVD_ALLREDUCE, "a", &tensors[0]);
        hvd_request given = request_of(HVD_BROADCAST, "a", &tensors[1]);
        hvd_handle *handles[3];
        CHECK_OK(hvd_submit(member->context, &sum, &handles[0], &check_status));
        CHECK_OK(hvd_submit(member->context, &given, &handles[1], &check_status));
        handles[2] = submit_sum(member, "b", &second, 1, 0);
        for (int i = 0; i < 3; i++)
            finish(handles[i]);
        CHECK(second == (float)member->size, "round %d: %g, not %d", round, second, member->size);
    }
}

/* Two operations under one name in another order on rank 0: no rank waits forever. */
static void other_order(struct member *member)
{
    struct running running[2];
    hvd_status status;
    for (int i = 0; i < 2; i++)
        CHECK_OK(start(member, (i == 0) == (member->rank == 0) ? &single : &gather, "a", &running[i],
                       &check_status));
    for (int i = 0; i < 2; i++) {
        hvd_code code = hvd_wait(running[i].handle, 60, &status);
        CHECK(code == HVD_MISMATCH, "%s: %s", hvd_code_name(code), status.text);
        hvd_release(running[i].handle);
    }
    check_allreduce_works(member, "a");
}

static hvd_handle *start_value(struct member *member, const char *name, int generated, float *value)
{
    hvd_tensor tensor = tensor_of(value, HVD_FLOAT32, (int64_t[]){1}, 1);
    hvd_request request = request_of(HVD_ALLREDUCE, name, &tensor);
    hvd_handle *handle;
    request.generated = generated;
    CHECK_OK(hvd_submit(member->context, &request, &handle, &check_status));
    return handle;
}

/* Of a name that a user chose, the engine's next one and a binding's, in another order on every rank; all are
 * shown alike. */
static void spaces(struct member *member)
{
    hvd_status status;
    struct running running;
    const struct form counted = {HVD_ALLREDUCE, 1, .generated = 1, .rows = {1}};
    CHECK(start(member, &counted, "noname.1", &running, &status) == HVD_INVALID_ARGUMENT, "it is taken");
    CHECK(start(member, &counted, NULL, &running, &status) == HVD_INVALID_ARGUMENT, "it has none");
    for (int round = 0; round < 6; round++) {
        char name[32];
        float values[3] = {1, 10, 100};
        hvd_handle *handles[3];
        snprintf(name, sizeof name, "noname.%d", round);
        for (int i = 0; i < 3; i++) {
            int which = (i + member->rank) % 3;
            const char *given = which == 0 ? name : which == 1 ? NULL : "noname.x";
            handles[which] = start_value(member, given, which == 2, &values[which]);
        }
        hvd_handle *chosen = start_value(member, "noname.y", 0, &(float){0});
        for (int i = 0; i < 3; i++)
            finish(handles[i]);
        finish(chosen);
        for (int i = 0, one = 1; i < 3; i++, one *= 10)
            CHECK(values[i] == (float)(one * member->size), "round %d, %d: %g", round, i, values[i]);
    }
}

GROUP_TEST(test_differ, differ, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_differ_on_several_hosts, differ, 4, 4, .hosts = (const char *const[]){"a", "a", "b", "b"},
           .transport = "auto")
GROUP_TEST(test_one_after_the_other, one_after_the_other, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_memory_keeps_its_order, memory_keeps_its_order, 1, 4, EVERY_TRANSPORT)
GROUP_TEST(test_other_order, other_order, 2, 4, EVERY_TRANSPORT)
GROUP_TEST(test_spaces, spaces, 1, 4, EVERY_TRANSPORT)
