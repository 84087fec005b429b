/* SPDX-License-Identifier: Apache-2.0 */
/* The settings, and what the daemon says. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/probe.h"
#include "client/http-client.h"

#define ANSWER_USEC (5 * USEC_PER_SEC)
#define LOOK_USEC   (5 * USEC_PER_SEC)

/* --- Settings -------------------------------------------------------------------------------- */

struct config_text {
	int error;
	size_t len;
	char text[CONFIG_BYTES_MAX + 1];
};

/* In a child: the file may be on a file server that does not answer. */
static void read_text(const void *context, void *memory)
{
	const struct doctor *d = context;
	struct config_text *t = memory;
	_free_ char *text = NULL;

	t->error = file_read_at(AT_FDCWD, d->config_path, CONFIG_BYTES_MAX, &text, &t->len);
	if (t->error == 0)
		memcpy(t->text, text, t->len);
}

/* 0; -EINVAL or -EFBIG where the text is refused; else -errno of reading it. */
static int load_config(struct doctor *d, struct error *err)
{
	struct config_text *t = doctor_probe_memory(sizeof *t);
	int r;

	if (!t)
		return error_set_errno(err, ENOMEM, "settings");
	r = doctor_probe_run(read_text, d, t, LOOK_USEC);
	if (r == 0 && (t->error == 0 || t->error == -EFBIG)) {
		r = config_parse(t->text, t->error == 0 ? t->len : sizeof t->text, d->config_path,
				 &d->config, err);
	} else if (r == -ETIMEDOUT) {
		error_set(err, ETIMEDOUT, "%.150s: no answer within 5 s", d->config_path);
	} else {
		int code = r < 0 ? r : t->error;

		error_set(err, -code, "%.150s: cannot be read: %s", d->config_path,
			  strerrordesc_np(-code));
		/* Refused is something else. */
		r = code == -EINVAL ? -EIO : code;
	}
	munmap(t, sizeof *t);
	return r;
}

int doctor_read_config(struct doctor *d)
{
	struct error err = ERROR_INIT;
	int r;

	r = load_config(d, &err);
	if (r == 0) {
		d->config_read = true;
		return 0;
	}
	if (r == -ENOENT && !d->config_given) {
		doctor_report_add(&d->report, DOCTOR_CONFIG_DEFAULTS, d->config_path,
				  "%s is not there", d->config_path);
		d->config_read = true;
	} else if (r == -EINVAL || r == -EFBIG) {
		doctor_report_add(&d->report, DOCTOR_CONFIG_INVALID, d->config_path, "%s",
				  error_text(&err));
	} else {
		doctor_report_add(&d->report, DOCTOR_CONFIG_UNREADABLE, d->config_path, "%s",
				  error_text(&err));
	}
	return config_default(&d->config);
}

/* --- The daemon ------------------------------------------------------------------------------ */

/* The JSON of a GET; NULL with the reason. */
static json_t *get(struct doctor *d, const char *path, int *ret_status, struct error *err)
{
	_answer_ struct http_answer answer = { 0 };
	json_t *json;

	*ret_status = http_client_request(d->socket, "GET", path, NULL, ANSWER_USEC, &answer, err);
	if (*ret_status < 0)
		return NULL;
	*ret_status = answer.status;
	json = json_loadb(answer.body, answer.len, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(json))
		return json;
	json_decref(json);
	error_set(err, EBADMSG, "the answer to GET %s (status %d) is no JSON object", path,
		  answer.status);
	return NULL;
}

/* Why nobody answers. A socket that is not there and one that refuses are different faults. */
static void explain_silence(struct doctor *d, const struct error *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int cause = 0;

	if (fd < 0 || str_copy(addr.sun_path, sizeof addr.sun_path, d->socket) < 0)
		cause = ENAMETOOLONG;
	else if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0)
		cause = errno;
	str_copy_cut(d->no_daemon, sizeof d->no_daemon, "berthd does not answer");
	if (cause == ENOENT || cause == ENOTDIR || cause == ENAMETOOLONG) {
		doctor_report_add(&d->report, DOCTOR_DAEMON_ABSENT, d->socket,
				  "there is no socket %s", d->socket);
		str_copy_cut(d->no_daemon, sizeof d->no_daemon, "berthd is not running");
	} else if (cause == ECONNREFUSED || cause == ENOTSOCK || cause == EPROTOTYPE) {
		doctor_report_add(&d->report, DOCTOR_DAEMON_REFUSED, d->socket, "%s: %s", d->socket,
				  strerrordesc_np(cause));
		str_copy_cut(d->no_daemon, sizeof d->no_daemon, "berthd is not running");
	} else if (cause == EACCES || cause == EPERM) {
		doctor_report_add(&d->report, DOCTOR_DAEMON_FORBIDDEN, d->socket, "%s: %s",
				  d->socket, strerrordesc_np(cause));
		str_copy_cut(d->no_daemon, sizeof d->no_daemon, "you may not use berthd's socket");
	} else {
		doctor_report_add(&d->report, DOCTOR_DAEMON_SILENT, d->socket, "%s",
				  error_text(err));
	}
	doctor_report_not_made(&d->report, DOCTOR_CHECK_DAEMON, "%s", d->no_daemon);
}

