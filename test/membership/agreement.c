/* agreement.c - see agreement.h. */
#include "agreement.h"

int agreement_version(const struct record *records, int size)
{
    int version = -1;
    for (int rank = 0; rank < size; rank++) {
        if (records[rank].has_state && records[rank].version > version)
            version = records[rank].version;
    }
    return version;
}

enum recovery agreement_recovery(const struct record *record, int version)
{
    if (!record->has_state || record->version != version)
        return RECOVERY_RECEIVE;
    return record->clean ? RECOVERY_KEEP : RECOVERY_RESTORE;
}

int agreement_source(const struct record *records, int size, int version)
{
    for (int rank = 0; rank < size; rank++) {
        if (records[rank].has_state && records[rank].version == version)
            return rank;
    }
    return -1;
}
