/* SPDX-License-Identifier: Apache-2.0 */
#include "model/outcome.h"

#include <string.h>

static const struct outcome outcomes[] = {
	{ E_BAD_REQUEST, "bad_request", 400, "The request cannot be understood",
	  EXIT_STATUS_ERROR },
	{ E_FORBIDDEN, "forbidden", 403, "Not allowed", EXIT_STATUS_ERROR },
	{ E_NOT_FOUND, "not_found", 404, "No such thing", EXIT_STATUS_NOT_FOUND },
	{ E_METHOD_NOT_ALLOWED, "method_not_allowed", 405, "Method not allowed here",
	  EXIT_STATUS_ERROR },
	{ E_TOO_LARGE, "too_large", 413, "The request is too large", EXIT_STATUS_ERROR },
	{ E_INSUFFICIENT_RESOURCES, "insufficient_resources", 409,
	  "Nothing is free for this profile", EXIT_STATUS_INSUFFICIENT },
	{ E_CLAIM_EXISTS, "claim_exists", 409, "The name is claimed with another profile",
	  EXIT_STATUS_ERROR },
	{ E_IN_USE, "in_use", 409, "The virtual function is in use", EXIT_STATUS_ERROR },
	{ E_RELEASING, "releasing", 409, "The claim is still being released", EXIT_STATUS_ERROR },
	{ E_CORDONED, "cordoned", 409, "The card is cordoned", EXIT_STATUS_ERROR },
	{ E_UNKNOWN_PROFILE, "unknown_profile", 422, "No card knows this profile",
	  EXIT_STATUS_NOT_FOUND },
	/* While a catalogue is incomplete the profile may yet turn up: "none free" for now. */
	{ E_PROFILE_NOT_KNOWN_YET, "insufficient_resources", 409, "The profile is not known yet",
	  EXIT_STATUS_INSUFFICIENT },
	{ E_NOT_SUPPORTED, "not_supported", 422, "Not supported on this host", EXIT_STATUS_ERROR },
	{ E_ARCHIVE_FAILED, "archive_failed", 500, "The old console log could not be archived",
	  EXIT_STATUS_ERROR },
	{ E_HEALTH_STORE_UNAVAILABLE, "health_store_unavailable", 503,
	  "The health records cannot be read or written", EXIT_STATUS_ERROR },
	{ E_STORE_UNAVAILABLE, "store_unavailable", 503,
	  "The claims database cannot be read or written", EXIT_STATUS_ERROR },
	{ E_SYSFS_READ_ONLY, "sysfs_read_only", 503, "sysfs is mounted read-only",
	  EXIT_STATUS_ERROR },
	{ E_DRIVER_REFUSED, "driver_refused", 503, "The driver refused every candidate",
	  EXIT_STATUS_ERROR },
	{ E_DRIVER_STUCK, "driver_stuck", 503, "The driver does not answer", EXIT_STATUS_ERROR },
	{ E_NOT_READY, "not_ready", 503, "The daemon is still starting", EXIT_STATUS_ERROR },
	{ E_CLIENT_GONE, "client_gone", 500, "The client hung up", EXIT_STATUS_ERROR },
	{ E_INTERNAL, "internal", 500, "Internal error", EXIT_STATUS_ERROR },
	{ E_UNREACHABLE, "unreachable", 503, "The daemon cannot be reached",
	  EXIT_STATUS_UNREACHABLE },
};

const struct outcome *outcome_of(int code)
{
	const struct outcome *internal = NULL;

	/* Unsigned, so that the most negative number has an opposite too. */
	unsigned wanted = code < 0 ? 0U - (unsigned)code : (unsigned)code;

	for (size_t i = 0; i < ARRAY_SIZE(outcomes); i++) {
		if (outcomes[i].code == wanted)
			return &outcomes[i];
		if (outcomes[i].code == E_INTERNAL)
			internal = &outcomes[i];
	}
	return internal;
}

const struct outcome *outcome_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(outcomes); i++)
		if (strcmp(outcomes[i].name, name) == 0)
			return &outcomes[i];
	return NULL;
}
