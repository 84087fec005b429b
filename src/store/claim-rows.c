/* SPDX-License-Identifier: Apache-2.0 */
#include "store/claim-rows.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

/* The triggers keep a VF unique over claims and undo records; UNIQUE does so within each. Addresses
 * are stored in the one spelling that pci_addr_format() has, so equal text is an equal address. */
static const char schema[] =
	"CREATE TABLE meta ("
	" one INTEGER PRIMARY KEY CHECK (one = 1),"
	" commits INTEGER NOT NULL CHECK (commits >= 0)) STRICT;"
	"CREATE TABLE claims ("
	" name TEXT NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 128),"
	" state TEXT NOT NULL CHECK (state IN ('intent', 'bound', 'releasing', 'external')),"
	" profile TEXT NOT NULL,"
	" type_id INTEGER NOT NULL CHECK (type_id BETWEEN 1 AND 4294967295),"
	" vf TEXT NOT NULL UNIQUE CHECK (length(vf) BETWEEN 12 AND 16),"
	" card TEXT NOT NULL CHECK (length(card) BETWEEN 12 AND 16),"
	" placement_id INTEGER NOT NULL CHECK (placement_id BETWEEN -1 AND 65534),"
	" placement_size INTEGER NOT NULL CHECK (placement_size BETWEEN 0 AND 65534),"
	" assigned_at TEXT NOT NULL,"
	" boot_id TEXT NOT NULL,"
	" uid INTEGER NOT NULL CHECK (uid BETWEEN 0 AND 4294967295),"
	" pid INTEGER NOT NULL CHECK (pid BETWEEN 0 AND 4294967295),"
	" pid_start INTEGER NOT NULL CHECK (pid_start >= 0),"
	" owner TEXT NOT NULL,"
	" console_log TEXT NOT NULL,"
	" channel TEXT NOT NULL) STRICT;"
	"CREATE TABLE undos ("
	" vf TEXT NOT NULL PRIMARY KEY CHECK (length(vf) BETWEEN 12 AND 16),"
	" card TEXT NOT NULL CHECK (length(card) BETWEEN 12 AND 16),"
	" type_id INTEGER NOT NULL CHECK (type_id BETWEEN 0 AND 4294967295)) STRICT;"
	"CREATE TABLE cards ("
	" card TEXT NOT NULL PRIMARY KEY CHECK (length(card) BETWEEN 12 AND 16),"
	" cordoned INTEGER NOT NULL DEFAULT 0 CHECK (cordoned IN (0, 1)),"
	" catalogue TEXT,"
	" recovery TEXT) STRICT;"
	"CREATE TABLE adoptable ("
	" vf TEXT NOT NULL PRIMARY KEY CHECK (length(vf) BETWEEN 12 AND 16)) STRICT;"
	"CREATE TRIGGER claims_insert_vf BEFORE INSERT ON claims"
	" WHEN EXISTS (SELECT 1 FROM undos WHERE vf = NEW.vf)"
	" BEGIN SELECT RAISE(ABORT, 'the VF has an undo record'); END;"
	"CREATE TRIGGER claims_update_vf BEFORE UPDATE OF vf ON claims"
	" WHEN EXISTS (SELECT 1 FROM undos WHERE vf = NEW.vf)"
	" BEGIN SELECT RAISE(ABORT, 'the VF has an undo record'); END;"
	"CREATE TRIGGER undos_insert_vf BEFORE INSERT ON undos"
	" WHEN EXISTS (SELECT 1 FROM claims WHERE vf = NEW.vf)"
	" BEGIN SELECT RAISE(ABORT, 'the VF has a claim'); END;"
	"PRAGMA application_id = 0x62727468;" /* "brth" */
	"PRAGMA user_version = 1;";

static const char extension[] =
	"ALTER TABLE claims ADD COLUMN peer TEXT NOT NULL DEFAULT '' CHECK (length(peer) < 256);"
	"PRAGMA user_version = 2;";

