#include "_bets.h"
#include "_clones.h"

#include <string.h>

CLONES
void fr_scale(const fr_bet_t *b, const double *x, int n, double low, double span, double *z)
{
    for (int i = 0; i < n; i++) z[i] = fr_unit(b, x[i], low, span);
}

CLONES
void fr_narrowest(const double *low, const double *high, int n, double *out)
{
    double a[16], b[16];
    int i = 0;
    for (int l = 0; l < 16; l++) {
        a[l] = -INFINITY;
        b[l] = INFINITY;
    }
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) {
            a[l] = fr_larger(a[l], low[i + l]);
            b[l] = fr_smaller(b[l], high[i + l]);
        }
    for (; i < n; i++) {
        a[0] = fr_larger(a[0], low[i]);
        b[0] = fr_smaller(b[0], high[i]);
    }
    for (int l = 1; l < 16; l++) {
        a[0] = fr_larger(a[0], a[l]);
        b[0] = fr_smaller(b[0], b[l]);
    }
    out[0] = a[0];
    out[1] = b[0];
}

void fr_sums_init(fr_sums_t *s)
{
    memset(s, 0, sizeof *s);
    s->total = 0.5;
    s->square = 0.25;
}

/* Turn bets on the next reward into bets on the mean of a population sampled without replacement; weight holds the
   bets, centre bet times reward. */
FR_INLINE void without_replacement(const fr_bet_t *b, double n_seen, const double *total, int n, double *weight,
                                   double *centre)
{
    for (int i = 0; i < n; i++) {
        double left = b->n_rows - (n_seen + (double)i);
        centre[i] += weight[i] * ((total[i] - 0.5) / left);
        weight[i] *= b->n_rows / left;
    }
}

/* What the rewards seen say for sure: the others lie in [0, 1]. */
FR_INLINE void certain(const fr_bet_t *b, double n_seen, const double *total, int n, double *low, double *high)
{
    for (int i = 0; i < n; i++) {
        double sum = total[i + 1] - 0.5, left = b->n_rows - (n_seen + (double)(i + 1));
        low[i] = fr_larger(low[i], sum / b->n_rows);
        high[i] = fr_smaller(high[i], (sum + left) / b->n_rows);
    }
}

FR_INLINE void running_sums(double *start, double *x, int n)
{
    double sum = *start;
    for (int i = 0; i < n; i++) x[i] = sum += x[i];
    *start = sum;
}

/* Closed form of a bet per side, each on the scale of the guessed mean's distance from that end of the support. */
CLONES
void fr_target(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high)
{
    double total[FR_BLOCK + 1], mean[FR_BLOCK + 1], square[FR_BLOCK + 1];
    double w0[FR_BLOCK], c0[FR_BLOCK], p0[FR_BLOCK], w1[FR_BLOCK], c1[FR_BLOCK], p1[FR_BLOCK];
    fr_bet_t k = *b;
    double seen = s->n;
    fr_guess(s, z, n, total, mean, square);
    for (int i = 0; i < n; i++) {
        double wanted = fr_wanted(&k, fabs(mean[i] + k.offset), k.slope);
        double variance = square[i] / (seen + (double)(i + 1));
        double d = z[i] - mean[i], squared = d * d;
        fr_target_terms(wanted, variance, mean[i], k.cap, 1.0, z[i], squared, &w0[i], &c0[i], &p0[i]);
        fr_target_terms(wanted, variance, 1.0 - mean[i], k.cap, 1.0, z[i], squared, &w1[i], &c1[i], &p1[i]);
    }
    if (k.n_rows < INFINITY) {
        without_replacement(&k, seen, total, n, w0, c0);
        without_replacement(&k, seen, total, n, w1, c1);
    }
    {
        double a = s->weight[0], c = s->centre[0], e = s->penalty[0];
        double f = s->weight[1], g = s->centre[1], h = s->penalty[1];
        for (int i = 0; i < n; i++) {
            w0[i] = a += w0[i];
            c0[i] = c += c0[i];
            p0[i] = e += p0[i];
            w1[i] = f += w1[i];
            c1[i] = g += c1[i];
            p1[i] = h += p1[i];
        }
        s->weight[0] = a;
        s->centre[0] = c;
        s->penalty[0] = e;
        s->weight[1] = f;
        s->centre[1] = g;
        s->penalty[1] = h;
    }
    for (int i = 0; i < n; i++) {
        low[i] = (c0[i] - (k.level + p0[i])) / w0[i];
        high[i] = (c1[i] + (k.level + p1[i])) / w1[i];
    }
    if (k.n_rows < INFINITY) certain(&k, seen, total, n, low, high);
    s->n = seen + (double)n;
}

