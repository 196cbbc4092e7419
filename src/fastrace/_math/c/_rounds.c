#include "_bets.h"
#include "_clones.h"
#include "_rounds.h"

/* Rounds added at once: each sum is then loaded and stored once for four rewards. */
enum { GROUP = 4 };

#define SLACK 1e-12             /* of the support's width: forgiven outside it, and far above rounding inside it */
#define MOST_BET 0.9            /* of the largest bet that cannot lose everything */
#define AIM_AT_LEAST 0.25       /* of the half-width that is in reach now */

/* Bodies of loops take what no place changes as arguments that are constant where they are called: loops without
   branches become vector code. `each` says that every place has a support of its own. */
#define BY_KIND(rule, call)                                      \
    do {                                                         \
        if ((rule)->lows && (rule)->by_variance) call(1, 1);     \
        else if ((rule)->lows) call(1, 0);                       \
        else if ((rule)->by_variance) call(0, 1);                \
        else call(0, 0);                                         \
    } while (0)

FR_INLINE double low_of(const fr_rule *rule, int each, ptrdiff_t j) { return each ? rule->lows[j] : rule->low; }

FR_INLINE double span_of(const fr_rule *rule, int each, ptrdiff_t j)
{
    return each ? rule->highs[j] - rule->lows[j] : rule->high - rule->low;
}

FR_INLINE double reward(const fr_view *view, ptrdiff_t round, ptrdiff_t j)
{
    const char *at = view->data + round * view->row_stride + view->column[j] * view->arm_stride;
    return view->single ? (double)*(const float *)at : *(const double *)at;
}

/* The rewards of one round, where they lie if they lie together. */
FR_INLINE const double *row_of(const fr_view *view, ptrdiff_t round, ptrdiff_t n, int together, double *work)
{
    const char *row = view->data + round * view->row_stride;
    if (together) {
        row += view->column[0] * view->arm_stride;
        if (!view->single) return (const double *)row;
        for (ptrdiff_t j = 0; j < n; j++) work[j] = ((const float *)row)[j];
    } else if (view->single) {
        for (ptrdiff_t j = 0; j < n; j++) work[j] = *(const float *)(row + view->column[j] * view->arm_stride);
    } else {
        for (ptrdiff_t j = 0; j < n; j++) work[j] = *(const double *)(row + view->column[j] * view->arm_stride);
    }
    return work;
}

FR_INLINE int lie_together(const fr_view *view, ptrdiff_t n)
{
    return view->arm_stride == (ptrdiff_t)(view->single ? sizeof(float) : sizeof(double))
           && view->column[n - 1] - view->column[0] == n - 1;
}

FR_INLINE int all_inside(const double *x, ptrdiff_t n, const fr_rule *rule)
{
    long long bad = 0;
    if (rule->lows) {
        const double *lows = rule->lows, *highs = rule->highs;
        for (ptrdiff_t j = 0; j < n; j++) {
            double slack = SLACK * (highs[j] - lows[j]);
            bad += !(x[j] >= lows[j] - slack) | !(x[j] <= highs[j] + slack);
        }
    } else {
        double slack = SLACK * (rule->high - rule->low), low = rule->low - slack, high = rule->high + slack;
        for (ptrdiff_t j = 0; j < n; j++) bad += !(x[j] >= low) | !(x[j] <= high);
    }
    return bad == 0;
}

FR_INLINE void push(ptrdiff_t n, int count, const double *restrict a, const double *restrict b,
                    const double *restrict c, const double *restrict d, const double *restrict centre,
                    double *restrict s, double *restrict q, double *restrict least, double *restrict most)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        double sum = s[j], square = q[j], small = least[j], large = most[j], middle = centre[j], x;
#define PUSH(reward)                            \
        x = (reward) - middle;                  \
        sum += x;                               \
        square += x * x;                        \
        small = sum < small ? sum : small;      \
        large = sum > large ? sum : large;
        PUSH(a[j])
        if (count == GROUP) {
            PUSH(b[j])
            PUSH(c[j])
            PUSH(d[j])
        }
        s[j] = sum;
        q[j] = square;
        least[j] = small;
        most[j] = large;
    }
}

