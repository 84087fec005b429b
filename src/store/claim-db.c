/* SPDX-License-Identifier: Apache-2.0 */
#include "store/claim-db.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/str.h"
#include "model/outcome.h"
#include "store/claim-gen.h"
#include "store/claim-load.h"
#include "store/claim-log.h"
#include "store/claim-rows.h"

#define BUSY_TIMEOUT_MS 200
#define HEADER_BYTES	100

struct claim_db {
	char *dir;
	char *path;
	char *log_path;
	sqlite3 *sql;
	struct claim_rows rows;
	uint64_t commits; /* of the last commit; what claims.gen should hold */
	unsigned log_pages;
	dev_t log_dev; /* of the log that SQLite has open; log_ino 0: not there yet */
	ino_t log_ino;
	bool has_schema;
	unsigned version; /* of the schema, as committed */
	bool broken;
};

/* ---- errors ---- */

static int db_error(struct claim_db *db, struct error *err, const char *what)
{
	int rc = sqlite3_extended_errcode(db->sql) & 0xff;
	int os_error = sqlite3_system_errno(db->sql);
	bool tell = os_error != 0 &&
		    (rc == SQLITE_IOERR || rc == SQLITE_FULL || rc == SQLITE_CANTOPEN);

	if (rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB)
		db->broken = true;
	if (rc == SQLITE_BUSY)
		return error_set(err, E_STORE_UNAVAILABLE,
				 "claims.db: %s: another process has it open", what);
	return error_set(err, E_STORE_UNAVAILABLE, "claims.db: %s: %s%s%s", what,
			 sqlite3_errmsg(db->sql), tell ? ": " : "",
			 tell ? strerrordesc_np(os_error) ?: "unknown error" : "");
}

static int db_exec(struct claim_db *db, const char *sql, const char *what, struct error *err)
{
	return sqlite3_exec(db->sql, sql, NULL, NULL, NULL) == SQLITE_OK ? 0
									 : db_error(db, err, what);
}

/* First column of the first row, as text. */
static int db_query_text(struct claim_db *db, const char *sql, char *ret, size_t size,
			 struct error *err)
{
	sqlite3_stmt *st = NULL;
	const char *text;
	int r = 0;

	if (sqlite3_prepare_v2(db->sql, sql, -1, &st, NULL) != SQLITE_OK ||
	    sqlite3_step(st) != SQLITE_ROW) {
		r = db_error(db, err, "cannot be read");
	} else {
		text = (const char *)sqlite3_column_text(st, 0);
		str_copy_cut(ret, size, text ? text : "");
	}
	sqlite3_finalize(st);
	return r;
}

static int db_query_number(struct claim_db *db, const char *sql, uint32_t *ret, struct error *err)
{
	char text[24];
	int r;

	r = db_query_text(db, sql, text, sizeof text, err);
	if (r < 0)
		return r;
	/* Both numbers of the header are signed for SQLite; a negative one is somebody else's. */
	if (str_to_u32(text, ret) < 0)
		*ret = UINT32_MAX;
	return 0;
}

/* ---- what kind of file it is ---- */

enum db_found {
	DB_FOUND_MISSING,
	DB_FOUND_EMPTY,
	DB_FOUND_FILE,
};

static int check_identity(uint32_t application, uint32_t version, struct error *err)
{
	if (application != CLAIM_ROWS_APPLICATION)
		return error_set(err, E_STORE_UNAVAILABLE,
				 "claims.db is a database of another application (id 0x%08" PRIx32
				 ")",
				 application);
	if (version > CLAIM_ROWS_VERSION)
		return error_set(err, E_STORE_UNAVAILABLE,
				 "claims.db has schema version %" PRIu32
				 ", this berthd knows up to %d: made by a newer one",
				 version, CLAIM_ROWS_VERSION);
	if (version < CLAIM_ROWS_VERSION_FIRST)
		return error_set(err, E_STORE_UNAVAILABLE,
				 "claims.db has schema version %" PRIu32
				 ", which no berthd has made",
				 version);
	return 0;
}

static uint32_t header_u32(const unsigned char *header, size_t offset)
{
	uint32_t v;

	memcpy(&v, header + offset, sizeof v);
	return be32toh(v);
}

/* Before SQLite touches the file, as opening one may already replay somebody else's journal. Both
 * numbers are 0 while the schema is still in the log; then SQLite has to be asked. */
static int check_header(int fd, struct error *err)
{
	unsigned char header[HEADER_BYTES];
	ssize_t n;

	n = pread(fd, header, sizeof header, 0);
	if (n < 0)
		return error_set(err, E_STORE_UNAVAILABLE, "claims.db cannot be read: %s",
				 strerrordesc_np(errno));
	if (n < HEADER_BYTES || memcmp(header, "SQLite format 3", 16) != 0)
		return error_set(err, E_STORE_UNAVAILABLE, "claims.db is not a database");
	if (header_u32(header, 68) == 0 && header_u32(header, 60) == 0)
		return 0;
	return check_identity(header_u32(header, 68), header_u32(header, 60), err);
}

