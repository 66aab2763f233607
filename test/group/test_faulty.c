/* test_faulty.c - a link is lost between two calls or within a message (faulty.h): on every rank that is an
 * error that names a rank, soon and in each phase of an operation, and no rank hangs. That links which split
 * and delay change no result is in the tests of the operations. */
#include "faulty.h"
#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 50000 };

static void run_until_it_fails(struct member *member)
{
    float *data = calloc(COUNT, sizeof *data);
    hvd_code code = HVD_OK;
    hvd_status status = {0};
    CHECK(data, "out of memory");
    for (int i = 0; i < 1000 && !code; i++) {
        char name[16];
        int64_t shape[] = {i % 3 ? COUNT : 1};
        snprintf(name, sizeof name, "%d", i);
        hvd_tensor tensor = tensor_of(data, HVD_FLOAT32, shape, 1);
        hvd_request request = request_of(i % 2 ? HVD_ALLREDUCE : HVD_BROADCAST, name, &tensor);
        code = hvd_run(member->context, &request, NULL, &status);
    }
    CHECK(code == HVD_PEER_LOST, "%s: %s", hvd_code_name(code), status.text);
    CHECK(strstr(status.text, "lost rank"), "'%s' names no rank", status.text);
    free(data);
}

static void lose(const char *transport, int channel)
{
    static const long after[] = {700, 5003, 300000};
    for (int size = 2; size <= 4; size++)
        for (int i = 0; i < (channel ? 3 : 2); i++) {
            faulty_lose_after(channel, after[i]);
            group_run(&(struct group_options){.transport = transport}, size, run_until_it_fails, NULL);
        }
}

TEST(test_lost_control_link_over_shm)
{
    lose("faulty-shm", 0);
}

TEST(test_lost_control_link_over_tcp)
{
    lose("faulty-tcp", 0);
}

TEST(test_lost_data_link_over_shm)
{
    lose("faulty-shm", 1);
}

TEST(test_lost_data_link_over_tcp)
{
    lose("faulty-tcp", 1);
}
