/* ptx_run.c - runs a launch; see ptx.h. The threads of a block run one after the other, each until it ends,
 * waits at a barrier, or waits for its warp. Registers and memory of a block hold garbage at first. */
#include "standin/memory.h"
#include "standin/ptx_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WARP = 32,
    REGIONS = 4,
    GARBAGE = 0x5a,
    STEPS_LIMIT = 5000000, /* instructions of a thread; a loop that never ends has more */
};

struct ptx_launch {
    const struct ptx_entry *entry;
    unsigned grid[3], block[3];
    size_t shared; /* bytes, in addition to those of the kernel's variables */
    char parameters[];
};

enum thread_state { RUNS, AT_BARRIER, AT_SHUFFLE, ENDED };

struct thread {
    uint64_t *registers;
    char *local;
    int at; /* index of the next instruction */
    int steps;
    enum thread_state state;
    uint64_t offered; /* to its warp */
};

/* A launch that runs, one block at a time. */
struct run {
    const struct ptx_launch *launch;
    const struct ptx_entry *entry;
    unsigned block[3]; /* its place in the grid */
    struct thread *threads;
    int count;
    char *shared;
    struct memory_region regions[REGIONS]; /* that were used last */
    unsigned next_region;
    CUresult result;
    char *why; /* PTX_TEXT bytes */
};

struct ptx_launch *ptx_prepare(const struct ptx_entry *entry, const unsigned grid[3], const unsigned block[3],
                               size_t shared, void *const *parameters)
{
    struct ptx_launch *launch = calloc(1, sizeof *launch + entry->bytes[PARAM]);
    if (!launch)
        abort();
    launch->entry = entry;
    launch->shared = shared;
    memcpy(launch->grid, grid, sizeof launch->grid);
    memcpy(launch->block, block, sizeof launch->block);
    for (int i = 0; i < entry->variable_count; i++)
        if (entry->variables[i].space == PARAM)
            memcpy(launch->parameters + entry->variables[i].offset, *parameters++, entry->variables[i].bytes);
    return launch;
}

void ptx_release(struct ptx_launch *launch)
{
    free(launch);
}

/* ---- operands ----------------------------------------------------------------------------------------- */

static uint64_t special(const struct run *run, const struct thread *thread, int index)
{
    unsigned number = (unsigned)(thread - run->threads);
    const unsigned *size = run->launch->block;
    const unsigned place[3] = {number % size[0], number / size[0] % size[1], number / size[0] / size[1]};
    if (index == SPECIAL_LANEID)
        return number % WARP;
    const unsigned *triple = index < SPECIAL_NTID     ? place
                             : index < SPECIAL_CTAID  ? size
                             : index < SPECIAL_NCTAID ? run->block
                                                      : run->launch->grid;
    return triple[index % 3];
}

static uint64_t get(const struct run *run, const struct thread *thread, const struct ptx_operand *operand)
{
    if (operand->kind == REGISTER) {
        uint64_t value = thread->registers[operand->index];
        return operand->inverted ? !(value & 1) : value;
    }
    return operand->kind == SPECIAL ? special(run, thread, operand->index) : operand->value;
}

static void set(struct thread *thread, const struct ptx_operand *operand, uint64_t value, int bits)
{
    if (operand->kind == REGISTER)
        thread->registers[operand->index] = value & (~UINT64_C(0) >> (64 - bits));
}

/* ---- memory ------------------------------------------------------------------------------------------- */

static bool fail(struct run *run, const struct ptx_instruction *instruction, CUresult result,
                 const char *what, uint64_t address)
{
    run->result = result;
    snprintf(run->why, PTX_TEXT, "kernel %s, line %d of its PTX: %s 0x%llx", run->entry->name,
             instruction->line, what, (unsigned long long)address);
    return false;
}

static char *reach_global(struct run *run, uint64_t address, size_t bytes)
{
    const struct memory_region *region = run->regions;
    while (region < run->regions + REGIONS && (address < region->start || address >= region->end))
        region++;
    if (region == run->regions + REGIONS) {
        run->regions[run->next_region++ % REGIONS] = memory_region(address);
        region = &run->regions[(run->next_region - 1) % REGIONS];
    }
    bool inside = address >= region->start && address < region->end && bytes <= region->end - address;
    return inside ? (char *)address + region->distance : NULL; /* NOLINT(performance-no-int-to-ptr) */
}

