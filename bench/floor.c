/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench-floor LIBRARY DATABASE BDF...: what no claim can be faster than. For each line on standard
 * input it asks the NVML library for the creatable placements of every type of every card (the
 * types and their supported placements being known), commits one row twice to a SQLite database as
 * durably as claims are, and prints how long each took as one JSON line. Nothing of berth is used
 * but its clock and the declarations of the library.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "nvml/abi.h"

#define CARDS_MAX 64
#define LIST_MAX  256
#define SUCCESS	  NVML_CODE_SUCCESS

typedef int (*placements_fn)(struct nvml_device *d, uint32_t type, void *list);

struct card {
	const char *address;
	unsigned n_types; /* with supported placements */
	uint32_t types[LIST_MAX];
};

static struct {
	int (*init)(void);
	int (*device_by_pci)(const char *address, struct nvml_device **ret);
	int (*mode)(struct nvml_device *d, struct nvml_abi_mode *mode);
	int (*supported_types)(struct nvml_device *d, unsigned *count, uint32_t *ids);
	placements_fn supported, creatable;
} nvml;

static struct card cards[CARDS_MAX];
static unsigned n_cards;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "bench-floor: %s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

static void check(int code, const char *what)
{
	char text[24];

	snprintf(text, sizeof text, "NVML says %d", code);
	if (code != SUCCESS)
		fail(what, text);
}

/* Pointers to functions and to data are as large on every system that has NVML. */
static void load(void *handle, const char *name, void *ret)
{
	void *address = dlsym(handle, name);

	if (!address)
		fail(name, "not in the library");
	memcpy(ret, &address, sizeof address);
}

static void load_library(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		fail(path, dlerror());
	load(handle, "nvmlInit_v2", &nvml.init);
	load(handle, "nvmlDeviceGetHandleByPciBusId_v2", &nvml.device_by_pci);
	load(handle, "nvmlDeviceGetVgpuHeterogeneousMode", &nvml.mode);
	load(handle, "nvmlDeviceGetSupportedVgpus", &nvml.supported_types);
	load(handle, "nvmlDeviceGetVgpuTypeSupportedPlacements", &nvml.supported);
	load(handle, "nvmlDeviceGetVgpuTypeCreatablePlacements", &nvml.creatable);
}

/* How many placements the list has; -1 where NVML has none for this type. */
static int ask_placements(placements_fn call, struct nvml_device *d, uint32_t type)
{
	uint32_t ids[LIST_MAX];
	struct nvml_abi_placements_v2 list = { .version = NVML_ABI_PLACEMENTS_V2_VERSION,
					       .count = LIST_MAX,
					       .ids = ids,
					       .mode = NVML_ABI_PLACEMENTS_MIXED };

	return call(d, type, &list) == SUCCESS ? (int)list.count : -1;
}

static struct nvml_device *find_device(const struct card *c)
{
	struct nvml_abi_mode mode = { .version = NVML_ABI_MODE_VERSION };
	struct nvml_device *d = NULL;

	check(nvml.device_by_pci(c->address, &d), c->address);
	check(nvml.mode(d, &mode), "mode");
	if (mode.mode != NVML_ABI_MODE_ENABLED)
		fail(c->address, "not in mixed-size mode");
	return d;
}

static void learn_types(struct card *c)
{
	struct nvml_device *d = find_device(c);
	uint32_t ids[LIST_MAX];
	unsigned n = LIST_MAX;

	check(nvml.supported_types(d, &n, ids), "supported types");
	for (unsigned i = 0; i < n; i++)
		if (ask_placements(nvml.supported, d, ids[i]) > 0)
			c->types[c->n_types++] = ids[i];
}

static void sweep(void)
{
	for (unsigned i = 0; i < n_cards; i++) {
		struct nvml_device *d = find_device(&cards[i]);
		uint32_t ids[LIST_MAX];
		unsigned n = LIST_MAX;

		check(nvml.supported_types(d, &n, ids), "supported types");
		for (unsigned t = 0; t < cards[i].n_types; t++)
			if (ask_placements(nvml.creatable, d, cards[i].types[t]) < 0)
				fail(cards[i].address, "no creatable placements");
	}
}

static void execute(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail(sql, sqlite3_errmsg(db));
}

static sqlite3 *open_database(const char *path)
{
	sqlite3 *db = NULL;

	if (sqlite3_open(path, &db) != SQLITE_OK)
		fail(path, sqlite3_errmsg(db));
	execute(db,
		"PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = "
		"0;"
		"CREATE TABLE IF NOT EXISTS claims (name TEXT PRIMARY KEY, state TEXT, rest BLOB)");
	return db;
}

static void commit(sqlite3 *db, const char *state, unsigned round)
{
	char sql[200];

	snprintf(sql, sizeof sql,
		 "INSERT OR REPLACE INTO claims VALUES ('floor-%u', '%s', zeroblob(200))", round,
		 state);
	execute(db, sql);
}

int main(int argc, char **argv)
{
	char line[16];
	sqlite3 *db;

	if (argc < 4 || argc - 3 > CARDS_MAX) {
		fputs("Usage: bench-floor LIBRARY DATABASE BDF... <ONE-LINE-PER-ROUND\n", stderr);
		return 2;
	}
	load_library(argv[1]);
	check(nvml.init(), "nvmlInit_v2");
	db = open_database(argv[2]);
	for (; n_cards < (unsigned)argc - 3; n_cards++) {
		cards[n_cards].address = argv[3 + n_cards];
		learn_types(&cards[n_cards]);
	}
	for (unsigned round = 0; fgets(line, sizeof line, stdin); round++) {
		uint64_t begun = clock_now_usec(), swept;

		sweep();
		swept = clock_now_usec();
		commit(db, "intent", round);
		commit(db, "bound", round);
		printf("{\"sweep_usec\": %" PRIu64 ", \"commits_usec\": %" PRIu64 "}\n",
		       swept - begun, clock_now_usec() - swept);
		fflush(stdout);
	}
	sqlite3_close(db);
	return EXIT_SUCCESS;
}
