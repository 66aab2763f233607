/* protocol.h - how a collective is timed in C, the same for every library.
 *
 * A peer is one file that ends in the functions and rows below; protocol.c is its main(). The command line
 * is SECONDS RESULTS CASE...: about so long for each case, the folder of result files, and cases such as
 * "allreduce:4194304" or "allreduce:4194304:float16" (bytes of a rank's input), "async:FILE" (FILE lists
 * elements of tensors), "memory:FILE" (KiB that the rank holds beyond them once async has run). A case that
 * the peer has no row or no type for is left out of its results. One thread. */
#ifndef HVD_BENCH_PROTOCOL_H
#define HVD_BENCH_PROTOCOL_H

#include <stddef.h>

/* All zeros. */
struct tensors {
    const char *dtype; /* "float32" */
    size_t element_size;
    int number;
    void **data;
    size_t *elements;
    void *packed;           /* room for all of them, one after the other */
    void *output;           /* room for `size` times the first */
    size_t packed_elements; /* in all */
};

/* One round of the work: every call that belongs to it, done when it returns. */
typedef void (*work_fn)(struct tensors *tensors);

struct row {
    const char *what;
    work_fn work;
};
extern const struct row peer_rows[]; /* ends in an empty row */

void peer_open(int *argc, char ***argv);
void peer_close(void);
int peer_rank(void);
int peer_size(void);
size_t peer_element_size(const char *dtype); /* 0: it has no such type */
void peer_barrier(void);
double peer_largest(double value); /* over all ranks */

void pack(struct tensors *tensors);
void unpack(struct tensors *tensors);

#endif
