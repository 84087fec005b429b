/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/kubelet.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "plugin/device-plugin.h"
#include "proto/deviceplugin.pb-c.h"

#define KUBELET_SOCKET	    "kubelet.sock"
#define SLOTS_MAX	    10
#define SETTLE_USEC	    (50 * USEC_PER_MSEC) /* after a change in the folder: more may follow */
#define REGISTER_LIMIT_USEC (10 * USEC_PER_SEC)
#define WATCH_LIMIT_USEC    (10 * USEC_PER_SEC) /* from Register to ListAndWatch */
#define BACKOFF_MIN_USEC    (500 * USEC_PER_MSEC)
#define BACKOFF_MAX_USEC    (60 * USEC_PER_SEC)
#define STEADY_USEC	    (30 * USEC_PER_SEC) /* a registration that lasted longer was left alone */
#define SOCKET_NAME_LONGEST 32
#define WATCH_MASK                                                                                 \
	(IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF |     \
	 IN_ONLYDIR)

struct file_id {
	dev_t dev;
	ino_t ino;
	struct timespec changed; /* inode numbers are used again at once by some file systems */
};

struct kubelet {
	struct plugin *plugin;
	sd_event_source *inotify, *timer;
	bool inotify_complained;
	struct file_id folder; /* what is watched; zeros: nothing */
	bool folder_there;
	bool there, was_there;
	struct file_id socket; /* of the kubelet */
	char socket_path[108];
};

static bool same_file(const struct file_id *a, const struct file_id *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->changed.tv_sec == b->changed.tv_sec &&
	       a->changed.tv_nsec == b->changed.tv_nsec;
}

/* --- Names ----------------------------------------------------------------------------------- */

int kubelet_check_folder(const char *folder, struct error *err)
{
	size_t limit = sizeof((struct sockaddr_un *)NULL)->sun_path - 1 - SOCKET_NAME_LONGEST - 1;

	if (folder[0] != '/')
		return error_set(err, EINVAL, "%s: the kubelet's folder has to be an absolute path",
				 folder);
	if (strlen(folder) > limit)
		return error_set(
			err, ENAMETOOLONG,
			"%s: the folder's path has %zu bytes; with more than %zu its sockets would "
			"exceed the 107 bytes of a socket address",
			folder, strlen(folder), limit);
	return 0;
}

void kubelet_socket_name(const char *resource, unsigned slot, char ret[static 48])
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *resource; resource++)
		h = (h ^ (unsigned char)*resource) * UINT64_C(0x100000001b3);
	h ^= h >> 32;
	h *= UINT64_C(0x9e3779b97f4a7c15);
	snprintf(ret, 48, "berth-%016" PRIx64 "-%u.sock", h ^ h >> 29, slot);
}

static void socket_path(const struct kubelet *k, const char *name, char *ret, size_t size)
{
	snprintf(ret, size, "%s/%s", k->plugin->options.kubelet_dir, name);
}

/* Does somebody serve there? Another instance in a rolling update, whose socket is not ours to
 * take. */
static bool is_alive(const char *path)
{
	_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (fd < 0 || str_copy(address.sun_path, sizeof address.sun_path, path) < 0)
		return false;
	return connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN;
}

/* --- Registering ----------------------------------------------------------------------------- */

/* Later attempts come later; what comes meanwhile (a new kubelet) sets this back. */
static void back_off(struct device_plugin *dp)
{
	dp->backoff_usec = MIN(BACKOFF_MAX_USEC, MAX(BACKOFF_MIN_USEC, dp->backoff_usec * 2));
	dp->next_try_usec = clock_now_usec() + dp->backoff_usec;
}

/* Says it when it begins or changes. */
static void complain(struct device_plugin *dp, const char *text)
{
	if (dp->complained && strcmp(text, dp->last_problem) == 0)
		return;
	dp->complained = true;
	str_copy_cut(dp->last_problem, sizeof dp->last_problem, text);
	log_warning("plugin: not registered, retrying resource=%s: %s", dp->resource, text);
}

/* The kubelet goes on, but ours is not registered any more. Once may be an accident; what comes
 * soon after it is somebody who wants the same name. Said once, and answered less and less often.
 */
static void lose(struct device_plugin *dp, const char *how)
{
	if (++dp->losses == 2)
		log_warning("plugin: it loses its registration again and again, trying less and "
			    "less often; does another program offer the same? resource=%s: %s",
			    dp->resource, how);
	str_copy_cut(dp->last_problem, sizeof dp->last_problem, how);
	dp->complained = true;
	dp->registered = false;
	back_off(dp);
}

static void forget_losses(struct device_plugin *dp)
{
	if (dp->losses >= 2)
		log_notice("plugin: keeps its registration again resource=%s", dp->resource);
	dp->losses = 0;
	dp->backoff_usec = 0;
}

