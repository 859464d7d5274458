/* What the processor has, beyond what every one of its kind has. */

#include <stdatomic.h>

#include "kernel.h"

static atomic_int plain_only;

void use_plain_loops(int plain) { atomic_store(&plain_only, plain); }

#if defined(__x86_64__)
#define HAS(name) (__builtin_cpu_init(), !atomic_load(&plain_only) && __builtin_cpu_supports(name))
#else
#define HAS(name) 0
#endif

int has_avx2(void) { return HAS("avx2"); }

int has_bmi2(void) { return HAS("bmi2"); }
