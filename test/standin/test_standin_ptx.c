/* test_standin_ptx.c - the interpreter of PTX: what each instruction computes, how threads meet, and what it
 * refuses. The texts are valid PTX, which ptxas assembles. */
#include "standin/gpu.h"

#include <math.h>
#include <stdio.h>

enum { WRONG_ADDRESS = 1, MISALIGNED, ENDLESS, APART, PINNED_ONLY, OTHER };

#define HEAD                                                                                                 \
    ".version 6.0\n"                                                                                         \
    ".target sm_60\n"                                                                                        \
    ".address_size 64\n"

__attribute__((constructor)) static void configure(void)
{
    setenv("STANDIN_DEVICES", "7", true);
    setenv("STANDIN_DELAY_US", "0", true);
}

static int use_first(void **state)
{
    (void)state;
    gpu_use(0);
    return 0;
}

const struct test_hooks test_hooks = {.before_each = use_first};

static CUfunction load(const char *text, const char *name, CUmodule *module)
{
    CUfunction function;
    MUST(cuModuleLoadData(module, text));
    MUST(cuModuleGetFunction(&function, *module, name));
    return function;
}

/* Runs a kernel `k` with one parameter, an address; returns how the launch ends. */
static CUresult run(const char *text, CUdeviceptr data, unsigned blocks, unsigned threads)
{
    CUmodule module;
    void *parameters[] = {&data};
    CUfunction function = load(text, "k", &module);
    MUST(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL));
    CUresult result = cuCtxSynchronize();
    if (!result)
        MUST(cuModuleUnload(module));
    return result;
}

/* ---- one instruction ---------------------------------------------------------------------------------- */

/* %a, %b and %c are registers of `in` bits, %d is one of `out` bits; predicates are %p and %q. */
union value {
    uint64_t bits;
    float single;
    double real;
};

struct row {
    const char *instructions;
    int in, out;
    union value given[3]; /* a, b, c */
    union value expected; /* d */
};

#define NAN32 0x7fffffffU

