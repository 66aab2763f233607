/* energy.h - the energy that the processors of this host have used, by Intel's and AMD's counters (RAPL). One
 * thread. */
#ifndef HVD_LAUNCH_ENERGY_H
#define HVD_LAUNCH_ENERGY_H

#define ENERGY_PACKAGES 16

struct energy {
    struct {
        double before, range; /* joules; the counter starts again at the range */
    } packages[ENERGY_PACKAGES];
    int count;
    double joules;
};

/* Finds the counters below `folder`, /sys/class/powercap; none if they are not to be read by this user. */
void energy_open(struct energy *energy, const char *folder);

/* Returns the joules since energy_open, or -1: they are not known. Call it once a minute at least: the
 * counters are short. */
double energy_read(struct energy *energy, const char *folder);

#endif
