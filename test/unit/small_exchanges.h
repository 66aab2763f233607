/* small_exchanges.h - collectives for the small world that give every rank blocks of its own. */
#ifndef HVD_TEST_SMALL_EXCHANGES_H
#define HVD_TEST_SMALL_EXCHANGES_H

#include "small_world.h"

void scatter_run(const struct reduce_case *c, int size);

/* Rows of three bytes; at the end some that go nowhere. */
void exchange_init(struct work *work, const uint64_t *own_rows, int rank, int size);

void exchange_check(const struct work *works, int size);

#endif
