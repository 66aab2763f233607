/* silence.h - ranks that do not answer, and network paths that are broken between ranks that do
 * (docs/coordination.md, "Faults"). A rank that finds either floods a report. A reported rank that receives
 * the report floods an answer: then it is not lost, and only the paths to some ranks are broken. So all ranks
 * that are still connected have the same reports when one of them ends the job: the root, or the top of a
 * subtree that is cut off from it, after a settling time, and any other rank after two. Called with the
 * progress lock held. */
#ifndef HVD_COORDINATE_SILENCE_H
#define HVD_COORDINATE_SILENCE_H

#include "coordinate/state.h"

/* Add a report that `place` is silent, the answer of a reported place, or a report of a broken path, which
 * the place `except` has sent (-1: this rank's engine). */
void silence_add(struct coordinator *c, int place, int reporter, int except);
void silence_add_present(struct coordinator *c, int place, int except);
void silence_add_broken(struct coordinator *c, const char *text, int except);

/* silence_check ends the job once the time that silence_next returns has passed. */
void silence_check(struct coordinator *c, int64_t now);
int64_t silence_next(const struct coordinator *c);

/* Returns true if any report was added. */
bool has_silent(const struct coordinator *c);

#endif
