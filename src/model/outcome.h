/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth's own error codes and the one table that says what each means outside: the `code` and HTTP
 * status of a problem answer, the exit status of the command line, the label in metrics.
 *
 * Nothing else translates. Codes are used negative, as errno values are (see base/error.h).
 */
#pragma once

#include "base/macro.h"

enum berth_code {
	E_BAD_REQUEST = 1000,
	E_FORBIDDEN,
	E_NOT_FOUND,
	E_METHOD_NOT_ALLOWED,
	E_TOO_LARGE,
	E_INSUFFICIENT_RESOURCES,
	E_CLAIM_EXISTS,
	E_IN_USE,
	E_RELEASING,
	E_CORDONED,
	E_UNKNOWN_PROFILE,
	E_PROFILE_NOT_KNOWN_YET, /* some card's catalogue is incomplete: 409 insufficient_resources
				  */
	E_NOT_SUPPORTED,
	E_ARCHIVE_FAILED,
	E_HEALTH_STORE_UNAVAILABLE,
	E_STORE_UNAVAILABLE,
	E_SYSFS_READ_ONLY,
	E_DRIVER_REFUSED,
	E_DRIVER_STUCK,
	E_NOT_READY,   /* berthd has not finished starting */
	E_CLIENT_GONE, /* the client hung up; never sent anywhere */
	E_INTERNAL,
	E_UNREACHABLE, /* command line only: no daemon at the socket */
};

struct outcome {
	enum berth_code code;
	const char *name; /* `code` of the problem answer, label of berth_claims_total{result} */
	int http_status;
	const char *title; /* RFC 9457 title */
	int exit_status;   /* of `berth` */
};

/* The row of a code of either sign; errno values and unknown codes give the row of E_INTERNAL. */
const struct outcome *outcome_of(int code);
/* The row whose `name` this is, or NULL. */
const struct outcome *outcome_by_name(const char *name);

enum exit_status {
	EXIT_STATUS_OK = 0,
	EXIT_STATUS_ERROR = 1,
	EXIT_STATUS_USAGE = 2,
	EXIT_STATUS_INSUFFICIENT = 3,
	EXIT_STATUS_NOT_FOUND = 4,
	EXIT_STATUS_UNREACHABLE = 5,
};
