/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/simcommand.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "sim/simcommand-internal.h"
#include "sim/simfault.h"
#include "sim/simfuse.h"
#include "sim/simguest.h"
#include "sim/simnvml.h"
#include "sim/simstate.h"

const char simcommand_help[] =
	"  state                          everything as JSON\n"
	"  set KEY VALUE [--gpu BDF] [--vf BDF] [--for SECONDS]\n"
	"  configure VF TYPE              a foreign write: type id or profile name, 0 clears\n"
	"  boot VF [--console FILE] [--init-ms 8000] [--node group|cdev|both] [--prefix BERTH]\n"
	"  wedge VF                       its guests fail from now on\n"
	"  sriov -e|-d GPU                as sriov-manage\n"
	"  remove GPU|VF, restore GPU|VF  off the bus, and back (free)\n"
	"  flap GPU [--hz 100] [--for 1]  its free VFs go and come back\n"
	"  rebind VF vfio-pci|nvidia      bind by hand\n"
	"  group VF NUMBER                move a VF to another IOMMU group\n"
	"  gi GPU [PROFILE...]            GPU instances of a card in MIG mode\n"
	"  xid GPU NUMBER                 an Xid event for NVML clients\n"
	"  reboot                         new boot id; what does not survive is lost\n";

static void on_faults_changed(void *userdata)
{
	struct simcommand *c = userdata;
	struct error err = ERROR_INIT;

	simfuse_changed(c->parts.sys);
	if (simnvml_changed(c->parts.nvml, &err) < 0)
		log_warning("nvml: %s, ignoring", error_text(&err));
}

int simcommand_new(const struct simcommand_parts *parts, struct simcommand **ret)
{
	struct simcommand *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->parts = *parts;
	c->sim = parts->sim;
	r = simfault_new(c->sim, parts->event, on_faults_changed, c, &c->faults);
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct simcommand *simcommand_free(struct simcommand *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < SIMCOMMAND_JOBS_MAX; i++)
		sd_event_source_disable_unref(c->jobs[i].timer);
	simfault_free(c->faults);
	free(c);
	return NULL;
}

void simcommand_forget(struct simcommand *c, const void *userdata)
{
	for (size_t i = 0; i < SIMCOMMAND_JOBS_MAX; i++)
		if (c->jobs[i].used && c->jobs[i].userdata == userdata)
			c->jobs[i].answer = NULL;
	simguests_forget(c->parts.guests, userdata);
}

void simcommand_done(const struct request *q, const char *out)
{
	q->answer(q->userdata, 0, out, "");
}

void simcommand_refuse(const struct request *q, int status, const char *fmt, ...)
{
	char text[512];
	va_list args;
	size_t n;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text) - 1, fmt, args);
	va_end(args);
	n = strlen(text);
	text[n] = '\n';
	text[n + 1] = '\0';
	q->answer(q->userdata, status, "", text);
}

struct sim_card *simcommand_card(const struct request *q, const char *address)
{
	struct sim_card *card = sim_find_card(q->c->sim, address);

	if (!card)
		simcommand_refuse(q, 1, "no GPU %s", address);
	return card;
}

static struct sim_vf *vf_argument(const struct request *q, const char *address)
{
	struct sim_vf *vf = sim_find_vf(q->c->sim, address);

	if (!vf)
		simcommand_refuse(q, 1, "no VF %s", address);
	return vf;
}

static void cmd_state(const struct request *q)
{
	_free_ char *text = simstate_render(q->c->sim);

	if (text)
		simcommand_done(q, text);
	else
		simcommand_refuse(q, 1, "out of memory");
}

int simcommand_seconds(const char *text, uint64_t *ret_usec)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end != '\0' || !isfinite(seconds) || seconds <= 0 || seconds > 1e6)
		return -EINVAL;
	*ret_usec = (uint64_t)(seconds * USEC_PER_SEC);
	return 0;
}

static void cmd_set(const struct request *q)
{
	struct error err = ERROR_INIT;
	struct sim_card *card = NULL;
	struct sim_vf *vf = NULL;
	uint64_t for_usec = 0;
	int r;

	if (q->for_seconds && simcommand_seconds(q->for_seconds, &for_usec) < 0) {
		simcommand_refuse(q, 2, "'%s' is no number of seconds", q->for_seconds);
		return;
	}
	if (q->gpu && !(card = simcommand_card(q, q->gpu)))
		return;
	if (q->vf && !(vf = vf_argument(q, q->vf)))
		return;
	r = simfault_set(q->c->faults, q->argv[1], q->argv[2], card, vf, for_usec, &err);
	if (r < 0)
		simcommand_refuse(q, r == -EINVAL ? 2 : 1, "%s", error_text(&err));
	else
		simcommand_done(q, "");
}