static const struct row rows[] = {
    /* integers */
    {"add.s32 %d, %a, %b;", 32, 32, {{0xffffffff}, {3}, {0}}, {2}},
    {"add.s64 %d, %a, -5;", 64, 64, {{3}, {0}, {0}}, {(uint64_t)-2}},
    {"sub.s16 %d, %a, %b;", 16, 16, {{3}, {5}, {0}}, {0xfffe}},
    {"mul.lo.s32 %d, %a, %b;", 32, 32, {{0x10001}, {0x10001}, {0}}, {0x20001}},
    {"mul.hi.u32 %d, %a, %b;", 32, 32, {{0xffffffff}, {0xffffffff}, {0}}, {0xfffffffe}},
    {"mul.hi.s32 %d, %a, %b;", 32, 32, {{0xffffffff}, {0xffffffff}, {0}}, {0}},
    {"mul.hi.u64 %d, %a, %b;", 64, 64, {{UINT64_MAX}, {16}, {0}}, {15}},
    {"mul.wide.s32 %d, %a, %b;", 32, 64, {{(uint32_t)-3}, {7}, {0}}, {(uint64_t)-21}},
    {"mul.wide.u32 %d, %a, %b;", 32, 64, {{0xffffffff}, {0xffffffff}, {0}}, {0xfffffffe00000001}},
    {"mad.lo.s32 %d, %a, %b, %c;", 32, 32, {{6}, {7}, {8}}, {50}},
    {"mul.wide.u16 %d, %a, %b;", 16, 32, {{0xffff}, {2}, {0}}, {0x1fffe}},
    {"div.s32 %d, %a, %b;", 32, 32, {{(uint32_t)-7}, {2}, {0}}, {(uint32_t)-3}},
    {"div.u32 %d, %a, %b;", 32, 32, {{(uint32_t)-7}, {2}, {0}}, {0x7ffffffc}},
    {"rem.s64 %d, %a, %b;", 64, 64, {{(uint64_t)-7}, {2}, {0}}, {(uint64_t)-1}},
    {"min.s32 %d, %a, %b;", 32, 32, {{(uint32_t)-7}, {2}, {0}}, {(uint32_t)-7}},
    {"min.u32 %d, %a, %b;", 32, 32, {{(uint32_t)-7}, {2}, {0}}, {2}},
    {"max.u64 %d, %a, %b;", 64, 64, {{(uint64_t)-7}, {2}, {0}}, {(uint64_t)-7}},
    {"neg.s32 %d, %a;", 32, 32, {{7}, {0}, {0}}, {(uint32_t)-7}},
    {"abs.s64 %d, %a;", 64, 64, {{(uint64_t)-7}, {0}, {0}}, {7}},
    {"and.b32 %d, %a, %b;", 32, 32, {{0xff00ff00}, {0x0ff00ff0}, {0}}, {0x0f000f00}},
    {"or.b64 %d, %a, %b;", 64, 64, {{0xf000000000000000}, {0xf}, {0}}, {0xf00000000000000f}},
    {"xor.b16 %d, %a, %b;", 16, 16, {{0xff}, {0x0ff0}, {0}}, {0x0f0f}},
    {"not.b32 %d, %a;", 32, 32, {{0xff}, {0}, {0}}, {0xffffff00}},
    {"shl.b32 %d, %a, 31;", 32, 32, {{3}, {0}, {0}}, {0x80000000}},
    {"shl.b32 %d, %a, 32;", 32, 32, {{3}, {0}, {0}}, {0}},
    {"shr.u32 %d, %a, 4;", 32, 32, {{0x80000000}, {0}, {0}}, {0x08000000}},
    {"shr.s32 %d, %a, 4;", 32, 32, {{0x80000000}, {0}, {0}}, {0xf8000000}},
    {"shr.s64 %d, %a, 100;", 64, 64, {{(uint64_t)-3}, {0}, {0}}, {UINT64_MAX}},
    /* moves and conversions */
    {"mov.b64 %d, {%a, %b};", 32, 64, {{1}, {2}, {0}}, {0x200000001}},
    {"mov.b64 {%e, %d}, %a;", 64, 32, {{0x500000003}, {0}, {0}}, {5}},
    {"mov.u32 %d, 0x12;", 32, 32, {{0}, {0}, {0}}, {18}},
    {"cvt.u64.u32 %d, %a;", 32, 64, {{0xffffffff}, {0}, {0}}, {0xffffffff}},
    {"cvt.s64.s32 %d, %a;", 32, 64, {{0xffffffff}, {0}, {0}}, {UINT64_MAX}},
    {"cvt.u32.u64 %d, %a;", 64, 32, {{0x100000002}, {0}, {0}}, {2}},
    {"cvt.s32.s8 %d, %a;", 32, 32, {{0x1f0}, {0}, {0}}, {0xfffffff0}},
    {"cvt.rn.f32.s32 %d, %a;", 32, 32, {{(uint32_t)-2}, {0}, {0}}, {.single = -2}},
    {"cvt.rn.f32.u64 %d, %a;", 64, 32, {{UINT64_MAX}, {0}, {0}}, {.single = 0x1p64F}},
    {"cvt.rn.f64.u64 %d, %a;", 64, 64, {{UINT64_MAX}, {0}, {0}}, {.real = 0x1p64}},
    {"cvt.f64.f32 %d, %a;", 32, 64, {{.single = 0.1F}, {0}, {0}}, {.real = (double)0.1F}},
    {"cvt.rn.f32.f64 %d, %a;", 64, 32, {{.real = 0.1}, {0}, {0}}, {.single = 0.1F}},
    {"cvt.rzi.s32.f32 %d, %a;", 32, 32, {{.single = -2.7F}, {0}, {0}}, {(uint32_t)-2}},
    {"cvt.rni.s32.f32 %d, %a;", 32, 32, {{.single = 2.5F}, {0}, {0}}, {2}},
    {"cvt.rmi.s32.f32 %d, %a;", 32, 32, {{.single = -2.5F}, {0}, {0}}, {(uint32_t)-3}},
    {"cvt.rpi.f32.f32 %d, %a;", 32, 32, {{.single = 2.1F}, {0}, {0}}, {.single = 3}},
    {"cvt.rzi.s32.f32 %d, %a;", 32, 32, {{.single = 3e9F}, {0}, {0}}, {INT32_MAX}},
    {"cvt.rzi.u32.f32 %d, %a;", 32, 32, {{.single = -1}, {0}, {0}}, {0}},
    {"cvt.rzi.s32.f32 %d, %a;", 32, 32, {{NAN32}, {0}, {0}}, {0}},
    {"cvt.rzi.s64.f64 %d, %a;", 64, 64, {{.real = -1e300}, {0}, {0}}, {UINT64_C(1) << 63}},
    {"cvt.f32.f16 %d, %a;", 16, 32, {{0x3555}, {0}, {0}}, {.single = 0x1.554p-2F}},
    {"cvt.f32.f16 %d, %a;", 16, 32, {{0x0001}, {0}, {0}}, {.single = 0x1p-24F}},
    {"cvt.rn.f16.f32 %d, %a;", 32, 16, {{.single = 1.0F / 3}, {0}, {0}}, {0x3555}},
    {"cvt.rn.f16.f32 %d, %a;", 32, 16, {{.single = 65520}, {0}, {0}}, {0x7c00}},
    {"cvt.rn.f16.f32 %d, %a;", 32, 16, {{NAN32}, {0}, {0}}, {0x7fff}},
    /* floats */
    {"add.f32 %d, %a, %b;", 32, 32, {{.single = 1}, {.single = 0x1p-24F}, {0}}, {.single = 1}},
    {"add.rn.f64 %d, %a, %b;", 64, 64, {{.real = 1}, {.real = 0x1p-24}, {0}}, {.real = 1 + 0x1p-24}},
    {"sub.f32 %d, %a, 0f3F800000;", 32, 32, {{.single = 3}, {0}, {0}}, {.single = 2}},
    {"mul.f64 %d, %a, 0d4000000000000000;", 64, 64, {{.real = 3}, {0}, {0}}, {.real = 6}},
    {"div.rn.f32 %d, %a, %b;", 32, 32, {{.single = 1}, {.single = 3}, {0}}, {.single = 1.0F / 3}},
    {"fma.rn.f32 %d, %a, %b, %c;",
     32,
     32,
     {{.single = 1 + 0x1p-12F}, {.single = 1 + 0x1p-12F}, {.single = -1}},
     {.single = 0x1p-11F + 0x1p-24F}},
    {"min.f32 %d, %a, %b;", 32, 32, {{NAN32}, {.single = 2}, {0}}, {.single = 2}},
    {"max.f64 %d, %a, %b;", 64, 64, {{.real = -0.0}, {.real = 0.0}, {0}}, {.real = 0.0}},
    {"neg.f32 %d, %a;", 32, 32, {{.single = 0}, {0}, {0}}, {.single = -0.0F}},
    {"abs.f64 %d, %a;", 64, 64, {{.real = -2}, {0}, {0}}, {.real = 2}},
    {"mul.f32 %d, %a, %b;", 32, 32, {{.single = INFINITY}, {.single = 0}, {0}}, {NAN32}},
    /* predicates */
    {"setp.lt.s32 %p, %a, %b; selp.b32 %d, 1, 2, %p;", 32, 32, {{(uint32_t)-1}, {1}, {0}}, {1}},
    {"setp.lt.u32 %p, %a, %b; selp.b32 %d, 1, 2, %p;", 32, 32, {{(uint32_t)-1}, {1}, {0}}, {2}},
    {"setp.ge.s64 %p, %a, 5; selp.b32 %d, 1, 2, %p;", 64, 32, {{5}, {0}, {0}}, {1}},
    {"setp.ne.b16 %p, %a, %b; selp.b32 %d, 1, 2, %p;", 16, 32, {{5}, {5}, {0}}, {2}},
    {"setp.lt.f32 %p, %a, %b; selp.b32 %d, 1, 2, %p;", 32, 32, {{NAN32}, {.single = 1}, {0}}, {2}},
    {"setp.ltu.f32 %p, %a, %b; selp.b32 %d, 1, 2, %p;", 32, 32, {{NAN32}, {.single = 1}, {0}}, {1}},
    {"setp.neu.f32 %p, %a, %b; selp.b32 %d, 1, 2, %p;", 32, 32, {{.single = 1}, {.single = 1}, {0}}, {2}},
    {"setp.nan.f64 %p, %a, %a; selp.b32 %d, 1, 2, %p;", 64, 32, {{.real = NAN}, {0}, {0}}, {1}},
    {"setp.num.f64 %p, %a, %a; selp.b32 %d, 1, 2, %p;", 64, 32, {{.real = 3}, {0}, {0}}, {1}},
    {"setp.gt.u32 %q, %a, 1; setp.eq.and.u32 %p, %a, %b, %q; selp.b32 %d, 1, 2, %p;",
     32,
     32,
     {{3}, {3}, {0}},
     {1}},
    {"setp.gt.u32 %q, %a, 1; setp.eq.or.u32 %p, %a, %b, !%q; selp.b32 %d, 1, 2, %p;",
     32,
     32,
     {{3}, {4}, {0}},
     {2}},
    {"setp.gt.u32 %p, %a, 1; not.pred %q, %p; @%q mov.u32 %d, 9; @!%q mov.u32 %d, 8;",
     32,
     32,
     {{3}, {0}, {0}},
     {8}},
};

