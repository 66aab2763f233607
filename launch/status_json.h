/* status_json.h - a survey as JSON, for programs. Pure; any thread. */
#ifndef HVD_LAUNCH_STATUS_JSON_H
#define HVD_LAUNCH_STATUS_JSON_H

#include "survey.h"

#include <stdio.h>

/* Writes one object in one line. docs/watching.md lists its members. */
void status_json_write(const struct survey *survey, FILE *file);

#endif
