/* SPDX-License-Identifier: Apache-2.0 */
#include "store/claim-load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "model/outcome.h"
#include "store/claim-rows.h"

struct row_reader {
	sqlite3_stmt *st;
	const char *table;
	struct error *err;
};

static int row_bad(const struct row_reader *r, int column, const char *what)
{
	const unsigned char *key = sqlite3_column_text(r->st, 0);

	return error_set(r->err, E_STORE_UNAVAILABLE, "claims.db: table %s, row \"%.100s\": %s %s",
			 r->table, key ? (const char *)key : "", sqlite3_column_name(r->st, column),
			 what);
}

static int row_text(const struct row_reader *r, int column, const char **ret, size_t *ret_len)
{
	const char *text;
	size_t n;

	if (sqlite3_column_type(r->st, column) != SQLITE_TEXT)
		return row_bad(r, column, "is no text");
	text = (const char *)sqlite3_column_text(r->st, column);
	n = (size_t)sqlite3_column_bytes(r->st, column);
	if (!text)
		return error_set(r->err, ENOMEM, "out of memory");
	if (strlen(text) != n)
		return row_bad(r, column, "contains a NUL");
	if (!str_is_utf8(text, n))
		return row_bad(r, column, "is not UTF-8");
	*ret = text;
	*ret_len = n;
	return 0;
}

static int row_copy(const struct row_reader *r, int column, char *dst, size_t size)
{
	const char *text = "";
	size_t n = 0;
	int k;

	k = row_text(r, column, &text, &n);
	if (k < 0)
		return k;
	return str_copy(dst, size, text) < 0 ? row_bad(r, column, "is too long") : 0;
}

static int row_number(const struct row_reader *r, int column, int64_t min, int64_t max,
		      int64_t *ret)
{
	int64_t v;

	if (sqlite3_column_type(r->st, column) != SQLITE_INTEGER)
		return row_bad(r, column, "is no number");
	v = sqlite3_column_int64(r->st, column);
	if (v < min || v > max)
		return row_bad(r, column, "is out of range");
	*ret = v;
	return 0;
}

static int row_addr(const struct row_reader *r, int column, struct pci_addr *ret)
{
	char canonical[PCI_ADDR_MAX];
	const char *text = "";
	size_t n = 0;
	int k;

	k = row_text(r, column, &text, &n);
	if (k < 0)
		return k;
	if (pci_addr_parse(text, ret) < 0)
		return row_bad(r, column, "is no PCI address");
	if (strcmp(pci_addr_format(*ret, canonical), text) != 0)
		return row_bad(r, column, "is not spelled as it is stored");
	return 0;
}

/* Room for one more item behind the first n. Memory doubles whenever n is a power of two. */
static int grow(void *items, unsigned n, size_t item_size)
{
	void **p = items;
	void *bigger;

	if (n & (n - 1))
		return 0;
	bigger = realloc(*p, (n ? (size_t)n * 2 : 1) * item_size);
	if (!bigger)
		return -ENOMEM;
	*p = bigger;
	return 0;
}

static int read_claim_numbers(const struct row_reader *r, struct claim *c)
{
	int64_t type_id = 0, id = 0, size = 0, uid = 0, pid = 0, start = 0;
	int k;

	if ((k = row_number(r, 3, 1, UINT32_MAX, &type_id)) < 0 ||
	    (k = row_number(r, 6, -1, CLAIM_ROWS_UNIT_MAX, &id)) < 0 ||
	    (k = row_number(r, 7, 0, CLAIM_ROWS_UNIT_MAX, &size)) < 0 ||
	    (k = row_number(r, 10, 0, UINT32_MAX, &uid)) < 0 ||
	    (k = row_number(r, 11, 0, UINT32_MAX, &pid)) < 0 ||
	    (k = row_number(r, 12, 0, INT64_MAX, &start)) < 0)
		return k;
	c->type_id = (uint32_t)type_id;
	c->placement_id = (int)id;
	c->placement_size = (int)size;
	c->uid = (uint32_t)uid;
	c->pid = (uint32_t)pid;
	c->pid_start = (uint64_t)start;
	return 0;
}