static void register_done(struct grpc_unary *call, const struct grpc_reply *reply, void *userdata)
{
	struct device_plugin *dp = userdata;
	char text[160];

	(void)call;
	dp->call = grpc_unary_free(dp->call);
	if (reply->status == GRPC_OK) {
		dp->registered = true;
		dp->registered_usec = clock_now_usec();
		plugin_metrics_registered(&dp->plugin->metrics, dp->resource, true);
		if (dp->losses < 2)
			log_notice("plugin: registered resource=%s", dp->resource);
		dp->complained = false;
	} else {
		plugin_metrics_registered(&dp->plugin->metrics, dp->resource, false);
		snprintf(text, sizeof text, "%s: %.120s", grpc_status_name(reply->status),
			 reply->text);
		complain(dp, text);
		back_off(dp);
	}
	kubelet_wake(dp->plugin->kubelet);
}

static void start_register(struct kubelet *k, struct device_plugin *dp)
{
	V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
	V1beta1__RegisterRequest message = V1BETA1__REGISTER_REQUEST__INIT;
	static char version[] = "v1beta1";
	uint8_t data[RESOURCE_NAME_MAX + 128];
	struct grpc_request request = { .socket = k->socket_path,
					.path = "/v1beta1.Registration/Register",
					.msg = data,
					.timeout_usec = REGISTER_LIMIT_USEC,
					.done = register_done,
					.userdata = dp };

	options.pre_start_required = true;
	options.get_preferred_allocation_available = true;
	message.version = version;
	message.endpoint = dp->socket_name;
	message.resource_name = dp->resource;
	message.options = &options; /* for kubelets that do not ask */
	request.size = v1beta1__register_request__pack(&message, data);
	dp->registered = dp->watched = false;
	/* Streams count for this one from here on: a kubelet may open its own before it answers. */
	dp->registration++;
	if (grpc_unary_new(k->plugin->event, &request, &dp->call, NULL) < 0) {
		complain(dp, "out of memory");
		back_off(dp);
	}
}

/* --- Serving --------------------------------------------------------------------------------- */

/* In the first slot that nobody else serves in. */
static int serve(struct kubelet *k, struct device_plugin *dp, struct error *err)
{
	char path[256];

	for (unsigned i = 0; i < SLOTS_MAX; i++) {
		unsigned slot = (dp->slot + i) % SLOTS_MAX;

		kubelet_socket_name(dp->resource, slot, dp->socket_name);
		socket_path(k, dp->socket_name, path, sizeof path);
		if (is_alive(path))
			continue;
		dp->slot = slot;
		return device_plugin_serve(dp, path, err);
	}
	return error_set(err, EADDRINUSE, "%d other instances serve it", SLOTS_MAX);
}

/* True when it serves where a kubelet would look for it. */
static bool keep_serving(struct kubelet *k, struct device_plugin *dp, uint64_t now)
{
	struct error err = ERROR_INIT;
	char text[160];

	if (dp->server && grpc_server_is_reachable(dp->server))
		return true;
	if (dp->server) {
		/* A kubelet that starts removes all sockets, and its own goes first or comes at
		 * once: that is no quarrel. */
		if (k->there && k->was_there && dp->registered)
			lose(dp, "somebody removed its socket");
		dp->call = grpc_unary_free(dp->call);
		dp->registration++; /* the streams that end here are no news */
		device_plugin_close(dp);
		dp->registered = false;
	}
	if (now < dp->next_try_usec || !k->folder_there)
		return false; /* a folder that is away is waited for */
	if (serve(k, dp, &err) < 0) {
		snprintf(text, sizeof text, "%.150s", error_text(&err));
		complain(dp, text);
		back_off(dp);
		return false;
	}
	return true;
}

static void look_at(struct kubelet *k, struct device_plugin *dp, uint64_t now)
{
	if (dp->losses > 0 && dp->registered && now - dp->registered_usec > STEADY_USEC)
		forget_losses(dp);
	if (!keep_serving(k, dp, now) || !k->there || dp->call || now < dp->next_try_usec)
		return;
	if (dp->registered && !dp->watched && now - dp->registered_usec > WATCH_LIMIT_USEC) {
		complain(dp, "the kubelet does not watch its list");
		dp->registered = false;
		back_off(dp);
		return;
	}
	if (!dp->registered)
		start_register(k, dp);
}

void kubelet_watch_opened(struct device_plugin *dp)
{
	dp->watched = true;
}

void kubelet_watch_closed(struct device_plugin *dp, const struct watch *w)
{
	if (w->registration != dp->registration || device_plugin_watches(dp) > 0 || dp->ending)
		return;
	if (clock_now_usec() - w->opened_usec > STEADY_USEC)
		forget_losses(dp);
	lose(dp, "the kubelet ended its stream");
	kubelet_wake(dp->plugin->kubelet);
}

/* --- The folder ------------------------------------------------------------------------------ */

static int folder_changed(sd_event_source *source, const struct inotify_event *event,
			  void *userdata)
{
	struct kubelet *k = userdata;

	(void)source;
	if (event->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF))
		k->folder = (struct file_id){ 0 };
	kubelet_wake(k);
	return 0;
}