static char *reach_window(struct run *run, struct thread *thread, uint64_t address, size_t bytes)
{
    const struct ptx_entry *entry = run->entry;
    char *const starts[SPACES] = {
        [SHARED] = run->shared, [LOCAL] = thread->local, [PARAM] = (char *)run->launch->parameters};
    for (enum ptx_space space = SHARED; space < SPACES; space++) {
        size_t all = entry->bytes[space] + (space == SHARED ? run->launch->shared : 0);
        uint64_t offset = address - PTX_WINDOW(space);
        if (offset < all)
            return bytes <= all - offset ? starts[space] + offset : NULL;
    }
    return NULL;
}

/* Returns the memory of an access; NULL: the launch has failed. */
static char *reach(struct run *run, struct thread *thread, const struct ptx_instruction *instruction,
                   const struct ptx_operand *where, size_t bytes)
{
    uint64_t address = get(run, thread, where) + instruction->offset;
    enum ptx_space space = HAS(instruction, shared)  ? SHARED
                           : HAS(instruction, local) ? LOCAL
                           : HAS(instruction, param) ? PARAM
                                                     : GLOBAL;
    if (space != GLOBAL && address < PTX_WINDOW(GLOBAL))
        address += PTX_WINDOW(space);
    if (address % bytes) {
        fail(run, instruction, CUDA_MISALIGNED_ADDRESS, "misaligned address", address);
        return NULL;
    }
    char *memory = address < PTX_WINDOW(GLOBAL) ? reach_global(run, address, bytes)
                                                : reach_window(run, thread, address, bytes);
    if (!memory)
        fail(run, instruction, CUDA_ILLEGAL_ADDRESS, "there is no memory at", address);
    return memory;
}

static bool access_memory(struct run *run, struct thread *thread, const struct ptx_instruction *instruction)
{
    bool loads = instruction->operation == OP_ld;
    const struct ptx_type *type = instruction->type;
    size_t bytes = (size_t)type->bits / 8;
    int count = instruction->element_count ? instruction->element_count : 1;
    const struct ptx_operand *data = &instruction->operands[loads ? 0 : 1];
    char *memory =
        reach(run, thread, instruction, &instruction->operands[loads ? 1 : 0], bytes * (size_t)count);
    if (!memory)
        return false;
    for (int i = 0; i < count; i++) {
        const struct ptx_operand *element = instruction->element_count ? &instruction->elements[i] : data;
        uint64_t value = 0;
        if (loads) {
            memcpy(&value, memory + (size_t)i * bytes, bytes);
            set(thread, element, (uint64_t)ptx_extend(type, value), 64);
        } else {
            value = get(run, thread, element);
            memcpy(memory + (size_t)i * bytes, &value, bytes);
        }
    }
    return true;
}

/* Also against kernels of other streams. */
static bool add_atomically(struct run *run, struct thread *thread, const struct ptx_instruction *instruction)
{
    bool returns = instruction->operation == OP_atom;
    const struct ptx_operand *operands = instruction->operands + returns;
    size_t bytes = (size_t)instruction->type->bits / 8;
    struct ptx_instruction add = *instruction;
    add.operation = OP_add;
    char *memory = reach(run, thread, instruction, &operands[0], bytes);
    if (!memory)
        return false;
    uint64_t before = 0, value = get(run, thread, &operands[1]);
    for (bool added = false; !added;) {
        if (bytes == sizeof(uint64_t)) {
            before = __atomic_load_n((uint64_t *)memory, __ATOMIC_RELAXED);
            added =
                __sync_bool_compare_and_swap((uint64_t *)memory, before, ptx_compute(&add, before, value, 0));
        } else {
            before = __atomic_load_n((uint32_t *)memory, __ATOMIC_RELAXED);
            added = __sync_bool_compare_and_swap((uint32_t *)memory, (uint32_t)before,
                                                 (uint32_t)ptx_compute(&add, before, value, 0));
        }
    }
    if (returns)
        set(thread, &instruction->operands[0], before, instruction->type->bits);
    return true;
}