static int read_claim(const struct row_reader *r, struct store_content *content)
{
	struct claim c = { 0 };
	char state[16];
	int k;

	if ((k = row_copy(r, 0, c.name, sizeof c.name)) < 0 ||
	    (k = row_copy(r, 1, state, sizeof state)) < 0 ||
	    (k = row_copy(r, 2, c.profile, sizeof c.profile)) < 0 ||
	    (k = row_addr(r, 4, &c.vf)) < 0 || (k = row_addr(r, 5, &c.card)) < 0 ||
	    (k = row_copy(r, 8, c.assigned_at, sizeof c.assigned_at)) < 0 ||
	    (k = row_copy(r, 9, c.boot_id, sizeof c.boot_id)) < 0 ||
	    (k = row_copy(r, 13, c.owner, sizeof c.owner)) < 0 ||
	    (k = row_copy(r, 14, c.console_log, sizeof c.console_log)) < 0 ||
	    (k = row_copy(r, 15, c.channel, sizeof c.channel)) < 0 ||
	    (k = row_copy(r, 16, c.peer, sizeof c.peer)) < 0 || (k = read_claim_numbers(r, &c)) < 0)
		return k;
	if (!claim_name_is_valid(c.name))
		return row_bad(r, 0, "is not a valid name");
	if (claim_state_from_name(state, &c.state) < 0)
		return row_bad(r, 1, "is unknown");
	if (grow(&content->claims, content->n_claims, sizeof c) < 0)
		return error_set(r->err, ENOMEM, "out of memory");
	content->claims[content->n_claims++] = c;
	return 0;
}

static int read_undo(const struct row_reader *r, struct store_content *content)
{
	struct undo_record u;
	int64_t type_id = 0;
	int k;

	if ((k = row_addr(r, 0, &u.vf)) < 0 || (k = row_addr(r, 1, &u.card)) < 0 ||
	    (k = row_number(r, 2, 0, UINT32_MAX, &type_id)) < 0)
		return k;
	u.type_id = (uint32_t)type_id;
	if (grow(&content->undos, content->n_undos, sizeof u) < 0)
		return error_set(r->err, ENOMEM, "out of memory");
	content->undos[content->n_undos++] = u;
	return 0;
}

static int read_card(const struct row_reader *r, struct store_content *content)
{
	bool has_catalogue = sqlite3_column_type(r->st, 2) != SQLITE_NULL;
	bool has_recovery = sqlite3_column_type(r->st, 3) != SQLITE_NULL;
	const char *text = NULL, *recovery = NULL;
	struct card_record card;
	int64_t cordoned = 0;
	size_t n = 0, m = 0;
	int k;

	if ((k = row_addr(r, 0, &card.card)) < 0 || (k = row_number(r, 1, 0, 1, &cordoned)) < 0 ||
	    (has_catalogue && (k = row_text(r, 2, &text, &n)) < 0) ||
	    (has_recovery && (k = row_text(r, 3, &recovery, &m)) < 0))
		return k;
	if (m >= CLAIM_ROWS_TEXT_MAX)
		return row_bad(r, 3, "is too long");
	if (n >= CLAIM_ROWS_TEXT_MAX)
		return row_bad(r, 2, "is too long");
	card.cordoned = cordoned;
	card.catalogue = text ? strdup(text) : NULL;
	card.recovery = recovery ? strdup(recovery) : NULL;
	if ((text && !card.catalogue) || (recovery && !card.recovery) ||
	    grow(&content->cards, content->n_cards, sizeof card) < 0) {
		free(card.catalogue);
		free(card.recovery);
		return error_set(r->err, ENOMEM, "out of memory");
	}
	content->cards[content->n_cards++] = card;
	return 0;
}

static int read_adoptable(const struct row_reader *r, struct store_content *content)
{
	struct pci_addr vf;
	int k;

	k = row_addr(r, 0, &vf);
	if (k < 0)
		return k;
	if (grow(&content->adoptable, content->n_adoptable, sizeof vf) < 0)
		return error_set(r->err, ENOMEM, "out of memory");
	content->adoptable[content->n_adoptable++] = vf;
	return 0;
}

static int read_twice(const struct row_reader *r, struct store_content *content _unused_)
{
	return row_bad(r, 0, "stands in more than one record");
}

/* NOT INDEXED: the rows are read from the tables themselves, as a damaged index could leave some
 * out. */
