/* sample.h - one sample of a job's speed: bytes per microsecond over some training steps. A step is over when
 * a tensor comes again. Pure: the caller says what time it is. One thread at a time; zeroed memory is valid.
 */
#ifndef HVD_TUNE_SAMPLE_H
#define HVD_TUNE_SAMPLE_H

#include "base/map.h"

struct sample {
    struct map occurrences;
    int steps; /* wanted */
    int most;  /* occurrences of one tensor */
    bool settled;
    int64_t since; /* ns */
    double bytes;
};

/* Another one begins at `now`; unless `settled`, with a step that does not count: what is on its way at first
 * was sent off under other values. */
void sample_begin(struct sample *sample, bool settled, int64_t now);
void sample_fini(struct sample *sample);

/* A tensor is sent off. */
void sample_note(struct sample *sample, const char *name);

/* Whether the tensors noted last belong to the next sample: first ask for the score, if this one was settled,
 * then begin the next one and note them again. */
bool sample_is_over(const struct sample *sample);
double sample_score(const struct sample *sample, int64_t now);

#endif