CLONES
ptrdiff_t fr_rounds_add(const fr_view *view, ptrdiff_t n_rounds, ptrdiff_t n, const fr_rule *rule, fr_sums *sums,
                        double *work)
{
    const int together = lie_together(view, n);
    ptrdiff_t round = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        sums->least[j] = HUGE_VAL;
        sums->most[j] = -HUGE_VAL;
    }
    while (round < n_rounds) {
        const double *row[GROUP];
        ptrdiff_t count = n_rounds - round < GROUP ? n_rounds - round : GROUP, good = 0;
        for (; good < count; good++) {
            row[good] = row_of(view, round + good, n, together, work + good * n);
            if (!all_inside(row[good], n, rule)) break;
        }
        if (good == GROUP)
            push(n, GROUP, row[0], row[1], row[2], row[3], sums->centre, sums->s, sums->q, sums->least, sums->most);
        else
            for (ptrdiff_t i = 0; i < good; i++)
                push(n, 1, row[i], row[i], row[i], row[i], sums->centre, sums->s, sums->q, sums->least, sums->most);
        round += good;
        if (good < count) break;
    }
    return round;
}

CLONES
void fr_rounds_settle(fr_sums *sums, ptrdiff_t n, double t)
{
    double *restrict centre = sums->centre, *restrict m2 = sums->m2, *restrict s = sums->s, *restrict q = sums->q;
    for (ptrdiff_t j = 0; j < n; j++) {
        double step = s[j] / t, more = q[j] - s[j] * step;
        centre[j] += step;
        m2[j] += more > 0.0 ? more : 0.0;
        s[j] = q[j] = 0.0;
    }
}

/* empirical_bernstein_within and hoeffding of _bounds.pxd; x is its x, or the log of two over delta. */
FR_INLINE double half_width(double x, int by_variance, double span, double t, double m2)
{
    if (by_variance) return (sqrt(2.0 * x * m2) + 3.0 * span * x) / t;
    return span * sqrt(x / (2.0 * t));
}

FR_INLINE double spread(double m2, double s, double q, double t)
{
    double more = q - s * (s / t);
    return m2 + (more > 0.0 ? more : 0.0);
}

FR_INLINE void brackets(const fr_sums *sums, ptrdiff_t n, const fr_rule *rule, int each, int by_variance, double t,
                        double *restrict lower, double *restrict upper)
{
    const double *restrict centre = sums->centre, *restrict m2 = sums->m2, *restrict s = sums->s, *restrict q = sums->q;
    const double x = rule->x;
    for (ptrdiff_t j = 0; j < n; j++) {
        double mean = centre[j] + s[j] / t;
        double width = half_width(x, by_variance, span_of(rule, each, j), t, spread(m2[j], s[j], q[j], t));
        lower[j] = mean - width;
        upper[j] = mean + width;
    }
}

CLONES
void fr_rounds_brackets(const fr_sums *sums, ptrdiff_t n, const fr_rule *rule, double t, double *lower, double *upper)
{
#define BRACKETS(each, by_variance) brackets(sums, n, rule, each, by_variance, t, lower, upper)
    BY_KIND(rule, BRACKETS);
}

/* One round: the sums take the rewards, and the running brackets are intersected with those of this round. */
FR_INLINE void narrow(fr_sums *sums, ptrdiff_t n, const fr_rule *rule, int each, int by_variance, double t,
                      const double *restrict row, double *restrict lower, double *restrict upper)
{
    const double *restrict centre = sums->centre, *restrict m2 = sums->m2;
    double *restrict s = sums->s, *restrict q = sums->q;
    const double x = rule->x;
    for (ptrdiff_t j = 0; j < n; j++) {
        double d = row[j] - centre[j], sum = s[j] + d, square = q[j] + d * d, mean = centre[j] + sum / t;
        double width = half_width(x, by_variance, span_of(rule, each, j), t, spread(m2[j], sum, square, t));
        double low = mean - width, high = mean + width;
        s[j] = sum;
        q[j] = square;
        lower[j] = low > lower[j] ? low : lower[j];
        upper[j] = high < upper[j] ? high : upper[j];
    }
}

