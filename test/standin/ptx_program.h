/* ptx_program.h - what ptx_load.c makes of the text and ptx_run.c runs. Constant once loaded. */
#ifndef HVD_TEST_STANDIN_PTX_PROGRAM_H
#define HVD_TEST_STANDIN_PTX_PROGRAM_H

#include "standin/ptx.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- types: TYPE(suffix, kind, bits) ------------------------------------------------------------------ */

#define PTX_TYPES(TYPE)                                                                                      \
    TYPE(pred, PREDICATE, 1)                                                                                 \
    TYPE(b8, UNSIGNED, 8)                                                                                    \
    TYPE(u8, UNSIGNED, 8)                                                                                    \
    TYPE(s8, SIGNED, 8)                                                                                      \
    TYPE(b16, UNSIGNED, 16)                                                                                  \
    TYPE(u16, UNSIGNED, 16)                                                                                  \
    TYPE(s16, SIGNED, 16)                                                                                    \
    TYPE(b32, UNSIGNED, 32)                                                                                  \
    TYPE(u32, UNSIGNED, 32)                                                                                  \
    TYPE(s32, SIGNED, 32)                                                                                    \
    TYPE(b64, UNSIGNED, 64)                                                                                  \
    TYPE(u64, UNSIGNED, 64)                                                                                  \
    TYPE(s64, SIGNED, 64)                                                                                    \
    TYPE(f16, FLOAT, 16)                                                                                     \
    TYPE(f32, FLOAT, 32)                                                                                     \
    TYPE(f64, FLOAT, 64)

enum ptx_kind { PREDICATE, UNSIGNED, SIGNED, FLOAT };

struct ptx_type {
    const char *name;
    enum ptx_kind kind;
    int bits;
};

/* ---- other suffixes, by what they are for ------------------------------------------------------------- */

#define PTX_SPACES(S) S(global) S(shared) S(local) S(param)
#define PTX_ACCESS(S) S(v2) S(v4) S(volatile) S(nc) S(relaxed) S(gpu)
#define PTX_HALVES(S) S(lo) S(hi) S(wide)
#define PTX_WHOLES(S) S(rni) S(rzi) S(rmi) S(rpi) /* round to whole numbers */
#define PTX_ORDERS(S)                                                                                        \
    S(eq) S(ne) S(lt) S(le) S(gt) S(ge) S(equ) S(neu) S(ltu) S(leu) S(gtu) S(geu) S(num) S(nan)
#define PTX_COMBINES(S) S(and) S(or) S(xor)
#define PTX_BARRIERS(S) S(sync) S(aligned) S(cta) S(gl)
#define PTX_SHUFFLES(S) S(sync) S(down) S(up) S(bfly) S(idx)
#define PTX_OTHERS(S)   S(rn) S(to) S(uni) S(add) S(down) S(up) S(bfly) S(idx)
#define PTX_ALL(S)                                                                                           \
    PTX_SPACES(S)                                                                                            \
    PTX_ACCESS(S) PTX_HALVES(S) PTX_WHOLES(S) PTX_ORDERS(S) PTX_COMBINES(S) PTX_BARRIERS(S) PTX_OTHERS(S)

enum ptx_suffix {
#define S(name) SUFFIX_##name,
    PTX_ALL(S)
#undef S
        SUFFIX_COUNT
};
_Static_assert(SUFFIX_COUNT <= 64, "a set of suffixes is 64 bits");

#define SUFFIX_BIT(name)       (UINT64_C(1) << SUFFIX_##name)
#define HAS(instruction, name) (((instruction)->suffixes & SUFFIX_BIT(name)) != 0)

/* ---- operations: OPERATION(name, least operands, most operands, suffixes that are known of it) --------- */

