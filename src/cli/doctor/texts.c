/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/texts.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

unsigned doctor_branch(const char *version)
{
	unsigned branch = 0;
	const char *c = version;

	for (; *c >= '0' && *c <= '9' && c - version < 5; c++)
		branch = branch * 10 + (unsigned)(*c - '0');
	return *c == '.' || *c == '\0' ? branch : 0;
}

void doctor_parse_proc_version(const char *text, char *ret, size_t size)
{
	size_t line = strcspn(text, "\r\n");

	str_copy_cut(ret, size, "");
	/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.178.05  Tue ..." */
	for (const char *word = text; word < text + line; word += strcspn(word, " \r\n")) {
		size_t n;

		word += strspn(word, " ");
		n = strcspn(word, " \r\n");
		if (word >= text + line)
			return;
		if (n > 3 && n < size && *word >= '0' && *word <= '9' &&
		    strspn(word, "0123456789.") == n && memchr(word, '.', n)) {
			memcpy(ret, word, n);
			ret[n] = '\0';
			return;
		}
	}
}

const char *doctor_find_option(const char *line, size_t len, const char *option)
{
	size_t n = strlen(option);

	for (const char *word = line; word < line + len; word += strlen(word) + 1) {
		if (!str_starts_with(word, option))
			continue;
		if (word[n] == '=')
			return word + n + 1;
		if (word[n] == '\0' && word + n + 1 < line + len)
			return word + n + 1;
	}
	return NULL;
}

int doctor_parse_status(const char *text, bool *ret_may_trace, bool *ret_own_pids)
{
	const char *capabilities = strstr(text, "\nCapEff:\t"), *pids = strstr(text, "\nNSpid:\t");

	if (!str_starts_with(text, "Name:\tberthd\n") || !capabilities || !pids)
		return -EBADMSG;
	*ret_may_trace = strtoull(capabilities + strlen("\nCapEff:\t"), NULL, 16) >>
				 CAP_SYS_PTRACE &
			 1;
	/* One number for each PID namespace that it is in, from ours downwards. */
	pids += strlen("\nNSpid:\t");
	pids += strcspn(pids, "\t\n");
	*ret_own_pids = *pids == '\t';
	return 0;
}
