/* cuda_kernels.cu - what runs on NVIDIA's GPUs. `python tools/kernels.py` makes cuda_kernels_ptx.c of it by
 * clang, without CUDA's headers. nvcc compiles it as well, and a test compiles it as C for the processor. */
#include "device/cuda_kernels.h"

#if defined(KERNELS_ON_CPU) /* which defines what follows */
#elif defined(__clang__)
#define KERNEL   extern "C" __attribute__((global))
#define FUNCTION static __attribute__((device)) inline
#define THREAD   ((unsigned)__nvvm_read_ptx_sreg_tid_x())
#define THREADS  ((unsigned)__nvvm_read_ptx_sreg_ntid_x())
#define BLOCK    ((unsigned)__nvvm_read_ptx_sreg_ctaid_x())
#else
#define KERNEL   extern "C" __global__
#define FUNCTION static __device__ inline
#define THREAD   threadIdx.x
#define THREADS  blockDim.x
#define BLOCK    blockIdx.x
#endif

typedef unsigned long long __attribute__((may_alias)) lane8;
typedef unsigned __attribute__((may_alias)) lane4;
typedef unsigned short __attribute__((may_alias)) lane2;
typedef struct __attribute__((aligned(16))) {
    lane8 low, high;
} lane16;

FUNCTION void move_one_lane16(lane16 *to, const lane16 *from)
{
    lane8 low = from->low, high = from->high; /* so that both are one instruction */
    to->low = low;
    to->high = high;
}

/* Moves whole lanes, and returns the number of bytes moved. */
#define MOVE_LANES(lane, move_one)                                                                           \
    FUNCTION unsigned move_##lane(char *to, const char *from, unsigned bytes)                                \
    {                                                                                                        \
        unsigned lanes = bytes / (unsigned)sizeof(lane);                                                     \
        for (unsigned i = THREAD; i < lanes; i += THREADS)                                                   \
            move_one((lane *)to + i, (const lane *)from + i);                                                \
        return lanes * (unsigned)sizeof(lane);                                                               \
    }
#define ASSIGN(to, from) *(to) = *(from)
MOVE_LANES(lane16, move_one_lane16)
MOVE_LANES(lane8, ASSIGN)
MOVE_LANES(lane4, ASSIGN)
MOVE_LANES(lane2, ASSIGN)

/* By the widest lanes to which both ends are aligned; then what is left, a byte for each thread. */
FUNCTION void move(char *to, const char *from, unsigned bytes)
{
    unsigned ends = (unsigned)((unsigned long long)to | (unsigned long long)from), done = 0;
    if (!(ends & 15))
        done = move_lane16(to, from, bytes);
    else if (!(ends & 7))
        done = move_lane8(to, from, bytes);
    else if (!(ends & 3))
        done = move_lane4(to, from, bytes);
    else if (!(ends & 1))
        done = move_lane2(to, from, bytes);
    for (unsigned i = done + THREAD; i < bytes; i += THREADS)
        to[i] = from[i];
}

/* Returns the last piece whose first block is not behind this one. */
FUNCTION unsigned piece_of_block(const struct pack_table *table)
{
    unsigned low = 0, high = table->count;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (table->first_block[middle] <= BLOCK)
            low = middle;
        else
            high = middle;
    }
    return low;
}

KERNEL void move_pieces(const struct pack_table table)
{
    unsigned piece = piece_of_block(&table);
    unsigned start = (BLOCK - table.first_block[piece]) * PACK_BLOCK_BYTES;
    unsigned left = table.bytes[piece] - start;
    unsigned bytes = left < PACK_BLOCK_BYTES ? left : PACK_BLOCK_BYTES;
    char *data = table.data[piece] + start, *packed = table.buffer + table.offset[piece] + start;
    move(table.unpacks ? data : packed, table.unpacks ? packed : data, bytes);
}
