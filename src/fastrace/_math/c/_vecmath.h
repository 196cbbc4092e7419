/* exp and log1p without branches or tables, so that loops over them become vector code. Only additions,
   multiplications and divisions in a fixed order: without contraction (see meson.build) every instruction set gives the
   same bits. Polynomials go by pairs, since loops over them wait for latency rather than for throughput. Errors against 80-bit arithmetic: tests/models/test_likelihoods.py. */
#ifndef FASTRACE_VECMATH_H
#define FASTRACE_VECMATH_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define FR_INLINE static inline __attribute__((always_inline))
#else
#define FR_INLINE static inline
#endif

/* Adding it rounds a double below 2^51 to an integer, which then stands in the low bits. */
#define FR_ROUND 0x1.8p52

FR_INLINE uint64_t fr_bits(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

FR_INLINE double fr_double(uint64_t u)
{
    double x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* 2^(integer in the low bits of shifted), shifted = k + FR_ROUND, -1022 <= k <= 1023. */
FR_INLINE double fr_power_of_two(double shifted)
{
    return fr_double((fr_bits(shifted) + 1023) << 52);
}

/* exp(r) - 1 over [-log(2)/2, log(2)/2]: r + r^2 q(r), q the minimax polynomial of degree 9 (relative error 4e-18). */
FR_INLINE double fr_expm1_small(double r)
{
    double r2 = r * r, r4 = r2 * r2;
    double a = 0x1.000000000000ap-1 + 0x1.55555555554fap-3 * r;
    double b = 0x1.555555555087cp-5 + 0x1.1111111127be5p-7 * r;
    double c = 0x1.6c16c1842a126p-10 + 0x1.a01a012a57b5ep-13 * r;
    double d = 0x1.a0199a0c66195p-16 + 0x1.71df255235e0bp-19 * r;
    double e = 0x1.28ad72cd4ab37p-22 + 0x1.ad7f6f0e24922p-26 * r;
    return r + r2 * ((a + r2 * b) + r4 * ((c + r2 * d) + r4 * e));
}

/* log((1 + s) / (1 - s)) for |s| <= 0.1716: 2 s + s^3 p(s^2), p minimax of degree 6 (relative error 1.3e-18). */
FR_INLINE double fr_two_atanh(double s)
{
    double z = s * s, z2 = z * z;
    double a = 0x1.5555555555592p-1 + 0x1.999999997fd76p-2 * z;
    double b = 0x1.24924941f5011p-2 + 0x1.c71c520604c50p-3 * z;
    double c = 0x1.74663fa29ad56p-3 + 0x1.39a1a6ef6231ep-3 * z;
    double p = (a + z2 * b) + (z2 * z2) * (c + z2 * 0x1.2f0634b5ae1b1p-3);
    return 2.0 * s + s * z * p;
}

/* The log(2) nearest k's multiple taken off x: r = x - k log(2), exact but for one rounding. */
FR_INLINE double fr_reduce(double x, double k)
{
    return (x - k * 0x1.62e42p-1) - k * 0x1.fdf473de6af28p-22;
}

/* exp over the whole line. The power is applied in two halves, since k runs from -1076 to 1024. */
FR_INLINE double fr_exp1(double x)
{
    double clipped = x < -746.0 ? -746.0 : x;
    clipped = clipped > 710.0 ? 710.0 : clipped;
    double k = (clipped * 0x1.71547652b82fep+0 + FR_ROUND) - FR_ROUND;
    double half = k * 0.5 + FR_ROUND;
    double rest = (k - (half - FR_ROUND)) + FR_ROUND;
    double r = fr_reduce(clipped, k);
    return (1.0 + fr_expm1_small(r)) * fr_power_of_two(half) * fr_power_of_two(rest);
}

/* exp(-|x|); below 2^-1022, where no reward can notice, it stays at about 1e-308. */
FR_INLINE double fr_exp_minus_abs(double x)
{
    double a = -fabs(x);
    a = a < -708.0 ? -708.0 : a;
    double shifted = a * 0x1.71547652b82fep+0 + FR_ROUND;
    double r = fr_reduce(a, shifted - FR_ROUND);
    return (1.0 + fr_expm1_small(r)) * fr_power_of_two(shifted);
}

/* log(1 + t) for t in [0, 1]: above sqrt(2) - 1 half of 1 + t is taken instead. */
FR_INLINE double fr_log1p_unit(double t)
{
    int high = t > 0.41421356237309503;
    double s = (high ? t - 1.0 : t) / (high ? t + 3.0 : t + 2.0);
    return (high ? 0x1.62e42fefa39efp-1 : 0.0) + fr_two_atanh(s);
}

/* log(1 + x) over the whole line. With u = 1 + x rounded and x - (u - 1) its error, 1 + x = 2^k (1 + f). */
FR_INLINE double fr_log1p1(double x)
{
    double u = 1.0 + x;
    double error = x - (u - 1.0);
    uint64_t shifted = fr_bits(u) - 0x3fe6a09e667f3bcdULL;      /* sqrt(1/2): m lies within [sqrt(1/2), sqrt(2)) */
    uint64_t biased = (shifted + 0x3ff0000000000000ULL) >> 52;  /* k + 1023 */
    double k = fr_double(biased + 0x4330000000000000ULL) - (0x1p52 + 1023.0);
    double m = fr_double((shifted & 0x000fffffffffffffULL) + 0x3fe6a09e667f3bcdULL);
    double scaled = error * fr_double((2046 - biased) << 52);
    double f = (m - 1.0) + (k < 60.0 ? scaled : 0.0);
    double y = k * 0x1.62e42p-1 + (fr_two_atanh(f / (2.0 + f)) + k * 0x1.fdf473de6af28p-22);
    y = u < INFINITY ? y : u;                                   /* infinity and nan stay */
    return u > 0.0 ? y : (u == 0.0 ? -INFINITY : NAN);
}
#endif