/* The descriptor is closed before SQLite opens the file: closing one later would drop its locks, as
 * POSIX has it. */
static int db_examine(const struct claim_db *db, enum db_found *ret, struct error *err)
{
	const char *path = db->path;
	struct stat st, log_st;
	_close_ int fd = -1;

	*ret = DB_FOUND_FILE;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT) {
		*ret = DB_FOUND_MISSING;
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_set(err, E_STORE_UNAVAILABLE, "claims.db cannot be opened: %s",
				 strerrordesc_np(errno));
	if (!S_ISREG(st.st_mode))
		return error_set(err, E_STORE_UNAVAILABLE, "claims.db is not a file");
	if (st.st_size > 0)
		return check_header(fd, err);
	if (*ret == DB_FOUND_MISSING)
		return 0;
	*ret = DB_FOUND_EMPTY;
	/* Never so after a crash, as the file has its first page before there is a log. */
	if (stat(db->log_path, &log_st) == 0 && log_st.st_size > 0)
		return error_set(err, E_STORE_UNAVAILABLE,
				 "claims.db is empty but claims.db-wal is not: it was cut; remove "
				 "both to start anew");
	return 0;
}

/* ---- opening ---- */

static int db_on_commit(void *userdata, sqlite3 *sql _unused_, const char *schema _unused_,
			int pages)
{
	struct claim_db *db = userdata;

	db->log_pages = (unsigned)pages;
	return SQLITE_OK;
}

/* Until the file is accepted, closing must not write the log back into it. */
static void db_keep_file(struct claim_db *db, bool keep)
{
	sqlite3_db_config(db->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, (int)keep, NULL);
}

/* Locked exclusively: nobody edits it beside a running berthd, and there is no index of the log in
 * shared memory. */