static void cmd_configure(const struct request *q)
{
	struct sim_vf *vf = vf_argument(q, q->argv[1]);
	const struct sim_type *type;
	uint32_t id;
	int r;

	if (!vf)
		return;
	if (str_to_u32(q->argv[2], &id) < 0) {
		type = sim_model_type_by_name(vf->card->model, q->argv[2]);
		if (!type) {
			simcommand_refuse(q, 1, "%s has no type '%s'", vf->card->model->product,
					  q->argv[2]);
			return;
		}
		id = type->id;
	}
	r = sim_vf_write_type(vf, id);
	if (r < 0)
		simcommand_refuse(q, 1, "%s: %s (%s)", vf->address, strerror(-r),
				  strerrorname_np(-r));
	else
		simcommand_done(q, "");
}

static void on_guest_started(void *userdata, pid_t pid, int result)
{
	struct job *job = userdata;
	char text[64];

	if (result == 0)
		snprintf(text, sizeof(text), "%d\n", (int)pid);
	else
		snprintf(text, sizeof(text), "the guest could not start: %s\n", strerror(-result));
	if (job->answer)
		job->answer(job->userdata, result ? 1 : 0, result ? "" : text, result ? text : "");
	job->used = false;
}

struct job *simcommand_job(const struct request *q)
{
	for (size_t i = 0; i < SIMCOMMAND_JOBS_MAX; i++) {
		struct job *job = &q->c->jobs[i];

		if (job->used)
			continue;
		*job = (struct job){
			.owner = q->c, .used = true, .answer = q->answer, .userdata = q->userdata
		};
		return job;
	}
	simcommand_refuse(q, 1, "too many commands at once");
	return NULL;
}

static void cmd_boot(const struct request *q)
{
	struct sim_vf *vf = vf_argument(q, q->argv[1]);
	struct simguest_options options = { .prefix = q->prefix ?: "BERTH",
					    .node = q->node ?: "group" };
	struct error err = ERROR_INIT;
	_free_ char *console = NULL;
	uint32_t init_ms = 8000;
	struct job *job;

	if (!vf)
		return;
	if ((q->init_ms && str_to_u32(q->init_ms, &init_ms) < 0) ||
	    (strcmp(options.node, "group") != 0 && strcmp(options.node, "cdev") != 0 &&
	     strcmp(options.node, "both") != 0)) {
		simcommand_refuse(q, 2,
				  "boot: --init-ms is a number, --node is group, cdev or both");
		return;
	}
	if (q->console) {
		console = *q->console == '/' ? strdup(q->console)
					     : str_printf("%s/%s", q->cwd, q->console);
		options.console = console;
	}
	options.init_usec = init_ms * USEC_PER_MSEC;
	job = simcommand_job(q);
	if (!job)
		return;
	if (simguests_boot(q->c->parts.guests, vf, &options, on_guest_started, job, &err) < 0) {
		job->used = false;
		simcommand_refuse(q, 1, "%s", error_text(&err));
	}
}

static void cmd_wedge(const struct request *q)
{
	struct sim_vf *vf = vf_argument(q, q->argv[1]);

	if (!vf)
		return;
	vf->wedged = true;
	simcommand_done(q, "");
}

static void cmd_rebind(const struct request *q)
{
	struct sim_vf *vf = vf_argument(q, q->argv[1]);
	int r;

	if (!vf)
		return;
	r = sim_vf_rebind(vf, q->argv[2]);
	if (r < 0)
		simcommand_refuse(q, r == -EINVAL ? 2 : 1, "%s: cannot bind to %s: %s", vf->address,
				  q->argv[2], strerror(-r));
	else
		simcommand_done(q, "");
}

static void cmd_group(const struct request *q)
{
	struct sim_vf *vf = vf_argument(q, q->argv[1]);
	uint32_t group;

	if (!vf)
		return;
	if (str_to_u32(q->argv[2], &group) < 0) {
		simcommand_refuse(q, 2, "group: '%s' is no number", q->argv[2]);
	} else if (vf->open_count > 0) {
		simcommand_refuse(q, 1, "%s is open", vf->address);
	} else {
		vf->group = group;
		simcommand_done(q, "");
	}
}

