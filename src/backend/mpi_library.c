/* mpi_library.c - finds, opens and initialises the process's MPI library, and keeps the communicator of the
 * job's ranks. Any thread; `process.lock` protects opening. Once open, the table never changes, and the base
 * communicator only while a job is joined. */
#include "backend/mpi_library.h"

#include "base/status.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    const struct mpi_abi *abi; /* NULL: not open */
    char path[4096];           /* path of the library */
    mpi_handle base;           /* the communicator that mpi_set_base has made */
    bool has_base;
    pid_t initialiser; /* the process that has called MPI_Init_thread */
    atomic_bool skips_finalize;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool mpi_is_chosen(const struct settings *settings)
{
    return strcasecmp(settings->cpu_operations, "mpi") == 0;
}

/* ---- which library ------------------------------------------------------------------------------------ */

static bool is_mpi(const char *path)
{
    static const char *const names[] = {"libmpi.so", "libmpich.so", "libmpi_abi.so", "libmpi_cray.so",
                                        "libmpi_gnu"};
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static int find_loaded(struct dl_phdr_info *object, size_t bytes, void *argument)
{
    char *path = argument;
    (void)bytes;
    if (!is_mpi(object->dlpi_name))
        return 0;
    snprintf(path, sizeof process.path, "%s", object->dlpi_name);
    return 1;
}

/* RTLD_GLOBAL: components of Open MPI search its symbols among the global ones. */
static void *open_at(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (library && path != process.path)
        snprintf(process.path, sizeof process.path, "%s", path);
    return library;
}

/* Opens a library in `lib` next to the folder of the first mpirun on the PATH. */
static void *open_beside_starter(const char *name)
{
    char path[sizeof process.path];
    const char *folders = getenv("PATH");
    while (folders && *folders) {
        int length = (int)strcspn(folders, ":");
        snprintf(path, sizeof path, "%.*s/mpirun", length, folders);
        if (!access(path, X_OK)) {
            snprintf(path, sizeof path, "%.*s/../lib/%s", length, folders, name);
            return open_at(path);
        }
        folders += length + (folders[length] == ':');
    }
    return NULL;
}

static void *open_first(const char *const *names)
{
    void *library = NULL;
    for (int i = 0; !library && names[i]; i++) {
        library = open_beside_starter(names[i]);
        if (!library)
            library = open_at(names[i]);
    }
    return library;
}

static bool started_by_openmpi(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") || (getenv("PMIX_RANK") && !getenv("PMI_RANK"));
}

static bool started_by_mpi(void)
{
    return started_by_openmpi() || getenv("PMI_RANK") || getenv("PMI_FD") || getenv("PMI_SIZE");
}

static const char *const openmpi[] = {"libmpi.so.40", "libmpi_abi.so.1", "libmpi_abi.so.0", NULL},
                         *const mpich[] = {"libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1",
                                           "libmpi_abi.so.0", NULL};

static void *open_library(const struct settings *settings)
{
    if (dl_iterate_phdr(find_loaded, process.path))
        return open_at(process.path);
    if (*settings->mpi_library)
        return open_at(settings->mpi_library);
    return open_first(started_by_openmpi() ? openmpi : mpich);
}

/* Writes the library's name, version and path. */
static void describe(void *library, hvd_status *found)
{
    char version[MPI_TEXT_LIMIT] = "";
    int (*get_version)(char *text, int *length), length;
    void *symbol = dlsym(library, "MPI_Get_library_version");
    memcpy(&get_version, &symbol, sizeof symbol);
    Dl_info place;
    if (!symbol || get_version(version, &length) || !dladdr(symbol, &place))
        return;
    append_text(found->text, sizeof found->text, "%s", *found->text ? "; " : "");
    version[strcspn(version, ",\n")] = '\0';
    char *rest = version;
    for (char *word; (word = strtok_r(rest, " \t", &rest));)
        append_text(found->text, sizeof found->text, "%s ", word);
    append_text(found->text, sizeof found->text, "(%s)", place.dli_fname);
    found->code = HVD_OK;
}

static void describe_first(const char *const *names, hvd_status *found)
{
    void *library = NULL;
    for (int i = 0; !library && names[i]; i++)
        library = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
    if (library)
        describe(library, found);
}

hvd_code hvd_find_mpi(const char *path, hvd_status *found)
{
    *found = (hvd_status){.code = HVD_UNSUPPORTED};
    if (path && *path) {
        describe_first((const char *const[]){path, NULL}, found);
    } else {
        describe_first(openmpi, found);
        describe_first(mpich, found);
    }
    return found->code;
}

/* ---- which interface ---------------------------------------------------------------------------------- */

static const struct mpi_abi *abi_of(void *library)
{
    int (*get_abi)(int *major, int *minor);
    int (*get_version)(char *text, int *length);
    void *symbol = dlsym(library, "MPI_Abi_get_version");
    int major = -1, minor = -1, length;
    memcpy(&get_abi, &symbol, sizeof symbol);
    if (symbol && !get_abi(&major, &minor) && major == 1)
        return &mpi_standard;
    if (dlsym(library, "ompi_mpi_comm_world"))
        return &mpi_openmpi;
    char version[MPI_TEXT_LIMIT] = "";
    symbol = dlsym(library, "MPI_Get_library_version");
    memcpy(&get_version, &symbol, sizeof symbol);
    if (!symbol || get_version(version, &length))
        return NULL;
    static const char *const family[] = {"MPICH", "Intel", "MVAPICH"};
    for (size_t i = 0; i < sizeof family / sizeof *family; i++)
        if (strstr(version, family[i]))
            return &mpi_mpich;
    return NULL;
}

static hvd_code find_abi(const struct settings *settings, const struct mpi_abi **abi, hvd_status *status)
{
    void *library = open_library(settings);
    if (!library && *settings->mpi_library)
        return status_set(status, HVD_UNSUPPORTED, "can't open the MPI of HOROVOD_MPI_LIBRARY: %s",
                          dlerror());
    if (!library)
        return status_set(status, HVD_UNSUPPORTED,
                          "rank %lld was to use MPI (HOROVOD_CPU_OPERATIONS=mpi), but finds no library of "
                          "Open MPI, MPICH or Intel MPI; install one on every host, or set "
                          "HOROVOD_MPI_LIBRARY to its libmpi.so",
                          (long long)settings->rank);
    *abi = abi_of(library);
    if (!*abi)
        return status_set(status, HVD_UNSUPPORTED,
                          "%s is an MPI of an unknown kind; known are Open MPI, MPICH and what shares its "
                          "binary interface, and the standard interface of MPI 5 (libmpi_abi.so)",
                          process.path);
    const char *missing = (*abi)->load(library);
    return missing ? status_set(status, HVD_UNSUPPORTED, "%s (%s) has no %s; it is too old, or incomplete",
                                process.path, (*abi)->name, missing)
                   : HVD_OK;
}

/* ---- life --------------------------------------------------------------------------------------------- */

void mpi_skip_finalize(bool skips)
{
    atomic_store(&process.skips_finalize, skips);
}

static void finalize_at_exit(void)
{
    if (process.initialiser == getpid() && !atomic_load(&process.skips_finalize) &&
        process.abi->state() == MPI_RUNNING)
        process.abi->finalize();
}

hvd_code mpi_check(const struct mpi_abi *mpi, int error, int rank, const char *call, hvd_status *status)
{
    char text[MPI_TEXT_LIMIT];
    if (!error)
        return HVD_OK;
    mpi->error_text(error, text);
    text[strcspn(text, "\n")] = '\0';
    return status_set(status, HVD_SYSTEM, "rank %d: %s of %s failed: %.300s", rank, call, process.path, text);
}

/* Refuses a library that has not started this process, which would be alone in it. */
static hvd_code check_starter(const struct settings *settings, const struct mpi_abi *abi, hvd_status *status)
{
    const char *started = getenv(started_by_openmpi() ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE");
    int rank, size;
    TRY(mpi_check(abi, abi->comm_place(abi->world(), &rank, &size), (int)settings->rank, "MPI_Comm_size",
                  status));
    if (!started || size > 1 || atoi(started) == size)
        return HVD_OK;
    return status_set(
        status, HVD_INVALID_ARGUMENT,
        "%s (%s) is not the MPI that has started this process, one of %s; use its mpirun, or set "
        "HOROVOD_MPI_LIBRARY to the library of the other",
        process.path, abi->name, started);
}

static hvd_code start(const struct settings *settings, const struct mpi_abi *abi, hvd_status *status)
{
    enum mpi_state before = abi->state();
    bool threads = false;
    if (before == MPI_OVER)
        return status_set(status, HVD_UNSUPPORTED,
                          "the program has called MPI_Finalize already; call hvd.init() before");
    if (before == MPI_FRESH && !started_by_mpi())
        return status_set(status, HVD_INVALID_ARGUMENT,
                          "HOROVOD_CPU_OPERATIONS=mpi needs processes that an MPI has started; start them "
                          "with `horovodrun --mpi -np N ...` or with mpirun");
    TRY(mpi_check(abi, abi->init(&threads), (int)settings->rank, "MPI_Init_thread", status));
    log_debug((int)settings->rank, "MPI is %s (%s)", process.path, abi->name);
    if (before == MPI_FRESH) {
        process.initialiser = getpid();
        atexit(finalize_at_exit);
    }
    return threads ? check_starter(settings, abi, status)
                   : status_set(status, HVD_UNSUPPORTED,
                                "%s (%s) runs without MPI_THREAD_MULTIPLE, which is needed; let hvd.init() "
                                "initialise MPI, or do it with MPI_THREAD_MULTIPLE",
                                process.path, abi->name);
}

hvd_code mpi_open(const struct settings *settings, const struct mpi_abi **mpi, hvd_status *status)
{
    const struct mpi_abi *abi = NULL;
    hvd_code code = HVD_OK;
    pthread_mutex_lock(&process.lock);
    if (process.abi)
        abi = process.abi;
    else
        code = find_abi(settings, &abi, status);
    if (!code) {
        process.abi = abi;
        code = start(settings, abi, status);
    }
    pthread_mutex_unlock(&process.lock);
    if (!code)
        *mpi = abi;
    return code;
}

/* ---- the job's ranks ---------------------------------------------------------------------------------- */

mpi_handle mpi_base(const struct mpi_abi *mpi)
{
    return process.has_base ? process.base : mpi->world();
}

hvd_code mpi_set_base(const struct mpi_abi *mpi, mpi_handle of, mpi_handle *base, hvd_status *status)
{
    int rank, size;
    TRY(mpi_check(mpi, mpi->comm_place(of, &rank, &size), 0, "MPI_Comm_size", status));
    int *ranks = malloc((size_t)size * sizeof *ranks);
    if (!ranks)
        return status_no_memory(status);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    int error = mpi->comm_create(of, ranks, size, 0, base);
    free(ranks);
    TRY(mpi_check(mpi, error, rank, "MPI_Comm_create_group", status));
    if (process.has_base)
        mpi->comm_free(process.base);
    process.base = *base;
    process.has_base = true;
    return HVD_OK;
}