static const char *format_row(const struct row *row)
{
    static char text[2048];
    snprintf(text, sizeof text,
             HEAD
             ".visible .entry k(.param .u64 data)\n{\n"
             "  .reg .pred %%p, %%q; .reg .b64 %%at; .reg .b%d %%a, %%b, %%c; .reg .b%d %%d; .reg .b32 %%e;\n"
             "  ld.param.u64 %%at, [data]; cvta.to.global.u64 %%at, %%at;\n"
             "  ld.global.b%d %%a, [%%at]; ld.global.b%d %%b, [%%at+8]; ld.global.b%d %%c, [%%at+16];\n"
             "  %s\n  st.global.b%d [%%at+24], %%d;\n  ret;\n}\n",
             row->in, row->out, row->in, row->in, row->in, row->instructions, row->out);
    return text;
}

TEST(test_what_instructions_compute)
{
    CUdeviceptr data = gpu_allocate(32);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        union value words[4] = {rows[i].given[0], rows[i].given[1], rows[i].given[2], {0}};
        gpu_put(data, words, sizeof words, NULL);
        assert_int_equal(run(format_row(&rows[i]), data, 1, 1), CUDA_OK);
        gpu_get(words, data, sizeof words, NULL);
        if (memcmp(&words[3], &rows[i].expected, (size_t)rows[i].out / 8) != 0)
            fail_msg("%s gives 0x%llx, not 0x%llx", rows[i].instructions, (unsigned long long)words[3].bits,
                     (unsigned long long)rows[i].expected.bits);
    }
    MUST(cuMemFree_v2(data));
}

