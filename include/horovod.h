/* horovod.h - collective operations among the ranks of a training job: the whole public C interface.
 *
 * A job is `size` ranks, numbered 0 ... size-1, usually one process each. Every rank opens a context,
 * submits operations by name, and waits for their handles. Ranks may submit in any order and at any
 * time: the engine runs an operation once every rank has submitted the same name, in one order that is
 * equal on all ranks.
 *
 * Threads:    every function may be called from any thread unless its comment says otherwise.
 * Errors:     a function that can fail returns a code and, where `status` is not NULL, writes code and
 *             text there. Outputs are written only on HVD_OK.
 * Order:      requests of one rank that use the same memory, and one of which writes it, run one after the
 *             other: in the order of their submission if that is the same on all ranks, otherwise in an
 *             order that the engine chooses for all ranks. If they belong to several process sets, their
 *             order, and which of them share memory, must be the same on all ranks. Tensors of one group
 *             that share memory run one after the other, in the order of the group, with no other request
 *             in between.
 * Ownership:  the caller keeps tensor memory valid and untouched (outputs unread) until the handle is done;
 *             names, shapes, factors and request structs are copied, and may be freed once the call
 *             returns.
 * Processes:  a context belongs to the process that opened it; after fork() the child gets HVD_FORKED
 *             from every call and must not use the parent's handles.
 */
#ifndef HOROVOD_H
#define HOROVOD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

/* ---- status ------------------------------------------------------------------------------------ */

/* What a function returns; hvd_status has the text. */
typedef enum hvd_code {
    HVD_OK = 0,
    HVD_IN_PROGRESS = 1,      /* not done yet; only from hvd_wait, hvd_test */
    HVD_INVALID_ARGUMENT = 2, /* this rank's own mistake; nothing was sent */
    HVD_DUPLICATE_NAME = 3,   /* an operation of this name is still in flight on this rank */
    HVD_MISMATCH = 4,         /* the ranks' requests differ, or an output does not fit; the job continues */
    HVD_PEER_LOST = 5,        /* a rank died or became unreachable; the context is finished */
    HVD_SHUT_DOWN = 6,        /* a rank left the job; the context is finished */
    HVD_OUT_OF_MEMORY = 7,
    HVD_SYSTEM = 8,       /* the operating system refused something; the text says what */
    HVD_TIMED_OUT = 9,    /* a peer or the rendezvous did not answer in time */
    HVD_REFUSED = 10,     /* authentication, protocol version or epoch did not match */
    HVD_UNSUPPORTED = 11, /* this build or this device does not support it */
    HVD_FORKED = 12,      /* the context belongs to the parent process */
    HVD_INTERRUPTED = 13  /* the caller asked to stop waiting, see hvd_config_set_interrupt */
} hvd_code;

/* What made an operation or the job fail, for programs; people read the text. */
typedef enum hvd_cause {
    HVD_CAUSE_NONE = 0,       /* no rank and no network is at fault: code and text say why */
    HVD_CAUSE_CONNECTION = 1, /* the connection to lost_rank ended without a shutdown; its process has
                                 probably ended */
    HVD_CAUSE_SILENCE = 2,    /* lost_rank does not answer: its process is stopped, or its host is down */
    HVD_CAUSE_HOST = 3,       /* no rank of `host` answers; lost_rank is the first of them */
    HVD_CAUSE_NETWORK =
        4,               /* a network between ranks that are alive is cut; `host`: cut off from all others */
    HVD_CAUSE_STALL = 5, /* lost_rank has not submitted an operation that others wait for */
    HVD_CAUSE_LEFT = 6,  /* lost_rank has left the job */
    HVD_CAUSE_EXCEPTION = 7 /* the program of a rank has raised an exception; see hvd_fault */
} hvd_cause;

/* "none", "connection", "silence", ... ; never NULL. */
HVD_API const char *hvd_cause_name(hvd_cause cause);

/* Bytes of the two texts of an hvd_status, the final 0 included. */
#define HVD_STATUS_TEXT 936
#define HVD_STATUS_HOST 76

/* A code, a sentence for the person who reads it, and the same facts as data, which are equal on all ranks.
 * The text is empty when the code is HVD_OK. Size and offset of the first two members never change. */
typedef struct hvd_status {
    hvd_code code;
    char text[HVD_STATUS_TEXT];
    char host[HVD_STATUS_HOST]; /* of the lost rank, or the one that is cut off; "": unknown */
    int32_t lost_rank;          /* the first one, of the job; -1: none */
    hvd_cause cause;            /* HVD_CAUSE_NONE: neither host nor lost_rank is set */
} hvd_status;

/* "HVD_OK", "HVD_MISMATCH", ... ; never NULL. */
HVD_API const char *hvd_code_name(hvd_code code);

/* ---- element types, reductions, operations ------------------------------------------------------ */

/* The types of the elements of a tensor. */
typedef enum hvd_dtype {
    HVD_UINT8 = 0,
    HVD_INT8 = 1,
    HVD_UINT16 = 2,
    HVD_INT16 = 3,
    HVD_INT32 = 4,
    HVD_INT64 = 5,
    HVD_FLOAT16 = 6,
    HVD_FLOAT32 = 7,
    HVD_FLOAT64 = 8,
    HVD_BOOL = 9, /* a byte: 0 is false, other values are true; results are 0 and 1 */
    HVD_BFLOAT16 = 10,
    HVD_UINT32 = 11,
    HVD_UINT64 = 12,
    HVD_COMPLEX64 = 13, /* two float32: real and imaginary part */
    HVD_COMPLEX128 = 14
} hvd_dtype;

/* Bytes of one element, 0 for an unknown type; "float32", or "unknown". */
HVD_API size_t hvd_dtype_size(hvd_dtype dtype);
HVD_API const char *hvd_dtype_name(hvd_dtype dtype);

/* Not every type has every reduction: for bool, sum and max are the logical or, product and min the logical
 * and, and there is no average; complex numbers have no min and max. */