CLONES
ptrdiff_t fr_rounds_narrow(const fr_view *view, ptrdiff_t n_rounds, ptrdiff_t n, const fr_rule *rule, double t,
                           fr_sums *sums, double *lower, double *upper, double *work)
{
    const int together = lie_together(view, n);
    for (ptrdiff_t round = 0; round < n_rounds; round++) {
        const double *row = row_of(view, round, n, together, work);
        const double now = t + (double)(round + 1);
        if (!all_inside(row, n, rule)) return round;
#define NARROW(each, by_variance) narrow(sums, n, rule, each, by_variance, now, row, lower, upper)
        BY_KIND(rule, NARROW);
    }
    return n_rounds;
}

int fr_rounds_empty(const fr_rule *rule, ptrdiff_t n, const double *lower, const double *upper)
{
    for (ptrdiff_t j = 0; j < n; j++)
        if (lower[j] > upper[j] + SLACK * span_of(rule, rule->lows != NULL, j)) return 1;
    return 0;
}

/* The sum of squared deviations never falls, so what it is at the ends of a stretch bounds the half-widths within:
   `inner` gives the ends that make a bracket as narrow as it can have been, otherwise as wide. */
FR_INLINE void reach(const fr_sums *sums, ptrdiff_t n, const fr_rule *rule, int each, int by_variance, int inner,
                     double first, double last, double *restrict lower, double *restrict upper)
{
    const double *restrict centre = sums->centre, *restrict m2 = sums->m2, *restrict s = sums->s, *restrict q = sums->q;
    const double *restrict least = sums->least, *restrict most = sums->most;
    const double share = 1.0 / first, last_share = 1.0 / last, x = rule->x;
    for (ptrdiff_t j = 0; j < n; j++) {
        double span = span_of(rule, each, j), slack = 1e-9 * span + 4.0 * SLACK * fabs(centre[j]);
        double small = least[j] * (least[j] < 0.0 ? share : last_share);
        double large = most[j] * (most[j] > 0.0 ? share : last_share), width;
        if (inner) {
            width = half_width(x, by_variance, span, last, m2[j]) - slack;
            lower[j] = centre[j] + large - width;
            upper[j] = centre[j] + small + width;
        } else {
            width = half_width(x, by_variance, span, first, spread(m2[j], s[j], q[j], last)) + slack;
            lower[j] = centre[j] + small - width;
            upper[j] = centre[j] + large + width;
        }
    }
}

CLONES
void fr_rounds_reach(const fr_sums *sums, ptrdiff_t n, const fr_rule *rule, double first, double last, int inner,
                     double *lower, double *upper)
{
#define REACH(each, by_variance)                                                          \
    do {                                                                                  \
        if (inner) reach(sums, n, rule, each, by_variance, 1, first, last, lower, upper); \
        else reach(sums, n, rule, each, by_variance, 0, first, last, lower, upper);       \
    } while (0)
    BY_KIND(rule, REACH);
}

void fr_rounds_again(const fr_view *view, ptrdiff_t round, const ptrdiff_t *place, ptrdiff_t n, const fr_rule *rule,
                     double t, const double *centre, const double *m2, double *s, double *q, double *lower,
                     double *upper)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        ptrdiff_t j = place[i];
        double d = reward(view, round, j) - centre[i], mean, width;
        s[i] += d;
        q[i] += d * d;
        mean = centre[i] + s[i] / t;
        width = half_width(rule->x, rule->by_variance, span_of(rule, rule->lows != NULL, j), t,
                           spread(m2[i], s[i], q[i], t));
        lower[i] = mean - width;
        upper[i] = mean + width;
    }
}