/* ---- threads ------------------------------------------------------------------------------------------ */

#define BEGIN(declarations)                                                                                  \
    HEAD ".visible .entry k(.param .u64 data)\n{\n"                                                          \
         "  .reg .pred %p; .reg .b64 %at, %my; .reg .b32 %i, %n, %x, %y, %z, %s;\n" declarations             \
         "  ld.param.u64 %at, [data]; cvta.to.global.u64 %at, %at;\n"

/* data[i] = the sum of the numbers below i, for every thread of the grid. */
static const char sums[] =
    BEGIN("") "  mov.u32 %x, %ctaid.x; mov.u32 %y, %ntid.x; mov.u32 %z, %tid.x; mad.lo.s32 %i, %x, %y, %z;\n"
              "  mov.u32 %n, 0; mov.u32 %s, 0;\n"
              "LOOP:\n"
              "  setp.ge.u32 %p, %n, %i; @%p bra DONE;\n"
              "  add.u32 %s, %s, %n; add.u32 %n, %n, 1; bra.uni LOOP;\n"
              "DONE:\n"
              "  mul.wide.u32 %my, %i, 4; add.s64 %my, %at, %my; st.global.u32 [%my], %s;\n"
              "  ret;\n}\n";

TEST(test_branches_and_grids)
{
    enum { BLOCKS = 3, THREADS = 70 };
    uint32_t results[BLOCKS * THREADS];
    CUdeviceptr data = gpu_allocate(sizeof results);
    assert_int_equal(run(sums, data, BLOCKS, THREADS), CUDA_OK);
    gpu_get(results, data, sizeof results, NULL);
    for (uint32_t i = 0; i < BLOCKS * THREADS; i++)
        assert_int_equal(results[i], i * (i - 1) / 2 * (i > 0));
    MUST(cuMemFree_v2(data));
}