typedef enum hvd_reduction {
    /* The sum divided by the number of ranks n; integers truncate towards zero. The sums of float16 and
     * bfloat16 never overflow if the average does not: elements are multiplied by 2^-k before they are added,
     * where 2^k is the first power of two that is not below n, and the sum is multiplied by 2^k / n and the
     * postscale factor in one step. */
    HVD_AVERAGE = 0,
    HVD_SUM = 1,
    HVD_ADASUM = 2, /* allreduce of floats: adds what is orthogonal, averages what is parallel, per tensor */
    HVD_MIN = 3,
    HVD_MAX = 4,
    HVD_PRODUCT = 5
} hvd_reduction;

/* What a request asks for. */
typedef enum hvd_operation {
    HVD_ALLREDUCE = 0, /* every output = reduction over the ranks' inputs */
    HVD_ALLGATHER = 1, /* output = inputs of rank 0, 1, ... joined along the first dimension */
    HVD_BROADCAST = 2, /* every output = the root's input */
    HVD_JOIN = 3, /* this rank has no more data: until every rank of the set has joined, it contributes the
                     reduction's identity to the requests of the others; no tensors. See hvd_joined_last */
    HVD_ALLTOALL = 5, /* output = the rows that rank 0, 1, ... sends to this rank, see `splits` */
    HVD_BARRIER = 6,  /* done once every rank has submitted it; no tensors */
    HVD_REDUCESCATTER =
        7, /* output = this rank's rows of the sum or average over the ranks' inputs: the first
              dimension is divided; the first (extent modulo size) ranks get one row more */
    HVD_ADD_PROCESS_SET = 8,   /* only through hvd_process_set_add, hvd_process_set_remove: */
    HVD_REMOVE_PROCESS_SET = 9 /* both are operations of all ranks of the job */
} hvd_operation;

/* "allreduce", or "unknown". */
HVD_API const char *hvd_operation_name(hvd_operation operation);

/* ---- tensors and requests ------------------------------------------------------------------------ */

/* Values as in DLPack. All tensors of a request are on devices of one type, which is the same on all ranks.
 */
typedef enum hvd_device_type {
    HVD_CPU = 1, /* also page-locked memory of the host, which has types of its own in DLPack */
    HVD_CUDA = 2 /* a GPU of NVIDIA; device_id is its number for the driver. The driver is opened with the
                    first such tensor, and a context only on the GPUs of tensors */
} hvd_device_type;

/* Returns 1 if this process has used tensors of a device other than the CPU, otherwise 0. */
HVD_API int hvd_has_devices(void);

/* The most dimensions of a tensor. */
#define HVD_MAX_DIMENSIONS 32

/* Dense, row-major memory of product(shape) elements. ndim 0 is one element. data may be NULL only when
 * there are no elements. */
typedef struct hvd_tensor {
    void *data;
    const int64_t *shape; /* ndim extents, in elements */
    int32_t ndim;
    hvd_dtype dtype;
    int32_t device_type; /* hvd_device_type */
    int32_t device_id;
} hvd_tensor;

/* Called once when the operation is done, by the thread that finishes it: a thread in hvd_wait, hvd_run or
 * hvd_help (for any operation of the context), a thread in hvd_shutdown, or the engine's own. That thread
 * holds no engine lock; the function may submit, and release its own handle, but must not wait. `status` is
 * valid during the call only. */
typedef void (*hvd_done_fn)(void *argument, const hvd_status *status);

/* One operation on one or more tensors. Zero-initialize it, set struct_size, then the members that apply. A
 * request of several tensors, of one element type or more, is a group: it runs as a whole or fails as a
 * whole, and ends once. Tensors that share memory which the group writes (the same one twice, a view) run one
 * after the other, in the order of the group; ranks whose tensors share memory differently get HVD_MISMATCH.
 * Tensors on a device are used after the work that is on `stream` or `streams` at hvd_submit; once the
 * operation is done its results are visible to all streams. A stream that is being captured into a CUDA graph
 * is HVD_UNSUPPORTED, and the capture goes on. */
typedef struct hvd_request {
    size_t struct_size; /* sizeof(hvd_request) of the caller */
    hvd_operation operation;
    const char *name; /* any text, also ""; together with the operation's name shorter than 1024 bytes. While
                         a name is in flight on a rank, the same operation under it is
                         HVD_DUPLICATE_NAME, and another operation (a group is another one) waits for it.
                         Ranks whose operations under a name differ get HVD_MISMATCH. NULL: the engine
                         numbers the request, so ranks must submit in the same order; its names never
                         equal yours. Barriers have numbers of their own */
    int32_t count;    /* number of tensors; 0 for an operation without any, such as a barrier or a join */
    int32_t grouped;  /* not 0: a group, even of one tensor */
    const hvd_tensor *inputs;  /* [count] */
    const hvd_tensor *outputs; /* [count], same types and shapes; NULL: in place. For allgather, alltoall and
                                  reducescatter the first extent must be the result's, otherwise this rank
                                  alone gets HVD_MISMATCH and its output stays unchanged; NULL: the engine
                                  allocates, see hvd_output. Output and input may overlap only in the rows of
                                  this rank, at the place that these have in both */
    hvd_reduction reduction;   /* allreduce, reducescatter */
    const double *prescale;    /* if the operation reduces: inputs are multiplied by it first, and rounded to
                                  their type; NULL: they are not. The same on all ranks; not for bool */
    const double *postscale;   /* if the operation reduces: the result is multiplied by it; NULL: it is not.
                                  Every value of a factor is applied as in IEEE 754: 0 makes zeros, and NaN of
                                  infinities. Integers are multiplied in float64, truncated towards zero, and
                                  limited to their type; their factors must be finite */
    int32_t root;              /* broadcast: the rank, numbered in the job, whose data are sent */
    const int64_t *splits; /* alltoall, [size]: that many consecutive rows are sent to rank 0, 1, ...; rows
                              beyond them are not sent. NULL: the same number to each rank */
    int32_t process_set;   /* 0: all ranks; otherwise an id from hvd_process_set_add */
    int32_t priority;      /* among ready requests the larger runs earlier; the same on all ranks */
    void *stream;     /* the caller's, of the device of all tensors, e.g. a CUstream or cudaStream_t; NULL:
                         its default one */
    int32_t waits;    /* not 0: the caller calls hvd_wait or hvd_help next, so no thread is woken for it */
    hvd_done_fn done; /* may be NULL */
    void *done_argument;
    const int32_t *ranks; /* HVD_ADD_PROCESS_SET: the members; otherwise NULL */
    int32_t rank_count;
    int32_t generated;    /* not 0: `name` was made by a binding whose user gave none: it never equals a name
                             that a user gave. It must not look like a number of the engine ("noname.1") */
    void *const *streams; /* instead of `stream` if the tensors' streams or devices differ: one for each
                             input, then one for each output in `outputs`; NULL: the default one of that
                             tensor's device */
} hvd_request;

