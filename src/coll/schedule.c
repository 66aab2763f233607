/* schedule.c - see schedule.h. */
#include "coll/schedule.h"

#include "base/pool.h"

bool step_is_local(const struct step *step)
{
    return step->kind == STEP_COPY || step->kind == STEP_COMPUTE;
}

void schedule_clear(struct schedule *schedule)
{
    schedule->count = 0;
    schedule->failed = false;
}

void schedule_free(struct schedule *schedule)
{
    pages_give(schedule->steps, (size_t)schedule->capacity * sizeof *schedule->steps);
    *schedule = (struct schedule){0};
}

static bool grow(struct schedule *schedule)
{
    int capacity = schedule->capacity ? schedule->capacity * 2 : 16;
    struct step *steps = pages_resize(schedule->steps, (size_t)schedule->capacity * sizeof *steps,
                                      (size_t)capacity * sizeof *steps);
    if (!steps)
        return false;
    schedule->steps = steps;
    schedule->capacity = capacity;
    return true;
}

int schedule_add(struct schedule *schedule, struct step step)
{
    if (schedule->count == schedule->capacity && !grow(schedule))
        schedule->failed = true;
    if (schedule->failed)
        return STEP_NO_GATE;
    schedule->steps[schedule->count] = step;
    return schedule->count++;
}