/* Threads of a block write their numbers, and read those of the others behind a barrier; all are added. */
static const char turned[] = BEGIN(
    "  .shared .align 4 .b8 numbers[512]; .reg .b32 %base;\n") "  mov.u32 %i, %tid.x; mov.u32 %base, "
                                                               "numbers; shl.b32 %x, %i, 2; add.u32 %x, "
                                                               "%base, %x;\n"
                                                               "  st.shared.u32 [%x], %i;\n"
                                                               "  bar.sync 0;\n"
                                                               "  mov.u32 %y, 127; sub.u32 %y, %y, %i; "
                                                               "shl.b32 %y, %y, 2; add.u32 %y, %base, %y;\n"
                                                               "  ld.shared.u32 %z, [%y];\n"
                                                               "  mul.wide.u32 %my, %i, 4; add.s64 %my, %at, "
                                                               "%my; st.global.u32 [%my+8], %z;\n"
                                                               "  red.global.add.u32 [%at], %z; "
                                                               "atom.global.add.u32 %n, [%at+4], 1;\n"
                                                               "  ret;\n}\n";

TEST(test_barriers_and_atomic_additions)
{
    uint32_t results[130] = {0};
    CUdeviceptr data = gpu_allocate(sizeof results);
    gpu_put(data, results, sizeof results, NULL);
    assert_int_equal(run(turned, data, 2, 128), CUDA_OK);
    gpu_get(results, data, sizeof results, NULL);
    assert_int_equal(results[0], 2 * 127 * 64);
    assert_int_equal(results[1], 256);
    for (uint32_t i = 0; i < 128; i++)
        assert_int_equal(results[2 + i], 127 - i);
    MUST(cuMemFree_v2(data));
}

/* A thread of the second warp writes what its warp has exchanged, while the first one waits at the barrier.
 */
static const char late[] = BEGIN(
    "  .shared .align 4 .b8 number[4];\n") "  mov.u32 %i, %tid.x; setp.lt.u32 %p, %i, 32; @%p bra MEET;\n"
                                           "  shfl.sync.idx.b32 %x, %i, 7, 31, -1;\n"
                                           "  setp.ne.u32 %p, %i, 32; @%p bra MEET;\n"
                                           "  st.shared.u32 [number], %x;\n"
                                           "MEET:\n"
                                           "  bar.sync 0; ld.shared.u32 %z, [number];\n"
                                           "  mul.wide.u32 %my, %i, 4; add.s64 %my, %at, %my; st.global.u32 "
                                           "[%my], %z;\n"
                                           "  ret;\n}\n";

