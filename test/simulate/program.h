/* program.h - how the programs of process sets are drawn; for scenario.c. */
#ifndef SIMULATE_PROGRAM_H
#define SIMULATE_PROGRAM_H

#include "scenario.h"

/* The program of all ranks, and with it the sets that it adds. */
void program_draw(struct scenario *scenario, uint64_t *random);

#endif