CLONES
void fr_plug_in(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high)
{
    double total[FR_BLOCK + 1], mean[FR_BLOCK + 1], square[FR_BLOCK + 1];
    double weight[FR_BLOCK], centre[FR_BLOCK], penalty[FR_BLOCK];
    fr_bet_t k = *b;
    double seen = s->n;
    fr_guess(s, z, n, total, mean, square);
    for (int i = 0; i < n; i++) {
        double t = seen + (double)(i + 1), d = z[i] - mean[i];
        double bet = fr_smaller(fr_plug_in_bet(k.level, square[i], t), k.cap);
        weight[i] = bet;
        centre[i] = bet * z[i];
        penalty[i] = d * d * fr_psi(bet);
    }
    if (k.n_rows < INFINITY) without_replacement(&k, seen, total, n, weight, centre);
    {
        double a = s->weight[0], c = s->centre[0], e = s->penalty[0];
        for (int i = 0; i < n; i++) {
            weight[i] = a += weight[i];
            centre[i] = c += centre[i];
            penalty[i] = e += penalty[i];
        }
        s->weight[0] = a;
        s->centre[0] = c;
        s->penalty[0] = e;
    }
    for (int i = 0; i < n; i++) {
        double middle = centre[i] / weight[i], half = (k.level + penalty[i]) / weight[i];
        low[i] = middle - half;
        high[i] = middle + half;
    }
    if (k.n_rows < INFINITY) certain(&k, seen, total, n, low, high);
    s->n = seen + (double)n;
}

/* The sum of squared distances from the guess before each reward, in penalty[0]. */
FR_INLINE void intrinsic_time(fr_sums_t *s, const double *z, int n, const double *mean, double *v)
{
    for (int i = 0; i < n; i++) {
        double d = z[i] - mean[i];
        v[i] = d * d;
    }
    running_sums(&s->penalty[0], v, n);
}

CLONES
void fr_stitching(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high)
{
    double total[FR_BLOCK + 1], mean[FR_BLOCK + 1], square[FR_BLOCK + 1], v[FR_BLOCK];
    double level = b->level, seen = s->n;
    fr_guess(s, z, n, total, mean, square);
    intrinsic_time(s, z, n, mean, v);
    for (int i = 0; i < n; i++) {
        double t = seen + (double)(i + 1), middle = (total[i + 1] - 0.5) / t, half = fr_stitched(level, v[i]) / t;
        low[i] = middle - half;
        high[i] = middle + half;
    }
    s->n = seen + (double)n;
}

CLONES
void fr_hoeffding(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high)
{
    double total[FR_BLOCK + 1];
    fr_bet_t k = *b;
    double seen = s->n;
    for (int i = 0; i < n; i++) total[i] = z[i];
    running_sums(&s->total, total, n);
    for (int i = 0; i < n; i++) {
        double t = seen + (double)(i + 1);
        double middle = (total[i] - 0.5) / t, half = fr_normal_mixture(k.level, 0.25 * t, k.rho) / t;
        low[i] = middle - half;
        high[i] = middle + half;
    }
    s->n = seen + (double)n;
}

CLONES
void fr_moments_only(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high)
{
    double total[FR_BLOCK + 1], mean[FR_BLOCK + 1], square[FR_BLOCK + 1], v[FR_BLOCK];
    (void)b;
    fr_guess(s, z, n, total, mean, square);
    intrinsic_time(s, z, n, mean, v);
    for (int i = 0; i < n; i++) {
        low[i] = 0.0;
        high[i] = 1.0;
    }
    s->n += (double)n;
}

CLONES
void fr_threshold(const fr_bet_t *b, fr_sums_t *s, const double *z, int n, double *low, double *high)
{
    double total[FR_BLOCK + 1], mean[FR_BLOCK + 1], square[FR_BLOCK + 1], gain[FR_BLOCK], at[FR_BLOCK];
    double seen = s->n, threshold = -b->offset, cap = b->cap, n_rows = b->n_rows, level = b->level;
    int finite = n_rows < INFINITY;
    fr_guess(s, z, n, total, mean, square);
    for (int i = 0; i < n; i++) {
        double left = n_rows - (seen + (double)i);
        double here = finite ? (n_rows * threshold - (total[i] - 0.5)) / left : threshold;
        double distance = mean[i] - here, bet = fr_kelly_bet(distance, square[i] / (seen + (double)(i + 1)));
        bet = fr_smaller(fr_larger(bet, -cap / (1.0 - here)), cap / here);
        at[i] = distance;
        gain[i] = fr_log1p1(here > 0.0 && here < 1.0 ? bet * (z[i] - here) : 0.0);      /* else it is certain */
    }
    for (int i = 0; i < n; i++) {
        int side = at[i] < 0.0;
        s->centre[side] += gain[i];
        s->penalty[side] = fr_larger(s->penalty[side], s->centre[side]);
        low[i] = s->penalty[0] >= level ? 1.0 : -1.0;
        high[i] = s->penalty[1] >= level ? -1.0 : 1.0;
    }
    if (finite)
        for (int i = 0; i < n; i++) {
            double before = s->weight[0], sum = before + z[i], got = sum - before, above;
            double left = n_rows - (seen + (double)(i + 1));
            s->weight[0] = sum;
            s->weight[1] += (before - (sum - got)) + (z[i] - got);
            above = (sum - n_rows * threshold) + s->weight[1];
            low[i] = above > n_rows * b->floor ? 1.0 : low[i];
            high[i] = above + left < -n_rows * b->floor ? -1.0 : high[i];
        }
    s->n = seen + (double)n;
}