/* Who listens, as this process numbers it: berthd may be in a PID namespace of its own, and then
 * knows another number. 0: cannot be told. */
static pid_t find_listener(const struct doctor *d)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (fd < 0 || str_copy(addr.sun_path, sizeof addr.sun_path, d->socket) < 0 ||
	    connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return 0;
	return peer.pid;
}

static void judge_daemon(struct doctor *d)
{
	char version[CLI_FIELD_SIZE], reason[CLI_FIELD_SIZE];

	cli_field(d->status, "version", version, sizeof version);
	if (strcmp(version, BERTH_VERSION) != 0)
		doctor_report_add(&d->report, DOCTOR_DAEMON_VERSION, "berthd",
				  "berthd is %s, this program is " BERTH_VERSION, version);
	/* The stores have findings of their own. */
	if (!json_is_true(json_object_get(d->status, "ready")) &&
	    !strstr(cli_field(json_object_get(d->status, "claims_store"), "state", version,
			      sizeof version),
		    "unreadable"))
		doctor_report_add(&d->report, DOCTOR_DAEMON_NOT_READY, "berthd", "%s",
				  cli_field(d->status, "reason", reason, sizeof reason));
	doctor_report_made(&d->report, DOCTOR_CHECK_DAEMON);
}

static bool is_list_of_objects(const json_t *list)
{
	const json_t *row;
	size_t i;

	json_array_foreach(list, i, row)
		if (!json_is_object(row))
			return false;
	return json_is_array(list);
}

/* The answer to `path`, which is to have a list of objects under `key`. A refusal leaves *ret NULL
 * and is told by *ret_status. Negative when it is no such answer. */
static int get_list(struct doctor *d, const char *path, const char *key, json_t **ret,
		    int *ret_status, struct error *err)
{
	json_t *json = get(d, path, ret_status, err);

	if (!json)
		return -EBADMSG;
	if (*ret_status == 200 && is_list_of_objects(json_object_get(json, key))) {
		*ret = json;
		return 0;
	}
	json_decref(json);
	if (*ret_status != 200)
		return 0;
	return error_set(err, EBADMSG, "the answer to GET %s has no list of %s", path, key);
}

/* 0, or negative and why it cannot be used. */
static int ask_lists(struct doctor *d, struct error *err)
{
	int status, r = get_list(d, "/gpus", "gpus", &d->gpus, &status, err);

	if (r == 0 && !d->gpus)
		return error_set(err, EBADMSG, "GET /gpus answers with status %d", status);
	if (r == 0)
		r = get_list(d, "/claims", "claims", &d->claims, &status, err);
	if (r == 0 && !d->claims)
		/* It refuses while it cannot read them. All else is to be had. */
		snprintf(d->no_claims, sizeof d->no_claims,
			 "berthd does not list the claims (GET /claims answers with status %d)",
			 status);
	return r;
}

void doctor_ask_daemon(struct doctor *d)
{
	struct error err = ERROR_INIT;
	int status;

	d->status = get(d, "/status", &status, &err);
	/* A berthd of before that question: it is there all the same. */
	if (d->status && status == 404) {
		json_decref(d->status);
		d->status = NULL;
		doctor_report_add(
			&d->report, DOCTOR_DAEMON_VERSION, "berthd",
			"berthd does not know GET /status, this program is " BERTH_VERSION);
		doctor_report_not_made(&d->report, DOCTOR_CHECK_DAEMON, "berthd is too old");
		str_copy_cut(d->no_daemon, sizeof d->no_daemon, "berthd is too old to be asked");
		return;
	}
	if (d->status && status != 200) {
		error_set(&err, EBADMSG, "GET /status answers with status %d", status);
		json_decref(d->status);
		d->status = NULL;
	}
	if (!d->status || ask_lists(d, &err) < 0) {
		json_decref(d->status);
		json_decref(d->gpus);
		d->status = d->gpus = NULL;
		explain_silence(d, &err);
		return;
	}
	/* With socket activation systemd is the one that listens. */
	d->daemon_pids[0] = find_listener(d);
	d->daemon_pids[1] = (pid_t)cli_field_int(d->status, "pid", 0);
	judge_daemon(d);
}
