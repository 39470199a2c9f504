#include "comm/launch.h"

#include <pmix.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/limit.h"

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
	known(PMIX_NODEID, false, &l->node);
	return true;
}

/* Each rank puts its bytes under the call's name; a fence hands all of them round. */
static bool pmix_gather(const struct launch *l, void *out, const void *in, size_t bytes, double seconds, struct error *e)
{
	static int calls;
	char key[32];
	pmix_value_t own = {.type = PMIX_BYTE_OBJECT, .data.bo = {.bytes = (char *)(uintptr_t)in, .size = bytes}};
	pmix_info_t info;
	bool collect = true;
	snprintf(key, sizeof key, "mtrain-%d", calls++);
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
	limit_begin("PMIx_Fence", "world", seconds);
	pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, key, &own);
	if (rc == PMIX_SUCCESS)
		rc = PMIx_Commit();
	if (rc == PMIX_SUCCESS)
		rc = PMIx_Fence(NULL, 0, &info, 1);
	for (int r = 0; r < l->size && rc == PMIX_SUCCESS; r++) {
		pmix_proc_t who = me;
		pmix_value_t *value = NULL;
		who.rank = (pmix_rank_t)r;
		rc = PMIx_Get(&who, key, NULL, 0, &value);
		if (rc != PMIX_SUCCESS || !value)
			break;
		if (value->type == PMIX_BYTE_OBJECT && value->data.bo.size == bytes)
			memcpy((char *)out + (size_t)r * bytes, value->data.bo.bytes, bytes);
		else
			rc = PMIX_ERR_TYPE_MISMATCH;
		PMIX_VALUE_RELEASE(value);
	}
	limit_end();
	return rc == PMIX_SUCCESS || error_set(e, CODE_MACHINE, "PMIx: %s", PMIx_Error_string(rc));
}

static void pmix_finish(void)
{
	PMIx_Finalize(NULL, 0);
}

static void pmix_abort(int code, const char *cause)
{
	PMIx_Abort(code, cause, NULL, 0);
}

const struct launcher launcher_pmix = {"pmix", pmix_detect, pmix_gather, pmix_finish, pmix_abort};
