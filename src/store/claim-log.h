/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether claims.db and the write-ahead log beside it belong together.
 *
 * SQLite replays a log onto whatever database file it finds. After a crash the log is there, and a
 * claims.db put back from a backup would become a mixture that carries the log's new commit
 * counter. But each commit raises the counter by one and is marked in the log: the file's own
 * counter and the number of commits in the log bound what a file and a log that fit can come to.
 */
#pragma once

#include "base/macro.h"

/* The highest counter that the file and its log can give together. UINT64_MAX when there is no log,
 * or the file alone has no counter to be read (a crash in the middle of a write-back; the log holds
 * what was being written). To be called while this process has the database not open, as closing a
 * descriptor of a file drops all its POSIX locks. */
uint64_t claim_log_limit(const char *db_path, const char *log_path);