TEST(test_a_barrier_waits_for_all_warps)
{
    uint32_t results[64];
    CUdeviceptr data = gpu_allocate(sizeof results);
    assert_int_equal(run(late, data, 1, 64), CUDA_OK);
    gpu_get(results, data, sizeof results, NULL);
    for (int i = 0; i < 64; i++)
        assert_int_equal(results[i], 32 + 7);
    MUST(cuMemFree_v2(data));
}

/* Each warp adds the numbers of its threads. */
static const char warps[] =
    BEGIN("") "  mov.u32 %i, %tid.x; mov.u32 %s, %i;\n"
              "  shfl.sync.down.b32 %x|%p, %s, 16, 31, -1; add.u32 %s, %s, %x;\n"
              "  shfl.sync.down.b32 %x, %s, 8, 31, -1; add.u32 %s, %s, %x;\n"
              "  shfl.sync.bfly.b32 %x, %s, 4, 31, -1; add.u32 %s, %s, %x;\n"
              "  shfl.sync.down.b32 %x, %s, 2, 31, -1; add.u32 %s, %s, %x;\n"
              "  shfl.sync.down.b32 %x, %s, 1, 31, -1; add.u32 %s, %s, %x;\n"
              "  shfl.sync.idx.b32 %s, %s, 0, 31, -1;\n"
              "  mul.wide.u32 %my, %i, 4; add.s64 %my, %at, %my; st.global.u32 [%my], %s;\n"
              "  ret;\n}\n";

TEST(test_shuffles)
{
    uint32_t results[64];
    CUdeviceptr data = gpu_allocate(sizeof results);
    assert_int_equal(run(warps, data, 1, 64), CUDA_OK);
    gpu_get(results, data, sizeof results, NULL);
    assert_int_equal(results[0], 496);
    assert_int_equal(results[31], 496);
    assert_int_equal(results[32], 496 + 32 * 32);
    MUST(cuMemFree_v2(data));
}

static const char vectors[] =
    BEGIN("  .reg .b64 %u, %v;\n") "  ld.global.v4.u32 {%x, %y, %z, %s}, [%at];\n"
                                   "  st.global.v4.u32 [%at+16], {%s, %z, %y, %x};\n"
                                   "  ld.global.v2.b64 {%u, %v}, [%at];\n"
                                   "  st.global.v2.b64 [%at+32], {%v, %u};\n"
                                   "  ld.global.s8 %x, [%at+1]; st.global.u32 [%at+48], %x;\n"
                                   "  ret;\n}\n";

TEST(test_vectors)
{
    static const uint32_t given[4] = {0xff80, 2, 3, 4};
    uint32_t results[13] = {0};
    CUdeviceptr data = gpu_allocate(sizeof results);
    gpu_put(data, given, sizeof given, NULL);
    assert_int_equal(run(vectors, data, 1, 1), CUDA_OK);
    gpu_get(results, data, sizeof results, NULL);
    static const uint32_t expected[13] = {0xff80, 2, 3, 4, 4, 3, 2, 0xff80, 3, 4, 0xff80, 2, 0xffffffff};
    assert_memory_equal(results, expected, sizeof expected);
    MUST(cuMemFree_v2(data));
}

/* ---- launches that fail ------------------------------------------------------------------------------- */

static const char beyond[] = BEGIN("") "  st.global.u32 [%at+64], 1;\n  ret;\n}\n";
static const char crooked[] = BEGIN("") "  ld.global.v4.u32 {%x, %y, %z, %s}, [%at+8];\n  ret;\n}\n";
static const char endless[] = BEGIN("") "LOOP:\n  bra LOOP;\n}\n";
static const char apart[] = BEGIN("") "  mov.u32 %i, %tid.x; setp.lt.u32 %p, %i, 1; @%p bra OTHER;\n"
                                      "  bar.sync 0; ret;\n"
                                      "OTHER:\n  shfl.sync.down.b32 %x, %i, 1, 31, -1; ret;\n}\n";

static CUresult fail_on(int device, const char *text, unsigned threads)
{
    gpu_use(device);
    return run(text, gpu_allocate(64), 1, threads);
}

