/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/str.h"
#include "config/config.h"

int config_check_text(const char *value, struct error *err)
{
	if (!*value)
		return error_set(err, EINVAL, "must not be empty");
	for (const char *p = value; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return error_set(err, EINVAL, "holds a control character");
	if (strlen(value) >= PATH_MAX)
		return error_set(err, EINVAL, "is longer than %d bytes", PATH_MAX - 1);
	return 0;
}

int config_check_path(const char *value, struct error *err)
{
	int r = config_check_text(value, err);

	if (r == 0 && value[0] != '/')
		r = error_set(err, EINVAL, "'%.60s' must be an absolute path", value);
	return r;
}

int config_check_listen(const char *value, struct error *err)
{
	const char *colon = strrchr(value, ':');
	char host[INET6_ADDRSTRLEN + 2];
	struct in6_addr address;
	uint32_t port;
	size_t n;

	if (!colon || str_to_u32(colon + 1, &port) < 0 || port > UINT16_MAX)
		goto bad;
	n = (size_t)(colon - value);
	if (n >= sizeof host)
		goto bad;
	memcpy(host, value, n);
	host[n] = '\0';
	if (strcmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &address) == 1)
		return 0;
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		if (inet_pton(AF_INET6, host + 1, &address) == 1)
			return 0;
	}
bad:
	return error_set(err, EINVAL, "'%.60s' is not ADDRESS:PORT", value);
}

int config_check_library(const char *value, struct error *err)
{
	if (!*value)
		return 0;
	if (value[0] != '/' && strchr(value, '/'))
		return error_set(err, EINVAL, "'%.60s' must be a file name or an absolute path",
				 value);
	return config_check_text(value, err);
}

int config_check_prefix(const char *value, struct error *err)
{
	size_t n = strlen(value);

	if (n == 0 || n > 32)
		return error_set(err, EINVAL, "a prefix has 1 to 32 characters");
	for (const char *p = value; *p; p++)
		if (!((*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '_'))
			return error_set(err, EINVAL,
					 "'%.32s' holds something else than A-Z, 0-9 and _", value);
	return 0;
}

int config_mix_item(const char *item, char *ret_profile, size_t size, uint32_t *ret_weight,
		    struct error *err)
{
	const char *equals = strrchr(item, '=');
	char profile[PROFILE_NAME_MAX];
	uint32_t weight;

	if (!equals || equals == item || (size_t)(equals - item) >= sizeof profile ||
	    str_to_u32(equals + 1, &weight) < 0 || weight > CONFIG_WEIGHT_MAX)
		return error_set(
			err, EINVAL,
			"expected PROFILE=WEIGHT with a weight from 0 to %d, found '%.64s'",
			CONFIG_WEIGHT_MAX, item);
	if (!ret_profile)
		return 0;
	memcpy(profile, item, (size_t)(equals - item));
	profile[equals - item] = '\0';
	str_copy_cut(ret_profile, size, profile);
	*ret_weight = weight;
	return 0;
}