static const struct {
	const char *table;
	const char *query;
	const char *first_query; /* with the first version of the tables; NULL: the same */
	int (*read)(const struct row_reader *r, struct store_content *content);
} tables[] = {
	{ "claims",
	  "SELECT name, state, profile, type_id, vf, card, placement_id, placement_size, "
	  "assigned_at,"
	  " boot_id, uid, pid, pid_start, owner, console_log, channel, peer"
	  " FROM claims NOT INDEXED ORDER BY rowid",
	  "SELECT name, state, profile, type_id, vf, card, placement_id, placement_size, "
	  "assigned_at,"
	  " boot_id, uid, pid, pid_start, owner, console_log, channel, '' AS peer"
	  " FROM claims NOT INDEXED ORDER BY rowid",
	  read_claim },
	{ "undos", "SELECT vf, card, type_id FROM undos NOT INDEXED ORDER BY rowid", NULL,
	  read_undo },
	{ "cards",
	  "SELECT card, cordoned, catalogue, recovery FROM cards NOT INDEXED ORDER BY rowid", NULL,
	  read_card },
	{ "adoptable", "SELECT vf FROM adoptable NOT INDEXED ORDER BY rowid", NULL,
	  read_adoptable },
	{ "claims",
	  "SELECT name FROM claims NOT INDEXED GROUP BY name COLLATE BINARY HAVING count(*) > 1",
	  NULL, read_twice },
	{ "claims and undos",
	  "SELECT vf FROM (SELECT vf FROM claims NOT INDEXED UNION ALL SELECT vf FROM undos NOT "
	  "INDEXED)"
	  " GROUP BY vf HAVING count(*) > 1",
	  NULL, read_twice },
};

static int load_error(sqlite3 *sql, const char *table, struct error *err)
{
	return error_set(err, E_STORE_UNAVAILABLE, "claims.db: table %s cannot be read: %s", table,
			 sqlite3_errmsg(sql));
}

static int load_table(sqlite3 *sql, unsigned version, size_t i, struct store_content *content,
		      struct error *err)
{
	struct row_reader reader = { .table = tables[i].table, .err = err };
	const char *query = tables[i].query;
	int rc, r = 0;

	if (version < CLAIM_ROWS_VERSION_PEER && tables[i].first_query)
		query = tables[i].first_query;
	if (sqlite3_prepare_v2(sql, query, -1, &reader.st, NULL) != SQLITE_OK)
		return load_error(sql, tables[i].table, err);
	while (r == 0 && (rc = sqlite3_step(reader.st)) != SQLITE_DONE)
		r = rc == SQLITE_ROW ? tables[i].read(&reader, content)
				     : load_error(sql, tables[i].table, err);
	sqlite3_finalize(reader.st);
	return r;
}

static int load_commits(sqlite3 *sql, uint64_t *ret, struct error *err)
{
	struct row_reader reader = { .table = "meta", .err = err };
	int64_t commits = 0;
	int rc, r;

	if (sqlite3_prepare_v2(sql, "SELECT commits FROM meta", -1, &reader.st, NULL) != SQLITE_OK)
		return load_error(sql, "meta", err);
	rc = sqlite3_step(reader.st);
	if (rc == SQLITE_ROW)
		r = row_number(&reader, 0, 0, INT64_MAX - 1, &commits);
	else if (rc == SQLITE_DONE)
		r = error_set(err, E_STORE_UNAVAILABLE, "claims.db: the commit counter is missing");
	else
		r = load_error(sql, "meta", err);
	sqlite3_finalize(reader.st);
	if (r == 0)
		*ret = (uint64_t)commits;
	return r;
}

int claim_load(sqlite3 *sql, unsigned version, struct store_content *ret, uint64_t *ret_commits,
	       struct error *err)
{
	_cleanup_(claim_content_done) struct store_content content = { 0 };
	uint64_t commits = 0;
	int r;

	r = load_commits(sql, &commits, err);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(tables); i++)
		r = load_table(sql, version, i, &content, err);
	if (r < 0)
		return r;
	*ret = content;
	content = (struct store_content){ 0 };
	*ret_commits = commits;
	return 0;
}

void claim_content_done(struct store_content *c)
{
	for (unsigned i = 0; i < c->n_cards; i++) {
		free(c->cards[i].catalogue);
		free(c->cards[i].recovery);
	}
	free(c->claims);
	free(c->undos);
	free(c->cards);
	free(c->adoptable);
	*c = (struct store_content){ 0 };
}