static void place(const fr_bet_t *b, fr_grid_t *g, int j, double mean, double above, double below)
{
    g->mean[j] = mean;
    g->above[j] = above;
    g->below[j] = below;
    g->cap_above[j] = b->cap / mean;
    g->cap_below[j] = b->cap / (1.0 - mean);
}

/* Odds grow geometrically from 1e-9 to 1e9. */
void fr_grid_init(const fr_bet_t *b, fr_grid_t *g)
{
    int count = FR_CANDIDATES;
    g->first = 0;
    g->last = count + 1;
    g->refuted = 0;
    place(b, g, 0, 0.0, 1.0, 1.0);
    place(b, g, count + 1, 1.0, 1.0, 1.0);
    for (int j = 0; j < count; j++) {
        double odds = exp(20.72326583694641 * (2.0 * j - (count - 1)) / (count - 1));
        place(b, g, j + 1, odds / (1.0 + odds), 1.0, 1.0);
    }
}

void fr_grid_copy(fr_grid_t *to, const fr_grid_t *from)
{
    size_t size = (size_t)(from->last - from->first + 1) * sizeof(double);
    int j = from->first;
    to->first = j;
    to->last = from->last;
    to->refuted = from->refuted;
    memcpy(to->mean + j, from->mean + j, size);
    memcpy(to->above + j, from->above + j, size);
    memcpy(to->below + j, from->below + j, size);
    memcpy(to->cap_above + j, from->cap_above + j, size);
    memcpy(to->cap_below + j, from->cap_below + j, size);
}

/* Between two candidates: by geometric means, as relative accuracy near either end of the support wants it. */
static double between(double low, double high)
{
    double mean;
    if (high <= 0.5)
        mean = low > 0.0 ? sqrt(low * high) : high / 16.0;
    else if (low >= 0.5)
        mean = high < 1.0 ? 1.0 - sqrt((1.0 - low) * (1.0 - high)) : 1.0 - (1.0 - low) / 16.0;
    else
        mean = 0.5 * (low + high);
    return mean > low && mean < high ? mean : 0.5 * (low + high);
}

/* Drop what is refuted, and put new candidates between the others when there is room. A new one starts with no more
   wealth than it would have had from the start: that of a neighbour whose reward was worth less at every step. */
static void refine(const fr_bet_t *b, fr_grid_t *g)
{
    int count = g->last - g->first + 1, j;
    for (j = 0; j < count; j++) {
        double above = g->above[g->first + j], below = g->below[g->first + j];
        /* Numbers below 1e-308 are slow; giving up money is allowed. */
        place(b, g, j, g->mean[g->first + j], above > 1e-250 ? above : 0.0, below > 1e-250 ? below : 0.0);
    }
    g->first = 0;
    g->last = count - 1;
    if (2 * count - 1 > FR_LIVE || !(g->mean[count - 1] - g->mean[0] > 1e-12)) return;
    for (j = count - 1; j > 0; j--) {
        double low = g->mean[j - 1], high = g->mean[j];
        place(b, g, 2 * j, high, g->above[j], g->below[j]);
        place(b, g, 2 * j - 1, between(low, high), g->above[j], g->below[j - 1]);
    }
    g->last = 2 * count - 2;
}

CLONES
static void bet_on_all(fr_grid_t *g, double z, double up, double down)
{
    double *above = g->above, *below = g->below;
    const double *mean = g->mean, *cap_above = g->cap_above, *cap_below = g->cap_below;
    int first = g->first, last = g->last;
    for (int j = first; j <= last; j++) {
        double d = z - mean[j];
        above[j] *= 1.0 + fr_smaller(up, cap_above[j]) * d;
        below[j] *= 1.0 - fr_smaller(down, cap_below[j]) * d;
    }
}

