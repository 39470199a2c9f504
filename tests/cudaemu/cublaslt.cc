/* The calls of cuBLASLt that the CUDA backend makes, on the emulator: plain loops in FP32. There are OFFERS algorithms: the
 * i-th adds in i partial sums, k ascending in each, so that another algorithm gives other bits. */
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector>

#include "runtime.h"

enum { OFFERS = 4 };

struct product {
	cublasOperation_t a, b;
	cublasLtEpilogue_t epilogue;
	const void *bias;
	void *aux;
	int64_t aux_stride;
};
struct matrix {
	cudaDataType_t type;
	int64_t rows, columns, stride;
};

template <typename S, typename H> static S *own(H handle)
{
	return reinterpret_cast<S *>(handle);
}

static float get(const void *p, cudaDataType_t type, int64_t i)
{
	return type == CUDA_R_16F ? __half2float(static_cast<const __half *>(p)[i])
	     : type == CUDA_R_16BF ? __bfloat162float(static_cast<const __nv_bfloat16 *>(p)[i])
				   : static_cast<const float *>(p)[i];
}

static void put(void *p, cudaDataType_t type, int64_t i, float v)
{
	if (type == CUDA_R_16F)
		static_cast<__half *>(p)[i] = __float2half_rn(v);
	else if (type == CUDA_R_16BF)
		static_cast<__nv_bfloat16 *>(p)[i] = __float2bfloat16_rn(v);
	else
		static_cast<float *>(p)[i] = v;
}

static float tanh_of(float x)
{
	return std::tanh(0.79788456f * (x + 0.044715f * x * x * x));
}

static float gelu_slope(float x)
{
	float t = tanh_of(x);
	return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.79788456f * (1 + 0.134145f * x * x);
}

static void multiply(const product &p, const void *a, const matrix &A, const void *b, const matrix &B, float beta, void *d,
		     const matrix &D, int parts)
{
	int64_t K = p.a == CUBLAS_OP_N ? A.columns : A.rows;
	for (int64_t j = 0; j < D.columns; j++)
		for (int64_t i = 0; i < D.rows; i++) {
			float z = 0, part[OFFERS] = {};
			for (int64_t k = 0; k < K; k++)
				part[k % parts] += get(a, A.type, p.a == CUBLAS_OP_N ? k * A.stride + i : i * A.stride + k) *
				     get(b, B.type, p.b == CUBLAS_OP_N ? j * B.stride + k : k * B.stride + j);
			for (int i = 0; i < parts; i++)
				z += part[i];
			if (beta != 0)
				z += beta * get(d, D.type, j * D.stride + i);
			if (p.epilogue == CUBLASLT_EPILOGUE_BIAS)
				z += get(p.bias, D.type, i);
			if (p.epilogue == CUBLASLT_EPILOGUE_DGELU)
				z *= gelu_slope(get(p.aux, D.type, j * p.aux_stride + i));
			put(d, D.type, j * D.stride + i, z);
		}
}

extern "C" {

const char *cublasLtGetStatusString(cublasStatus_t)
{
	return "error of the emulator";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
	*handle = nullptr;
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t)
{
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale)
{
	if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
		return CUBLAS_STATUS_NOT_SUPPORTED;
	*d = reinterpret_cast<cublasLtMatmulDesc_t>(new product());
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
	delete own<product>(d);
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void *value,
					      size_t bytes)
{
	product *p = own<product>(d);
	void *to = what == CUBLASLT_MATMUL_DESC_TRANSA ? static_cast<void *>(&p->a)
		 : what == CUBLASLT_MATMUL_DESC_TRANSB ? static_cast<void *>(&p->b)
		 : what == CUBLASLT_MATMUL_DESC_EPILOGUE ? static_cast<void *>(&p->epilogue)
		 : what == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? static_cast<void *>(&p->bias)
		 : what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ? static_cast<void *>(&p->aux)
		 : what == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD ? static_cast<void *>(&p->aux_stride) : nullptr;
	size_t size = what == CUBLASLT_MATMUL_DESC_TRANSA || what == CUBLASLT_MATMUL_DESC_TRANSB ? sizeof p->a
		    : what == CUBLASLT_MATMUL_DESC_EPILOGUE ? sizeof p->epilogue : 8;
	if (!to || size != bytes)
		return CUBLAS_STATUS_INVALID_VALUE;
	memcpy(to, value, bytes);
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t columns,
					  int64_t stride)
{
	if (stride < int64_t(rows))
		return CUBLAS_STATUS_INVALID_VALUE;
	*l = reinterpret_cast<cublasLtMatrixLayout_t>(new matrix{type, int64_t(rows), int64_t(columns), stride});
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
	delete own<matrix>(l);
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
	*p = nullptr;
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t)
{
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
						    const void *, size_t)
{
	return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void)
{
	return 130000;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
					      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
					      cublasLtMatmulPreference_t, int most, cublasLtMatmulHeuristicResult_t *results,
					      int *found)
{
	for (*found = 0; *found < most && *found < OFFERS; ++*found) {
		memset(static_cast<void *>(results + *found), 0, sizeof *results);
		results[*found].algo.data[0] = uint64_t(*found) + 1;
	}
	return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
				       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *algorithm,
				       cublasLtMatmulHeuristicResult_t *result)
{
	memset(static_cast<void *>(result), 0, sizeof *result);
	/* CUDAEMU_GEMM_REFUSES=r: rank r has the first offer alone. */
	const char *refuses = getenv("CUDAEMU_GEMM_REFUSES"), *rank = getenv("OMPI_COMM_WORLD_RANK");
	uint64_t most = refuses && rank && strcmp(refuses, rank) == 0 ? 1 : OFFERS;
	return algorithm->data[0] >= 1 && algorithm->data[0] <= most ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t p, const void *, const void *a, cublasLtMatrixLayout_t A,
			      const void *b, cublasLtMatrixLayout_t B, const void *beta, const void *c, cublasLtMatrixLayout_t,
			      void *d, cublasLtMatrixLayout_t D, const cublasLtMatmulAlgo_t *algorithm, void *, size_t, cudaStream_t stream)
{
	product how = *own<product>(p);
	matrix ma = *own<matrix>(A), mb = *own<matrix>(B), md = *own<matrix>(D);
	float add = *static_cast<const float *>(beta);
	int64_t ka = how.a == CUBLAS_OP_N ? ma.columns : ma.rows, kb = how.b == CUBLAS_OP_N ? mb.rows : mb.columns;
	int64_t rows = how.a == CUBLAS_OP_N ? ma.rows : ma.columns, columns = how.b == CUBLAS_OP_N ? mb.columns : mb.rows;
	bool library_gelu = how.epilogue == CUBLASLT_EPILOGUE_DGELU;
	if (ka != kb || rows != md.rows || columns != md.columns || c != d || (library_gelu && how.aux_stride % 8))
		return CUBLAS_STATUS_INVALID_VALUE;
	int parts = int(algorithm->data[0]);
	if (parts < 1 || parts > OFFERS)
		return CUBLAS_STATUS_INVALID_VALUE;
	emu_enqueue(stream, [=] {
		multiply(how, a, ma, b, mb, add, d, md, parts);
		return true;
	});
	return CUBLAS_STATUS_SUCCESS;
}
}