/* ---- context ------------------------------------------------------------------------------------- */

/* The settings of a context; one rank of one job; an operation that was submitted. */
typedef struct hvd_config hvd_config;
typedef struct hvd_context hvd_context;
typedef struct hvd_handle hvd_handle;

/* Creates a set of settings, all at their defaults; NULL when memory is out. Free it after hvd_init. A config
 * is not thread-safe. docs/settings.md lists keys, ranges and defaults. */
HVD_API hvd_config *hvd_config_create(void);
HVD_API void hvd_config_free(hvd_config *config); /* NULL is fine */

/* Sets one value from text, e.g. ("rank", "3"), ("cycle_time_ms", "0.5"). Unknown key, malformed or
 * out-of-range value: HVD_INVALID_ARGUMENT. */
HVD_API hvd_code hvd_config_set(hvd_config *config, const char *key, const char *value, hvd_status *status);

/* Reads every HOROVOD_* variable that is set. */
HVD_API hvd_code hvd_config_load_environment(hvd_config *config, hvd_status *status);

/* hvd_init, hvd_process_set_add and hvd_process_set_remove call this function about ten times a second while
 * they wait for other ranks, in the thread of their caller. If it does not return 0 they stop waiting and
 * return HVD_INTERRUPTED. NULL: never. After an interrupted hvd_init the rank and its peers must open the
 * job's next epoch. An interrupted request for a process set has been sent nevertheless: the other ranks may
 * continue, and wait for this rank where its part is still needed. `argument` must stay valid as long as the
 * context. */
typedef int (*hvd_interrupt_fn)(void *argument);
HVD_API void hvd_config_set_interrupt(hvd_config *config, hvd_interrupt_fn ask, void *argument);

/* Makes the processes of an MPI communicator the ranks of the job; `comm` is the address of an MPI_Comm. All
 * of its processes call hvd_init, which exchanges everything else through it. It may be freed after hvd_init.
 * NULL: no communicator, or MPI_COMM_WORLD if HOROVOD_CPU_OPERATIONS=mpi and no rendezvous is given. */
HVD_API void hvd_config_set_mpi_comm(hvd_config *config, const void *comm);

/* Joins the job and blocks until all ranks have done so, at most `start_timeout_seconds`. config NULL:
 * the environment's. Without placement settings the job has size 1. */
HVD_API hvd_code hvd_init(const hvd_config *config, hvd_context **context, hvd_status *status);

/* Leaves the job and frees the context. Operations of this rank still in flight fail with HVD_SHUT_DOWN,
 * and so does everything that other ranks submit from now on. Waits until no rank needs this rank's
 * memory. No other call may use the context during or after this; handles stay valid until released.
 * NULL is fine. */
HVD_API void hvd_shutdown(hvd_context *context);

/* The place of a rank in its job. */
typedef struct hvd_placement {
    int32_t rank, size;             /* in the job */
    int32_t local_rank, local_size; /* among the ranks of this host */
    int32_t cross_rank, cross_size; /* among the ranks with this local rank on all hosts */
    int32_t homogeneous;            /* 1: every host has the same number of ranks; otherwise 0 */
} hvd_placement;

/* The place of this rank, which stays the same as long as the context. */
HVD_API hvd_placement hvd_get_placement(const hvd_context *context);

/* Returns HVD_OK while operations can be submitted; otherwise the first cause (a lost peer, a rank that
 * left). */
HVD_API hvd_code hvd_health(const hvd_context *context, hvd_status *status);

/* ---- faults -------------------------------------------------------------------------------------- */

/* Bytes of the texts of an hvd_fault, the final 0 included. */
#define HVD_FAULT_EXCEPTION 512
#define HVD_FAULT_FILE      256
#define HVD_FAULT_FUNCTION  128

/* Why a rank failed. The engine publishes one for its rank when it stops for a fault, under the key
 * "fault/<rank>" of its epoch at the rendezvous, where a starter finds it: see hvd_watch_open. */
typedef struct hvd_fault {
    size_t struct_size;                  /* sizeof(hvd_fault) of the caller */
    int32_t rank;                        /* which has published it */
    int32_t line;                        /* where the exception was raised; 0: unknown */
    hvd_status status;                   /* why the engine had stopped before; HVD_OK: it had not */
    char exception[HVD_FAULT_EXCEPTION]; /* type and text, "KeyError: 'x'"; "": there was none */
    char file[HVD_FAULT_FILE];           /* the last part of a path that is too long */
    char function[HVD_FAULT_FUNCTION];
} hvd_fault;

/* Publishes an exception, or any other fault of the program itself, that is about to end this rank: rank and
 * status are filled in. Waits at most `seconds` for the rendezvous, HVD_TIMED_OUT; without one, as in a job
 * of one rank without a launcher, it does nothing. What is too long is cut. */
HVD_API hvd_code hvd_publish_fault(hvd_context *context, const hvd_fault *fault, double seconds,
                                   hvd_status *status);