/* ON CONFLICT names the key: INSERT OR REPLACE would also delete another claim that has the VF. */
static const char *const query_text[CLAIM_ROWS_N] = {
	[CLAIM_ROWS_PUT_CLAIM] =
		"INSERT INTO claims (name, state, profile, type_id, vf, card, placement_id,"
		" placement_size, assigned_at, boot_id, uid, pid, pid_start, owner, console_log, "
		"channel)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
		" ON CONFLICT (name) DO UPDATE SET state = ?2, profile = ?3, type_id = ?4, vf = ?5,"
		" card = ?6, placement_id = ?7, placement_size = ?8, assigned_at = ?9, boot_id = "
		"?10,"
		" uid = ?11, pid = ?12, pid_start = ?13, owner = ?14, console_log = ?15, channel = "
		"?16",
	[CLAIM_ROWS_DROP_CLAIM] = "DELETE FROM claims WHERE name = ?1",
	[CLAIM_ROWS_PUT_UNDO] = "INSERT INTO undos (vf, card, type_id) VALUES (?1, ?2, ?3)"
				" ON CONFLICT (vf) DO UPDATE SET card = ?2, type_id = ?3",
	[CLAIM_ROWS_DROP_UNDO] = "DELETE FROM undos WHERE vf = ?1",
	[CLAIM_ROWS_CORDON] = "INSERT INTO cards (card, cordoned) VALUES (?1, ?2)"
			      " ON CONFLICT (card) DO UPDATE SET cordoned = ?2",
	[CLAIM_ROWS_CATALOGUE] = "INSERT INTO cards (card, catalogue) VALUES (?1, ?2)"
				 " ON CONFLICT (card) DO UPDATE SET catalogue = ?2",
	[CLAIM_ROWS_RECOVERY] = "INSERT INTO cards (card, recovery) VALUES (?1, ?2)"
				" ON CONFLICT (card) DO UPDATE SET recovery = ?2",
	[CLAIM_ROWS_ADOPTABLE] =
		"INSERT INTO adoptable (vf) VALUES (?1) ON CONFLICT (vf) DO NOTHING",
	[CLAIM_ROWS_DROP_ADOPTABLE] = "DELETE FROM adoptable WHERE vf = ?1",
	[CLAIM_ROWS_COMMITS] = "UPDATE meta SET commits = ?1",
};

static const char put_claim_with_peer[] =
	"INSERT INTO claims (name, state, profile, type_id, vf, card, placement_id,"
	" placement_size, assigned_at, boot_id, uid, pid, pid_start, owner, console_log, channel,"
	" peer)"
	" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"
	" ON CONFLICT (name) DO UPDATE SET state = ?2, profile = ?3, type_id = ?4, vf = ?5,"
	" card = ?6, placement_id = ?7, placement_size = ?8, assigned_at = ?9, boot_id = ?10,"
	" uid = ?11, pid = ?12, pid_start = ?13, owner = ?14, console_log = ?15, channel = ?16,"
	" peer = ?17";

void claim_rows_init(struct claim_rows *rows, sqlite3 *sql)
{
	*rows = (struct claim_rows){ .sql = sql, .version = CLAIM_ROWS_VERSION_FIRST };
}

void claim_rows_set_version(struct claim_rows *rows, unsigned version)
{
	if (version == rows->version)
		return;
	rows->version = version;
	sqlite3_finalize(TAKE(rows->queries[CLAIM_ROWS_PUT_CLAIM]));
}

unsigned claim_rows_version_of(const struct store_op *op)
{
	return op->kind == STORE_OP_PUT_CLAIM && op->claim.peer[0] ? CLAIM_ROWS_VERSION_PEER
								   : CLAIM_ROWS_VERSION_FIRST;
}

void claim_rows_done(struct claim_rows *rows)
{
	for (unsigned i = 0; i < CLAIM_ROWS_N; i++)
		sqlite3_finalize(rows->queries[i]);
	*rows = (struct claim_rows){ 0 };
}

/* ---- writing ---- */

static int rows_prepare(struct claim_rows *rows, enum claim_rows_query q, sqlite3_stmt **ret)
{
	bool with_peer = q == CLAIM_ROWS_PUT_CLAIM && rows->version >= CLAIM_ROWS_VERSION_PEER;

	if (!rows->queries[q]) {
		int rc = sqlite3_prepare_v3(rows->sql,
					    with_peer ? put_claim_with_peer : query_text[q], -1,
					    SQLITE_PREPARE_PERSISTENT, &rows->queries[q], NULL);

		if (rc != SQLITE_OK)
			return rc;
	}
	*ret = rows->queries[q];
	return SQLITE_OK;
}

/* A value that cannot be bound (out of memory) leaves NULL, which NOT NULL refuses. */
static void bind_text(sqlite3_stmt *st, int i, const char *s)
{
	(void)sqlite3_bind_text(st, i, s, -1, SQLITE_TRANSIENT);
}

static void bind_addr(sqlite3_stmt *st, int i, struct pci_addr a)
{
	char buf[PCI_ADDR_MAX];

	bind_text(st, i, pci_addr_format(a, buf));
}

static void bind_int(sqlite3_stmt *st, int i, int64_t v)
{
	(void)sqlite3_bind_int64(st, i, v);
}

