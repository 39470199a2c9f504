#include "comm/launch.h"

#include <pmix.h>
#include <stdlib.h>
#include <string.h>

static pmix_proc_t me;

/* A number that the launcher knows of this process (wildcard: of the job); false: it does not. */
static bool known(const char *key, bool of_job, int *out)
{
	pmix_proc_t who = me;
	pmix_value_t *value = NULL;
	bool found = true;
	if (of_job)
		who.rank = PMIX_RANK_WILDCARD;
	if (PMIx_Get(&who, key, NULL, 0, &value) != PMIX_SUCCESS || !value)
		return false;
	if (value->type == PMIX_UINT32)
		*out = (int)value->data.uint32;
	else if (value->type == PMIX_UINT16)
		*out = value->data.uint16;
	else
		found = false;
	PMIX_VALUE_RELEASE(value);
	return found;
}

/* Without a server behind it PMIx_Init only takes time to fail, so the variables that a server sets are asked first. */
static bool pmix_detect(struct launch *l, struct error *e)
{
	if (!getenv("PMIX_NAMESPACE") || !getenv("PMIX_RANK"))
		return false;
	if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
		return false;
	if (!known(PMIX_JOB_SIZE, true, &l->size)) {
		PMIx_Finalize(NULL, 0);
		return false;
	}
	l->rank = (int)me.rank;
	known(PMIX_LOCAL_RANK, false, &l->local_rank);
	known(PMIX_LOCAL_SIZE, true, &l->local_size);
	return true;
}

static void pmix_finish(void)
{
	PMIx_Finalize(NULL, 0);
}

static void pmix_abort(int code, const char *cause)
{
	PMIx_Abort(code, cause, NULL, 0);
}

const struct launcher launcher_pmix = {"pmix", pmix_detect, pmix_finish, pmix_abort};