/* Reads the value of such a key. Set fault->struct_size first. HVD_REFUSED: it is malformed, or of another
 * version. */
HVD_API hvd_code hvd_read_fault(const void *value, size_t length, hvd_fault *fault, hvd_status *status);

/* ---- operations ---------------------------------------------------------------------------------- */

/* Starts an operation and returns its handle at once; it is in *handle before `done` can be called. `handle`
 * may be NULL when `done` is set. Release every handle once. */
HVD_API hvd_code hvd_submit(hvd_context *context, const hvd_request *request, hvd_handle **handle,
                            hvd_status *status);

/* Submits, waits, and returns in outputs[count] the results that the engine has allocated (two for alltoall,
 * see hvd_output; results in request->outputs are left out). `outputs` may be NULL for operations without
 * such results. The calling thread does the work itself, which is the fastest way for one operation at a
 * time. */
HVD_API hvd_code hvd_run(hvd_context *context, const hvd_request *request, hvd_tensor *outputs,
                         hvd_status *status);

/* Waits until the operation is done, at most `seconds` (negative: forever), and returns its outcome, or
 * HVD_IN_PROGRESS. May be called any number of times. The calling thread helps to make progress; with MPI's
 * collectives (HOROVOD_CPU_OPERATIONS=mpi) it may return later by the time of one of them. */
HVD_API hvd_code hvd_wait(hvd_handle *handle, double seconds, hvd_status *status);

/* For a thread that must not wait, after a submission with `waits`: makes progress until the operation is
 * done, at most `seconds`, or returns at once if another thread makes progress. `done` functions of other
 * operations may also run here. */
HVD_API void hvd_help(hvd_handle *handle, double seconds);

/* Sets `done` of an operation whose request had none: it is called once when the operation is done; at once,
 * by the calling thread, if it is already. HVD_INVALID_ARGUMENT: it has one. Not from two threads for one
 * handle. */
HVD_API hvd_code hvd_on_done(hvd_handle *handle, hvd_done_fn done, void *argument, hvd_status *status);

/* The outcome, or HVD_IN_PROGRESS; never blocks. */
HVD_API hvd_code hvd_test(hvd_handle *handle, hvd_status *status);

/* The result of tensor `index` of a finished allgather or reducescatter without outputs, on that tensor's
 * device; of an alltoall, index 0 is the rows and index 1 how many of them came from each rank, as int64
 * [size] on the CPU. Memory and shape belong to the handle; take them with hvd_output_take to keep them
 * longer: then free `data` with hvd_free. */
HVD_API hvd_code hvd_output(hvd_handle *handle, int32_t index, hvd_tensor *output, hvd_status *status);
HVD_API hvd_code hvd_output_take(hvd_handle *handle, int32_t index, hvd_tensor *output, hvd_status *status);

/* The rank of the job that joined last, the same on all ranks; of a finished HVD_JOIN. */
HVD_API hvd_code hvd_joined_last(hvd_handle *handle, int32_t *rank, hvd_status *status);

/* Frees what hvd_output_take and hvd_run handed out: pass output.data; the shape goes with it. NULL is
 * fine. */
HVD_API void hvd_free(void *data);

/* Releases the handle. An operation in flight continues; its tensors must stay valid until it is done. NULL
 * is fine. */
HVD_API void hvd_release(hvd_handle *handle);

/* ---- shared memory -------------------------------------------------------------------------------- */

/* Allocates memory for tensors that the other ranks of this host read in place, which saves a copy of the
 * bytes that are sent. All operations of any context accept it like other memory, and copy it if a peer
 * cannot map it. It is zeroed, starts at a page boundary, and belongs to the process until it is freed or the
 * process ends, in whatever way. Each call makes a file descriptor, and a mapping in each such rank: ask for
 * one large area rather than for many. HVD_SYSTEM: there is not that much memory. Writes of a child of fork()
 * are private; the child must not rely on the contents that it finds. */
HVD_API hvd_code hvd_shared_alloc(size_t bytes, void **memory, hvd_status *status);

/* No operation may still use it. Other ranks unmap it when they next wake. NULL is fine. */
HVD_API void hvd_shared_free(void *memory);

/* ---- process sets --------------------------------------------------------------------------------- */

/* Operations may run among some ranks only: a process set. Set 0 is all ranks. Each set has an order of its
 * own: operations of different sets never wait for each other. A request names its set by id. */

/* Makes a set of these ranks of the job, each once, in any order; in the set they are ordered ascending.
 * Every rank of the job calls it, members and others, with the same ranks and in the same order relative to
 * other such calls. Blocks until the members are connected. Ids count up and are never used again. */
HVD_API hvd_code hvd_process_set_add(hvd_context *context, const int32_t *ranks, int32_t count, int32_t *id,
                                     hvd_status *status);

/* As hvd_process_set_add, with an id of at least `least`: exactly that one if all sets so far had smaller
 * ids. `least` is the same on all ranks, and below HVD_OPENED_SETS. So sets keep their ids in the next epoch
 * of a job, if they are added in the order of their ids. */
HVD_API hvd_code hvd_process_set_add_from(hvd_context *context, int32_t least, const int32_t *ranks,
                                          int32_t count, int32_t *id, hvd_status *status);

/* As hvd_process_set_add, but called only by the members, which have agreed on the id by other means: any id
 * from HVD_OPENED_SETS on that no set of the job had before. Other ranks never know the set. HVD_PEER_LOST,
 * for the whole job, if a member does not call it in time. */
#define HVD_OPENED_SETS (1 << 20)
HVD_API hvd_code hvd_process_set_open(hvd_context *context, int32_t id, const int32_t *ranks, int32_t count,
                                      hvd_status *status);

/* Ends a set; every rank of the job calls it, or, at any time and without waiting, each member of one that
 * was opened. Operations that had not started on all members fail with
 * HVD_SHUT_DOWN, as does what is submitted to the set from now on. */
HVD_API hvd_code hvd_process_set_remove(hvd_context *context, int32_t id, hvd_status *status);

