/* SPDX-License-Identifier: Apache-2.0 */
#include "store/claim-log.h"

#include <endian.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

/* SQLite's file format, section 4: a header, then frames of a header and a page each, all
 * big-endian. */
#define LOG_HEADER_BYTES     32
#define LOG_HEADER_PAGE_SIZE 8
#define LOG_HEADER_SALTS     16
#define FRAME_HEADER_BYTES   24
#define FRAME_COMMIT	     4 /* pages of the database after the commit; 0: not the last frame of one */
#define FRAME_SALTS	     8

static uint32_t get_u32(const unsigned char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return be32toh(v);
}

/* Frames of an earlier use of the log have other salts. Check sums are left out: a torn last commit
 * may be counted, which only makes the limit one too high. */
static uint64_t log_count_commits(int fd)
{
	unsigned char header[LOG_HEADER_BYTES], frame[FRAME_HEADER_BYTES];
	uint64_t n = 0;
	off_t at = LOG_HEADER_BYTES;
	uint32_t page_size;

	if (pread(fd, header, sizeof header, 0) != sizeof header)
		return 0;
	page_size = get_u32(header + LOG_HEADER_PAGE_SIZE);
	while (pread(fd, frame, sizeof frame, at) == sizeof frame &&
	       memcmp(frame + FRAME_SALTS, header + LOG_HEADER_SALTS, 8) == 0) {
		n += get_u32(frame + FRAME_COMMIT) != 0;
		at += FRAME_HEADER_BYTES + (off_t)page_size;
	}
	return n;
}

/* "immutable" makes SQLite read the file alone, without its log and without any lock. */
static int file_uri(const char *path, char **ret)
{
	_buf_ struct buf uri = BUF_INIT;

	buf_add_str(&uri, "file:");
	for (; *path; path++) {
		if (strchr("%?#", *path))
			buf_printf(&uri, "%%%02x", (unsigned)(unsigned char)*path);
		else
			buf_add_char(&uri, *path);
	}
	buf_add_str(&uri, "?immutable=1");
	return buf_take(&uri, ret, NULL);
}

static bool file_read_commits(const char *path, uint64_t *ret)
{
	_free_ char *uri = NULL;
	sqlite3_stmt *st = NULL;
	sqlite3 *sql = NULL;
	bool found = false;

	if (file_uri(path, &uri) < 0)
		return false;
	if (sqlite3_open_v2(uri, &sql, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
			    NULL) == SQLITE_OK &&
	    sqlite3_prepare_v2(sql, "SELECT commits FROM meta", -1, &st, NULL) == SQLITE_OK &&
	    sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_INTEGER) {
		*ret = (uint64_t)sqlite3_column_int64(st, 0);
		found = true;
	}
	sqlite3_finalize(st);
	sqlite3_close(sql);
	return found;
}

uint64_t claim_log_limit(const char *db_path, const char *log_path)
{
	uint64_t commits, logged;
	_close_ int fd = -1;

	fd = open(log_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return UINT64_MAX;
	logged = log_count_commits(fd);
	if (logged == 0 || !file_read_commits(db_path, &commits))
		return UINT64_MAX;
	return commits > UINT64_MAX - logged ? UINT64_MAX : commits + logged;
}
