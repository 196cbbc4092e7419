#include "_portfolio.h"
#include "_clones.h"

enum { K = FR_BETTORS, LANES = FR_BETTOR_LANES };
#define NEAR 1.3                /* most money, over that which refutes, of a candidate whose tangent gives an end */
#define STRIDE 1.5              /* nats that a side can gain, about, before a look has to be made */
#define FAR 10.0                /* money from which on no tangent is tried, but Newton's rule from the start */

/* Shares of bettors, in 1/10000 of the money, of odds ratios exp(u): u = 25 exp(-0.5 k) for k < 16, then smaller by
   exp(-0.8) each. Half of a plain share is on either side; of a tilted one 1 - m is on the side above candidate m, and
   m on the side below, where there is less room. Chosen by minimising the largest ratio of the mean log of the width to
   that of the narrowest other interval, among them a Beta(1/2, 1/2) portfolio, from 10 to 1e5 rewards of 13 laws:
   betas, uniforms, rare events and clipped lognormals. From k = 15 on they fall with log(u)^-1.5, so that the bound
   goes on to shrink as it should. */
static const double PLAIN_SHARES[K] = {
    3, 32, 74, 292, 46, 0, 1691, 1039, 561, 437, 548, 478, 217, 157, 87, 35,
    27, 22, 18, 15, 13, 11, 10, 9};
static const double TILTED_SHARES[K] = {5, 44, 236, 969, 1504, 1420};

static double LEAST[K], REST[K];                /* exp(-u), 1 - exp(-u) */
static double HALF[K], TILTED[K], LOG_SHARE[K]; /* what a plain share has on either side, a tilted one, both in full */
static double ONES[K];
static double ODDS_LEAST[FR_ODDS], ODDS_REST[FR_ODDS];      /* u = 25 exp(-0.1 k) */

void fr_portfolio_setup(void)
{
    for (int k = 0; k < K; k++) {
        double u = 25.0 * fr_exp1(k < 16 ? -0.5 * k : -7.5 - 0.8 * (k - 15));
        LEAST[k] = fr_exp1(-u);
        REST[k] = -fr_expm1_negative(-u);
        HALF[k] = PLAIN_SHARES[k] / 20000.0;
        TILTED[k] = TILTED_SHARES[k] / 10000.0;
        LOG_SHARE[k] = fr_log1((PLAIN_SHARES[k] + TILTED_SHARES[k]) / 10000.0);
        ONES[k] = 1.0;
    }
    for (int k = 0; k < FR_ODDS; k++) {
        double u = 25.0 * fr_exp1(-0.1 * k);
        ODDS_LEAST[k] = fr_exp1(-u);
        ODDS_REST[k] = -fr_expm1_negative(-u);
    }
}

void fr_portfolio_init(fr_portfolio_t *p)
{
    memset(p, 0, sizeof *p);
    for (int k = 0; k < K; k++) p->up[k] = p->down[k] = 1.0;
}

CLONES
static void multiply(double *up, double *down, const double *z, int n)
{
    double above[K], below[K];          /* which stay in registers: the compiler knows that nothing else is there */
    for (int k = 0; k < K; k++) {
        above[k] = up[k];
        below[k] = down[k];
    }
    for (int i = 0; i < n; i++) {
        double won = z[i], lost = 1.0 - z[i];
        for (int k = 0; k < K; k++) {
            above[k] *= LEAST[k] + REST[k] * won;
            below[k] *= LEAST[k] + REST[k] * lost;
        }
    }
    for (int k = 0; k < K; k++) {
        up[k] = above[k];
        down[k] = below[k];
    }
}

/* Sums of LANES and of K = 3 LANES numbers: what is added together lies in the same place of a vector register. */
FR_INLINE double across(const double *x)
{
    double half[LANES / 2];
    for (int l = 0; l < LANES / 2; l++) half[l] = x[l] + x[l + LANES / 2];
    return (half[0] + half[2]) + (half[1] + half[3]);
}

FR_INLINE double total(const double *x)
{
    double lane[LANES];
    for (int l = 0; l < LANES; l++) lane[l] = (x[l] + x[l + LANES]) + x[l + 2 * LANES];
    return across(lane);
}

