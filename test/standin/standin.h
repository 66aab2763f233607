/* standin.h - a libcuda.so.1 for machines without a GPU, and what a test can ask of it in addition to CUDA's
 * functions.
 *
 * Memory: an address of a device is in a range that the host can't access; a dereference ends by SIGSEGV.
 * Fresh memory is garbage. An address is never used again. Work that reads or writes outside of a living
 * allocation breaks the context of its device, as on a GPU: from then on every call returns the error.
 *
 * Order: a stream is a thread with a queue. Only what CUDA orders is ordered: work of one stream, events, and
 * the legacy default stream with blocking streams. Each piece of work starts late by a random time.
 *
 * Kernels are interpreted from their PTX text; ptx.h says what is known of it.
 *
 * Environment, read by cuInit:
 *   STANDIN_DEVICES=2              devices of this machine; CUDA_VISIBLE_DEVICES chooses of them
 *   STANDIN_MEMORY_MB=1024         memory of each device
 *   STANDIN_DELAY_US=200           the most by which a piece of work starts late
 *   STANDIN_SEED=1                 of the delays
 *   STANDIN_FAIL=symbol:n[:code]   as standin_fail; CUDA_ERROR_UNKNOWN if there is no code
 *
 * Missing: graphs (a captured stream drops its work), memory pools, virtual memory, IPC events, peer access.
 */
#ifndef HVD_TEST_STANDIN_H
#define HVD_TEST_STANDIN_H

#include "standin/driver.h"

#include <stdbool.h>

#pragma GCC visibility push(default)

/* No work of the stream starts until standin_release; returns when none is running. NULL: the default stream
 * of the current device. */
void standin_hold(CUstream stream);
void standin_release(CUstream stream);

/* Makes a stream record a graph, as a program would; `false` ends all recordings of its device. */
void standin_capture(CUstream stream, bool capturing);

/* From now on the n-th call of this function fails with the code. Codes from 700 to 719 break the current
 * context, as they would on a GPU. */
void standin_fail(const char *symbol, int n, CUresult code);

/* Number of calls of a function so far, NULL: of all functions; in a forked process since the fork. */
int standin_calls(const char *symbol);

/* The most by which work starts late, in microseconds. */
void standin_delay(int microseconds);

#pragma GCC visibility pop

#endif
