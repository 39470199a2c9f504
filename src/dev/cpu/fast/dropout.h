/* dropout.h: dropout masks, LANES groups of four elements at a time.
 *
 * The same Philox4x32-10 words as rng.h gives, with one vector for each of the four counter and result words.
 *
 * Used by the files of fast/ alone. */
#ifndef MTRAIN_DEV_CPU_FAST_DROPOUT_H
#define MTRAIN_DEV_CPU_FAST_DROPOUT_H

#include "base/rng.h"
#include "dev/cpu/fast/simd.h"
#include "dev/ops.h"
#include "dev/scalars.h"

/* The factors of a stretch of one sample's elements: 0 or 1/(1 − rate). */
enum { DROP_ROOM = 256 };
struct drop {
	bool on;
	uint32_t threshold, site;
	uint64_t seed, sample;
	float factor;
	float row[DROP_ROOM + LANES];
	uint32_t words[DROP_ROOM + 8 * LANES];
};

INLINE void drop_init(struct drop *d, const struct dropout *dropout)
{
	d->on = dropout->rate > 0;
	d->threshold = rng_threshold(dropout->rate);
	d->site = dropout->site;
	d->seed = dropout->seed;
	d->factor = (float)(1 / (1 - dropout->rate));
}

/* High and low halves of a·m in each lane, from products of the even and the odd lanes. */
INLINE void drop_multiply(vu a, uint32_t m, vu *high, vu *low)
{
	typedef uint64_t vq __attribute__((vector_size(LANES * 4)));
#if LANES == 16
	vq even = (vq)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(m));
	vq odd = (vq)_mm512_mul_epu32((__m512i)((vq)a >> 32), _mm512_set1_epi64(m));
#elif LANES == 8
	vq even = (vq)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(m));
	vq odd = (vq)_mm256_mul_epu32((__m256i)((vq)a >> 32), _mm256_set1_epi64x(m));
#else
	vq even = ((vq)a & 0xffffffffu) * (uint64_t)m, odd = ((vq)a >> 32) * (uint64_t)m;
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "lane 0 is taken to be the low half of a 64-bit lane"
#endif
	const vq low_half = (vq){0} + 0xffffffffu;
	*low = (vu)((even & low_half) | (odd << 32));
	*high = (vu)((even >> 32) | (odd & ~low_half));
}

/* The words of groups `group` … group + groups − 1, rounded up to whole vectors of groups. */
INLINE void drop_words(const struct drop *d, uint64_t group, int64_t groups, uint32_t *out)
{
	for (int64_t g = 0; g < groups; g += LANES, out += 4 * LANES) {
		uint64_t first = group + (uint64_t)g;
		vu c0 = vu_lanes() + (uint32_t)first;
		vu carry = (vu)(c0 < (uint32_t)first) & 1u;
		vu c1 = carry + (uint32_t)(first >> 32);
		vu c2 = vu_set((uint32_t)d->sample), c3 = vu_set(d->site << 16 | (uint32_t)((d->sample >> 32) & 0xffffu));
		uint32_t k0 = (uint32_t)d->seed, k1 = (uint32_t)(d->seed >> 32);
		for (int round = 0; round < 10; round++) {
			vu a_high, a_low, b_high, b_low;
			drop_multiply(c0, 0xD2511F53u, &a_high, &a_low);
			drop_multiply(c2, 0xCD9E8D57u, &b_high, &b_low);
			c0 = b_high ^ c1 ^ k0;
			c1 = b_low;
			c2 = a_high ^ c3 ^ k1;
			c3 = a_low;
			k0 += 0x9E3779B9u;
			k1 += 0xBB67AE85u;
		}
		vf even_low = vf_zip_low((vf)c0, (vf)c2), even_high = vf_zip_high((vf)c0, (vf)c2);
		vf odd_low = vf_zip_low((vf)c1, (vf)c3), odd_high = vf_zip_high((vf)c1, (vf)c3);
		vf words[4] = {vf_zip_low(even_low, odd_low), vf_zip_high(even_low, odd_low),
			       vf_zip_low(even_high, odd_high), vf_zip_high(even_high, odd_high)};
		memcpy(out, words, sizeof words);
	}
}

/* Fills d->row with the factors of elements e … e + n − 1 of d->sample, n ≤ DROP_ROOM; what follows up to a whole vector is
 * not defined. */
static __attribute__((noinline, unused)) void drop_fill(struct drop *d, uint64_t e, int64_t n)
{
	int64_t skip = (int64_t)(e % 4);
	drop_words(d, e / 4, (skip + n + 3) / 4, d->words);
	for (int64_t i = 0; i < n; i += LANES) {
		vi keep = (vi)(vu_load(d->words + skip + i) >= d->threshold);
		vf_store(d->row + i, vf_select(keep, vf_set(d->factor), vf_set(0)));
	}
}

/* x times the factors of elements e + c …, c a multiple of LANES that goes up from 0 in a row of `width`. */
INLINE vf drop_in_row(struct drop *d, uint64_t e, int64_t c, int64_t width, vf x)
{
	if (!d->on)
		return x;
	int64_t at = c % DROP_ROOM;
	if (at == 0)
		drop_fill(d, e + (uint64_t)c, width - c < DROP_ROOM ? width - c : DROP_ROOM);
	return x * vf_load(d->row + at);
}

/* Points d at row n of an [N, width] tensor whose rows are placed by the span; gives the row's first element. */
INLINE uint64_t drop_row(struct drop *d, const struct span *span, int64_t samples, int64_t n, int64_t width)
{
	if (!d->on)
		return 0;
	d->sample = (uint64_t)(samples + span_sample(span, n));
	return (uint64_t)(span_token(span, n) * width);
}

#endif
