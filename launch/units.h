/* units.h - figures with a unit that suits their size, for texts that people read. Pure; any thread. */
#ifndef HVD_LAUNCH_UNITS_H
#define HVD_LAUNCH_UNITS_H

#include <stddef.h>

/* Adds "0.43 ms", "74 ms", "1.2 s", "14 s", "16 min", "3.2 h" or "2.5 days". */
void append_duration(char *text, size_t capacity, double seconds);

/* Adds "432 B", "43 kB", "1.2 MB" or more. */
void append_bytes(char *text, size_t capacity, double bytes);

#endif
