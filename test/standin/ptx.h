/* ptx.h - an interpreter of the PTX that compilers make of plain kernels: integers, floats of 32 and 64 bits
 * and conversions of those of 16, branches, global, shared, local and parameter memory, vectors of loads and
 * stores, shuffles of a warp, barriers of a block, atomic additions. It refuses to load what it does not
 * know, and finds accesses that are misaligned or outside of memory. Internal to the stand-in; any thread. */
#ifndef HVD_TEST_STANDIN_PTX_H
#define HVD_TEST_STANDIN_PTX_H

#include "standin/driver.h"

enum { PTX_TEXT = 256 }; /* of a text that says why something failed */

struct ptx_module;
struct ptx_entry;
struct ptx_launch;

/* Returns NULL, and why, if there is anything in the text that it does not know. */
struct ptx_module *ptx_load(const char *text, char why[PTX_TEXT]);
void ptx_unload(struct ptx_module *module);

/* Returns a kernel, valid as long as the module; NULL: it has none of that name. */
const struct ptx_entry *ptx_find(const struct ptx_module *module, const char *name);

/* Copies the parameters. */
struct ptx_launch *ptx_prepare(const struct ptx_entry *entry, const unsigned grid[3], const unsigned block[3],
                               size_t shared, void *const *parameters);
void ptx_release(struct ptx_launch *launch);

/* Runs all blocks, one after the other. Returns CUDA_OK, or the error of the launch and why. */
CUresult ptx_run(const struct ptx_launch *launch, char why[PTX_TEXT]);

#endif