/* How many sets there are, set 0 included; ids[0 ... capacity) gets the first of them, ascending. */
HVD_API int32_t hvd_process_set_ids(hvd_context *context, int32_t *ids, int32_t capacity);

/* The number of members, and the first `capacity` of them in ranks[]; -1: there is no such set. */
HVD_API int32_t hvd_process_set_ranks(hvd_context *context, int32_t id, int32_t *ranks, int32_t capacity);

/* ---- counters ------------------------------------------------------------------------------------- */

/* Counts of this rank since hvd_init, for one operation of one process set. */
typedef struct hvd_counters {
    int32_t process_set;
    hvd_operation operation;
    uint64_t
        submitted; /* requests that the engine has taken; those neither succeeded nor failed are in flight */
    uint64_t succeeded, failed;
    uint64_t batches;    /* started: requests of one type that are ready together share one */
    uint64_t bytes;      /* of this rank's inputs in these batches */
    double wait_seconds; /* that callers spent in hvd_wait and hvd_run, added up over threads; without a limit
                            from when there was first nothing to do but wait */
    uint64_t nonfinite;  /* tensors with NaN or infinity in this rank's input, of those that
                            HOROVOD_CHECK_NONFINITE selects */
} hvd_counters;

/* The number of rows, one per process set and operation that was used, ordered by process set; rows[0 ...
 * capacity) gets the first of them. Always on; they only grow, also those of removed sets. Rows are read one
 * after the other while work goes on. 0 in a forked child. */
HVD_API int32_t hvd_get_counters(hvd_context *context, hvd_counters *rows, int32_t capacity);

/* For how long this rank, as a node of the tree of ranks (rank 0 is its root), has waited for one rank alone.
 */
typedef struct hvd_lateness {
    int32_t
        rank; /* this rank itself, or one that reports to it, together with the ranks that report to that */
    uint64_t count; /* waits */
    double seconds; /* since hvd_init; of several requests that lack the same rank at once each moment counts
                       once */
} hvd_lateness;

/* The number of ranks for which this one has waited alone, in process set 0; rows[0 ... capacity) gets the
 * first of them. A rank to which none reports has no rows. Of more than 191 ranks that report to one, these
 * are known of the first 191. 0 in a forked child. */
HVD_API int32_t hvd_get_lateness(hvd_context *context, hvd_lateness *rows, int32_t capacity);

/* ---- steps of training ---------------------------------------------------------------------------- */

/* Reports that the program has ended a step of training, for whoever watches the job: `horovodrun --status`,
 * metrics, the timeline. `step`: its number by the program's own count, from 0 on; -1: the number after the
 * last one. `samples`: how many this rank has trained on in it; 0: unknown. Nothing waits for a step, and
 * ranks need not agree on its number. Costs one read of the clock and some stores under a lock of its own,
 * about 0.1 microseconds; also fine after the job has failed. HVD_INVALID_ARGUMENT: a number is negative, or
 * `step` is above INT64_MAX / 2. */
HVD_API hvd_code hvd_step(hvd_context *context, int64_t step, int64_t samples, hvd_status *status);

/* Reports that an optimizer updates its parameters, as those of all frameworks do: a program that calls it
 * through one of them need not call hvd_step, but may, to add number and samples. Each step is counted once,
 * whoever reports it: when one reports again, the program or one of the optimizers, that has done so since
 * the last step was counted. So where a generator is updated once for five updates of its critic, there are
 * five steps. `optimizer`: any name that no other optimizer of this rank has. */
HVD_API hvd_code hvd_optimizer_step(hvd_context *context, const char *optimizer, hvd_status *status);

/* An optimizer was made that reports a step only once it has updated its parameters: not one that is left out
 * because of an overflow, while a loss scale is being found. A gradient that is not finite and was used is
 * then an alarm soon; where reported steps may have been left out, only if it lasts for 25 of them. */
HVD_API hvd_code hvd_expect_steps(hvd_context *context, hvd_status *status);

/* How far this rank has come since hvd_init. Set struct_size first. Nothing asks other ranks. */
typedef struct hvd_progress {
    size_t struct_size;  /* sizeof(hvd_progress) of the caller */
    uint64_t steps;      /* that were reported. If none was: how often this rank has submitted the name that
                            it has submitted most often, 0 if none came again */
    uint64_t samples;    /* of all steps */
    int64_t step;        /* the number of the last one; -1: there was none */
    double step_seconds; /* the median of the last 127 at most, each from the one before; 0: unknown */
    double last_step_seconds; /* since the last one was reported; -1: there was none */
    double up_seconds;        /* since hvd_init */
} hvd_progress;
HVD_API hvd_code hvd_get_progress(hvd_context *context, hvd_progress *found, hvd_status *status);

/* ---- parameters ----------------------------------------------------------------------------------- */

/* The length of a setting's value, of which text[0 ... capacity) gets as much as fits before a final 0; `key`
 * is its name in docs/settings.md. -1: there is no such setting. */
HVD_API int32_t hvd_get_setting(const hvd_context *context, const char *key, char *text, int32_t capacity);

/* A binding has compared the parameters of all ranks, as HOROVOD_CHECK_PARAMETERS asks for. `difference`:
 * which of them differ, in one sentence, or NULL. It is counted and shown by `horovodrun --status`; `warns`:
 * also logged. One thread at a time. */
HVD_API hvd_code hvd_parameters_checked(hvd_context *context, const char *difference, int32_t warns,
                                        hvd_status *status);

/* ---- timeline ------------------------------------------------------------------------------------- */

/* Records from now on when each tensor is negotiated and moved, as a Chrome trace (docs/timeline.md); what is
 * being recorded ends there. Rank 0 writes; on other ranks both calls do nothing. The setting `timeline` must
 * have been set, e.g. to DYNAMIC, else HVD_INVALID_ARGUMENT. A file that can't be written is HVD_SYSTEM. */
HVD_API hvd_code hvd_timeline_start(hvd_context *context, const char *path, int32_t mark_cycles,
                                    hvd_status *status);