static void cmd_gi(const struct request *q)
{
	struct sim_card *card = simcommand_card(q, q->argv[1]);
	int r;

	if (!card)
		return;
	r = sim_card_set_gis(card, q->argv + 2, (size_t)(q->argc - 2));
	if (r < 0)
		simcommand_refuse(q, 1, "%s: %s", card->address,
				  r == -EBUSY ? "a vGPU is configured"
					      : "not in MIG mode, or no such layout");
	else
		simcommand_done(q, "");
}

static void cmd_xid(const struct request *q)
{
	struct sim_card *card = simcommand_card(q, q->argv[1]);
	uint64_t xid;

	if (!card)
		return;
	if (str_to_u64(q->argv[2], &xid) < 0) {
		simcommand_refuse(q, 2, "xid: '%s' is no number", q->argv[2]);
		return;
	}
	simnvml_raise_xid(q->c->parts.nvml, card, xid);
	simcommand_done(q, "");
}

static const struct command {
	const char *name;
	int min, max; /* positional arguments behind the name */
	void (*run)(const struct request *q);
} commands[] = {
	{ "state", 0, 0, cmd_state },
	{ "set", 2, 2, cmd_set },
	{ "configure", 2, 2, cmd_configure },
	{ "boot", 1, 1, cmd_boot },
	{ "wedge", 1, 1, cmd_wedge },
	{ "sriov", 1, 1, simcommand_sriov },
	{ "remove", 1, 1, simcommand_remove },
	{ "restore", 1, 1, simcommand_restore },
	{ "flap", 1, 1, simcommand_flap },
	{ "rebind", 2, 2, cmd_rebind },
	{ "group", 2, 2, cmd_group },
	{ "gi", 1, 1 + SIM_GIS_MAX, cmd_gi },
	{ "xid", 2, 2, cmd_xid },
	{ "reboot", 0, 0, simcommand_reboot },
};

/* "--name VALUE" or "--name=VALUE"; NULL if there is no value. Advances *i. */
static const char *option_value(int argc, const char *const argv[], int *i)
{
	const char *equals = strchr(argv[*i], '=');

	if (equals)
		return equals + 1;
	return *i + 1 < argc ? argv[++*i] : NULL;
}

static bool parse_request(int argc, const char *const argv[], struct request *q)
{
	const struct {
		const char *name;
		const char **value;
	} options[] = {
		{ "--gpu", &q->gpu },	      { "--vf", &q->vf },
		{ "--for", &q->for_seconds }, { "--console", &q->console },
		{ "--init-ms", &q->init_ms }, { "--node", &q->node },
		{ "--prefix", &q->prefix },   { "--hz", &q->hz },
	};

	for (int i = 0; i < argc; i++) {
		size_t n = strcspn(argv[i], "="), k;

		if (strcmp(argv[i], "-e") == 0 || strcmp(argv[i], "-d") == 0) {
			*(argv[i][1] == 'e' ? &q->enable : &q->disable) = true;
			continue;
		}
		if (!str_starts_with(argv[i], "--")) {
			q->argv[q->argc++] = argv[i];
			continue;
		}
		for (k = 0; k < ARRAY_SIZE(options); k++)
			if (strlen(options[k].name) == n &&
			    strncmp(options[k].name, argv[i], n) == 0)
				break;
		if (k == ARRAY_SIZE(options)) {
			simcommand_refuse(q, 2, "unknown option '%s'", argv[i]);
			return false;
		}
		*options[k].value = option_value(argc, argv, &i);
		if (!*options[k].value) {
			simcommand_refuse(q, 2, "%s needs a value", options[k].name);
			return false;
		}
	}
	return true;
}

void simcommand_run(struct simcommand *c, int argc, const char *const argv[], const char *cwd,
		    simcommand_answer answer, void *userdata)
{
	struct request q = { .c = c, .cwd = cwd, .answer = answer, .userdata = userdata };

	/* What happened before the command is to be known to it: a close, a write. */
	simfuse_drain(c->parts.dev);
	simfuse_drain(c->parts.sys);
	if (argc > SIMCOMMAND_ARGS_MAX || !parse_request(argc, argv, &q))
		return;
	if (q.argc == 0) {
		simcommand_refuse(&q, 2, "no command; berth-sim --help lists them");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		const struct command *command = &commands[i];

		if (strcmp(command->name, q.argv[0]) != 0)
			continue;
		if (q.argc - 1 < command->min || q.argc - 1 > command->max)
			simcommand_refuse(
				&q, 2, "%s: wrong number of arguments; berth-sim --help shows them",
				command->name);
		else
			command->run(&q);
		return;
	}
	simcommand_refuse(&q, 2, "unknown command '%s'", q.argv[0]);
}
