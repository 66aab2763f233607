/* units.c - see units.h. */
#include "units.h"

#include "base/status.h"

void append_duration(char *text, size_t capacity, double seconds)
{
    if (seconds < 0.00995)
        append_text(text, capacity, "%.2g ms", 1000 * seconds);
    else if (seconds < 0.9995)
        append_text(text, capacity, "%.0f ms", 1000 * seconds);
    else if (seconds < 9.95)
        append_text(text, capacity, "%.1f s", seconds);
    else if (seconds < 120)
        append_text(text, capacity, "%.0f s", seconds);
    else if (seconds < 7200)
        append_text(text, capacity, "%.0f min", seconds / 60);
    else if (seconds < 172800)
        append_text(text, capacity, "%.1f h", seconds / 3600);
    else
        append_text(text, capacity, "%.1f days", seconds / 86400);
}

void append_bytes(char *text, size_t capacity, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int unit = 0;
    for (; bytes >= 999.5 && unit < 5; unit++)
        bytes /= 1000;
    append_text(text, capacity, bytes >= 99.5 ? "%.0f %s" : "%.2g %s", bytes, units[unit]);
}