/* Adds an event with this text, such as the beginning of a phase, if this rank records. */
HVD_API hvd_code hvd_timeline_mark(hvd_context *context, const char *text, hvd_status *status);

/* When it returns, the file is complete. Fine when nothing is recorded. hvd_shutdown does it, too. */
HVD_API hvd_code hvd_timeline_stop(hvd_context *context, hvd_status *status);

/* ---- stacks -------------------------------------------------------------------------------------- */

/* `horovodrun --status` asks a rank that others wait for what it does at this moment. A thread of the engine
 * answers: with the frames of an interpreter, if a binding has set this source, and otherwise, or if the
 * source does not return in time, with the C functions of the thread that called hvd_init, which it
 * interrupts by this signal. A program that has a handler of its own for it is not interrupted. SIGRTMAX is
 * POSIX: include <signal.h> where you use the macro. */
#define HVD_STACK_SIGNAL (SIGRTMAX - 3)

/* The functions write lines that end with '\n', and return their length: "P\t<file>\t<line>\t<function>" is a
 * frame, the innermost first. */
typedef struct hvd_stack_source {
    size_t struct_size; /* sizeof(hvd_stack_source) of the caller */
    /* Writes the frames of all threads, those with these ids (gettid's) first; "T\t<id>\t<name>" is in front
     * of the frames of each. A thread of the engine calls it, one call at a time. It may wait, e.g. for the
     * interpreter's lock, and need not return. */
    size_t (*write)(const int32_t *threads, int32_t count, char *text, size_t capacity);
    /* Called in the signal's handler, so it must be async-signal-safe: keeps the frames of this thread. May
     * be NULL. */
    void (*mark)(int signal);
    /* Writes the frames that `mark` has kept. It must not wait for the interpreter. */
    size_t (*marked)(char *text, size_t capacity);
} hvd_stack_source;

/* For all contexts of the process; NULL: none. When it returns, no function of the former source runs, except
 * a `write` that has not returned within a second: then the result is HVD_TIMED_OUT, though the source is
 * set. HVD_INVALID_ARGUMENT: the former source stays. */
HVD_API hvd_code hvd_set_stack_source(const hvd_stack_source *source, hvd_status *status);

/* ---- rendezvous ---------------------------------------------------------------------------------- */

/* The key-value store through which the ranks of a job find each other. horovodrun serves one; a program
 * that starts its ranks itself (threads, a scheduler) serves its own: set "rendezvous" to its address
 * and "secret" to the same text on every rank. It runs in a thread of its own. */
typedef struct hvd_rendezvous hvd_rendezvous;

/* Listens on `address`: a numeric one ("127.0.0.1", NULL: all interfaces) at a free port, or with a port or a
 * range of ports: "10.0.0.7:4000", "[fd00::7]:20000-20099", ":4000" (all interfaces). The first free one of
 * a range is taken; HVD_SYSTEM: none is. Several addresses, separated by commas, at most 8, share one port:
 * "10.0.0.7,[fd00::7]:4000". */
HVD_API hvd_code hvd_rendezvous_start(const char *address, const char *secret, hvd_rendezvous **rendezvous,
                                      hvd_status *status);
HVD_API int hvd_rendezvous_port(const hvd_rendezvous *rendezvous);
HVD_API void hvd_rendezvous_stop(hvd_rendezvous *rendezvous); /* NULL is fine */

/* An epoch is one set of ranks that train together, numbered by the setting "epoch" (0). After hvd_shutdown,
 * also after an error, a process may call hvd_init again with a later number: ranks and size may have
 * changed. When ranks of a newer epoch come, those of an older one are refused at the rendezvous, with
 * HVD_REFUSED and a text that names both numbers. A starter that assigns ranks itself gives each process
 * a "slot", a name that it keeps in all epochs, and publishes the assignments of each epoch: */
typedef struct hvd_assignment {
    const char *slot; /* as in the setting of that name */
    int32_t rank; /* 0 ... size - 1, each once; -1: this process is not in the epoch (in epoch 0 it must not
                     be started with a rank: it would join before it is refused) */
    const char *host; /* as the setting "host_id"; NULL: found out */
} hvd_assignment;

/* Begins an epoch of a job, whose size is the number of ranks assigned, and drops what the rendezvous
 * holds of older ones. hvd_init waits for the assignment of its slot; -1 is HVD_REFUSED there. Once for each
 * epoch. HVD_REFUSED: a newer one has begun. */
HVD_API hvd_code hvd_rendezvous_assign(hvd_rendezvous *rendezvous, const char *job, int32_t epoch,
                                       const hvd_assignment *assignments, int32_t count, hvd_status *status);

/* Puts a key of the starter's own into an epoch, in place of one that is there. It stays until a newer epoch
 * begins. Keys are shorter than 256 bytes, values at most 65536. HVD_REFUSED: a newer one has begun. */
HVD_API hvd_code hvd_rendezvous_put(hvd_rendezvous *rendezvous, const char *job, int32_t epoch,
                                    const char *key, const void *value, size_t length, hvd_status *status);

/* The keys of an epoch that begin with `prefix`, those of faults and of the starter, as they are put. Belongs
 * to one thread at a time; close it before hvd_rendezvous_stop. */
typedef struct hvd_watch hvd_watch;
HVD_API hvd_code hvd_watch_open(hvd_rendezvous *rendezvous, const char *job, int32_t epoch,
                                const char *prefix, hvd_watch **watch, hvd_status *status);
HVD_API void hvd_watch_close(hvd_watch *watch); /* NULL is fine */

/* The next key that was put, each in its order: key and value stay valid until the next call. Of a key that
 * was put twice since only the newer value is there. Waits at most `seconds`: HVD_TIMED_OUT. HVD_REFUSED: a
 * newer epoch has begun. */