static void bind_claim(sqlite3_stmt *st, const struct claim *c)
{
	bind_text(st, 1, c->name);
	bind_text(st, 2, claim_state_name(c->state));
	bind_text(st, 3, c->profile);
	bind_int(st, 4, c->type_id);
	bind_addr(st, 5, c->vf);
	bind_addr(st, 6, c->card);
	bind_int(st, 7, c->placement_id);
	bind_int(st, 8, c->placement_size);
	bind_text(st, 9, c->assigned_at);
	bind_text(st, 10, c->boot_id);
	bind_int(st, 11, c->uid);
	bind_int(st, 12, c->pid);
	bind_int(st, 13, (int64_t)c->pid_start);
	bind_text(st, 14, c->owner);
	bind_text(st, 15, c->console_log);
	bind_text(st, 16, c->channel);
	/* Only there with the newer tables; claim_rows_version_of() sees to it that they are. */
	if (sqlite3_bind_parameter_count(st) >= 17)
		bind_text(st, 17, c->peer);
}

static void bind_op(sqlite3_stmt *st, enum claim_rows_query q, const struct store_op *op)
{
	switch (q) {
	case CLAIM_ROWS_PUT_CLAIM:
		bind_claim(st, &op->claim);
		break;
	case CLAIM_ROWS_DROP_CLAIM:
		bind_text(st, 1, op->claim.name);
		break;
	case CLAIM_ROWS_PUT_UNDO:
		bind_addr(st, 1, op->undo.vf);
		bind_addr(st, 2, op->undo.card);
		bind_int(st, 3, op->undo.type_id);
		break;
	case CLAIM_ROWS_DROP_UNDO:
	case CLAIM_ROWS_ADOPTABLE:
	case CLAIM_ROWS_DROP_ADOPTABLE:
		bind_addr(st, 1, op->undo.vf);
		break;
	case CLAIM_ROWS_CORDON:
		bind_addr(st, 1, op->card);
		bind_int(st, 2, op->cordoned);
		break;
	case CLAIM_ROWS_CATALOGUE:
		bind_addr(st, 1, op->card);
		bind_text(st, 2, op->text);
		break;
	case CLAIM_ROWS_RECOVERY:
		bind_addr(st, 1, op->card);
		if (op->text) /* NULL stays unbound: no recovery */
			bind_text(st, 2, op->text);
		break;
	case CLAIM_ROWS_COMMITS:
	case CLAIM_ROWS_N:
		break;
	}
}

