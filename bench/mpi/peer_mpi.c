/* peer_mpi.c - the collectives of an MPI, the peer. Not part of the build: bench/compare.py compiles it
 * together with protocol.c by the mpicc of every MPI that is installed. */
#include "protocol.h"

#include <mpi.h>
#include <string.h>

/* MPI has no type of 16 bits, and MPICH 4.0 aborts when it adds the one that it defines besides. */
size_t peer_element_size(const char *dtype)
{
    return strcmp(dtype, "float32") == 0 ? sizeof(float) : 0;
}

static void allreduce(struct tensors *t)
{
    MPI_Allreduce(MPI_IN_PLACE, t->data[0], (int)t->elements[0], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(struct tensors *t)
{
    int elements = (int)t->elements[0];
    MPI_Allgather(t->data[0], elements, MPI_FLOAT, t->output, elements, MPI_FLOAT, MPI_COMM_WORLD);
}

static void broadcast(struct tensors *t)
{
    MPI_Bcast(t->data[0], (int)t->elements[0], MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void alltoall(struct tensors *t)
{
    int part = (int)t->elements[0] / peer_size();
    MPI_Alltoall(t->data[0], part, MPI_FLOAT, t->output, part, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reducescatter(struct tensors *t)
{
    int part = (int)t->elements[0] / peer_size();
    MPI_Reduce_scatter_block(t->data[0], t->output, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void one_by_one(struct tensors *t)
{
    for (int i = 0; i < t->number; i++)
        MPI_Allreduce(MPI_IN_PLACE, t->data[i], (int)t->elements[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void async(struct tensors *t)
{
    static MPI_Request requests[2048];
    for (int i = 0; i < t->number; i++)
        MPI_Iallreduce(MPI_IN_PLACE, t->data[i], (int)t->elements[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                       &requests[i]);
    MPI_Waitall(t->number, requests, MPI_STATUSES_IGNORE);
}

static void grouped(struct tensors *t)
{
    pack(t);
    MPI_Allreduce(MPI_IN_PLACE, t->packed, (int)t->packed_elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    unpack(t);
}

const struct row peer_rows[] = {
    {"allreduce", allreduce},
    {"allgather", allgather},
    {"broadcast", broadcast},
    {"alltoall", alltoall},
    {"reducescatter", reducescatter},
    {"async", async},
    {"one-by-one", one_by_one},
    {"grouped", grouped},
    {NULL, NULL},
};

void peer_open(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
}

void peer_close(void)
{
    MPI_Finalize();
}

int peer_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int peer_size(void)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

void peer_barrier(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

double peer_largest(double value)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
}