typedef struct hvd_entry {
    size_t struct_size; /* sizeof(hvd_entry) of the caller */
    const char *key;
    const void *value;
    size_t length;
    uint64_t number; /* counts all puts at this rendezvous */
} hvd_entry;
HVD_API hvd_code hvd_watch_next(hvd_watch *watch, double seconds, hvd_entry *entry, hvd_status *status);

/* For a loop that waits for more: readable when hvd_watch_next without a wait, after one that has returned
 * HVD_TIMED_OUT, may have something. */
HVD_API int hvd_watch_descriptor(const hvd_watch *watch);

/* ---- elastic jobs ------------------------------------------------------------------------------------- */

/* In an elastic job processes come and go while it runs: its starter, e.g. horovodrun with --min-np, begins
 * a new epoch when some are lost, or others are ready to take part. A process talks to its starter through an
 * hvd_epochs, from its start to its end and over all epochs. The config gives rendezvous, secret, job and
 * slot; hvd_config_load_environment reads those of horovodrun. When the starter has ended, so does the
 * process, unless it is done: by SIGTERM, and after the setting "grace_seconds" by SIGKILL. Any thread; one
 * at a time waits. */
typedef struct hvd_epochs hvd_epochs;
HVD_API hvd_code hvd_epochs_open(const hvd_config *config, hvd_epochs **epochs, hvd_status *status);
/* The starter sees the end of the connection, as it sees the end of the process. NULL is fine. */
HVD_API void hvd_epochs_close(hvd_epochs *epochs);

/* The place of a process in an epoch. */
typedef struct hvd_epoch {
    size_t struct_size; /* sizeof(hvd_epoch) of the caller */
    int32_t number;     /* for the setting "epoch" of the next hvd_init */
    int32_t rank, size; /* of this process in it */
} hvd_epoch;

/* What a process says of itself when it waits for an epoch. */
typedef struct hvd_epoch_question {
    size_t struct_size; /* sizeof(hvd_epoch_question) of the caller */
    int32_t after;      /* the epoch that this process has left by hvd_shutdown; -1: it was in none, and is
                           ready to take part */
    int32_t
        holds_state;   /* 1: it has the state of the training, so that others can get it from this process */
    int32_t lost_rank; /* the rank that it has lost, of hvd_status; -1: none, or unknown */
} hvd_epoch_question;

/* Waits for an epoch that is newer than question->after. At most `seconds`; HVD_TIMED_OUT: call it again,
 * what was reported holds. HVD_REFUSED: the starter has taken this process out. HVD_SHUT_DOWN: the job has
 * ended. HVD_PEER_LOST: the starter can't be reached. Set struct_size of both structs first. */
HVD_API hvd_code hvd_epoch_wait(hvd_epochs *epochs, const hvd_epoch_question *question, double seconds,
                                hvd_epoch *next, hvd_status *status);

/* What the starter has noticed in this epoch, as bits; 0: nothing. Each of them asks to leave the epoch at
 * the next good moment and to wait for the next one. Never blocks. An interrupt of hvd_config_set_interrupt
 * may ask for HVD_NOTICE_LOST, so that hvd_init does not wait for a rank that is gone. */
typedef enum hvd_notice {
    HVD_NOTICE_REMOVED = 1, /* processes are to leave */
    HVD_NOTICE_ADDED = 2,   /* processes are ready to take part */
    HVD_NOTICE_LOST = 4     /* a process of the epoch has ended, or a newer epoch has begun */
} hvd_notice;
#define HVD_NOTICE_ALL 7
HVD_API int32_t hvd_epoch_notice(hvd_epochs *epochs, int32_t epoch);

/* Reports that the work of this process is complete: the job succeeds once all of the last epoch are.
 * HVD_TIMED_OUT: the starter is stopped, or very busy; call it again. */
HVD_API hvd_code hvd_epoch_done(hvd_epochs *epochs, hvd_status *status);

/* Asks the starter to let this process leave the job. It does so with the next epoch, which begins soon, if
 * the other ranks are enough: hvd_epoch_wait then returns HVD_REFUSED. Until then the process goes on. Any
 * thread, not in the handler of a signal. */
HVD_API hvd_code hvd_epoch_leave(hvd_epochs *epochs, hvd_status *status);

/* The starter's side. To begin an epoch it publishes the assignments by hvd_rendezvous_assign, and then sends
 * news to every slot. They replace those before. */
typedef enum hvd_news_kind {
    HVD_NEWS_EPOCH = 0, /* the epoch with this number has begun; again with a notice: it is to be left */
    HVD_NEWS_OUT = 1,   /* the slot is no longer in the job */
    HVD_NEWS_OVER = 2   /* the job has ended */
} hvd_news_kind;

/* News for one slot, and the function that sends them. */
typedef struct hvd_news {
    size_t struct_size; /* sizeof(hvd_news) of the caller */
    const char *slot;
    hvd_news_kind kind;
    int32_t epoch, rank, size; /* of HVD_NEWS_EPOCH */
    int32_t notice;            /* bits of hvd_notice */
    const char *reason;        /* for people, of the other two; at most 255 bytes count; NULL: none */
} hvd_news;
HVD_API hvd_code hvd_rendezvous_send_news(hvd_rendezvous *rendezvous, const char *job, const hvd_news *news,
                                          hvd_status *status);

/* A watch for what slots report, over all epochs. The key of an entry is the slot. Its value is "entered"
 * once the process has opened its hvd_epochs, "ready" (hvd_epoch_wait after -1), "waits <after> <holds_state>
 * <lost_rank>" or "done", each followed by " leaves" after hvd_epoch_leave. Once the process has ended or
 * has closed its hvd_epochs it is empty, but for "done", which stays. */
HVD_API hvd_code hvd_rendezvous_watch_slots(hvd_rendezvous *rendezvous, const char *job, hvd_watch **watch,
                                            hvd_status *status);

/* Drops the news and the last report of a slot whose process has ended, after its last report was seen: a
 * starter that replaces processes again and again calls this, so that the rendezvous does not fill. */