CLONES
static void bet_on_the_rest(const fr_bet_t *b, fr_grid_t *g, double z, double up, double down, double sum, double left)
{
    double *above = g->above, *below = g->below;
    const double *mean = g->mean;
    double n_rows = b->n_rows, cap = b->cap;
    int first = g->first, last = g->last;
    for (int j = first; j <= last; j++) {
        double rest = (n_rows * mean[j] - sum) / left, d = z - rest;
        double a = rest > 0.0 ? cap / rest : up, c = rest < 1.0 ? cap / (1.0 - rest) : down;
        above[j] *= 1.0 + fr_smaller(up, a) * d;
        below[j] *= 1.0 - fr_smaller(down, c) * d;
    }
}

CLONES
static void bets(const fr_bet_t *b, double seen, int target, int n, const double *mean, const double *square,
                 double *up, double *down)
{
    fr_bet_t k = *b;
    if (target)
        for (int i = 0; i < n; i++) {
            double away = fabs(mean[i] + k.offset), variance = square[i] / (seen + (double)(i + 1));
            up[i] = fr_kelly_bet(fr_wanted(&k, away, k.slope / (1.0 + k.slope)), variance);
            down[i] = fr_kelly_bet(fr_wanted(&k, away, k.slope / (1.0 - k.slope)), variance);
        }
    else
        for (int i = 0; i < n; i++)
            up[i] = down[i] = fr_plug_in_bet(k.level, square[i], seen + (double)(i + 1));
}

/* Move the bounds past candidates that are refuted, or impossible; all are, once a bound is refuted on its other side. */
static void advance(fr_grid_t *g, double enough, double surely, double at_most)
{
    while (g->first < g->last - 1 && (g->above[g->first + 1] >= enough || g->mean[g->first + 1] < surely)) g->first++;
    while (g->last > g->first + 1 && (g->below[g->last - 1] >= enough || g->mean[g->last - 1] > at_most)) g->last--;
    g->refuted = g->refuted || (g->mean[g->last] < 1.0 && g->above[g->last] >= enough)
        || (g->mean[g->first] > 0.0 && g->below[g->first] >= enough);
}

void fr_betting(const fr_bet_t *b, fr_sums_t *s, fr_grid_t *g, int target, const double *z, int n,
                double *low, double *high)
{
    double total[FR_BLOCK + 1], mean[FR_BLOCK + 1], square[FR_BLOCK + 1], up[FR_BLOCK], down[FR_BLOCK];
    double enough = exp(b->level), seen = s->n;
    int finite = b->n_rows < INFINITY, since = (int)fmod(seen, FR_FOLD);
    if (n <= 0) return;
    fr_guess(s, z, n, total, mean, square);
    bets(b, seen, target, n, mean, square, up, down);
    for (int i = 0; i < n; i++) {
        double surely = 0.0, at_most = 1.0;
        if (g->refuted) {
            low[i] = 1.0;
            high[i] = 0.0;
            continue;
        }
        if (finite) {
            double left = b->n_rows - (seen + (double)i), sum = total[i + 1] - 0.5;
            bet_on_the_rest(b, g, z[i], up[i], down[i], total[i] - 0.5, left);
            surely = sum / b->n_rows;
            at_most = (sum + (left - 1.0)) / b->n_rows;
        } else
            bet_on_all(g, z[i], up[i], down[i]);
        advance(g, enough, surely, at_most);
        low[i] = g->refuted ? 1.0 : fr_larger(g->mean[g->first], surely);
        high[i] = g->refuted ? 0.0 : fr_smaller(g->mean[g->last], at_most);
        if (++since == FR_FOLD) {
            if (!g->refuted) refine(b, g);
            since = 0;
        }
    }
    s->n = seen + (double)n;
}

/* The rewards behind `other` follow those behind `g`, of whose candidates none is a better bound than it was. */
void fr_grid_merge(const fr_bet_t *b, fr_grid_t *g, const fr_grid_t *other)
{
    double enough = exp(b->level);
    int after = other->first;           /* first of the other's candidates that is not below ours */
    for (int j = g->first; j <= g->last; j++) {
        while (after <= other->last && other->mean[after] < g->mean[j]) after++;
        int before = after <= other->last && other->mean[after] == g->mean[j] ? after : after - 1;
        g->above[j] *= after <= other->last ? other->above[after] : 0.0;
        g->below[j] *= before >= other->first ? other->below[before] : 0.0;
    }
    g->refuted = g->refuted || other->refuted;
    advance(g, enough, 0.0, 1.0);
}
