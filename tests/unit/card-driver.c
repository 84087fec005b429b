/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A card client on standard input and output, for tests that need the simulator: each line is an
 * operation ("configure VF TYPE [PLACEMENT [pin]]", "release VF TYPE", "read|list|scan VF..."),
 * each line of output a JSON object: a state change or the end of the operation with that number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "host/card-client.h"
#include "model/outcome.h"
#include "model/placement.h"

struct driver {
	sd_event *event;
	struct card_client *client;
	unsigned n_submitted;
};

struct pending {
	unsigned number;
};

static void print(json_t *object)
{
	if (!object || json_dumpf(object, stdout, JSON_COMPACT) < 0)
		exit(EXIT_FAILURE);
	json_decref(object);
	putchar('\n');
	fflush(stdout);
}

static const char *state_name(enum card_client_state state)
{
	switch (state) {
	case CARD_CLIENT_STARTING:
		return "starting";
	case CARD_CLIENT_READY:
		return "ready";
	case CARD_CLIENT_STUCK:
		return "stuck";
	}
	return "?";
}

static void state_changed(struct card_client *c, enum card_client_state state, void *userdata)
{
	(void)userdata;
	print(json_pack("{s:s, s:s, s:i}", "state", state_name(state), "reason",
			card_client_reason(c), "pid", (int)card_client_pid(c)));
}

static const char *const step_names[] = {
	"done", "before", "scan", "changed", "write", "read_back"
};
static const char *const open_names[] = { "unknown", "no", "yes" };

static void done(const struct card_reply *reply, void *userdata)
{
	_free_ struct pending *pending = userdata;
	json_t *vfs = json_array();
	char bdf[PCI_ADDR_MAX];

	for (unsigned i = 0; i < reply->n_vfs; i++) {
		const struct card_vf_state *vf = &reply->vfs[i];

		json_array_append_new(vfs,
				      json_pack("{s:s, s:i, s:i, s:o, s:b, s:s, s:i}", "address",
						pci_addr_format(vf->address, bdf), "error",
						vf->error, "type", (int)vf->type_id, "placement",
						vf->placement_id == PLACEMENT_NONE
							? json_null()
							: json_integer(vf->placement_id),
						"has_placement_file", vf->has_placement_file,
						"open", open_names[vf->open], "listed",
						__builtin_popcountll(reply->lists[i][0]) +
							__builtin_popcountll(reply->lists[i][1])));
	}
	print(json_pack("{s:i, s:s, s:i, s:b, s:s, s:b, s:b, s:i, s:b, s:s, s:s, s:i, s:o}",
			"number", (int)pending->number, "op", card_op_name(reply->op), "result",
			reply->result, "driver_stuck", reply->result == -E_DRIVER_STUCK, "step",
			step_names[reply->step], "undone", reply->undone, "steered", reply->steered,
			"steer_error", reply->steer_error, "partial", reply->scan_partial, "holder",
			reply->holder, "text", reply->text, "types", (int)reply->types.n, "vfs",
			vfs));
}

static bool parse(char *line, struct card_request *ret)
{
	static const char *const names[] = { "", "read", "list", "configure", "release", "scan" };
	char *save, *word = strtok_r(line, " \n", &save);

	*ret = (struct card_request){ .placement_id = PLACEMENT_NONE };
	for (int op = CARD_OP_READ; word && op <= CARD_OP_SCAN; op++)
		if (strcmp(word, names[op]) == 0)
			ret->op = (enum card_op)op;
	while ((word = strtok_r(NULL, " \n", &save))) {
		uint32_t number;

		if (pci_addr_parse(word, &ret->vfs[ret->n_vfs]) == 0 &&
		    ret->n_vfs < CARD_VFS_MAX - 1)
			ret->n_vfs++;
		else if (strcmp(word, "pin") == 0)
			ret->pin = true;
		else if (str_to_u32(word, &number) < 0)
			return false;
		else if (ret->type_id == 0)
			ret->type_id = number;
		else
			ret->placement_id = (uint16_t)number;
	}
	return ret->op != 0;
}

static int input(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct driver *d = userdata;
	struct card_request request;
	struct pending *pending;
	char line[4096];

	(void)source;
	(void)fd;
	(void)revents;
	if (!fgets(line, sizeof line, stdin))
		return sd_event_exit(d->event, 0);
	pending = malloc(sizeof *pending);
	if (!pending || !parse(line, &request))
		return sd_event_exit(d->event, 2);
	pending->number = d->n_submitted++;
	int r = card_client_submit(d->client, &request, done, pending);
	if (r < 0) {
		print(json_pack("{s:i, s:s, s:i}", "number", (int)pending->number, "op", "refused",
				"result", r));
		free(pending);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct driver d = { 0 };
	struct card_client_config config = { .proc_root = "/proc", .state_changed = state_changed };
	uint32_t timeout_ms;
	int status;

	if (argc != 6 || pci_addr_parse(argv[1], &config.card) < 0 ||
	    str_to_u32(argv[5], &timeout_ms) < 0) {
		fprintf(stderr,
			"usage: card-driver CARD SYSFS-ROOT DEV-ROOT LOCK-DIR TIMEOUT-MS\n");
		return 2;
	}
	/* A line of input wakes us once; nothing may wait in a buffer behind it. */
	setvbuf(stdin, NULL, _IONBF, 0);
	config.sysfs_root = argv[2];
	config.dev_root = argv[3];
	config.lock_dir = argv[4];
	config.timeout_usec = timeout_ms * UINT64_C(1000);
	if (sd_event_new(&d.event) < 0)
		return EXIT_FAILURE;
	config.event = d.event;
	if (card_client_new(&config, &d.client, NULL) < 0 ||
	    sd_event_add_io(d.event, NULL, STDIN_FILENO, EPOLLIN, input, &d) < 0)
		return EXIT_FAILURE;
	status = sd_event_loop(d.event);
	card_client_free(d.client);
	sd_event_unref(d.event);
	return status;
}
