/* CLONES before a function: a copy for each instruction set, chosen when the library loads. It needs ifunc, hence gcc
   and glibc. The copies give the same bits as long as nothing is contracted to fused multiply-add. */
#ifndef FASTRACE_CLONES_H
#define FASTRACE_CLONES_H
#include <stdlib.h>     /* defines __GLIBC__ where it applies */

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__ELF__) && defined(__GLIBC__) \
    && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

#if defined(__GNUC__)
#define PREFETCH(p) __builtin_prefetch((p), 0, 3)
#else
#define PREFETCH(p) ((void)0)
#endif
#endif
