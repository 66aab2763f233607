/* api.c - looks up the functions of TensorFlow's C interface by name. Runs once, in the thread that loads
 * this library; afterwards the table never changes. */
#include "tensorflow/api.h"

#include <dlfcn.h>
#include <string.h>

struct tf_api tf;

bool tf_open(const char **missing)
{
    static const struct {
        void *function;
        const char *name;
        bool optional;
    } functions[] = {
#define FUNCTION(result, name, parameters) {&tf.name, "TF_" #name, false},
        TF_FUNCTIONS(FUNCTION)
#undef FUNCTION
#define FUNCTION(result, name, parameters) {&tf.name, "TF_" #name, true},
            TF_ASYNC_FUNCTIONS(FUNCTION)
#undef FUNCTION
    };
    void *library = dlopen("libtensorflow_framework.so.2", RTLD_NOLOAD | RTLD_LAZY);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = library ? dlsym(library, functions[i].name) : NULL;
        memcpy(functions[i].function, &address, sizeof address);
        if (!address && !functions[i].optional) {
            *missing = functions[i].name;
            return false;
        }
    }
    return true;
}