/* ---- instructions ------------------------------------------------------------------------------------- */

/* Also packs elements into a register, or unpacks a register into elements. */
static void move(struct run *run, struct thread *thread, const struct ptx_instruction *instruction)
{
    const struct ptx_operand *to = &instruction->operands[0], *from = &instruction->operands[1];
    int count = instruction->element_count ? instruction->element_count : 1;
    int bits = instruction->type->bits / count;
    uint64_t whole = from->kind == ELEMENTS ? 0 : get(run, thread, from);
    for (int i = 0; i < instruction->element_count; i++) {
        const struct ptx_operand *element = &instruction->elements[i];
        if (to->kind == ELEMENTS)
            set(thread, element, whole >> (bits * i), bits);
        else
            whole |= (get(run, thread, element) & (~UINT64_C(0) >> (64 - bits))) << (bits * i);
    }
    set(thread, to, whole, instruction->type->bits);
}

static void compare(struct run *run, struct thread *thread, const struct ptx_instruction *instruction)
{
    const struct ptx_operand *operands = instruction->operands;
    bool holds = ptx_compare(instruction, get(run, thread, &operands[1]), get(run, thread, &operands[2]));
    if (instruction->operand_count == 4) {
        bool other = get(run, thread, &operands[3]) & 1;
        holds = HAS(instruction, and)  ? holds && other
                : HAS(instruction, or) ? holds || other
                                       : holds != other;
    }
    set(thread, &operands[0], holds, 1);
}

static void compute(struct run *run, struct thread *thread, const struct ptx_instruction *instruction)
{
    uint64_t values[3] = {0};
    for (int i = 1; i < instruction->operand_count; i++)
        values[i - 1] = get(run, thread, &instruction->operands[i]);
    int bits = instruction->type->bits * (HAS(instruction, wide) ? 2 : 1);
    set(thread, &instruction->operands[0], ptx_compute(instruction, values[0], values[1], values[2]), bits);
}

/* Ends or interrupts the thread if the instruction does that; returns true if it doesn't. */
static bool continues(struct run *run, struct thread *thread, const struct ptx_instruction *instruction)
{
    switch (instruction->operation) {
    case OP_ret:
    case OP_exit:
        thread->state = ENDED;
        return false;
    case OP_bar:
    case OP_barrier:
        thread->state = AT_BARRIER;
        return false;
    case OP_shfl:
        thread->offered = get(run, thread, &instruction->operands[1 + instruction->is_paired]);
        thread->state = AT_SHUFFLE;
        return false;
    default:
        return true;
    }
}

/* Runs one instruction; returns false if the thread can't continue now. */
static bool step(struct run *run, struct thread *thread)
{
    const struct ptx_instruction *instruction = &run->entry->code[thread->at++];
    const struct ptx_operand *operands = instruction->operands;
    if (++thread->steps > STEPS_LIMIT)
        return fail(run, instruction, CUDA_LAUNCH_TIMEOUT, "too many instructions; this one is",
                    (uint64_t)thread->at);
    if (instruction->guard.kind && !(get(run, thread, &instruction->guard) & 1))
        return true;
    switch (instruction->operation) {
    case OP_bra:
        thread->at = instruction->target;
        return true;
    case OP_ld:
    case OP_st:
        return access_memory(run, thread, instruction);
    case OP_atom:
    case OP_red:
        return add_atomically(run, thread, instruction);
    case OP_mov:
        move(run, thread, instruction);
        return true;
    case OP_cvta: /* addresses of a window are those of the whole space */
        set(thread, &operands[0], get(run, thread, &operands[1]), 64);
        return true;
    case OP_cvt:
        set(thread, &operands[0], ptx_convert(instruction, get(run, thread, &operands[1])),
            instruction->type->bits);
        return true;
    case OP_setp:
        compare(run, thread, instruction);
        return true;
    case OP_selp:
        set(thread, &operands[0], get(run, thread, &operands[get(run, thread, &operands[3]) & 1 ? 1 : 2]),
            instruction->type->bits);
        return true;
    case OP_membar:
        return true;
    default:
        if (!continues(run, thread, instruction))
            return false;
        compute(run, thread, instruction);
        return true;
    }
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

/* Gives each thread of a warp the value of another one, or its own if there is no such thread. */
static void exchange(struct run *run, struct thread *warp, int size)
{
    for (int lane = 0; lane < size; lane++) {
        struct thread *thread = &warp[lane];
        const struct ptx_instruction *instruction = &run->entry->code[thread->at - 1];
        int by = (int)get(run, thread, &instruction->operands[2 + instruction->is_paired]);
        int from = HAS(instruction, down)   ? lane + by
                   : HAS(instruction, up)   ? lane - by
                   : HAS(instruction, bfly) ? lane ^ by
                                            : by;
        bool inside = from >= 0 && from < size;
        set(thread, &instruction->operands[0], warp[inside ? from : lane].offered, 32);
        if (instruction->is_paired)
            set(thread, &instruction->operands[1], inside, 1);
        thread->state = RUNS;
    }
}

static int count_threads(const struct thread *threads, int count, enum thread_state state)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        found += threads[i].state == state;
    return found;
}

