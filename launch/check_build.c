/* check_build.c - prints the text of --check-build, in Horovod's layout, which scripts parse. One thread.
 * Frameworks are not part of the build: the Python with which ranks would be started is asked for them. */
#include "check_build.h"

#include "horovod.h"

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Horovod's three in its order, then the others; and what installs each. */
static const struct {
    const char *name, *module, *package;
} frameworks[] = {{"TensorFlow", "tensorflow", "horovod[tensorflow]"},
                  {"PyTorch", "torch", "horovod[torch]"},
                  {"MXNet", "mxnet", "horovod[mxnet]"},
                  {"Keras", "keras", "horovod[keras]"},
                  {"JAX", "jax", "horovod[jax]"},
                  {"NumPy", "numpy", "horovod"}};

static const char *const absent[] = {"DDL", "CCL"};
static const char *const transports[] = {
#define TRANSPORT(name) #name,
#include "transport/transports.def"
#undef TRANSPORT
};

#define NCCL_MARK "nccl="

/* This program prints its own path, where the package nvidia.nccl would have NCCL, then each of its arguments
 * that names a usable framework: it can be imported, and so can the package of that name under horovod;
 * horovod itself serves NumPy. */
static const char program[] =
    "import importlib.util as u, sys; print(sys.executable or \"python3\"); "
    "spec = u.find_spec(\"nvidia\"); "
    "[print(\"" NCCL_MARK "\" + path + \"/nccl/lib/libnccl.so.2\") "
    "for path in (spec.submodule_search_locations if spec else [])]; "
    "[print(name) for name in sys.argv[1:] "
    "if u.find_spec(name) and u.find_spec(\"horovod.\" + name if name != \"numpy\" else \"horovod\")]";

#define FRAMEWORKS (sizeof frameworks / sizeof *frameworks)

/* Zeroed: without a Python nothing is found. */
struct answer {
    char python[1024]; /* path of the Python that answered; "": none */
    char nccl[1024];   /* path of the NCCL of its packages; "": none */
    bool found[FRAMEWORKS];
};

static void query_python(struct answer *answer)
{
    char line[1024], question[2048];
    /* The shell needs no escapes: neither the program nor the names of modules hold a single quote. */
    snprintf(question, sizeof question, "python3 -c '%s' 2>/dev/null </dev/null", program);
    for (size_t i = 0; i < FRAMEWORKS; i++)
        append_text(question, sizeof question, " '%s'", frameworks[i].module);
    FILE *lines = popen(question, "re");
    while (lines && fgets(line, sizeof line, lines)) {
        line[strcspn(line, "\n")] = '\0';
        const char *nccl = strncmp(line, NCCL_MARK, strlen(NCCL_MARK)) ? NULL : line + strlen(NCCL_MARK);
        if (!*answer->python)
            snprintf(answer->python, sizeof answer->python, "%s", line);
        if (nccl && !access(nccl, R_OK))
            snprintf(answer->nccl, sizeof answer->nccl, "%s", nccl);
        for (size_t i = 0; i < FRAMEWORKS; i++)
            answer->found[i] = answer->found[i] || (*line && strcmp(line, frameworks[i].module) == 0);
    }
    if (lines)
        pclose(lines);
}

static void print_row(bool has, const char *name)
{
    printf("    [%c] %s\n", has ? 'X' : ' ', name);
}

void check_build_print(void)
{
    struct answer answer = {.python = ""};
    query_python(&answer);
    const char *python = answer.python, *nccl_path = getenv("HOROVOD_NCCL_LIBRARY");
    const bool *found = answer.found;
    hvd_status mpi;
    bool has_mpi = hvd_find_mpi(getenv("HOROVOD_MPI_LIBRARY"), &mpi) == HVD_OK;
    printf("Horovod v%s:\n\nAvailable Frameworks:\n", hvd_version());
    for (size_t i = 0; i < FRAMEWORKS; i++)
        print_row(found[i], frameworks[i].name);
    printf("\nAvailable Controllers:\n");
    print_row(has_mpi, "MPI");
    print_row(true, "Gloo");
    hvd_status nccl;
    int32_t nccl_version;
    bool has_nccl =
        hvd_find_nccl(nccl_path && *nccl_path ? nccl_path : answer.nccl, &nccl_version, &nccl) == HVD_OK;
    printf("\nAvailable Tensor Operations:\n");
    print_row(has_nccl, "NCCL");
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        print_row(false, absent[i]);
    print_row(has_mpi, "MPI");
    print_row(true, "Gloo");
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++)
        print_row(true, transports[i]);
    printf("\nFrameworks: as seen by %s. Gloo: Horovod's own engine, which takes its place.\n",
           *python ? python : "nobody, because there is no python3 on the PATH");
    printf("MPI: %s.\n", has_mpi
                             ? mpi.text
                             : "no library of Open MPI, MPICH or Intel MPI was found; install one, e.g. by "
                               "`apt-get install openmpi-bin` or `pip install mpich`, or name it in "
                               "HOROVOD_MPI_LIBRARY");
    hvd_status gpus;
    bool has_gpus = hvd_find_cuda(&gpus) == HVD_OK;
    printf("GPUs: %s.%s\n", gpus.text,
           has_gpus
               ? " The authors have tested tensors on them on a stand-in for the driver, but on no GPU yet."
               : "");
    printf("%s%s%s.\n", has_nccl ? "" : "NCCL: ", nccl.text,
           has_nccl ? "; never run by the authors on a GPU" : "");
    printf("DDL, CCL: not in this version.\n");
    for (size_t i = 0; i < FRAMEWORKS && *python; i++)
        if (!found[i])
            printf("%s is missing: %s -m pip install \"%s\"\n", frameworks[i].name, python,
                   frameworks[i].package);
}
