/* Arithmetic on models in one pass over memory. kernels.py compiles this file, which includes itself once per
   type of number. Every operation is rounded as NumPy rounds it (-ffp-contract=off), so results are the same
   bit for bit. Numbers are computed in tiles that stay in the first-level cache; large results are then
   written past the caches, which saves reading what is overwritten. Each function returns whether all that it
   wrote is finite: v - v is 0 of a finite number, and no number otherwise. */

#ifndef REAL

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define TILE 1024
#define LEAST(a, b) ((a) < (b) ? (a) : (b))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FAST __attribute__((target_clones("avx2", "default")))
#else
#define FAST
#endif

/* The part of a tile, written past the caches where `stream` says so and the place is aligned. */
static void put(void *to, const void *from, size_t bytes, int stream)
{
#ifdef __SSE2__
    if (stream && ((uintptr_t)to & 15) == 0) {
        size_t whole = bytes & ~(size_t)15;
        for (size_t at = 0; at < whole; at += 16)
            _mm_stream_si128((__m128i *)((char *)to + at), _mm_loadu_si128((const __m128i *)((const char *)from + at)));
        memcpy((char *)to + whole, (const char *)from + whole, bytes - whole);
        return;
    }
#endif
    memcpy(to, from, bytes);
}

static void settle(int stream)
{
#ifdef __SSE2__
    if (stream)
        _mm_sfence();
#endif
}

/* A copy past the caches, which a copy of the C library makes only of vectors larger than all of them. */
void copy(void *to, const void *from, size_t bytes)
{
    put(to, from, bytes, 1);
    settle(1);
}

#define NAME_(name, real) name##_##real
#define NAME__(name, real) NAME_(name, real)
#define NAME(name) NAME__(name, REAL)

#define REAL float
#define BITS uint32_t
#define ROOT sqrtf
#include "kernels.c"
#undef REAL
#undef BITS
#undef ROOT
#define REAL double
#define BITS uint64_t
#define ROOT sqrt
#include "kernels.c"

#else

FAST static BITS NAME(not_finite)(const REAL *x, size_t n)
{
    BITS found = 0;
    for (size_t i = 0; i < n; i++) {
        REAL gap = x[i] - x[i];
        BITS bits;
        memcpy(&bits, &gap, sizeof bits);
        found |= bits;
    }
    return found;
}

/* out = sum of factors[k] models[k], in this order. */
FAST int NAME(combine)(REAL *out, size_t n, const REAL *const *models, const double *factors, int count, int stream)
{
    REAL tile[TILE];
    BITS bad = 0;
    for (size_t start = 0; start < n; start += TILE) {
        size_t length = LEAST(n - start, (size_t)TILE);
        for (int k = 0; k < count; k++) {
            const REAL *x = models[k] + start;
            REAL factor = (REAL)factors[k];
            if (k == 0)
                for (size_t i = 0; i < length; i++)
                    tile[i] = x[i] * factor;
            else
                for (size_t i = 0; i < length; i++)
                    tile[i] = tile[i] + x[i] * factor;
        }
        bad |= NAME(not_finite)(tile, length);
        put(out + start, tile, length * sizeof(REAL), stream);
    }
    settle(stream);
    return bad == 0;
}