TEST(test_what_a_kernel_must_not_do)
{
    assert_int_equal(fail_on(WRONG_ADDRESS, beyond, 1), CUDA_ILLEGAL_ADDRESS);
    assert_int_equal(fail_on(MISALIGNED, crooked, 1), CUDA_MISALIGNED_ADDRESS);
    assert_int_equal(fail_on(ENDLESS, endless, 1), CUDA_LAUNCH_TIMEOUT);
    assert_int_equal(fail_on(APART, apart, 2), CUDA_LAUNCH_FAILED);
}

/* A kernel reaches memory of the host only if that is page-locked. */
TEST(test_memory_of_the_host)
{
    static uint32_t own[4];
    uint32_t *pinned = gpu_pinned(sizeof own);
    gpu_use(PINNED_ONLY);
    assert_int_equal(run(sums, gpu_address(pinned), 1, 4), CUDA_OK);
    assert_int_equal(pinned[3], 3);
    assert_int_equal(run(sums, gpu_address(own), 1, 4), CUDA_ILLEGAL_ADDRESS);
    gpu_use(0);
    MUST(cuMemFreeHost(pinned));
}

static CUresult launch(CUfunction function, unsigned grid_y, unsigned threads, unsigned shared)
{
    CUdeviceptr data = 0;
    void *parameters[] = {&data};
    return cuLaunchKernel(function, 1, grid_y, 1, threads, 1, 1, shared, NULL, parameters, NULL);
}

TEST(test_launches_that_are_refused)
{
    CUmodule module;
    CUfunction function = load(sums, "k", &module), missing;
    assert_int_equal(cuModuleGetFunction(&missing, module, "other"), CUDA_NOT_FOUND);
    assert_int_equal(launch(function, 0, 1, 0), CUDA_INVALID_VALUE);
    assert_int_equal(launch(function, 65536, 1, 0), CUDA_INVALID_VALUE);
    assert_int_equal(launch(function, 1, 1025, 0), CUDA_INVALID_VALUE);
    assert_int_equal(launch(function, 1, 1, 49153), CUDA_INVALID_VALUE);
    gpu_use(OTHER);
    assert_int_equal(launch(function, 1, 1, 0), CUDA_INVALID_HANDLE);
    gpu_use(0);
    MUST(cuModuleUnload(module));
}

/* ---- texts that are refused --------------------------------------------------------------------------- */

TEST(test_texts_that_are_refused)
{
    static const char *const lines[] = {
        "tex.2d.v4.f32.f32 {%x, %y, %z, %s}, [%at, {%x, %y}];",
        "add.sat.s32 %x, %x, %y;",
        "add.rz.f32 %x, %x, %y;",
        "add.f16 %x, %x, %y;",
        "add.s32 %x, %y;",
        "add %x, %x, %y;",
        "ld.global.v4.u32 {%x, %y}, [%at];",
        "atom.global.max.u32 %x, [%at], 1;",
        "bra NOWHERE;",
        "mov.u32 %x, unknown;",
        "mov.u32 %x, 12monkeys;",
        "mov.u32 %x, %y",
        ".global .u32 variable;",
    };
    static const char begin[] = BEGIN("");
    char text[1024];
    CUmodule module;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(text, sizeof text, "%s%s\n  ret;\n}\n", begin, lines[i]);
        if (cuModuleLoadData(&module, text) != CUDA_INVALID_PTX)
            fail_msg("\"%s\" is loaded", lines[i]);
    }
    assert_int_equal(cuModuleLoadData(&module, HEAD ".func f() { ret; }"), CUDA_INVALID_PTX);
    assert_int_equal(cuModuleLoadData(&module, HEAD ".visible .entry k(.reg .u64 data) { ret; }"),
                     CUDA_INVALID_PTX);
    assert_int_equal(cuModuleLoadData(&module, HEAD ".visible .entry k(.param .u64 data) {"),
                     CUDA_INVALID_PTX);
}