static int db_connect(struct claim_db *db, struct error *err)
{
	int rc;

	rc = sqlite3_open_v2(db->path, &db->sql,
			     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
				     SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE,
			     NULL);
	if (!db->sql)
		return error_set(err, E_STORE_UNAVAILABLE,
				 "claims.db cannot be opened: out of memory");
	if (rc != SQLITE_OK)
		return db_error(db, err, "cannot be opened");
	db_keep_file(db, true);
	sqlite3_db_config(db->sql, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db->sql, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(db->sql, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
	sqlite3_db_config(db->sql, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
	sqlite3_db_config(db->sql, SQLITE_DBCONFIG_ENABLE_FKEY, 0, NULL);
	sqlite3_db_config(db->sql, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_busy_timeout(db->sql, BUSY_TIMEOUT_MS);
	sqlite3_wal_hook(db->sql, db_on_commit, db);
	claim_rows_init(&db->rows, db->sql);
	db->version = db->rows.version;
	return db_exec(db,
		       "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cell_size_check = ON;"
		       "PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY;",
		       "cannot be set up", err);
}

static int db_check(struct claim_db *db, struct error *err)
{
	uint32_t application, version, objects;
	char text[160];
	int r;

	if ((r = db_query_number(db, "PRAGMA application_id", &application, err)) < 0 ||
	    (r = db_query_number(db, "PRAGMA user_version", &version, err)) < 0 ||
	    (r = db_query_number(db, "SELECT count(*) FROM sqlite_schema", &objects, err)) < 0)
		return r;
	db->has_schema = application != 0 || version != 0 || objects != 0;
	if (db->has_schema) {
		r = check_identity(application, version, err);
		if (r < 0)
			return r;
		db->version = version;
		claim_rows_set_version(&db->rows, version);
	}
	/* Not quick_check: only this one compares tables with their indices, and so sees damage to
	 * a name or an address. The database is small. */
	r = db_query_text(db, "PRAGMA integrity_check(1)", text, sizeof text, err);
	if (r < 0)
		return r;
	if (strcmp(text, "ok") != 0)
		return error_set(err, E_STORE_UNAVAILABLE, "claims.db is damaged: %s", text);
	return 0;
}

static int db_check_age(const struct claim_db *db, uint64_t gen, uint64_t limit, struct error *err)
{
	if (db->commits > limit)
		return error_set(err, E_STORE_UNAVAILABLE,
				 "claims.db and claims.db-wal do not belong together: restored "
				 "from a backup?"
				 " If the claims of claims.db are right, remove claims.db-wal "
				 "and " CLAIM_GEN_NAME " to accept it");
	if (db->commits >= gen)
		return 0;
	return error_set(err, E_STORE_UNAVAILABLE,
			 "claims.db is at commit %" PRIu64 ", older than its counter %" PRIu64
			 " in " CLAIM_GEN_NAME ": restored from a backup?"
			 " If its claims are right, remove " CLAIM_GEN_NAME " to accept it",
			 db->commits, gen);
}

static int db_load(struct claim_db *db, enum db_found found, uint64_t gen, uint64_t limit,
		   struct store_content *ret, struct error *err)
{
	int r;

	if (db->has_schema) {
		r = claim_load(db->sql, db->version, ret, &db->commits, err);
		return r < 0 ? r : db_check_age(db, gen, limit, err);
	}
	*ret = (struct store_content){ .fresh = true };
	/* Counting goes on where it was, so that the first commit is not older than its counter. */
	db->commits = gen;
	if (gen > 0)
		snprintf(ret->note, sizeof ret->note,
			 "claims.db %s although " CLAIM_GEN_NAME " counts %" PRIu64
			 " commits: starting without claims",
			 found == DB_FOUND_MISSING ? "is missing"
			 : found == DB_FOUND_EMPTY ? "is empty"
						   : "has no tables",
			 gen);
	return 0;
}

static void db_note_log(struct claim_db *db)
{
	struct stat st;

	if (db->log_ino != 0 || stat(db->log_path, &st) < 0)
		return;
	db->log_dev = st.st_dev;
	db->log_ino = st.st_ino;
}

/* The file is accepted: from here on it is written. */
static int db_enter_service(struct claim_db *db, struct store_content *content, struct error *err)
{
	char mode[16];
	int r;

	r = db_query_text(db, "PRAGMA journal_mode = WAL", mode, sizeof mode, err);
	if (r < 0)
		return r;
	if (strcmp(mode, "wal") != 0)
		return error_set(err, E_STORE_UNAVAILABLE, "claims.db: no write-ahead log, mode %s",
				 mode);
	r = db_exec(db, "PRAGMA synchronous = FULL", "cannot be set up", err);
	if (r < 0)
		return r;
	db_keep_file(db, false);
	db_note_log(db);
	if (db->has_schema) {
		r = claim_gen_write(db->dir, db->commits);
		if (r < 0)
			snprintf(content->note, sizeof content->note,
				 CLAIM_GEN_NAME
				 " cannot be written, an old claims.db would not be noticed: %s",
				 strerrordesc_np(-r));
	}
	return 0;
}

/* A commit into a file that was unlinked or replaced would be acknowledged and lost. SQLite can be
 * asked about the database, not about the log. */
static int db_check_place(struct claim_db *db, struct error *err)
{
	const char *lost = NULL;
	struct stat st;
	int moved = 0;

	sqlite3_file_control(db->sql, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
	if (moved)
		lost = "claims.db";
	else if (db->log_ino != 0 && (stat(db->log_path, &st) < 0 || st.st_dev != db->log_dev ||
				      st.st_ino != db->log_ino))
		lost = "claims.db-wal";
	if (!lost)
		return 0;
	db->broken = true;
	return error_set(err, E_STORE_UNAVAILABLE, "%s was removed or replaced while it was open",
			 lost);
}

struct claim_db *claim_db_close(struct claim_db *db)
{
	if (!db)
		return NULL;
	claim_rows_done(&db->rows);
	/* SQLite writes the log back and deletes it; not where it would be another file's. */
	if (db->sql && (db->broken || db_check_place(db, NULL) < 0))
		db_keep_file(db, true);
	sqlite3_close(db->sql);
	free(db->log_path);
	free(db->path);
	free(db->dir);
	free(db);
	return NULL;
}

static void claim_db_closep(struct claim_db **db)
{
	claim_db_close(*db);
}

int claim_db_open(const char *dir, struct claim_db **ret, struct store_content *ret_content,
		  struct error *err)
{
	_cleanup_(claim_content_done) struct store_content content = { 0 };
	_cleanup_(claim_db_closep) struct claim_db *db = NULL;
	enum db_found found;
	uint64_t gen, limit;
	int r;

	db = calloc(1, sizeof *db);
	if (!db)
		return error_set(err, E_STORE_UNAVAILABLE, "out of memory");
	db->dir = strdup(dir);
	db->path = str_printf("%s/claims.db", dir);
	db->log_path = str_printf("%s/claims.db-wal", dir);
	if (!db->dir || !db->path || !db->log_path)
		return error_set(err, E_STORE_UNAVAILABLE, "out of memory");
	if ((r = claim_gen_read(dir, &gen, err)) < 0 || (r = db_examine(db, &found, err)) < 0)
		return r;
	limit = claim_log_limit(db->path, db->log_path);
	if ((r = db_connect(db, err)) < 0 || (r = db_check(db, err)) < 0 ||
	    (r = db_load(db, found, gen, limit, &content, err)) < 0 ||
	    (r = db_enter_service(db, &content, err)) < 0)
		return r;
	*ret = TAKE(db);
	*ret_content = content;
	content = (struct store_content){ 0 };
	return 0;
}

/* ---- committing ---- */

/* 0 as part of the transaction, 1 when refused (result and err of the group are set), else
 * negative: the whole transaction is lost. */
static int db_apply_group(struct claim_db *db, struct claim_db_group *g, struct error *err)
{
	int r;

	r = db_exec(db, "SAVEPOINT submit", "cannot be written", err);
	if (r < 0)
		return r;
	g->result = 0;
	for (unsigned i = 0; i < g->n_ops && g->result == 0; i++) {
		int rc;

		g->result = claim_rows_check(&g->ops[i], &g->err);
		if (g->result < 0)
			break;
		rc = claim_rows_apply(&db->rows, &g->ops[i]);
		if ((rc & 0xff) == SQLITE_CONSTRAINT)
			g->result = error_set(&g->err,
					      rc == SQLITE_CONSTRAINT_UNIQUE ||
							      rc == SQLITE_CONSTRAINT_TRIGGER
						      ? EEXIST
						      : EINVAL,
					      "claims.db: %s", sqlite3_errmsg(db->sql));
		else if (rc != SQLITE_OK)
			return db_error(db, err, "cannot be written");
	}
	if (g->result < 0)
		r = db_exec(db, "ROLLBACK TO submit", "cannot be written", err);
	if (r == 0)
		r = db_exec(db, "RELEASE submit", "cannot be written", err);
	return r < 0 ? r : g->result < 0;
}

static bool needs_extending(const struct claim_db *db, const struct claim_db_group *groups,
			    unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < groups[i].n_ops; k++)
			if (claim_rows_version_of(&groups[i].ops[k]) > db->version)
				return true;
	return false;
}

static int db_apply(struct claim_db *db, struct claim_db_group *groups, unsigned n,
		    struct error *err)
{
	bool any = false;
	int r;

	if (!db->has_schema && claim_rows_create(&db->rows, db->commits) != SQLITE_OK)
		return db_error(db, err, "tables cannot be made");
	if (needs_extending(db, groups, n) && claim_rows_extend(&db->rows) != SQLITE_OK)
		return db_error(db, err, "tables cannot be extended");
	for (unsigned i = 0; i < n; i++) {
		r = db_apply_group(db, &groups[i], err);
		if (r < 0)
			return r;
		any = any || r == 0;
	}
	if (!any)
		return 0;
	if (claim_rows_set_commits(&db->rows, db->commits + 1) != SQLITE_OK)
		return db_error(db, err, "cannot be written");
	fault_point("store.before-commit");
	r = db_exec(db, "COMMIT", "cannot be committed", err);
	return r < 0 ? r : 1;
}

void claim_db_checkpoint(struct claim_db *db)
{
	/* Not tried again before the next commit either way. */
	db->log_pages = 0;
	if (db_check_place(db, NULL) == 0)
		(void)sqlite3_wal_checkpoint_v2(db->sql, "main", SQLITE_CHECKPOINT_PASSIVE, NULL,
						NULL);
}

int claim_db_commit(struct claim_db *db, struct claim_db_group *groups, unsigned n,
		    struct error *err)
{
	bool first = !db->has_schema;
	int r;

	if (db->broken)
		return error_set(err, E_STORE_UNAVAILABLE, "claims.db: not written any more");
	r = db_check_place(db, err);
	if (r < 0)
		return r;
	r = db_exec(db, "BEGIN IMMEDIATE", "cannot be written", err);
	if (r < 0)
		return r;
	r = db_apply(db, groups, n, err);
	if (r <= 0) {
		/* After some errors SQLite has rolled back by itself. */
		if (!sqlite3_get_autocommit(db->sql))
			(void)db_exec(db, "ROLLBACK", "cannot be rolled back", NULL);
		claim_rows_set_version(&db->rows, db->version);
		return r;
	}
	db->version = db->rows.version;
	db->has_schema = true;
	db->commits++;
	db_note_log(db);
	fault_point("store.after-commit");
	/* The commit is durable without it: a counter that lags only notices less. */
	(void)claim_gen_write(db->dir, db->commits);
	fault_point("store.after-gen");
	/* Once the schema stands in the file itself, a lost log looks old and not like a first
	 * start. */
	if (first)
		claim_db_checkpoint(db);
	return 1;
}

bool claim_db_is_broken(const struct claim_db *db)
{
	return db->broken;
}

unsigned claim_db_log_pages(const struct claim_db *db)
{
	return db->log_pages;
}
