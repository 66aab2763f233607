/* energy.c - see energy.h. Since 2020 Linux lets only root read these counters, as their changes show what a
 * program computes. */
#include "energy.h"

#include <stdbool.h>
#include <stdio.h>

static bool read_joules(const char *folder, int package, const char *name, double *joules)
{
    char path[256];
    double microjoules;
    snprintf(path, sizeof path, "%s/intel-rapl:%d/%s", folder, package, name);
    FILE *file = fopen(path, "re");
    bool read = file && fscanf(file, "%lf", &microjoules) == 1;
    if (file)
        fclose(file);
    if (read)
        *joules = microjoules / 1e6;
    return read;
}

void energy_open(struct energy *energy, const char *folder)
{
    *energy = (struct energy){0};
    for (int i = 0; i < ENERGY_PACKAGES; i++) {
        if (!read_joules(folder, i, "energy_uj", &energy->packages[i].before) ||
            !read_joules(folder, i, "max_energy_range_uj", &energy->packages[i].range))
            return;
        energy->count++;
    }
}

double energy_read(struct energy *energy, const char *folder)
{
    for (int i = 0; i < energy->count; i++) {
        double now, before = energy->packages[i].before;
        if (!read_joules(folder, i, "energy_uj", &now))
            return -1;
        energy->joules += now >= before ? now - before : now + energy->packages[i].range - before;
        energy->packages[i].before = now;
    }
    return energy->count ? energy->joules : -1;
}