/* Resumes the threads that have met; returns false if there are none. */
static bool meet(struct run *run)
{
    bool met = false;
    for (int first = 0; first < run->count; first += WARP) {
        struct thread *warp = &run->threads[first];
        int size = run->count - first < WARP ? run->count - first : WARP;
        if (count_threads(warp, size, AT_SHUFFLE) < size)
            continue;
        exchange(run, warp, size);
        met = true;
    }
    int waiting = count_threads(run->threads, run->count, AT_BARRIER);
    if (waiting && waiting + count_threads(run->threads, run->count, ENDED) == run->count) {
        for (int i = 0; i < run->count; i++)
            if (run->threads[i].state == AT_BARRIER)
                run->threads[i].state = RUNS;
        met = true;
    }
    return met;
}

static void run_block(struct run *run)
{
    do {
        for (int i = 0; i < run->count && !run->result; i++)
            while (run->threads[i].state == RUNS && step(run, &run->threads[i]))
                continue;
        if (run->result || count_threads(run->threads, run->count, ENDED) == run->count)
            return;
    } while (meet(run));
    run->result = CUDA_LAUNCH_FAILED;
    snprintf(run->why, PTX_TEXT, "kernel %s: the threads of a block wait for each other at different places",
             run->entry->name);
}

static void *must_allocate(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory)
        abort();
    return memory;
}

static void run_blocks(struct run *run, uint64_t *registers, char *local)
{
    const struct ptx_entry *entry = run->entry;
    const unsigned *grid = run->launch->grid;
    size_t register_count = (size_t)entry->register_count, count = (size_t)run->count;
    unsigned long blocks = (unsigned long)grid[0] * grid[1] * grid[2];
    for (unsigned long n = 0; n < blocks && !run->result; n++) {
        run->block[0] = (unsigned)(n % grid[0]);
        run->block[1] = (unsigned)(n / grid[0] % grid[1]);
        run->block[2] = (unsigned)(n / grid[0] / grid[1]);
        memset(registers, GARBAGE, count * register_count * sizeof *registers);
        memset(local, GARBAGE, count * entry->bytes[LOCAL]);
        memset(run->shared, GARBAGE, entry->bytes[SHARED] + run->launch->shared);
        for (size_t i = 0; i < count; i++)
            run->threads[i] = (struct thread){.registers = registers + i * register_count,
                                              .local = local + i * entry->bytes[LOCAL]};
        run_block(run);
    }
}

CUresult ptx_run(const struct ptx_launch *launch, char why[PTX_TEXT])
{
    const struct ptx_entry *entry = launch->entry;
    struct run run = {.launch = launch, .entry = entry, .why = why};
    run.count = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
    size_t count = (size_t)run.count;
    uint64_t *registers = must_allocate(count * (size_t)entry->register_count, sizeof *registers);
    char *local = must_allocate(count, entry->bytes[LOCAL]);
    run.threads = must_allocate(count, sizeof *run.threads);
    run.shared = must_allocate(entry->bytes[SHARED] + launch->shared, 1);
    run_blocks(&run, registers, local);
    free(run.shared);
    free(run.threads);
    free(local);
    free(registers);
    return run.result;
}