#define OR_BIT(name) | SUFFIX_BIT(name)
#define PTX_OPERATIONS(OPERATION)                                                                            \
    OPERATION(mov, 2, 2, 0)                                                                                  \
    OPERATION(ld, 2, 2, 0 PTX_SPACES(OR_BIT) PTX_ACCESS(OR_BIT))                                             \
    OPERATION(st, 2, 2, 0 PTX_SPACES(OR_BIT) PTX_ACCESS(OR_BIT))                                             \
    OPERATION(cvta, 2, 2, SUFFIX_BIT(to) PTX_SPACES(OR_BIT))                                                 \
    OPERATION(cvt, 2, 2, SUFFIX_BIT(rn) PTX_WHOLES(OR_BIT))                                                  \
    OPERATION(add, 3, 3, SUFFIX_BIT(rn))                                                                     \
    OPERATION(sub, 3, 3, SUFFIX_BIT(rn))                                                                     \
    OPERATION(mul, 3, 3, SUFFIX_BIT(rn) PTX_HALVES(OR_BIT))                                                  \
    OPERATION(mad, 4, 4, SUFFIX_BIT(rn) PTX_HALVES(OR_BIT))                                                  \
    OPERATION(fma, 4, 4, SUFFIX_BIT(rn))                                                                     \
    OPERATION(div, 3, 3, SUFFIX_BIT(rn))                                                                     \
    OPERATION(rem, 3, 3, 0)                                                                                  \
    OPERATION(min, 3, 3, 0)                                                                                  \
    OPERATION(max, 3, 3, 0)                                                                                  \
    OPERATION(neg, 2, 2, 0)                                                                                  \
    OPERATION(abs, 2, 2, 0)                                                                                  \
    OPERATION(and, 3, 3, 0)                                                                                  \
    OPERATION(or, 3, 3, 0)                                                                                   \
    OPERATION(xor, 3, 3, 0)                                                                                  \
    OPERATION(not, 2, 2, 0)                                                                                  \
    OPERATION(shl, 3, 3, 0)                                                                                  \
    OPERATION(shr, 3, 3, 0)                                                                                  \
    OPERATION(setp, 3, 4, 0 PTX_ORDERS(OR_BIT) PTX_COMBINES(OR_BIT))                                         \
    OPERATION(selp, 4, 4, 0)                                                                                 \
    OPERATION(bra, 0, 0, SUFFIX_BIT(uni))                                                                    \
    OPERATION(ret, 0, 0, SUFFIX_BIT(uni))                                                                    \
    OPERATION(exit, 0, 0, 0)                                                                                 \
    OPERATION(bar, 1, 1, 0 PTX_BARRIERS(OR_BIT))                                                             \
    OPERATION(barrier, 1, 1, 0 PTX_BARRIERS(OR_BIT))                                                         \
    OPERATION(membar, 0, 0, 0 PTX_BARRIERS(OR_BIT))                                                          \
    OPERATION(shfl, 5, 6, 0 PTX_SHUFFLES(OR_BIT))                                                            \
    OPERATION(atom, 3, 3, SUFFIX_BIT(add) PTX_SPACES(OR_BIT) PTX_ACCESS(OR_BIT))                             \
    OPERATION(red, 2, 2, SUFFIX_BIT(add) PTX_SPACES(OR_BIT) PTX_ACCESS(OR_BIT))

enum ptx_operation {
#define OPERATION(name, ...) OP_##name,
    PTX_OPERATIONS(OPERATION)
#undef OPERATION
        OPERATION_COUNT
};

/* ---- operands ----------------------------------------------------------------------------------------- */

/* Special registers, in threes: x, y, z. */
enum { SPECIAL_TID = 0, SPECIAL_NTID = 3, SPECIAL_CTAID = 6, SPECIAL_NCTAID = 9, SPECIAL_LANEID = 12 };

enum ptx_operand_kind {
    NOTHING,
    REGISTER,
    NUMBER, /* also the address of a variable, in the window of its space */
    SPECIAL,
    ELEMENTS, /* of a vector: those of the instruction */
};

struct ptx_operand {
    enum ptx_operand_kind kind;
    int index;      /* of a register */
    bool inverted;  /* a predicate */
    uint64_t value; /* a number */
};

enum { OPERANDS_LIMIT = 6, ELEMENTS_LIMIT = 4 };

struct ptx_instruction {
    enum ptx_operation operation;
    const struct ptx_type *type;   /* NULL: it has none */
    const struct ptx_type *source; /* of a cvt, otherwise as `type` */
    uint64_t suffixes;
    struct ptx_operand guard; /* it does nothing unless this predicate is true */
    struct ptx_operand operands[OPERANDS_LIMIT];
    int operand_count;
    struct ptx_operand elements[ELEMENTS_LIMIT];
    int element_count; /* 0: there is no vector */
    bool is_paired;    /* a shfl with a predicate as its second result */
    uint64_t offset;   /* added to the operand in brackets */
    int target;        /* of a bra: the index of an instruction */
    int line;          /* of the text */
};

/* ---- kernels ------------------------------------------------------------------------------------------ */

enum ptx_space { GLOBAL, SHARED, LOCAL, PARAM, SPACES };

/* Addresses of variables of these spaces begin here; a register of 32 bits loses the number of the window. */
#define PTX_WINDOW(space) (UINT64_C(0x7000000000000000) + ((uint64_t)(space) << 48))

enum { PTX_NAME = 128 };

struct ptx_variable {
    char name[PTX_NAME];
    enum ptx_space space;
    size_t offset, bytes; /* in its space */
};

struct ptx_entry {
    char name[PTX_NAME];
    struct ptx_variable *variables;
    int variable_count;
    size_t bytes[SPACES]; /* of its variables */
    struct ptx_instruction *code;
    int length;
    int register_count;
    struct ptx_entry *next;
};

/* ---- ptx_value.c: what instructions compute, as bits of their types -------------------------------------
 */

uint64_t ptx_convert(const struct ptx_instruction *instruction, uint64_t value);
bool ptx_compare(const struct ptx_instruction *instruction, uint64_t a, uint64_t b);
uint64_t ptx_compute(const struct ptx_instruction *instruction, uint64_t a, uint64_t b, uint64_t c);

/* The value of a type, with its sign, in 64 bits. */
int64_t ptx_extend(const struct ptx_type *type, uint64_t value);

#endif