static int rows_execute(struct claim_rows *rows, enum claim_rows_query q, const struct store_op *op)
{
	sqlite3_stmt *st;
	int rc;

	rc = rows_prepare(rows, q, &st);
	if (rc != SQLITE_OK)
		return rc;
	bind_op(st, q, op);
	rc = sqlite3_step(st);
	sqlite3_reset(st);
	sqlite3_clear_bindings(st);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int claim_rows_apply(struct claim_rows *rows, const struct store_op *op)
{
	int rc;

	switch (op->kind) {
	case STORE_OP_PUT_CLAIM:
		return rows_execute(rows, CLAIM_ROWS_PUT_CLAIM, op);
	case STORE_OP_DROP_CLAIM:
		return rows_execute(rows, CLAIM_ROWS_DROP_CLAIM, op);
	case STORE_OP_PUT_UNDO:
		rc = op->claim.name[0] ? rows_execute(rows, CLAIM_ROWS_DROP_CLAIM, op) : SQLITE_OK;
		return rc == SQLITE_OK ? rows_execute(rows, CLAIM_ROWS_PUT_UNDO, op) : rc;
	case STORE_OP_DROP_UNDO:
		return rows_execute(rows, CLAIM_ROWS_DROP_UNDO, op);
	case STORE_OP_CORDON:
		return rows_execute(rows, CLAIM_ROWS_CORDON, op);
	case STORE_OP_CATALOGUE:
		return rows_execute(rows, CLAIM_ROWS_CATALOGUE, op);
	case STORE_OP_RECOVERY:
		return rows_execute(rows, CLAIM_ROWS_RECOVERY, op);
	case STORE_OP_ADOPTABLE:
		return rows_execute(rows, CLAIM_ROWS_ADOPTABLE, op);
	case STORE_OP_DROP_ADOPTABLE:
		return rows_execute(rows, CLAIM_ROWS_DROP_ADOPTABLE, op);
	}
	return SQLITE_MISUSE;
}

int claim_rows_set_commits(struct claim_rows *rows, uint64_t commits)
{
	sqlite3_stmt *st;
	int rc;

	rc = rows_prepare(rows, CLAIM_ROWS_COMMITS, &st);
	if (rc != SQLITE_OK)
		return rc;
	bind_int(st, 1, (int64_t)commits);
	rc = sqlite3_step(st);
	sqlite3_reset(st);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int claim_rows_extend(struct claim_rows *rows)
{
	int rc = sqlite3_exec(rows->sql, extension, NULL, NULL, NULL);

	if (rc == SQLITE_OK)
		claim_rows_set_version(rows, CLAIM_ROWS_VERSION);
	return rc;
}

int claim_rows_create(struct claim_rows *rows, uint64_t commits)
{
	sqlite3_stmt *st = NULL;
	int rc;

	rc = sqlite3_exec(rows->sql, schema, NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		return rc;
	rc = sqlite3_prepare_v2(rows->sql, "INSERT INTO meta (one, commits) VALUES (1, ?1)", -1,
				&st, NULL);
	if (rc != SQLITE_OK)
		return rc;
	bind_int(st, 1, (int64_t)commits);
	rc = sqlite3_step(st);
	sqlite3_finalize(st);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* ---- checks ---- */

static int check_text(const char *s, size_t size, const char *field, struct error *err)
{
	size_t n = strnlen(s, size);

	if (n == size)
		return error_set(err, EINVAL, "%s is too long", field);
	if (!str_is_utf8(s, n))
		return error_set(err, EINVAL, "%s is not UTF-8", field);
	return 0;
}

static int check_addr(struct pci_addr a, const char *field, struct error *err)
{
	if (a.device > 31 || a.function > 7)
		return error_set(err, EINVAL, "%s is no PCI address", field);
	return 0;
}

static int check_claim_text(const struct claim *c, struct error *err)
{
	const struct {
		const char *text;
		size_t size;
		const char *field;
	} fields[] = {
		{ c->name, sizeof c->name, "name" },
		{ c->profile, sizeof c->profile, "profile" },
		{ c->assigned_at, sizeof c->assigned_at, "assigned_at" },
		{ c->boot_id, sizeof c->boot_id, "boot_id" },
		{ c->owner, sizeof c->owner, "owner" },
		{ c->console_log, sizeof c->console_log, "console_log" },
		{ c->channel, sizeof c->channel, "channel" },
		{ c->peer, sizeof c->peer, "peer" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		int r = check_text(fields[i].text, fields[i].size, fields[i].field, err);

		if (r < 0)
			return r;
	}
	if (!claim_name_is_valid(c->name))
		return error_set(err, EINVAL, "name is not a valid one");
	return 0;
}

static int check_claim(const struct claim *c, struct error *err)
{
	int r;

	r = check_claim_text(c, err);
	if (r < 0)
		return r;
	if ((unsigned)c->state > CLAIM_STATE_EXTERNAL)
		return error_set(err, EINVAL, "state is unknown");
	if (c->type_id == 0)
		return error_set(err, EINVAL, "type_id is 0");
	if (c->placement_id < -1 || c->placement_id > CLAIM_ROWS_UNIT_MAX)
		return error_set(err, EINVAL, "placement_id is out of range");
	if (c->placement_size < 0 || c->placement_size > CLAIM_ROWS_UNIT_MAX)
		return error_set(err, EINVAL, "placement_size is out of range");
	if (c->pid_start > INT64_MAX)
		return error_set(err, EINVAL, "pid_start is out of range");
	r = check_addr(c->vf, "vf", err);
	return r < 0 ? r : check_addr(c->card, "card", err);
}

static int check_catalogue(const char *text, struct error *err)
{
	size_t n = text ? strnlen(text, CLAIM_ROWS_TEXT_MAX) : 0;

	if (n == CLAIM_ROWS_TEXT_MAX)
		return error_set(err, EINVAL, "catalogue is too long");
	if (text && !str_is_utf8(text, n))
		return error_set(err, EINVAL, "catalogue is not UTF-8");
	return 0;
}

int claim_rows_check(const struct store_op *op, struct error *err)
{
	int r;

	switch (op->kind) {
	case STORE_OP_PUT_CLAIM:
		r = check_claim(&op->claim, err);
		return r < 0 ? error_wrap(err, "claim \"%.128s\"", op->claim.name) : 0;
	case STORE_OP_DROP_CLAIM:
		return 0;
	case STORE_OP_PUT_UNDO:
		r = check_addr(op->undo.vf, "vf", err);
		return r < 0 ? r : check_addr(op->undo.card, "card", err);
	case STORE_OP_DROP_UNDO:
	case STORE_OP_ADOPTABLE:
	case STORE_OP_DROP_ADOPTABLE:
		return check_addr(op->undo.vf, "vf", err);
	case STORE_OP_CORDON:
		return check_addr(op->card, "card", err);
	case STORE_OP_RECOVERY:
		r = op->text ? check_catalogue(op->text, err) : 0;
		return r < 0 ? r : check_addr(op->card, "card", err);
	case STORE_OP_CATALOGUE:
		r = check_catalogue(op->text, err);
		return r < 0 ? r : check_addr(op->card, "card", err);
	}
	return error_set(err, EINVAL, "unknown operation");
}
