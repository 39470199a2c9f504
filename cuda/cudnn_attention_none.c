#include "cudnn_attention.h"

bool cudnn_attention_open(struct attention_other *o, int capability, cudaStream_t stream)
{
	(void)o, (void)capability, (void)stream;
	return false;
}
