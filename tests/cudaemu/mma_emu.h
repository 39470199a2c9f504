/* mma_emu.h: the instructions of cuda/mma.h on the emulator, in the same words.
 *
 * Products are summed in FP32 in ascending k; a card may add in another order and drop low bits, which the tolerances
 * allow for. Used through cuda/mma.h. */
#ifndef MTRAIN_TESTS_MMA_EMU_H
#define MTRAIN_TESTS_MMA_EMU_H

#include "cudaemu.h"

void emu_load_matrices_apply(emu_operands *o);

struct emu_fragments {
	float *c;
	const uint32_t *a;
	uint32_t b0, b1;
};

template <typename T> EMU_OWN void emu_mma_apply(emu_operands *o)
{
	static float a[16][16], b[16][8];
	for (int lane = 0; lane < 32; lane++) {
		const emu_fragments *f = static_cast<const emu_fragments *>(o->in[lane]);
		int g = lane / 4, i = lane % 4;
		for (int r = 0; r < 4; r++) {
			float2 v = pair_floats<T>(f->a[r]);
			a[g + r % 2 * 8][2 * i + r / 2 * 8] = v.x;
			a[g + r % 2 * 8][2 * i + r / 2 * 8 + 1] = v.y;
		}
		for (int r = 0; r < 2; r++) {
			float2 v = pair_floats<T>(r ? f->b1 : f->b0);
			b[2 * i + 8 * r][g] = v.x;
			b[2 * i + 8 * r + 1][g] = v.y;
		}
	}
	for (int lane = 0; lane < 32; lane++) {
		float *c = static_cast<const emu_fragments *>(o->in[lane])->c;
		for (int r = 0; r < 4; r++) {
			int m = lane / 4 + r / 2 * 8, n = lane % 4 * 2 + r % 2;
			float sum = c[r];
			for (int k = 0; k < 16; k++)
				sum += a[m][k] * b[k][n];
			c[r] = sum;
		}
	}
}

template <typename T> EMU_OWN void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	emu_fragments f = {c, a, b0, b1};
	emu_warp(0xffffffffu, EMU_HERE, 0, &f, nullptr, emu_mma_apply<T>);
}

EMU_OWN static inline void load_matrices(uint32_t (&r)[4], const void *row)
{
	emu_access(row, 16, false);
	emu_warp(0xffffffffu, EMU_HERE, 0, row, r, emu_load_matrices_apply);
}

EMU_OWN static inline void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
	emu_access(row, 16, false);
	emu_warp(0xffffffffu, EMU_HERE, 1, row, r, emu_load_matrices_apply);
}

EMU_OWN static inline void copy_async(void *shared, const void *global, bool there)
{
	emu_copy_async(shared, global, there ? 16 : 0);
}

EMU_OWN static inline void copy_commit()
{
	emu_copy_commit();
}

template <int pending> EMU_OWN void copy_wait()
{
	emu_copy_wait(pending);
}

EMU_OWN static inline float exp2_fast(float x)
{
	return std::exp2(x);
}

#endif
