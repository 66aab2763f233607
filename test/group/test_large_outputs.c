/* test_large_outputs.c - large results in memory of the caller, some in place and some in pages that were
 * never accessed, for which large pages are requested. */
#include "base/platform_memory.h"
#include "values.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 8 << 20, ELEMENTS = BYTES / sizeof(float) };

/* As the kernel's list of this process's memory has it. */
static bool large_pages_wanted(const void *memory)
{
    char line[4096];
    bool inside = false, wanted = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    CHECK(maps, "no list of this process's memory");
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = (uintptr_t)memory >= from && (uintptr_t)memory < to;
        else if (inside && !strncmp(line, "VmFlags:", 8))
            wanted = strstr(line, " hg");
    }
    fclose(maps);
    return wanted;
}

static float *pages(void)
{
    float *memory = platform_pages_alloc(BYTES, (size_t)2 << 20);
    CHECK(memory, "no memory");
    return memory;
}

static void in_place_and_fresh(struct member *member)
{
    float *data[] = {pages(), pages(), pages()}; /* both inputs, the second one's output */
    int64_t shape[] = {ELEMENTS};
    hvd_tensor inputs[2], outputs[2];
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < ELEMENTS; i++)
            data[t][i] = (float)(i % 1000 + t + member->rank);
        inputs[t] = tensor_of(data[t], HVD_FLOAT32, shape, 1);
        outputs[t] = tensor_of(data[2 * t], HVD_FLOAT32, shape, 1);
    }
    hvd_request request = request_of(HVD_ALLREDUCE, "outputs", inputs);
    request.outputs = outputs;
    request.count = 2;
    request.grouped = 1;
    CHECK_OK(hvd_run(member->context, &request, NULL, &check_status));
    int others = member->size * (member->size - 1) / 2;
    for (int i = 0; i < ELEMENTS; i++) {
        float expected = (float)(member->size * (i % 1000) + others);
        CHECK(data[0][i] == expected && data[2][i] == expected + (float)member->size, "element %d", i);
        CHECK(data[1][i] == (float)(i % 1000 + 1 + member->rank), "input element %d", i);
    }
    bool asks = !access("/sys/kernel/mm/transparent_hugepage", F_OK);
    CHECK(large_pages_wanted(data[2]) == asks, "the output's pages");
    CHECK(!large_pages_wanted(data[0]), "the input's pages");
    for (int i = 0; i < 3; i++)
        platform_pages_free(data[i], BYTES);
}

GROUP_TEST(test_large_outputs, in_place_and_fresh, 1, 3, EVERY_TRANSPORT)
