/* foreign.h - what scripts written for Horovod may ask for beside our settings: see foreign.def. */
#ifndef HVD_LAUNCH_FOREIGN_H
#define HVD_LAUNCH_FOREIGN_H

#include "horovod.h"

#include <stdbool.h>

struct options;

enum foreign_kind { FOREIGN_SWITCH, FOREIGN_CHOICE, FOREIGN_NUMBER, FOREIGN_PAIR, FOREIGN_WORD };
enum foreign_effect { FOREIGN_NEEDLESS, FOREIGN_REFUSED, FOREIGN_SAME, FOREIGN_OPPOSITE };

/* What was asked for. */
enum foreign_answer { FOREIGN_OPEN, FOREIGN_NO, FOREIGN_YES };

/* One row; the columns are explained in foreign.def. */
struct foreign {
    const char *shorter, *name, *argument;
    enum foreign_kind kind;
    double minimum, maximum;
    const char *config_key, *environment;
    enum foreign_effect effect;
    const char *setting, *text;
};

extern const struct foreign foreign_table[];
extern const int foreign_count;

const struct foreign *foreign_by_flag(const char *flag);      /* without dashes; NULL when there is none */
const struct foreign *foreign_by_config_key(const char *key); /* NULL when there is none */

/* Checks the value that `source` gives, and does what the row says of it. A switch's value is yes or no. */
hvd_code foreign_take(struct options *options, const struct foreign *foreign, const char *value,
                      const char *source, hvd_status *status);

/* Takes the variables of the environment that the command line and the config file left open. */
hvd_code foreign_take_environment(struct options *options, hvd_status *status);

/* With --verbose: tells on stderr what was asked for and is not done. */
void foreign_tell(const struct options *options);

#endif