/* The model after a step of SGD (rules/sgd.py); without momentum, m and m_after are not looked at. */
FAST int NAME(sgd)(REAL *after, REAL *m_after, const REAL *half, const REAL *g, const REAL *x, const REAL *m, size_t n,
                   double momentum, double weight_decay, double minus_step_size, int nesterov, int stream)
{
    REAL d[TILE], v[TILE], out[TILE];
    REAL mu = (REAL)momentum, decay = (REAL)weight_decay, minus = (REAL)minus_step_size;
    BITS bad = 0;
    for (size_t start = 0; start < n; start += TILE) {
        size_t length = LEAST(n - start, (size_t)TILE);
        const REAL *slope = g + start, *base = half + start;
        if (weight_decay != 0.0) {
            const REAL *at = x + start;
            for (size_t i = 0; i < length; i++)
                d[i] = at[i] * decay + slope[i];
            slope = d;
        }
        if (momentum != 0.0) {
            const REAL *old = m + start;
            for (size_t i = 0; i < length; i++)
                v[i] = old[i] * mu + slope[i];
            bad |= NAME(not_finite)(v, length);
            put(m_after + start, v, length * sizeof(REAL), stream);
            if (nesterov)
                for (size_t i = 0; i < length; i++)
                    v[i] = v[i] * mu + slope[i];
            slope = v;
        }
        for (size_t i = 0; i < length; i++)
            out[i] = base[i] + slope[i] * minus;
        bad |= NAME(not_finite)(out, length);
        put(after + start, out, length * sizeof(REAL), stream);
    }
    settle(stream);
    return bad == 0;
}

/* half + (now - before) scale: the move that somebody else has made, from another model. */
FAST int NAME(shift)(REAL *out, const REAL *half, const REAL *now, const REAL *before, size_t n, double scale, int stream)
{
    REAL tile[TILE], factor = (REAL)scale;
    BITS bad = 0;
    for (size_t start = 0; start < n; start += TILE) {
        size_t length = LEAST(n - start, (size_t)TILE);
        const REAL *base = half + start, *to = now + start, *from = before + start;
        for (size_t i = 0; i < length; i++)
            tile[i] = base[i] + (to[i] - from[i]) * factor;
        bad |= NAME(not_finite)(tile, length);
        put(out + start, tile, length * sizeof(REAL), stream);
    }
    settle(stream);
    return bad == 0;
}

/* The model after a step of Adam or AdamW (rules/adam.py), whose corrections of the moments are given. */
FAST int NAME(adam)(REAL *after, REAL *mean_after, REAL *square_after, const REAL *half, const REAL *g, const REAL *x,
                    const REAL *mean, const REAL *square, size_t n, const double *given, int decoupled, int stream)
{
    REAL beta1 = (REAL)given[0], rest1 = (REAL)given[1], beta2 = (REAL)given[2], rest2 = (REAL)given[3];
    REAL root = (REAL)given[4], epsilon = (REAL)given[5], minus = (REAL)given[6];
    REAL decay = (REAL)given[7], apart = (REAL)given[8];
    REAL d[TILE], u[TILE], v[TILE], out[TILE];
    BITS bad = 0;
    for (size_t start = 0; start < n; start += TILE) {
        size_t length = LEAST(n - start, (size_t)TILE);
        const REAL *slope = g + start, *at = x + start, *base = half + start;
        const REAL *old_mean = mean + start, *old_square = square + start;
        if (!decoupled && given[7] != 0.0) {
            for (size_t i = 0; i < length; i++)
                d[i] = at[i] * decay + slope[i];
            slope = d;
        }
        for (size_t i = 0; i < length; i++)
            u[i] = old_mean[i] * beta1 + slope[i] * rest1;
        for (size_t i = 0; i < length; i++)
            v[i] = old_square[i] * beta2 + (slope[i] * slope[i]) * rest2;
        for (size_t i = 0; i < length; i++)
            out[i] = u[i] / (ROOT(v[i]) * root + epsilon) * minus;
        if (decoupled && given[7] != 0.0)
            for (size_t i = 0; i < length; i++)
                out[i] = out[i] - at[i] * apart;
        for (size_t i = 0; i < length; i++)
            out[i] = base[i] + out[i];
        bad |= NAME(not_finite)(u, length) | NAME(not_finite)(v, length) | NAME(not_finite)(out, length);
        put(mean_after + start, u, length * sizeof(REAL), stream);
        put(square_after + start, v, length * sizeof(REAL), stream);
        put(after + start, out, length * sizeof(REAL), stream);
    }
    settle(stream);
    return bad == 0;
}

#endif
