/* silence.h - ranks that do not answer, and network paths that are broken between ranks that do
 * (docs/coordination.md, "Faults"). A rank that finds either floods that. A rank of which it is reported
 * floods an answer, if the report reaches it: then it is not lost, and only some ranks do not hear it. So all
 * that are still connected know the same when one of them ends the job: the root, or the top of what is cut
 * off from it, after a settling time, and any other rank after two. Called with the progress lock held. */
#ifndef HVD_COORDINATE_SILENCE_H
#define HVD_COORDINATE_SILENCE_H

#include "coordinate/state.h"

/* The reporter does not hear a place, a place has answered that, or a path is broken. The place `except` has
 * sent it (-1: this rank's engine). */
void silence_add(struct coordinator *c, int place, int reporter, int except);
void silence_add_present(struct coordinator *c, int place, int except);
void silence_add_broken(struct coordinator *c, const char *text, int except);

/* Ends the job when it is time, and when that is. */
void silence_check(struct coordinator *c, int64_t now);
int64_t silence_next(const struct coordinator *c);

/* Whether any of these was added. */
bool has_silent(const struct coordinator *c);

#endif
