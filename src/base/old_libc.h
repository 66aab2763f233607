/* old_libc.h - functions of glibc 2.26 to 2.32 for older versions and other libraries. CMake lets every file
 * include it if the libc lacks one of them, and defines which; no other file does. Any thread. */
#ifndef HVD_BASE_OLD_LIBC_H
#define HVD_BASE_OLD_LIBC_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef HVD_NO_MEMFD_CREATE
static inline int memfd_create(const char *name, unsigned flags)
{
    return (int)syscall(SYS_memfd_create, name, flags);
}
#endif

#ifdef HVD_NO_REALLOCARRAY
static inline void *reallocarray(void *memory, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(memory, count * size);
}
#endif

#ifdef HVD_NO_SIGABBREV_NP
/* The numbers are those of x86 and ARM. */
static inline const char *sigabbrev_np(int signal)
{
    static const char *const names[] = {NULL,     "HUP",  "INT",    "QUIT", "ILL",   "TRAP", "ABRT", "BUS",
                                        "FPE",    "KILL", "USR1",   "SEGV", "USR2",  "PIPE", "ALRM", "TERM",
                                        "STKFLT", "CHLD", "CONT",   "STOP", "TSTP",  "TTIN", "TTOU", "URG",
                                        "XCPU",   "XFSZ", "VTALRM", "PROF", "WINCH", "POLL", "PWR",  "SYS"};
    return signal > 0 && (size_t)signal < sizeof names / sizeof *names ? names[signal] : NULL;
}
#endif

#ifdef HVD_NO_BACKTRACE
/* Stacks have Python's frames only. */
static inline int backtrace(void **addresses, int capacity)
{
    (void)addresses;
    (void)capacity;
    return 0;
}
#endif

#endif
