#include "model/embedding.h"

void embedding_build(struct embedding *b, const struct env *env, struct memory *memory)
{
	*b = (struct embedding){.env = env};
	b->token = param_use(env->params, memory, false, "embedding.token.weight");
	if (env->model->position == POSITION_LEARNED)
		b->position = param_use(env->params, memory, false, "embedding.position.weight");
	b->first = b->token->weight.shape[0] * env->tensor_rank;
}

void embedding_forward(const struct embedding *b, struct tensor x, struct tensor tokens, const struct pass *pass)
{
	const struct env *env = b->env;
	op_embedding_forward(env->dev, &(struct op_embedding_forward){
		.out = env_partial(env, x), .tokens = tokens, .table = b->token->weight, .first = b->first,
	});
	env_reduce(env, x);
	struct dropout dropout = env_dropout(env, pass, 0, DROPOUT_EMBEDDING);
	if (b->position || dropout.rate > 0)
		op_position_forward(env->dev, &(struct op_position_forward){
			.out = x, .x = x, .table = b->position ? b->position->weight : (struct tensor){0}, .dropout = dropout,
		});
}

void embedding_backward(const struct embedding *b, struct tensor d, struct tensor tokens, struct tensor order,
			const struct pass *pass)
{
	const struct env *env = b->env;
	struct dropout dropout = env_dropout(env, pass, 0, DROPOUT_EMBEDDING);
	if (b->position || dropout.rate > 0)
		op_position_backward(env->dev, &(struct op_position_backward){
			.dx = d, .dout = d, .dtable = b->position ? b->position->grad : (struct tensor){0}, .dropout = dropout,
		});
	op_embedding_backward(env->dev, &(struct op_embedding_backward){
		.dtable = b->token->grad, .dout = env_gather(env, d), .tokens = tokens, .order = order, .first = b->first,
	});
}
