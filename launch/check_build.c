/* check_build.c - what this build can do. Frameworks are no part of the build, so what counts is whether the
 * Python that ranks would be started with has them: it is asked. */
#include "check_build.h"

#include "horovod.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *module;
} frameworks[] = {{"PyTorch", "torch"}, {"NumPy", "numpy"}};

/* Prints its own path, then those of the words after it that name a module which can be imported. */
static const char program[] = "import importlib.util as u, sys; print(sys.executable); "
                              "[print(name) for name in sys.argv[1:] if u.find_spec(name)]";

#define FRAMEWORKS (sizeof frameworks / sizeof *frameworks)

/* Fills `found` and the path of the Python that answered; without one nothing is found. */
static void ask_python(char *python, size_t capacity, int found[FRAMEWORKS])
{
    char line[1024], question[1024];
    size_t used =
        (size_t)snprintf(question, sizeof question, "python3 -c '%s' 2>/dev/null </dev/null", program);
    for (size_t i = 0; i < FRAMEWORKS; i++)
        used += (size_t)snprintf(question + used, sizeof question - used, " %s", frameworks[i].module);
    FILE *answer = popen(question, "re");
    while (answer && fgets(line, sizeof line, answer)) {
        line[strcspn(line, "\n")] = '\0';
        if (!*python)
            snprintf(python, capacity, "%s", line);
        for (size_t i = 0; i < FRAMEWORKS; i++)
            found[i] = found[i] || strcmp(line, frameworks[i].module) == 0;
    }
    if (answer)
        pclose(answer);
}

void check_build_print(void)
{
    char python[1024] = "";
    int found[FRAMEWORKS] = {0};
    ask_python(python, sizeof python, found);
    printf("Horovod v%s:\n\nAvailable Frameworks (%s%s):\n", hvd_version(),
           *python ? "as seen by " : "no python3 on the PATH", python);
    for (size_t i = 0; i < FRAMEWORKS; i++)
        printf("    [%c] %s\n", found[i] ? 'X' : ' ', frameworks[i].name);
    printf("\nAvailable Controllers:\n    [X] horovod rendezvous\n"
           "\nAvailable Tensor Operations:\n    [X] shared memory\n    [X] TCP\n");
}
