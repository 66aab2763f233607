/* mpi_operator.h - what adds and compares elements in MPI's reductions: an MPI_Datatype and an MPI_Op for
 * each element type and reduction. Any thread. */
#ifndef HVD_BACKEND_MPI_OPERATOR_H
#define HVD_BACKEND_MPI_OPERATOR_H

#include "backend/mpi_library.h"
#include "horovod.h"

/* Elements of this type are moved as this. Only MPI_SUM of an integer or a real number computes with it. */
enum mpi_type mpi_type_of(hvd_dtype dtype);

/* Made at the first call and kept; returns an MPI error. An average is a sum here. */
int mpi_operator_of(const struct mpi_abi *abi, hvd_dtype dtype, hvd_reduction reduction, mpi_handle *op);

#endif