FR_INLINE double largest(const double *x)
{
    double lane[LANES];
    for (int l = 0; l < LANES; l++) lane[l] = fr_larger(fr_larger(x[l], x[l + LANES]), x[l + 2 * LANES]);
    for (int l = 0; l < LANES / 2; l++) lane[l] = fr_larger(lane[l], lane[l + LANES / 2]);
    return fr_larger(fr_larger(lane[0], lane[2]), fr_larger(lane[1], lane[3]));
}

/* Bring products back to [1, 2): sixteen more factors, each at least exp(-25), cannot underflow. */
CLONES
static void fold(double *product, double *power)
{
    for (int k = 0; k < K; k++) {
        uint64_t bits = fr_bits(product[k]);
        power[k] += fr_double((bits >> 52) + 0x4330000000000000ULL) - (0x1p52 + 1023.0);
        product[k] = fr_double((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
    }
}

/* Rewards of n that came after the last fold. */
FR_INLINE int since_fold(double n) { return (int)((int64_t)n % FR_FOLD); }

void fr_portfolio(const fr_bet_t *b, fr_sums_t *s, fr_portfolio_t *p, const double *z, int n, double *low, double *high)
{
    int finite = b->n_rows < INFINITY, since = since_fold(s->n);
    for (int i = 0; i < n;) {
        int count = FR_FOLD - since < n - i ? FR_FOLD - since : n - i;
        multiply(p->up, p->down, z + i, count);
        i += count;
        since += count;
        if (since == FR_FOLD) {
            fold(p->up, p->up_power);
            fold(p->down, p->down_power);
            since = 0;
        }
    }
    for (int i = 0; i < n; i++) {
        double left = b->n_rows - (s->n + (double)i), sum = s->total - 0.5;
        if (finite) {
            p->reach += b->n_rows / left;
            p->drawn += sum / left;
        }
        s->total += z[i];
        sum = s->total - 0.5;
        low[i] = finite ? sum / b->n_rows : 0.0;
        high[i] = finite ? (sum + (left - 1.0)) / b->n_rows : 1.0;
    }
    s->n += (double)n;
    if (!finite) p->reach = s->n;
}

/* One side of the portfolio: logs of its products, and how a candidate gives the mean of a reward. */
typedef struct {
    double gain[K];
    double n, reach, drawn;
} side_t;

CLONES
static void open_gains(double *gain, const double *product, const double *power)
{
    for (int k = 0; k < K; k++)
        gain[k] = fr_log1(product[k]) + power[k] * 0x1.62e42fefa39efp-1;
}

/* Log of the wealth against candidate m of who bets that the mean is above, and its slope. Of a population, the mean of
   a reward under m depends on the rewards before it; as log(1 - z + z exp(u)) is concave, the denominator at their
   average is no less than the product of the denominators (Jensen), and the wealth no more than what was won. */
CLONES
static double log_wealth(const void *of, double m, double *slope)
{
    const side_t *side = of;
    double n = side->n, mean = fr_larger((side->reach * m - side->drawn) / n, 0.0), pace = -side->reach;
    double log_of[K], rate[K], money[K], rise[K], top, all;
    for (int k = 0; k < K; k++) {
        double factor = LEAST[k] + REST[k] * mean;
        log_of[k] = side->gain[k] - n * fr_log1(factor);
        rate[k] = pace * (REST[k] / factor);
    }
    top = largest(log_of);
    for (int k = 0; k < K; k++) {
        double won = fr_exp1(log_of[k] - top), share = HALF[k] + TILTED[k] * (1.0 - m);
        money[k] = won * share;
        rise[k] = won * (share * rate[k] - TILTED[k]);
    }
    all = total(money);
    *slope = total(rise) / all;
    return top + fr_log1(all);
}

/* The largest candidate refuted, or `start`, which has been refuted before, if that is as large. The wealth falls as
   the candidate grows, since each numerator, each share and each inverse denominator does; at `centre` it is too small.
   Newton's rule, which comes from the left where log of the wealth is convex, kept inside a bracket. Far from the level
   it is the rule of (level / wealth)^(1 / n), which is linear in the candidate where one bettor has all the money after
   n rewards; with n infinite it is that of the log throughout. */
static double furthest(double (*log_of)(const void *, double, double *), const void *side, double n, double start,
                       double centre, double level)
{
    double lower = start, upper = centre, m = start;
    if (!(lower < upper)) return start;
    for (int step = 0; step < 200; step++) {
        double slope, over = log_of(side, m, &slope) - level, stretch, next;
        if (over >= 0.0)
            lower = m;
        else if (m == start)
            return start;
        else
            upper = m;
        stretch = fabs(over) > 1e-3 * n ? (fr_exp1(over / n) - 1.0) * (n / over) : 1.0;
        next = m - stretch * over / slope;
        if (!(next >= lower && next <= upper)) next = 0.5 * (lower + upper);
        if (fabs(next - m) <= 1e-9 * fr_smaller(m, centre - m)) return next;
        m = next;
    }
    return lower;
}

void fr_portfolio_bounds(const fr_bet_t *b, const fr_sums_t *s, const fr_portfolio_t *p, double lower, double upper,
                         double *low, double *high)
{
    double sum = s->total - 0.5;
    side_t side = {.n = s->n, .reach = p->reach, .drawn = p->drawn};
    open_gains(side.gain, p->up, p->up_power);
    *low = furthest(log_wealth, &side, s->n, fr_larger(lower, 0.0), (sum + side.drawn) / side.reach, b->level);
    side.drawn = (p->reach - s->n) - p->drawn;
    open_gains(side.gain, p->down, p->down_power);
    *high = 1.0 - furthest(log_wealth, &side, s->n, fr_larger(1.0 - upper, 0.0), (s->n - sum + side.drawn) / side.reach,
                           b->level);
}

/* What turns products into money over that which refutes, after the rewards of the last fold. */
CLONES
static void watch_fold(fr_watch_t *w, const double *power, double folded, double level)
{
    w->folded = folded;
    for (int k = 0; k < K; k++) {
        double paid = power[k] * 0x1.62e42fefa39efp-1 - folded * w->log_paid[k];
        w->scale[k] = w->share[k] * fr_exp1(paid - level);
    }
}

/* Watch candidate m, in [0, 1). */
CLONES
static void watch_candidate(fr_watch_t *w, double m)
{
    w->at = m;
    w->folded = -1.0;
    w->stride = 0.0;
    w->until = -INFINITY;
    for (int k = 0; k < K; k++) {
        double paid = LEAST[k] + REST[k] * m, pace = 1.0 / paid;
        w->log_paid[k] = fr_log1(paid);
        w->share[k] = HALF[k] + TILTED[k] * (1.0 - m);
        w->pull[k] = REST[k] * pace;
        for (int i = 0; i < 4; i++) {
            w->pace[i][k] = pace;
            pace *= pace;
        }
    }
    for (int k = 0; k < LANES; k++) w->loses[k] = TILTED[k] / w->share[k];
}

/* What a candidate has now: money of each bettor, over that which refutes it, and sums. They are infinite or nan where
   products of so many factors cannot be held. */
typedef struct {
    double money[K];
    double sum;                 /* of the money, at least 1 if refuted */
    double pulled, lost;        /* of money times pull, and times what shares lose */
} found_t;

FR_INLINE void watch_money(const fr_watch_t *w, const double *product, int since, found_t *found)
{
    const double *a = since & 1 ? w->pace[0] : ONES, *b = since & 2 ? w->pace[1] : ONES;
    const double *c = since & 4 ? w->pace[2] : ONES, *d = since & 8 ? w->pace[3] : ONES;
    double money[K], pulled[K], lost[LANES];    /* which stay in registers */
    for (int k = 0; k < K; k++) {
        money[k] = (product[k] * w->scale[k]) * ((a[k] * b[k]) * (c[k] * d[k]));
        pulled[k] = money[k] * w->pull[k];
    }
    for (int k = 0; k < LANES; k++) lost[k] = money[k] * w->loses[k];
    memcpy(found->money, money, sizeof money);
    found->sum = total(money);
    found->pulled = total(pulled);
    found->lost = across(lost);
}

CLONES
static void watch_side(const fr_watch_t *w, const double *product, int since, found_t *found)
{
    watch_money(w, product, since, found);
}

/* Both at once, as neither waits for the other. */
CLONES
static void watch_sides(const fr_watch_t w[2], const double *up, const double *down, int since, found_t found[2])
{
    watch_money(&w[0], up, since, &found[0]);
    watch_money(&w[1], down, since, &found[1]);
}

/* How far the excess may grow before the candidate can be refuted. A reward z multiplies a bettor's money by 1 + (z -
   at) pull <= exp((z - at) pull), so that rewards of excess x multiply it by exp(x pull) at most, however they come.
   The log of the sum of such is convex in x: up to a stride it is below its chord. exp(y) <= ((1 + y / 8) / (1 - y /
   8))^4 spares the exponentials; no pull is above 1 / at. Short of the level by 1e-6, a look is not left out for
   rounding. */
CLONES
static void watch_ahead(fr_watch_t *w, const double *money, double sum, double excess)
{
    const double short_of = -1e-6;
    double far[K], near = fr_log1(fr_larger(sum, 1e-300)), rise, share;
    if (w->stride == 0.0) {
        for (int k = 0; k < K; k++) far[k] = money[k] * w->pull[k];
        rise = total(far) / fr_larger(sum, 1e-300);
        w->stride = fr_smaller(STRIDE / rise, 4.0 * w->at);
        for (int k = 0; k < K; k++) {
            double y = 0.125 * w->stride * w->pull[k], root = (1.0 + y) / (1.0 - y);
            w->growth[k] = (root * root) * (root * root);
        }
    }
    for (int k = 0; k < K; k++) far[k] = money[k] * w->growth[k];
    rise = fr_log1(fr_larger(total(far), 1e-300)) - near;
    share = rise > short_of - near ? (short_of - near) / rise : 1.0;
    w->until = excess + share * w->stride;
}

/* From a candidate that is refuted to a larger one that is refuted for sure, and close to the largest. After a step d,
   shares leave sum - d t of the money at least, where t is what they lose; with these shares the log of the wealth is
   convex, and has fallen by d n p / (sum - d t) at most, where p is the sum of money times pull. As log(x) >= 2 (x - 1)
   / (x + 1), no less than 1 is left if 2 (sum - 1 - d t) (sum - d t) >= d n p (sum + 1 - d t): so it is at the root of
   the tangent at d = 0, which is below this quadratic. */
FR_INLINE double tangent(const found_t *found, double n)
{
    double sum = found->sum, more = sum - 1.0;
    return 2.0 * more * sum / ((sum + 1.0) * n * found->pulled + 2.0 * (sum + more) * found->lost);
}

static void watch(fr_watch_t *w, double m, const double *power, double n, double level)
{
    double folded = n - since_fold(n);
    if (w->at != m) watch_candidate(w, m);
    if (w->folded != folded) watch_fold(w, power, folded, level);
}

/* As `furthest`, but short of it by about 1e-4 of the distance from `centre`, and never beyond. The watched candidate,
   which has `found`, was refuted before and is not above `start`. Most looks find that `start` is still furthest, or an
   end on the candidate's tangent. The candidate is kept from look to look while it is near, so that all here follows
   from the state. */
static double look_near(fr_watch_t *w, const double *product, const double *power, double n, double total_of,
                        double level, double start, double centre, double *kept, found_t *found)
{
    side_t side;
    for (int step = 0; step < 8; step++) {
        double end;
        *kept = w->at;
        if (found->sum < 1.0) {
            watch_ahead(w, found->money, found->sum, total_of - n * w->at);
            return start;
        }
        if (!(found->sum <= FAR)) break;
        end = w->at + tangent(found, n);
        if (!(end < centre)) break;
        if (end <= start) {
            if (w->at >= start) return start;
            end = start;
        } else if (found->sum <= NEAR)
            return end;
        watch(w, end, power, n, level);
        watch_side(w, product, since_fold(n), found);
    }
    side.n = side.reach = n;
    side.drawn = 0.0;
    open_gains(side.gain, product, power);
    return *kept = furthest(log_wealth, &side, n, start, centre, level);
}

void fr_portfolio_look(const fr_bet_t *b, fr_sums_t *s, const fr_portfolio_t *p, fr_watch_t w[2], double lower,
                       double upper, double *low, double *high)
{
    const double *product[2] = {p->up, p->down}, *power[2] = {p->up_power, p->down_power};
    double n = s->n, mean = (s->total - 0.5) / n;
    double total_of[2] = {s->total, n - s->total}, centre[2] = {mean, 1.0 - mean};
    double end[2] = {fr_larger(lower, 0.0), fr_larger(1.0 - upper, 0.0)};
    found_t found[2];
    int due[2], since = since_fold(n);
    for (int k = 0; k < 2; k++) {
        double m = s->centre[k] > 0.0 ? s->centre[k] : end[k];
        due[k] = end[k] < centre[k] && !(w[k].at == m && total_of[k] - n * m <= w[k].until);
        if (due[k]) watch(&w[k], m, power[k], n, b->level);
    }
    if (due[0] && due[1])
        watch_sides(w, p->up, p->down, since, found);
    else if (due[0] || due[1])
        watch_side(&w[due[1]], product[due[1]], since, &found[due[1]]);
    for (int k = 0; k < 2; k++)
        if (due[k])
            end[k] = look_near(&w[k], product[k], power[k], n, total_of[k], b->level, end[k], centre[k], &s->centre[k],
                               &found[k]);
    *low = end[0];
    *high = 1.0 - end[1];
}

int fr_portfolio_quiet(const fr_watch_t w[2], double n, double total)
{
    return w[0].at >= 0.0 && total - n * w[0].at <= w[0].until && w[1].at >= 0.0
        && (n - total) - n * w[1].at <= w[1].until;
}

/* Log of the wealth against candidate m of bettors of fixed shares, without a population, with its first two
   derivatives. It is convex. */
CLONES
static double log_fixed(const double *gain, double n, double m, double *slope, double *bend)
{
    double log_of[K], money[K], rise[K], bends[K], top, all, first, second;
    for (int k = 0; k < K; k++) {
        double factor = LEAST[k] + REST[k] * m;
        log_of[k] = gain[k] - n * fr_log1(factor);
        rise[k] = REST[k] / factor;
    }
    top = largest(log_of);
    for (int k = 0; k < K; k++) {
        money[k] = fr_exp1(log_of[k] - top);
        bends[k] = money[k] * (rise[k] * rise[k]);
        rise[k] *= money[k];
    }
    all = total(money);
    first = total(rise) / all;
    second = total(bends) / all;
    *slope = -n * first;
    *bend = n * second + n * n * fr_larger(second - first * first, 0.0);
    return top + fr_log1(all);
}

void fr_portfolio_rival(const fr_sums_t *s, const fr_portfolio_t *p, double level, double lower, double upper,
                        fr_rival_t *r)
{
    *r = (fr_rival_t){.n = s->n, .level = level};
    if (s->n == 0.0) return;
    r->mean = (s->total - 0.5) / s->n;
    r->below = r->mean - lower;
    r->above = upper - r->mean;
    open_gains(r->up, p->up, p->up_power);
    open_gains(r->down, p->down, p->down_power);
    for (int k = 0; k < K; k++) {
        r->up[k] += LOG_SHARE[k];
        r->down[k] += LOG_SHARE[k];
    }
}

/* Who bets that the mean of one stream is above x, and who bets that the mean of another is below 1 - z. */
typedef struct {
    const double *up, *down;
    double n_up, n_down, level;
    double x, drift;            /* where the product was least, and how that moves with x + z */
    int sure;                   /* whether the least product is bounded from below, or guessed by two derivatives */
} pair_t;

/* Log of the least product of their money over x + z = e, and its slope in e; convex. Newton's rule for the slope in x,
   kept inside a bracket, until it is known to 1e-10, or to a hundredth of what is left to the level if that is more.
   The second derivative may promise too little, where some bettor's money falls at once: who is to be sure goes on to
   where the slope changes its sign. */
static double log_pair(pair_t *pair, double e, double *slope)
{
    const double least = 1e-10, first = fr_larger(0.0, e - 1.0), last = fr_smaller(1.0, e);
    double lower = first, upper = last, x = fr_smaller(fr_larger(pair->x, first), last), stretch = 1.0, log_of = 0.0;
    int tried_first = 0, tried_last = 0;
    for (int step = 0; step < 200; step++) {
        double rise, bend, fall, bend_down, tilt, away, most, saved, enough, next;
        log_of = log_fixed(pair->up, pair->n_up, x, &rise, &bend);
        log_of += log_fixed(pair->down, pair->n_down, e - x, &fall, &bend_down);
        tilt = rise - fall;
        pair->x = x;
        if ((x == first && tilt >= 0.0) || (x == last && tilt <= 0.0)) {        /* least at an end, where 0 or 1 is */
            int moves = x != 0.0 && x != 1.0;
            pair->drift = moves ? 1.0 : 0.0;
            *slope = moves ? rise : fall;
            return log_of;
        }
        away = tilt / (bend + bend_down);
        most = tilt * (x - (tilt > 0.0 ? lower : upper));       /* as the least is inside the bracket */
        saved = fr_smaller(0.5 * tilt * away, most);
        pair->drift = bend_down / (bend + bend_down);
        *slope = rise * pair->drift + fall * (1.0 - pair->drift);
        enough = fr_larger(0.01 * fabs(log_of - saved - pair->level), least);
        if ((pair->sure ? most : saved) <= enough || upper - lower <= 1e-15)
            return log_of - saved;
        tried_first |= x == first;
        tried_last |= x == last;
        if (tilt > 0.0)
            upper = x;
        else
            lower = x;
        if (saved <= 0.25 * enough) stretch *= 2.0;
        next = x - stretch * away;
        if (next <= lower || x == last)
            next = lower == first && !tried_first ? first : lower + 0.25 * (upper - lower);
        else if (next >= upper || x == first)
            next = upper == last && !tried_last ? last : upper - 0.25 * (upper - lower);
        x = next;
    }
    return log_of;
}

/* The largest x + z at which the product is refuted whatever x, or 0; not refuted at `centre`. As `furthest`, from a
   guess: both of the streams' own intervals, as errors of independent means add. */
static double furthest_pair(pair_t *pair, double mean, double centre, double away, double other)
{
    double slope, bend, both = sqrt(away * away + other * other), lower = 0.0, upper = centre, e;
    if (log_fixed(pair->up, pair->n_up, 0.0, &slope, &bend) + log_fixed(pair->down, pair->n_down, 0.0, &slope, &bend)
        < pair->level)
        return 0.0;
    e = fr_larger(centre - both, 0.1 * centre);
    pair->x = both > 0.0 ? mean - (centre - e) * ((away / both) * (away / both)) : mean;
    pair->sure = 0;
    for (int step = 0; step < 200; step++) {
        double over = log_pair(pair, e, &slope) - pair->level, next;
        if (over >= 0.0)
            lower = e;
        else
            upper = e;
        next = e - over / slope;
        if (!(next >= lower && next <= upper)) next = 0.5 * (lower + upper);
        if (fabs(next - e) <= fr_larger((pair->sure ? 1e-9 : 1e-6) * fr_smaller(e, centre - e), 0x1p-52 * e)) {
            if (pair->sure) return next;
            pair->sure = 1;
            lower = 0.0;                /* which was guessed; what is not refuted is sure */
        }
        pair->x += pair->drift * (next - e);
        e = next;
    }
    return lower;
}

/* Lower end of the mean behind `a` less that behind `b`; `evidence`, unless NULL, that it is above 0. */
static double lower_end(const fr_rival_t *a, const fr_rival_t *b, double mean, double other_mean, const double *up,
                        const double *down, double away, double other, double level, double *evidence)
{
    pair_t pair = {.up = up, .down = down, .n_up = a->n, .n_down = b->n, .level = level};
    double scale = sqrt(level / a->level), slope;
    double low = furthest_pair(&pair, mean, mean + other_mean, scale * away, scale * other) - 1.0;
    if (evidence != NULL) {
        double share = away * away / (away * away + other * other);
        pair.x = share >= 0.0 ? mean + (1.0 - other_mean - mean) * share : mean;
        pair.level = NAN;
        pair.sure = 1;
        *evidence = log_pair(&pair, 1.0, &slope);
    }
    return low;
}

void fr_portfolio_difference(const fr_rival_t *a, const fr_rival_t *b, double level, double *low, double *high,
                             double *above, double *below)
{
    *low = -1.0;
    *high = 1.0;
    if (above != NULL) *above = *below = 0.0;
    if (a->n == 0.0 || b->n == 0.0) return;
    *low = lower_end(a, b, a->mean, 1.0 - b->mean, a->up, b->down, a->below, b->above, level, above);
    *high = -lower_end(b, a, b->mean, 1.0 - a->mean, b->up, a->down, b->below, a->above, level, below);
}

void fr_portfolio_merge(fr_portfolio_t *p, const fr_portfolio_t *other)
{
    fr_portfolio_t next = *other;
    fold(next.up, next.up_power);
    fold(next.down, next.down_power);
    for (int k = 0; k < K; k++) {
        p->up[k] *= next.up[k];
        p->up_power[k] += next.up_power[k];
        p->down[k] *= next.down[k];
        p->down_power[k] += next.down_power[k];
    }
    fold(p->up, p->up_power);
    fold(p->down, p->down_power);
    p->reach += other->reach;
}

int fr_portfolio_sane(const fr_portfolio_t *p)
{
    int sane = p->reach >= 0.0 && p->reach < INFINITY && p->drawn >= 0.0 && p->drawn < INFINITY;
    for (int k = 0; k < K; k++)
        sane = sane && p->up[k] >= 1e-300 && p->up[k] < 2.0 && p->down[k] >= 1e-300 && p->down[k] < 2.0
            && p->up_power[k] <= 0.0 && p->up_power[k] > -INFINITY
            && p->down_power[k] <= 0.0 && p->down_power[k] > -INFINITY;
    return sane;
}

/* Number of the odds ratio nearest to the one that grows fastest against a candidate `wanted` below the mean, or half
   the mean if that is more: the difference of their logits, if rewards are 0 and 1, and as many times that as a reward
   of 0 and 1 has more variance. No bet risks more than the cap on a reward of -under; where that is not 0, the next
   number is taken if the nearest one would. */
FR_INLINE double aim(double mean, double variance, double wanted, double cap, double under)
{
    double m = fr_larger(mean - wanted, 0.5 * mean), risk = m * (1.0 - cap) + under;
    double most = fr_log1((m + cap * (1.0 - m) + under) / risk);
    double share = fr_smaller(variance / (mean * (1.0 - mean)), 1.0);
    double u = fr_smaller(fr_log1p1((mean - m) / (m * (1.0 - mean))) / share, most);
    double k = (3.2188758248682006 - fr_log1(fr_larger(u, 1e-30))) * 10.0;      /* log(25) */
    k = fr_smaller(fr_larger(k, 0.0), FR_ODDS - 1.0);
    k = (k + FR_ROUND) - FR_ROUND;
    return under > 0.0 && k < FR_ODDS - 1.0 && ODDS_REST[(int)k] * under > cap * ODDS_LEAST[(int)k] ? k + 1.0 : k;
}

/* The variance is guessed from the rewards and half of one with variance 1/4: who bets boldly at first gains more where
   the variance is small than he loses elsewhere. Of a population, what is left of it would be further from the
   candidate than the whole: wanted is stretched by that. */
CLONES
static void aims(const fr_bet_t *b, double seen, int n, const double *mean, const double *square, double *up,
                 double *down)
{
    fr_bet_t k = *b;
    for (int i = 0; i < n; i++) {
        double before = seen + (double)i, most = (before + 0.5) / (before + 1.0);
        double guess = fr_smaller(fr_larger(mean[i], 0.5 / (before + 1.0)), most), away = fabs(guess + k.offset);
        double variance = (square[i] - 0.125) / (before + 0.5);
        double stretch = k.n_rows < INFINITY ? k.n_rows / (k.n_rows - before) : 1.0;
        up[i] = aim(guess, variance, stretch * fr_wanted(&k, away, k.slope / (1.0 + k.slope)), k.cap, k.under);
        down[i] = aim(1.0 - guess, variance, stretch * fr_wanted(&k, away, k.slope / (1.0 - k.slope)), k.cap, k.over);
    }
}

CLONES
static void numerators(const double *up, const double *down, const double *z, int n, double *won, double *lost)
{
    for (int i = 0; i < n; i++) {
        won[i] = fr_log1(ODDS_LEAST[(int)up[i]] + ODDS_REST[(int)up[i]] * z[i]);
        lost[i] = fr_log1(ODDS_LEAST[(int)down[i]] + ODDS_REST[(int)down[i]] * (1.0 - z[i]));
    }
}

void fr_aimed(const fr_bet_t *b, fr_sums_t *s, fr_aimed_t *a, const double *z, int n, double *low, double *high)
{
    double total[FR_BLOCK + 1], mean[FR_BLOCK + 1], square[FR_BLOCK + 1];
    double bet[2][FR_BLOCK], won[2][FR_BLOCK], seen = s->n;
    int finite = b->n_rows < INFINITY;
    fr_guess(s, z, n, total, mean, square);
    aims(b, seen, n, mean, square, bet[0], bet[1]);
    numerators(bet[0], bet[1], z, n, won[0], won[1]);
    for (int i = 0; i < n; i++) {
        double before = seen + (double)i, left = b->n_rows - before, sum = total[i] - 0.5;
        for (int side = 0; side < 2; side++) {
            int k = (int)bet[side][i];
            a->won[side] += won[side][i];
            a->count[side][k] += 1.0;
            a->reach[side][k] += finite ? b->n_rows / left : 1.0;
            if (finite) a->drawn[side][k] += (side ? before - sum : sum) / left;
        }
        sum = total[i + 1] - 0.5;
        low[i] = finite ? (sum - (left - 1.0) * b->under) / b->n_rows : 0.0;
        high[i] = finite ? (sum + (left - 1.0) * (1.0 + b->over)) / b->n_rows : 1.0;
    }
    s->n = seen + (double)n;
}

typedef struct {
    const double *count, *reach, *drawn;
    double won;
    double rest;                /* least share of the money that a bet left to who lost it, whatever the reward */
    int first, last;            /* odds ratios in use, by whole lanes */
} aimed_side_t;

static aimed_side_t open_aimed(const fr_bet_t *b, const fr_aimed_t *a, int side)
{
    aimed_side_t made = {a->count[side], a->reach[side], a->drawn[side], a->won[side], 1.0 - b->cap, 0, FR_ODDS};
    while (made.first < FR_ODDS && a->count[side][made.first] == 0.0) made.first++;
    while (made.last > made.first && a->count[side][made.last - 1] == 0.0) made.last--;
    made.first -= made.first % LANES;
    made.last += (LANES - made.last % LANES) % LANES;
    return made;
}

/* As log_wealth, of one bettor: convex in m. Where a candidate is possible, no denominator is raised. */
CLONES
static double log_aimed(const void *of, double m, double *slope)
{
    const aimed_side_t *side = of;
    double paid[LANES] = {0.0}, rise[LANES] = {0.0};
    for (int k = side->first; k < side->last; k += LANES)
        for (int l = 0; l < LANES; l++) {
            double count = side->count[k + l], reach = side->reach[k + l];
            double mean = (reach * m - side->drawn[k + l]) / fr_larger(count, 1.0);
            double factor = fr_larger(ODDS_LEAST[k + l] + ODDS_REST[k + l] * mean, side->rest * ODDS_LEAST[k + l]);
            paid[l] += count * fr_log1(factor);
            rise[l] -= reach * (ODDS_REST[k + l] / factor);
        }
    for (int l = 1; l < LANES; l++) {
        paid[0] += paid[l];
        rise[0] += rise[l];
    }
    *slope = rise[0];
    return side->won - paid[0];
}

void fr_aimed_bounds(const fr_bet_t *b, const fr_aimed_t *a, double lower, double upper, double *low, double *high)
{
    aimed_side_t up = open_aimed(b, a, 0), down = open_aimed(b, a, 1);
    *low = furthest(log_aimed, &up, INFINITY, fr_larger(lower, 0.0), 1.0, b->level);
    *high = 1.0 - furthest(log_aimed, &down, INFINITY, fr_larger(1.0 - upper, 0.0), 1.0, b->level);
}

int fr_aimed_sane(const fr_aimed_t *a, double n)
{
    int sane = 1;
    for (int side = 0; side < 2; side++) {
        double counted = 0.0;
        sane = sane && fabs(a->won[side]) < INFINITY;
        for (int k = 0; k < FR_ODDS; k++) {
            counted += a->count[side][k];
            sane = sane && a->count[side][k] >= 0.0 && a->reach[side][k] >= a->count[side][k]
                && a->reach[side][k] < INFINITY && fabs(a->drawn[side][k]) < INFINITY;
        }
        sane = sane && counted == n;
    }
    return sane;
}
