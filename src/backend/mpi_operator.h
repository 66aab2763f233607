/* mpi_operator.h - the operators of MPI's reductions: an MPI_Datatype and an MPI_Op for each element type and
 * reduction. Any thread. */
#ifndef HVD_BACKEND_MPI_OPERATOR_H
#define HVD_BACKEND_MPI_OPERATOR_H

#include "backend/mpi_library.h"
#include "horovod.h"

/* Returns the type as which MPI moves elements. Only MPI_SUM of an integer or a real number computes with it.
 */
enum mpi_type mpi_type_of(hvd_dtype dtype);

/* Makes the operator at the first call and keeps it; returns an MPI error. An average is a sum here. */
int mpi_operator_of(const struct mpi_abi *abi, hvd_dtype dtype, hvd_reduction reduction, mpi_handle *op);

#endif
