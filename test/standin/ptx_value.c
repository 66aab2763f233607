/* ptx_value.c - see ptx_program.h. Pure functions. */
#include "standin/ptx_program.h"

#include "numbers.h"

#include <math.h>
#include <string.h>

int64_t ptx_extend(const struct ptx_type *type, uint64_t value)
{
    int unused = 64 - type->bits;
    return type->kind == SIGNED ? (int64_t)(value << unused) >> unused : (int64_t)(value << unused >> unused);
}

/* ---- floats ------------------------------------------------------------------------------------------- */

static float single_of(uint64_t bits)
{
    float value;
    uint32_t word = (uint32_t)bits;
    memcpy(&value, &word, sizeof value);
    return value;
}

static double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of_single(float value)
{
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return value != value ? 0x7fffffff : word; /* a GPU has one NaN for results */
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double float_value(const struct ptx_type *type, uint64_t bits)
{
    return type->bits == 64   ? double_of(bits)
           : type->bits == 32 ? (double)single_of(bits)
                              : (double)from_FLOAT16((uint16_t)bits);
}

static uint64_t compute_single(const struct ptx_instruction *instruction, float a, float b, float c)
{
    switch (instruction->operation) {
    case OP_add:
        return bits_of_single(a + b);
    case OP_sub:
        return bits_of_single(a - b);
    case OP_mul:
        return bits_of_single(a * b);
    case OP_div:
        return bits_of_single(a / b);
    default:
        return bits_of_single(fmaf(a, b, c)); /* fma, and mad, which is the same */
    }
}

static uint64_t compute_double(const struct ptx_instruction *instruction, double a, double b, double c)
{
    switch (instruction->operation) {
    case OP_add:
        return bits_of_double(a + b);
    case OP_sub:
        return bits_of_double(a - b);
    case OP_mul:
        return bits_of_double(a * b);
    case OP_div:
        return bits_of_double(a / b);
    default:
        return bits_of_double(fma(a, b, c));
    }
}

/* A NaN loses against a number, and -0 is less than 0. */
static uint64_t least_or_most(const struct ptx_instruction *instruction, uint64_t a, uint64_t b)
{
    double x = float_value(instruction->type, a), y = float_value(instruction->type, b);
    bool least = instruction->operation == OP_min;
    if (x != x && y != y)
        return instruction->type->bits == 64 ? UINT64_C(0x7fffffffffffffff) : 0x7fffffff;
    if (x != x || y != y)
        return x != x ? b : a;
    if (x == y)
        return (signbit(x) != 0) == least ? a : b;
    return (x < y) == least ? a : b;
}

static uint64_t compute_float(const struct ptx_instruction *instruction, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t sign = UINT64_C(1) << (instruction->type->bits - 1);
    switch (instruction->operation) {
    case OP_min:
    case OP_max:
        return least_or_most(instruction, a, b);
    case OP_neg:
        return a ^ sign;
    case OP_abs:
        return a & ~sign;
    default:
        return instruction->type->bits == 64
                   ? compute_double(instruction, double_of(a), double_of(b), double_of(c))
                   : compute_single(instruction, single_of(a), single_of(b), single_of(c));
    }
}

/* ---- integers ----------------------------------------------------------------------------------------- */

static uint64_t multiply(const struct ptx_instruction *instruction, uint64_t a, uint64_t b)
{
    __extension__ typedef __int128 signed_wide;
    __extension__ typedef unsigned __int128 unsigned_wide;
    int bits = instruction->type->bits;
    if (!HAS(instruction, hi))
        return a * b;
    return instruction->type->kind == SIGNED ? (uint64_t)((signed_wide)(int64_t)a * (int64_t)b >> bits)
                                             : (uint64_t)((unsigned_wide)a * b >> bits);
}

/* As the hardware: nothing traps. */
static uint64_t divide(const struct ptx_instruction *instruction, uint64_t a, uint64_t b)
{
    bool quotient = instruction->operation == OP_div;
    if (!b)
        return quotient ? ~UINT64_C(0) : a;
    if (instruction->type->kind != SIGNED)
        return quotient ? a / b : a % b;
    if ((int64_t)b == -1)
        return quotient ? -a : 0;
    return (uint64_t)(quotient ? (int64_t)a / (int64_t)b : (int64_t)a % (int64_t)b);
}

static uint64_t shift(const struct ptx_instruction *instruction, uint64_t a, uint64_t by)
{
    const struct ptx_type *type = instruction->type;
    uint32_t places = (uint32_t)by;
    bool beyond = places >= (uint32_t)type->bits;
    if (instruction->operation == OP_shl)
        return beyond ? 0 : a << places;
    if (type->kind == SIGNED)
        return (uint64_t)((int64_t)a >> (beyond ? type->bits - 1 : (int)places));
    return beyond ? 0 : a >> places;
}

/* The operands have their signs in 64 bits. */
static uint64_t compute_integer(const struct ptx_instruction *instruction, uint64_t a, uint64_t b, uint64_t c)
{
    bool less = instruction->type->kind == SIGNED ? (int64_t)a < (int64_t)b : a < b;
    switch (instruction->operation) {
    case OP_add:
        return a + b;
    case OP_sub:
        return a - b;
    case OP_mul:
        return multiply(instruction, a, b);
    case OP_mad:
        return multiply(instruction, a, b) + c;
    case OP_div:
    case OP_rem:
        return divide(instruction, a, b);
    case OP_min:
        return less ? a : b;
    case OP_max:
        return less ? b : a;
    case OP_neg:
        return -a;
    case OP_abs:
        return (int64_t)a < 0 ? -a : a;
    case OP_and:
        return a & b;
    case OP_or:
        return a | b;
    case OP_xor:
        return a ^ b;
    case OP_not:
        return ~a;
    default:
        return shift(instruction, a, b);
    }
}

uint64_t ptx_compute(const struct ptx_instruction *instruction, uint64_t a, uint64_t b, uint64_t c)
{
    const struct ptx_type *type = instruction->type;
    if (type->kind == FLOAT)
        return compute_float(instruction, a, b, c);
    bool is_shift = instruction->operation == OP_shl || instruction->operation == OP_shr;
    return compute_integer(instruction, (uint64_t)ptx_extend(type, a),
                           is_shift ? b : (uint64_t)ptx_extend(type, b),
                           HAS(instruction, wide) ? c : (uint64_t)ptx_extend(type, c));
}

/* ---- conversions -------------------------------------------------------------------------------------- */

static double to_whole(const struct ptx_instruction *instruction, double value)
{
    return HAS(instruction, rni)   ? rint(value)
           : HAS(instruction, rzi) ? trunc(value)
           : HAS(instruction, rmi) ? floor(value)
           : HAS(instruction, rpi) ? ceil(value)
                                   : value;
}

/* What doesn't fit becomes the nearest number that does. */
static uint64_t integer_of(const struct ptx_type *type, const struct ptx_type *from, double value)
{
    bool is_signed = type->kind == SIGNED;
    uint64_t most = ~UINT64_C(0) >> (64 - type->bits) >> is_signed;
    if (value != value)
        return type->bits == 64 || from->bits == 64 ? UINT64_C(1) << (type->bits - 1) : 0;
    if (value >= ldexp(1, type->bits - is_signed))
        return most;
    if (value < (is_signed ? -ldexp(1, type->bits - 1) : 0))
        return is_signed ? ~most : 0;
    return is_signed ? (uint64_t)(int64_t)value : (uint64_t)value;
}

static uint64_t float_of_integer(const struct ptx_type *type, const struct ptx_type *from, int64_t value)
{
    bool is_signed = from->kind == SIGNED;
    if (type->bits == 64)
        return bits_of_double(is_signed ? (double)value : (double)(uint64_t)value);
    return bits_of_single(is_signed ? (float)value : (float)(uint64_t)value);
}

uint64_t ptx_convert(const struct ptx_instruction *instruction, uint64_t value)
{
    const struct ptx_type *to = instruction->type, *from = instruction->source;
    if (to->kind != FLOAT && from->kind != FLOAT)
        return (uint64_t)ptx_extend(from, value);
    if (from->kind != FLOAT)
        return float_of_integer(to, from, ptx_extend(from, value));
    double whole = to_whole(instruction, float_value(from, value));
    if (to->kind != FLOAT)
        return integer_of(to, from, whole);
    if (to->bits == 64)
        return bits_of_double(whole);
    if (to->bits == 32)
        return bits_of_single((float)whole);
    return whole != whole ? 0x7fff : to_FLOAT16((float)whole);
}

/* ---- comparisons -------------------------------------------------------------------------------------- */

bool ptx_compare(const struct ptx_instruction *instruction, uint64_t a, uint64_t b)
{
    const struct ptx_type *type = instruction->type;
    bool less, equal, unordered = false;
    if (type->kind == FLOAT) {
        double x = float_value(type, a), y = float_value(type, b);
        less = x < y;
        equal = x == y;
        unordered = x != x || y != y;
    } else {
        int64_t x = ptx_extend(type, a), y = ptx_extend(type, b);
        less = type->kind == SIGNED ? x < y : (uint64_t)x < (uint64_t)y;
        equal = x == y;
    }
    if (unordered)
        return HAS(instruction, nan) || HAS(instruction, equ) || HAS(instruction, neu) ||
               HAS(instruction, ltu) || HAS(instruction, leu) || HAS(instruction, gtu) ||
               HAS(instruction, geu);
    if (HAS(instruction, num))
        return true;
    if (HAS(instruction, nan))
        return false;
    bool takes_equal = HAS(instruction, eq) || HAS(instruction, equ) || HAS(instruction, le) ||
                       HAS(instruction, leu) || HAS(instruction, ge) || HAS(instruction, geu);
    bool takes_less = HAS(instruction, ne) || HAS(instruction, neu) || HAS(instruction, lt) ||
                      HAS(instruction, ltu) || HAS(instruction, le) || HAS(instruction, leu);
    bool takes_more = HAS(instruction, ne) || HAS(instruction, neu) || HAS(instruction, gt) ||
                      HAS(instruction, gtu) || HAS(instruction, ge) || HAS(instruction, geu);
    return equal ? takes_equal : less ? takes_less : takes_more;
}