/* Watches the folder that stands at the path now. Without a watch there is still the timer. */
static void watch_folder(struct kubelet *k)
{
	struct file_id id = { 0 };
	struct stat st;
	int r;

	k->folder_there = stat(k->plugin->options.kubelet_dir, &st) == 0;
	if (!k->folder_there) {
		k->folder = id;
		return;
	}
	id.dev = st.st_dev;
	id.ino = st.st_ino;
	if (same_file(&id, &k->folder))
		return;
	k->inotify = sd_event_source_disable_unref(k->inotify);
	r = sd_event_add_inotify(k->plugin->event, &k->inotify, k->plugin->options.kubelet_dir,
				 WATCH_MASK, folder_changed, k);
	if (r >= 0) {
		k->folder = id;
		k->inotify_complained = false;
	} else if (!k->inotify_complained) {
		log_warning("plugin: no notification of changes in %s: %s; looking every few "
			    "seconds, ignoring",
			    k->plugin->options.kubelet_dir, strerror(-r));
		k->inotify_complained = true;
	}
}

/* A new kubelet: whoever was registered is not, and what was tried before does not count. */
static void look_at_kubelet(struct kubelet *k)
{
	struct file_id id = { 0 };
	struct stat st;

	k->was_there = k->there;
	k->there = stat(k->socket_path, &st) == 0 && S_ISSOCK(st.st_mode);
	if (!k->there) {
		if (k->was_there)
			log_notice("plugin: the kubelet's socket is gone; waiting for it path=%s",
				   k->socket_path);
		k->socket = id;
		return;
	}
	id = (struct file_id){ st.st_dev, st.st_ino, st.st_ctim };
	if (same_file(&id, &k->socket))
		return;
	log_notice("plugin: a kubelet is there path=%s", k->socket_path);
	k->socket = id;
	for (unsigned i = 0; i < k->plugin->n_device_plugins; i++) {
		struct device_plugin *dp = k->plugin->device_plugins[i];

		if (dp->ending)
			continue;
		dp->call = grpc_unary_free(dp->call);
		dp->registered = false;
		dp->next_try_usec = dp->backoff_usec = 0;
		dp->losses = 0;
	}
}

static void arm(struct kubelet *k, uint64_t at_usec)
{
	sd_event_source_set_time(k->timer, at_usec);
	sd_event_source_set_enabled(k->timer, SD_EVENT_ONESHOT);
}

void kubelet_look(struct kubelet *k)
{
	uint64_t now = clock_now_usec(), next = UINT64_MAX;

	if (k->plugin->stopping)
		return;
	watch_folder(k);
	look_at_kubelet(k);
	for (unsigned i = 0; i < k->plugin->n_device_plugins; i++) {
		struct device_plugin *dp = k->plugin->device_plugins[i];

		if (dp->ending)
			continue;
		look_at(k, dp, now);
		if (dp->next_try_usec > now)
			next = MIN(next, dp->next_try_usec);
	}
	if (next != UINT64_MAX)
		arm(k, next);
}

void kubelet_wake(struct kubelet *k)
{
	uint64_t at = clock_now_usec() + SETTLE_USEC, armed = 0;
	int on = SD_EVENT_OFF;

	if (!k)
		return;
	sd_event_source_get_enabled(k->timer, &on);
	sd_event_source_get_time(k->timer, &armed);
	if (on == SD_EVENT_OFF || armed > at)
		arm(k, at);
}

static int timer_fired(sd_event_source *source, uint64_t usec, void *userdata)
{
	(void)source;
	(void)usec;
	kubelet_look(userdata);
	return 0;
}

bool kubelet_is_there(const struct kubelet *k)
{
	return k->there;
}

/* --- Life ------------------------------------------------------------------------------------ */

int kubelet_new(struct plugin *p, struct kubelet **ret, struct error *err)
{
	struct kubelet *k;
	int r;

	r = kubelet_check_folder(p->options.kubelet_dir, err);
	if (r < 0)
		return r;
	k = calloc(1, sizeof *k);
	if (!k)
		return error_set(err, ENOMEM, "out of memory");
	k->plugin = p;
	snprintf(k->socket_path, sizeof k->socket_path, "%.80s/" KUBELET_SOCKET,
		 p->options.kubelet_dir);
	r = sd_event_add_time(p->event, &k->timer, CLOCK_MONOTONIC, 0, USEC_PER_MSEC, timer_fired,
			      k);
	if (r < 0) {
		kubelet_free(k);
		return error_set_errno(err, r, "timer");
	}
	sd_event_source_set_enabled(k->timer, SD_EVENT_OFF);
	*ret = k;
	return 0;
}

struct kubelet *kubelet_free(struct kubelet *k)
{
	if (!k)
		return NULL;
	sd_event_source_disable_unref(k->inotify);
	sd_event_source_disable_unref(k->timer);
	free(k);
	return NULL;
}
