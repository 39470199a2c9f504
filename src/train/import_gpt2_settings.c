#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "train/import_folder.h"
#include "train/import_gpt2.h"

static bool refuse(const char *input, struct error *e, const char *key, const char *what)
{
	return error_set(e, CODE_CHECKPOINT, "%s/config.json: %s %s", input, key, what);
}

/* A whole number from 1 to most; where `other` is not 0 it stands for a key that is not there or null. */
static bool size_of(const char *input, const cJSON *json, const char *key, int64_t most, int64_t other, int64_t *out,
		    struct error *e)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, key);
	if (other && (!value || cJSON_IsNull(value))) {
		*out = other;
		return true;
	}
	if (json_is_count(value, out) && *out >= 1 && *out <= most)
		return true;
	char what[64];
	snprintf(what, sizeof what, "is not a whole number from 1 to %lld", (long long)most);
	return refuse(input, e, key, what);
}

/* true or false; `other` where the key is not there. */
static bool flag_of(const char *input, const cJSON *json, const char *key, bool other, bool *out, struct error *e)
{
	const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, key);
	*out = value ? cJSON_IsTrue(value) : other;
	return !value || cJSON_IsBool(value) || refuse(input, e, key, "is not true or false");
}

static bool check_architecture(const char *input, const cJSON *json, struct error *e)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "architectures");
	const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(list, 0));
	if (!name)
		return refuse(input, e, "architectures", "does not say what model this is");
	if (strcmp(name, "GPT2LMHeadModel") != 0)
		return error_set(e, CODE_CHECKPOINT,
				 "%s/config.json: architecture %.100s; what can be imported is GPT2LMHeadModel", input,
				 name);
	return true;
}

/* What changes the formulas in a way that mtrain's GPT does not have. */
static bool check_formulas(const char *input, const cJSON *json, struct error *e)
{
	static const struct {
		const char *key;
		bool usual;
	} flags[] = {
		{"scale_attn_weights", true},
		{"scale_attn_by_inverse_layer_idx", false},
		{"add_cross_attention", false},
	};
	for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
		bool value;
		if (!flag_of(input, json, flags[i].key, flags[i].usual, &value, e))
			return false;
		if (value != flags[i].usual)
			return refuse(input, e, flags[i].key,
				      value ? "= true is not supported" : "= false is not supported");
	}
	return true;
}

static bool activation_of(const char *input, const cJSON *json, enum activation *out, struct error *e)
{
	const char *name = "gelu_new";
	if (cJSON_GetObjectItemCaseSensitive(json, "activation_function") &&
	    !json_text(json, "activation_function", &name))
		return refuse(input, e, "activation_function", "is not a text");
	if (strcmp(name, "gelu_new") == 0)
		*out = ACTIVATION_GELU;
	else if (strcmp(name, "gelu") == 0)
		*out = ACTIVATION_GELU_ERF;
	else
		return error_set(e, CODE_CHECKPOINT,
				 "%s/config.json: activation_function %.100s is not supported; gelu_new and gelu are",
				 input, name);
	return true;
}

static bool settings_of(const char *input, const cJSON *json, struct model_settings *m, struct error *e)
{
	enum { LAYERS_MOST = 10000, SIZE_MOST = 1 << 24, VOCAB_MOST = INT32_MAX };
	const int64_t positions = cJSON_GetObjectItemCaseSensitive(json, "n_positions") != NULL;
	m->norm_epsilon = 1e-5;
	if (!check_architecture(input, json, e) || !check_formulas(input, json, e) ||
	    !size_of(input, json, "n_layer", LAYERS_MOST, 0, &m->layers, e) ||
	    !size_of(input, json, "n_embd", SIZE_MOST, 0, &m->hidden, e) ||
	    !size_of(input, json, "n_head", SIZE_MOST, 0, &m->heads, e) ||
	    !size_of(input, json, positions ? "n_positions" : "n_ctx", SIZE_MOST, 0, &m->sequence, e) ||
	    !size_of(input, json, "vocab_size", VOCAB_MOST, 0, &m->vocab, e) ||
	    !size_of(input, json, "n_inner", SIZE_MOST, 4 * m->hidden, &m->ffn, e) ||
	    !flag_of(input, json, "tie_word_embeddings", true, &m->tied, e) ||
	    !activation_of(input, json, &m->activation, e))
		return false;
	if (m->hidden % m->heads != 0)
		return error_set(e, CODE_CHECKPOINT, "%s/config.json: n_head %lld does not divide n_embd %lld", input,
				 (long long)m->heads, (long long)m->hidden);
	const char *epsilon = "layer_norm_epsilon";
	if (cJSON_GetObjectItemCaseSensitive(json, epsilon) &&
	    (!json_number(json, epsilon, &m->norm_epsilon) || !(m->norm_epsilon > 0)))
		return refuse(input, e, epsilon, "is not a number above 0");
	m->kv_heads = m->heads;
	m->head_size = m->hidden / m->heads;
	m->norm = NORM_LAYER;
	m->bias = true;
	m->qkv_bias = true;
	return true;
}

bool import_gpt2_settings(const char *input, struct model_settings *m, struct error *e)
{
	cJSON *json = import_config(input, e);
	bool good = json && settings_of(input, json, m, e);
	cJSON_Delete(json);
	return good;
}
