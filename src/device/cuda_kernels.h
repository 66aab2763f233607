/* cuda_kernels.h - what the kernels of cuda_kernels.cu and the code that launches them share. */
#ifndef HVD_DEVICE_CUDA_KERNELS_H
#define HVD_DEVICE_CUDA_KERNELS_H

enum {
    PACK_PIECES = 200,          /* of one launch: the parameters of a kernel have at most 4 KiB */
    PACK_BLOCK_BYTES = 16 << 10 /* of one block of threads: 4 lanes of 16 bytes for each of 256 */
};

/* Pieces of tensors, and where they are in a buffer. A piece has blocks of threads of its own, one for each
 * PACK_BLOCK_BYTES, which are numbered in the order of the pieces. */
struct pack_table {
    char *buffer;
    char *data[PACK_PIECES];
    unsigned offset[PACK_PIECES]; /* in the buffer */
    unsigned bytes[PACK_PIECES];  /* more than 0 */
    unsigned first_block[PACK_PIECES];
    unsigned count;
    unsigned unpacks; /* 1: from the buffer to the tensors; 0: to the buffer */
};

#endif