HVD_API hvd_code hvd_rendezvous_forget_slot(hvd_rendezvous *rendezvous, const char *job, const char *slot,
                                            hvd_status *status);

/* ---- snapshots ----------------------------------------------------------------------------------------- */

/* A copy of a state that is equal on all ranks, such as parameters and what optimizers keep: one for each
 * host, in memory that its ranks share. Each rank copies a part, in a thread of its own, so that saving costs
 * the caller next to nothing. It has two versions in turns, and survives the end of any rank of the host at
 * any moment. A snapshot belongs to the process and outlives contexts, as elastic jobs need it. One thread at
 * a time. In a child of fork() it can only be freed, which then does nothing. */
typedef struct hvd_snapshot hvd_snapshot;

/* Until hvd_snapshot_join this process keeps its copy alone. */
HVD_API hvd_code hvd_snapshot_create(hvd_snapshot **snapshot, hvd_status *status);
/* Opens the memory of a snapshot by its descriptor, which another process may have kept when all processes of
 * a job had ended, and which stays the caller's. Such a snapshot can be read, but not saved.
 * HVD_INVALID_ARGUMENT: it is no such memory, or that of another version of the library. */
HVD_API hvd_code hvd_snapshot_open(int32_t descriptor, hvd_snapshot **snapshot, hvd_status *status);
/* The descriptor of its memory, which changes in hvd_snapshot_join. A process that gets it over a local
 * socket keeps all that is copied as long as it has it. */
HVD_API int32_t hvd_snapshot_descriptor(const hvd_snapshot *snapshot);
/* What is being copied is abandoned. NULL is fine. */
HVD_API void hvd_snapshot_free(hvd_snapshot *snapshot);

/* From now on shares the copy with the ranks of this host. All ranks of the job call it, with any snapshot of
 * the same state, before they save in a new epoch; what was being copied is abandoned. If the ranks have a
 * copy from the epoch before, they keep it, and processes that are new on the host can read it. If one of
 * them can't map the memory of the others, each rank of that host keeps its own. */
HVD_API hvd_code hvd_snapshot_join(hvd_snapshot *snapshot, hvd_context *context, hvd_status *status);

/* A part of a state. */
typedef struct hvd_memory {
    void *data;
    size_t bytes;
} hvd_memory;

/* Starts to copy this rank's share of the parts, which must not change before hvd_snapshot_wait has returned.
 * All ranks of the host save the same versions, which rise, of equal parts. If the version before is not
 * whole, this call waits for it first, and fails as hvd_snapshot_wait does. `own` are further parts, which
 * may differ from rank to rank: those of the first rank of each host belong to the version, and the others'
 * are left out. `context`: the one of hvd_snapshot_join, or NULL without it. */
HVD_API hvd_code hvd_snapshot_save(hvd_snapshot *snapshot, hvd_context *context, int64_t version,
                                   const hvd_memory *parts, int32_t count, const hvd_memory *own,
                                   int32_t own_count, hvd_status *status);

/* Waits until the version saved last is whole: all ranks of the host have copied their shares. Call it before
 * the state changes. An error means that it may never be: HVD_PEER_LOST and the like if the job has failed,
 * HVD_TIMED_OUT after the setting timeout_seconds, HVD_MISMATCH if another rank saves other parts,
 * HVD_SYSTEM if there is no memory. The version before is whole then, and the parts are no longer read. */
HVD_API hvd_code hvd_snapshot_wait(hvd_snapshot *snapshot, hvd_context *context, hvd_status *status);

/* The newest whole version; -1: there is none. The size of its parts is in *bytes, that of the further parts
 * of the host's first rank in *own; both may be NULL. */
HVD_API int64_t hvd_snapshot_version(const hvd_snapshot *snapshot, size_t *bytes, size_t *own);

/* Copies `bytes` bytes at `offset` of a whole version, all parts one after the other, the further ones last,
 * to `memory`. It stays whole until this rank has saved two later ones. HVD_INVALID_ARGUMENT: there are no
 * such bytes. */
HVD_API hvd_code hvd_snapshot_read(hvd_snapshot *snapshot, int64_t version, size_t offset, void *memory,
                                   size_t bytes, hvd_status *status);

/* ---- this build and this host --------------------------------------------------------------------- */

/* The version of the library, "1.0.0". */
HVD_API const char *hvd_version(void);

/* The MPI libraries that HOROVOD_CPU_OPERATIONS=mpi can use, by name, version and path, in found->text. Opens
 * them, but initialises none. HVD_UNSUPPORTED: there is none. `path` (HOROVOD_MPI_LIBRARY): this one only;
 * NULL: any. */
HVD_API hvd_code hvd_find_mpi(const char *path, hvd_status *found);

/* The GPUs of NVIDIA that this process can use, by number, name and version of CUDA, in found->text. Opens
 * the driver, but no context; a child of fork() can't use GPUs after this. HVD_UNSUPPORTED: there are none;
 * the text says why. */
HVD_API hvd_code hvd_find_cuda(hvd_status *found);

/* The version of CUDA up to which the driver serves programs, 13000 for 13.0; 0: there is no driver. Does not
 * initialise the driver. */
HVD_API int32_t hvd_cuda_version(void);

/* NVIDIA's NCCL that tensors on GPUs can use, by version and path in found->text; *version: as ncclGetVersion
 * returns it, 22707 for 2.27.7. Opens it. HVD_UNSUPPORTED: there is none, and *version is 0. `path`
 * (HOROVOD_NCCL_LIBRARY): this one, unless the process has loaded another one; NULL: any. */
HVD_API hvd_code hvd_find_nccl(const char *path, int32_t *version, hvd_status *found);

/* The numeric addresses of this host that `interfaces`, a value of the setting network_interface, allows, in
 * found->text: separated by commas, the best first, loopback only if there is no other. "": all.
 * HVD_INVALID_ARGUMENT: there is none. */
HVD_API hvd_code hvd_find_addresses(const char *interfaces, hvd_status *found);

#ifdef __cplusplus
}
#endif
#endif
