/* SPDX-License-Identifier: Apache-2.0 */
#include "store/claim-gen.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "model/outcome.h"

/* 20 digits hold every 64-bit number; a fixed width means that a write replaces the whole text. */
#define GEN_BYTES 21

static int gen_open(const char *dir, int flags, int *ret_fd)
{
	_free_ char *path = NULL;
	int fd;

	path = str_printf("%s/" CLAIM_GEN_NAME, dir);
	if (!path)
		return -ENOMEM;
	fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static bool is_zeroed(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i])
			return false;
	return true;
}

int claim_gen_read(const char *dir, uint64_t *ret, struct error *err)
{
	char text[GEN_BYTES + 2]; /* room for one byte too many, and NUL */
	_close_ int fd = -1;
	ssize_t n;
	int r;

	r = gen_open(dir, O_RDONLY, &fd);
	if (r == -ENOENT) {
		*ret = 0;
		return 0;
	}
	if (r < 0) {
		(void)error_set_errno(err, r, CLAIM_GEN_NAME " cannot be opened");
		goto unavailable;
	}
	n = read(fd, text, sizeof text - 1);
	if (n < 0) {
		(void)error_set_errno(err, errno, CLAIM_GEN_NAME " cannot be read");
		goto unavailable;
	}
	if (is_zeroed(text, (size_t)n)) {
		*ret = 0;
		return 0;
	}
	if (text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	if (n < GEN_BYTES && strlen(text) == (size_t)n && str_to_u64(text, ret) == 0)
		return 0;
	return error_set(
		err, E_STORE_UNAVAILABLE,
		CLAIM_GEN_NAME
		" does not hold a number, so it cannot be told whether claims.db is the latest; "
		"remove " CLAIM_GEN_NAME " to accept claims.db as it is");
unavailable:
	if (err)
		err->code = E_STORE_UNAVAILABLE;
	return -E_STORE_UNAVAILABLE;
}

int claim_gen_write(const char *dir, uint64_t commits)
{
	char text[GEN_BYTES + 1];
	_close_ int fd = -1;
	ssize_t n;
	int r;

	r = gen_open(dir, O_WRONLY | O_CREAT, &fd);
	if (r < 0)
		return r;
	snprintf(text, sizeof text, "%020" PRIu64 "\n", commits);
	n = pwrite(fd, text, GEN_BYTES, 0);
	if (n < 0)
		return -errno;
	return n == GEN_BYTES ? 0 : -EIO;
}
