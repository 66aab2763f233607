/* memory.h - which memory there is. The bytes of a device are in a mapping of its own, the shadow, at a
 * constant distance from the addresses that the program sees. Internal to the stand-ins; any thread. */
#ifndef HVD_TEST_STANDIN_MEMORY_H
#define HVD_TEST_STANDIN_MEMORY_H

#include "standin/driver.h"

#include <stdbool.h>
#include <stdint.h>

/* An allocation of a device, or a page-locked block of the host. */
struct memory_region {
    uint64_t start, end; /* equal: there is none */
    intptr_t distance;   /* from an address in it to its bytes */
    int device;
    bool is_host;
};

/* Reserves the addresses of that many devices, each with that many bytes of memory. */
void memory_open(int devices, size_t bytes);

bool memory_is_device(uint64_t address);

/* Returns the region around an address. */
struct memory_region memory_region(uint64_t address);

/* Returns where the bytes of an address are; NULL: it is a device's, and not all of them are allocated. */
__attribute__((visibility("default"))) void *memory_reach(uint64_t address, size_t bytes);

/* ---- for ipc.c ---------------------------------------------------------------------------------------- */

/* Where another process finds the bytes of an allocation. */
struct memory_place {
    int fd;
    uint64_t offset, bytes;
    int device;
};

/* Returns false if the address is in no allocation of this process's own. */
bool memory_place(uint64_t address, struct memory_place *place);

/* Maps bytes of another process among the addresses of a device; 0: that is not possible. */
uint64_t memory_map(int device, const struct memory_place *place);

/* Forgets an allocation that starts at this address, mapped or own as asked; returns false if there is none.
 */
bool memory_remove(uint64_t address, bool mapped);

#endif