/* A bet on a side, as of TargetEBStop; `scale` is the guess as seen from the side's own end of the interval. A reward drawn
   without replacement has the mean of the rows that are left: in terms of the mean of all, the bet counts `more` times,
   and what the rows seen say of the rest is part of `reward`. */
FR_INLINE void settle_bet(double aim, double variance, double scale, double reward, double square, double more,
                          double *bets, double *won, double *price)
{
    double bet, gain, cost;
    fr_target_terms(aim, variance, scale, MOST_BET, more, reward, square, &bet, &gain, &cost);
    *bets += bet;
    *won += gain;
    *price += cost;
}

FR_INLINE int bets_round(const double *restrict row, ptrdiff_t n, const fr_rule *rule, int each, double t, double above,
                         double below, fr_bets *bets)
{
    double *restrict sum = bets->sum, *restrict squares = bets->square;
    double *restrict b0 = bets->bets[0], *restrict w0 = bets->won[0], *restrict p0 = bets->price[0];
    double *restrict b1 = bets->bets[1], *restrict w1 = bets->won[1], *restrict p1 = bets->price[1];
    double *restrict lower = bets->lower, *restrict upper = bets->upper;
    const double x = rule->x, share = 1.0 / t, next_share = 1.0 / (t + 1.0), reach = 2.0 * x / t;
    const double left = rule->n_rows - (t - 1.0), each_left = 1.0 / left;
    const double more = left < HUGE_VAL ? rule->n_rows / left : 1.0;
    long long crossed = 0;
    for (ptrdiff_t j = 0; j < n; j++) {
        double low = low_of(rule, each, j), span = span_of(rule, each, j), scale = span > 0.0 ? 1.0 / span : 0.0;
        double z = (row[j] - low) * scale, guess = sum[j] / t, variance = squares[j] * share;
        double mean = low + span * guess, gap = mean > below ? mean - below : above - mean;
        double aim = 0.5 * gap * scale, least = AIM_AT_LEAST * sqrt(variance * reach);
        double square, known, after, bottom, top;
        z = z < 0.0 ? 0.0 : z > 1.0 ? 1.0 : z;
        square = (z - guess) * (z - guess);
        aim = aim > least ? aim : least;
        known = z + (sum[j] - 0.5) * each_left;
        settle_bet(aim, variance, guess, known, square, more, &b0[j], &w0[j], &p0[j]);
        settle_bet(aim, variance, 1.0 - guess, known, square, more, &b1[j], &w1[j], &p1[j]);
        after = sum[j] + z;
        sum[j] = after;
        after = z - after * next_share;
        squares[j] += after * after;
        bottom = low + span * ((w0[j] - x - p0[j]) / b0[j]);
        top = low + span * ((w1[j] + x + p1[j]) / b1[j]);
        bottom = bottom > lower[j] ? bottom : lower[j];
        top = top < upper[j] ? top : upper[j];
        lower[j] = bottom;
        upper[j] = top;
        crossed += bottom > top + SLACK * span;
    }
    return crossed ? 2 : 1;
}

CLONES
int fr_bets_round(const fr_view *view, ptrdiff_t round, ptrdiff_t n, const fr_rule *rule, double t, double above,
                  double below, fr_bets *bets, double *work)
{
    const double *row = row_of(view, round, n, lie_together(view, n), work);
    if (!all_inside(row, n, rule)) return 0;
    return rule->lows ? bets_round(row, n, rule, 1, t, above, below, bets)
                      : bets_round(row, n, rule, 0, t, above, below, bets);
}

void fr_bets_means(const fr_bets *bets, ptrdiff_t n, const fr_rule *rule, double t, double *mean)
{
    for (ptrdiff_t j = 0; j < n; j++) {
        int each = rule->lows != NULL;
        mean[j] = low_of(rule, each, j) + span_of(rule, each, j) * (bets->sum[j] / t);
    }
}
