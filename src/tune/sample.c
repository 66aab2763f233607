/* sample.c - see sample.h. */
#include "tune/sample.h"

#include <stdlib.h>
#include <string.h>

struct occurrence {
    int count;
    char name[];
};

void sample_fini(struct sample *sample)
{
    size_t cursor = 0;
    void *occurrence;
    while ((occurrence = map_next(&sample->occurrences, &cursor)))
        free(occurrence);
    map_free(&sample->occurrences);
}

void sample_begin(struct sample *sample, bool settled, int64_t now)
{
    sample_fini(sample);
    *sample = (struct sample){.steps = sample->steps, .settled = settled, .since = now};
}

/* A tensor for which there is no memory does not count; others do. */
void sample_note(struct sample *sample, const char *name)
{
    size_t length = strlen(name);
    struct occurrence *occurrence = map_get(&sample->occurrences, name, length);
    if (!occurrence) {
        occurrence = malloc(sizeof *occurrence + length);
        if (!occurrence)
            return;
        occurrence->count = 0;
        memcpy(occurrence->name, name, length);
        if (!map_put(&sample->occurrences, occurrence->name, length, occurrence)) {
            free(occurrence);
            return;
        }
    }
    occurrence->count++;
    sample->most = occurrence->count > sample->most ? occurrence->count : sample->most;
}

bool sample_is_over(const struct sample *sample)
{
    return sample->most > (sample->settled ? sample->steps : 1);
}

double sample_score(const struct sample *sample, int64_t now)
{
    return sample->bytes * 1000 / (double)(now - sample->since);
}
