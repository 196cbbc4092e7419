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

/* log over the positive numbers that are not subnormal. */
FR_INLINE double fr_log1(double u)
{
    uint64_t shifted = fr_bits(u) - 0x3fe6a09e667f3bcdULL;
    uint64_t biased = (shifted + 0x3ff0000000000000ULL) >> 52;
    double k = fr_double(biased + 0x4330000000000000ULL) - (0x1p52 + 1023.0);
    double f = fr_double((shifted & 0x000fffffffffffffULL) + 0x3fe6a09e667f3bcdULL) - 1.0;
    double y = k * 0x1.62e42p-1 + (fr_two_atanh(f / (2.0 + f)) + k * 0x1.fdf473de6af28p-22);
    return u < INFINITY ? y : u;
}

/* exp(x) - 1 for x <= 0. */
FR_INLINE double fr_expm1_negative(double x)
{
    double a = x < -708.0 ? -708.0 : x;
    double shifted = a * 0x1.71547652b82fep+0 + FR_ROUND;
    double small = fr_expm1_small(fr_reduce(a, shifted - FR_ROUND)), power = fr_power_of_two(shifted);
    return power * small + (power - 1.0);
}

/* exp(x^2) erfc(x) for x >= 0: (1 + 2 x) times it is a polynomial in (x - 4) / (x + 4) (Chebyshev of degree 26, relative
   error 3e-16; Shepherd & Laframboise, Math. Comp. 36, 1981). */
FR_INLINE double fr_erfcx(double x)
{
    double t = (x - 4.0) / (x + 4.0), t2 = t * t;
    double p = 0x1.7d604a7f621f4p-35;
    p = p * t2 + (-0x1.2d277a41632e3p-31 - 0x1.2dbbbb75b6682p-33 * t);
    p = p * t2 + (0x1.117f492198859p-28 + 0x1.ebb009434f4efp-30 * t);
    p = p * t2 + (-0x1.78888d24fa8a1p-26 - 0x1.f9443297365a1p-27 * t);
    p = p * t2 + (0x1.5305495fa5317p-24 + 0x1.d8d5b12b4bdebp-24 * t);
    p = p * t2 + (0x1.385bb6c82456ap-22 - 0x1.badf24e872985p-21 * t);
    p = p * t2 + (-0x1.788189c990557p-17 + 0x1.7f235478fdcf6p-18 * t);
    p = p * t2 + (0x1.3be032de511d3p-13 - 0x1.9958a8c635c6bp-16 * t);
    p = p * t2 + (-0x1.8d4a9990c5199p-11 - 0x1.a1df2ad41dddep-13 * t);
    p = p * t2 + (-0x1.0962388548d8dp-6 + 0x1.49c6728db72cdp-8 * t);
    p = p * t2 + (-0x1.0fb06dfe48b0ep-4 + 0x1.3079edf668f38p-5 * t);
    p = p * t2 + (-0x1.9ddb23c3e9106p-4 + 0x1.7fee004e13186p-4 * t);
    p = p * t2 + (0x1.f7f5df66fd7bep-7 + 0x1.16ecefcfa533fp-4 * t);
    p = p * t2 + (0x1.3ba5916e9fd7fp+0 - 0x1.1df1ad154a28ep-3 * t);
    return p / (1.0 + 2.0 * x);
}

/* Corrections of Stirling's series: log gamma(z) - (z - 1/2) log z + z - log(2 pi) / 2, digamma(z) - log z, and
   trigamma(z) - 1/z, for z >= 8 with an error of 1e-16. */
FR_INLINE double fr_stirling(double z)
{
    double u = 1.0 / z, u2 = u * u;
    double p = 1.0 / 156.0 - u2 * (3617.0 / 122400.0);
    p = -691.0 / 360360.0 + u2 * p;
    p = 1.0 / 1188.0 + u2 * p;
    p = -1.0 / 1680.0 + u2 * p;
    p = 1.0 / 1260.0 + u2 * p;
    p = -1.0 / 360.0 + u2 * p;
    return u * (1.0 / 12.0 + u2 * p);
}

FR_INLINE double fr_stirling1(double z)
{
    double u = 1.0 / z, u2 = u * u;
    double p = 1.0 / 12.0 - u2 * (3617.0 / 8160.0);
    p = -691.0 / 32760.0 + u2 * p;
    p = 1.0 / 132.0 + u2 * p;
    p = -1.0 / 240.0 + u2 * p;
    p = 1.0 / 252.0 + u2 * p;
    p = -1.0 / 120.0 + u2 * p;
    return -0.5 * u - u2 * (1.0 / 12.0 + u2 * p);
}

FR_INLINE double fr_stirling2(double z)
{
    double u = 1.0 / z, u2 = u * u;
    double p = 7.0 / 6.0 - u2 * (3617.0 / 510.0);
    p = -691.0 / 2730.0 + u2 * p;
    p = 5.0 / 66.0 + u2 * p;
    p = -1.0 / 30.0 + u2 * p;
    p = 1.0 / 42.0 + u2 * p;
    p = -1.0 / 30.0 + u2 * p;
    return u2 * (0.5 + u * (1.0 / 6.0 + u2 * p));
}
#endif
