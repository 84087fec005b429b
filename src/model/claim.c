/* SPDX-License-Identifier: Apache-2.0 */
#include "model/claim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EXTERNAL_PREFIX "external-"

static const char *const state_names[] = {
	[CLAIM_STATE_INTENT] = "intent",
	[CLAIM_STATE_BOUND] = "bound",
	[CLAIM_STATE_RELEASING] = "releasing",
	[CLAIM_STATE_EXTERNAL] = "external",
};

static const char *const problem_names[] = {
	[CLAIM_PROBLEM_NONE] = NULL,
	[CLAIM_PROBLEM_VF_MISSING] = "vf_missing",
	[CLAIM_PROBLEM_TYPE_LOST] = "type_lost",
	[CLAIM_PROBLEM_TYPE_CHANGED] = "type_changed",
	[CLAIM_PROBLEM_CARD_STUCK] = "card_stuck",
};

const char *claim_state_name(enum claim_state s)
{
	return state_names[s];
}

const char *claim_problem_name(enum claim_problem p)
{
	return problem_names[p];
}

int claim_state_from_name(const char *name, enum claim_state *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(state_names); i++) {
		if (strcmp(name, state_names[i]) != 0)
			continue;
		*ret = (enum claim_state)i;
		return 0;
	}
	return -EINVAL;
}

static bool is_alphanumeric(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool claim_name_is_valid(const char *name)
{
	size_t n;

	if (!is_alphanumeric(name[0]))
		return false;
	for (n = 1; name[n]; n++) {
		if (n == CLAIM_NAME_MAX - 1)
			return false;
		if (!is_alphanumeric(name[n]) && name[n] != '.' && name[n] != '_' && name[n] != '-')
			return false;
	}
	return true;
}

void claim_name_external(struct pci_addr vf, char ret[static CLAIM_NAME_MAX])
{
	char address[PCI_ADDR_MAX];

	pci_addr_format(vf, address);
	for (char *p = address; *p; p++)
		if (*p == ':')
			*p = '-';
	snprintf(ret, CLAIM_NAME_MAX, EXTERNAL_PREFIX "%s", address);
}

bool claim_name_is_external(const char *name)
{
	return strncmp(name, EXTERNAL_PREFIX, strlen(EXTERNAL_PREFIX)) == 0;
}

bool claimant_owns(const struct claimant *who, uint32_t uid, const char *peer)
{
	if (who->is_admin)
		return true;
	/* The two never mix: a certificate named "root" is nobody's user. */
	if (who->peer[0] || peer[0])
		return strcmp(who->peer, peer) == 0;
	return who->uid == uid;
}

const char *claimant_describe(uint32_t uid, const char *peer, char *ret, size_t size)
{
	if (peer[0])
		snprintf(ret, size, "certificate %s", peer);
	else
		snprintf(ret, size, "user %u", uid);
	return ret;
}

enum claim_problem claim_problem_judge(const struct claim *c, bool vf_present,
				       uint32_t current_type, bool card_stuck)
{
	if (!vf_present)
		return CLAIM_PROBLEM_VF_MISSING;
	if (card_stuck)
		return CLAIM_PROBLEM_CARD_STUCK;
	if (current_type == c->type_id)
		return CLAIM_PROBLEM_NONE;
	if (current_type != 0)
		return CLAIM_PROBLEM_TYPE_CHANGED;
	/* Nothing configured is where an intent starts and a release ends. */
	if (c->state == CLAIM_STATE_INTENT || c->state == CLAIM_STATE_RELEASING)
		return CLAIM_PROBLEM_NONE;
	return CLAIM_PROBLEM_TYPE_LOST;
}
