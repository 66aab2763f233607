/* cpu_model.h - answers what code that zig has compiled asks about the processor. zig's run-time library has
 * an empty __cpu_indicator_init (0.17.1), so that only the plainest kernels would be used. Names, layout and
 * numbers of features are those of LLVM's compiler-rt (lib/builtins/cpu_model). */
#ifndef HVD_DEVICE_CPU_MODEL_H
#define HVD_DEVICE_CPU_MODEL_H

struct cpu_model {
    unsigned vendor, type, subtype, features[1];
};

#if defined(HVD_OWN_CPU_MODEL) && defined(__x86_64__)
#define HIDDEN __attribute__((visibility("hidden")))
extern HIDDEN struct cpu_model __cpu_model;
extern HIDDEN unsigned __cpu_features2[3]; /* features from number 32 on */

/* Fills both. The loader calls it before anything else of this library has run. Returns -1 if the processor
 * can't be asked. */
HIDDEN int __cpu_indicator_init(void);
#endif

#endif
