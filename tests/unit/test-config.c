/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "config/config.h"

#include <cmocka.h>

static struct config *parse(const char *text)
{
	struct error err = ERROR_INIT;
	struct config *c = NULL;

	if (config_parse(text, strlen(text), "t", &c, &err) < 0)
		fail_msg("%s\nwas refused: %s", text, err.msg);
	return c;
}

static void expect_defaults(const struct config *c)
{
	assert_string_equal(c->data_dir, "/var/lib/berth");
	assert_string_equal(c->socket, "/run/berth/berthd.sock");
	assert_null(c->listen);
	assert_string_equal(c->sysfs_root, "/sys");
	assert_string_equal(c->dev_root, "/dev");
	assert_string_equal(c->proc_root, "/proc");
	assert_string_equal(c->boot_id_file, "/proc/sys/kernel/random/boot_id");
	assert_string_equal(c->nvml_library, "libnvidia-ml.so.1");
	assert_int_equal(c->reconcile_interval_usec, 60 * USEC_PER_SEC);
	assert_int_equal(c->unclaimed_grace_usec, 30 * USEC_PER_SEC);
	assert_int_equal(c->unclaimed_vfs, CONFIG_UNCLAIMED_RESET);
	assert_int_equal(c->claims, CONFIG_CLAIMS_OWNER);
	assert_int_equal(c->vf_quarantine_threshold, 2);
	assert_int_equal(c->nvml_timeout_usec, 5 * USEC_PER_SEC);
	assert_int_equal(c->card_timeout_usec, 15 * USEC_PER_SEC);
	assert_int_equal(c->placement_policy, POLICY_FORESIGHT);
	assert_int_equal(c->n_exclude, 0);
	assert_int_equal(c->scan_interval_usec, 5 * USEC_PER_SEC);
	assert_int_equal(c->n_marker_prefixes, 2);
	assert_string_equal(c->marker_prefixes[0], "BERTH");
	assert_string_equal(c->marker_prefixes[1], "HYPEMAN");
	assert_int_equal(c->n_console_dirs, 2);
	assert_string_equal(c->console_dirs[0], "/var/log/berth");
	assert_string_equal(c->console_dirs[1], "/var/log/libvirt/qemu");
	assert_string_equal(c->recover_sriov_manage, "/usr/lib/nvidia/sriov-manage");
	assert_int_equal(c->n_recover_services_stop, 0);
	assert_int_equal(c->n_recover_services_start, 0);
	assert_null(c->recover_verify);
	assert_int_equal(c->recover_timeout_usec, 120 * USEC_PER_SEC);
	assert_null(c->tls_certificate);
	assert_null(c->tls_key);
	assert_null(c->tls_client_ca);
}

static void nothing_said_gives_the_defaults(void **state)
{
	static const char *const texts[] = { "",   "\n",	 "# only a comment\n", "---\n",
					     "{}", "---\n...\n", "%YAML 1.1\n---\n" };
	struct config *c;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		c = parse(texts[i]);
		expect_defaults(c);
		config_free(c);
	}
	assert_int_equal(config_default(&c), 0);
	expect_defaults(c);
	assert_null(config_free(c));
	assert_null(config_free(NULL));
}

static void every_key_is_stored(void **state)
{
	static const char text[] =
		"data_dir: /a\n"
		"socket: '/b'\n"
		"listen: \"[::1]:9400\"\n"
		"sysfs_root: /c\n"
		"dev_root: /d\n"
		"proc_root: /e\n"
		"boot_id_file: /f\n"
		"nvml_library: \"\"\n"
		"reconcile_interval: 500ms\n"
		"unclaimed_vfs: leave\n"
		"unclaimed_grace: 0\n"
		"claims: shared\n"
		"gpu:\n"
		"  vf_quarantine_threshold: 1\n"
		"  nvml_timeout: \"2s\"\n"
		"  card_timeout: 3\n"
		"  placement_policy: least_loaded\n"
		"  exclude: [ 0000:41:00.0, \"C1:00.4\" ]\n"
		"sentinel:\n"
		"  scan_interval: 1m\n"
		"  marker_prefixes:\n"
		"  - BERTH_2\n"
		"  console_dirs: []\n"
		"recover: { sriov_manage: /g, services_stop: [a, b, c], services_start: [c],\n"
		"  verify: /h --now, timeout: 1h }\n"
		"tls:\n"
		"  certificate: /i\n"
		"  key: /j\n"
		"  client_ca: /k\n"
		"  admins: [ops, spiffe://h/ops]\n"
		"  readers: [monitor]\n";
	struct config *c = parse(text);

	(void)state;
	assert_string_equal(c->data_dir, "/a");
	assert_string_equal(c->socket, "/b");
	assert_string_equal(c->listen, "[::1]:9400");
	assert_string_equal(c->sysfs_root, "/c");
	assert_string_equal(c->dev_root, "/d");
	assert_string_equal(c->proc_root, "/e");
	assert_string_equal(c->boot_id_file, "/f");
	assert_string_equal(c->nvml_library, "");
	assert_int_equal(c->reconcile_interval_usec, 500 * USEC_PER_MSEC);
	assert_int_equal(c->unclaimed_vfs, CONFIG_UNCLAIMED_LEAVE);
	assert_int_equal(c->unclaimed_grace_usec, 0);
	assert_int_equal(c->claims, CONFIG_CLAIMS_SHARED);
	assert_int_equal(c->vf_quarantine_threshold, 1);
	assert_int_equal(c->nvml_timeout_usec, 2 * USEC_PER_SEC);
	assert_int_equal(c->card_timeout_usec, 3 * USEC_PER_SEC);
	assert_int_equal(c->n_exclude, 2);
	assert_int_equal(c->exclude[0].bus, 0x41);
	assert_int_equal(c->exclude[1].bus, 0xc1);
	assert_int_equal(c->exclude[1].function, 4);
	assert_int_equal(c->scan_interval_usec, 60 * USEC_PER_SEC);
	assert_int_equal(c->n_marker_prefixes, 1);
	assert_string_equal(c->marker_prefixes[0], "BERTH_2");
	assert_int_equal(c->n_console_dirs, 0);
	assert_string_equal(c->recover_sriov_manage, "/g");
	assert_int_equal(c->n_recover_services_stop, 3);
	assert_string_equal(c->recover_services_stop[2], "c");
	assert_int_equal(c->n_recover_services_start, 1);
	assert_string_equal(c->recover_verify, "/h --now");
	assert_int_equal(c->recover_timeout_usec, 3600 * USEC_PER_SEC);
	assert_string_equal(c->tls_certificate, "/i");
	assert_string_equal(c->tls_key, "/j");
	assert_string_equal(c->tls_client_ca, "/k");
	assert_int_equal(c->n_tls_admins, 2);
	assert_string_equal(c->tls_admins[1], "spiffe://h/ops");
	assert_int_equal(c->n_tls_readers, 1);
	assert_string_equal(c->tls_readers[0], "monitor");
	config_free(c);
}

static void values_at_their_limits_are_taken(void **state)
{
	static const char *const texts[] = {
		"listen: 127.0.0.1:9400\n",
		"listen: 0.0.0.0:65535\n",
		"listen: localhost:0\n",
		"listen: '[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:1'\n",
		"nvml_library: /opt/lib/libnvidia-ml.so.1\n",
		"nvml_library: libnvidia-ml.so\n",
		"unclaimed_grace: 24h\n",
		"reconcile_interval: 10ms\n",
		"gpu: {vf_quarantine_threshold: 4294967295, nvml_timeout: 10ms}\n",
		"gpu: {card_timeout: 1h}\n",
		"recover: {timeout: 1s, services_stop: ['1', nvidia-dcgm.service]}\n",
		"sentinel: {marker_prefixes: [A_Z09]}\n",
		"\"gpu\": {'exclude': [0001:41:00.0]}\n",
		"data_dir: |-\n  /a\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		config_free(parse(texts[i]));
}

/* Every message starts with the file, the line and the key; `says` is what follows. */
static void refuses_and_names_line_and_key(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		/* unknown */
		{ "claim: owner\n", "t:1: claim: unknown key (did you mean claims?)" },
		{ "gpu:\n  nvml_timeout: 5s\n  vf_quarantine_thresold: 3\n",
		  "t:3: gpu.vf_quarantine_thresold: unknown key (did you mean "
		  "vf_quarantine_threshold?)" },
		{ "\n\ngpus:\n  exclude: []\n", "t:3: gpus: unknown key (did you mean gpu?)" },
		{ "sentinal: {}\n", "t:1: sentinal: unknown key (did you mean sentinel?)" },
		{ "nvml_timeout: 5s\n",
		  "t:1: nvml_timeout: unknown key (did you mean gpu.nvml_timeout?)" },
		{ "gpu:\n  data_dir: /a\n",
		  "t:2: gpu.data_dir: unknown key (did you mean data_dir?)" },
		{ "colour: green\n", "t:1: colour: unknown key" },
		{ "Data_Dir: /a\n", "t:1: Data_Dir: unknown key (did you mean data_dir?)" },
		{ "gpu.exclude: []\n",
		  "t:1: gpu.exclude: unknown key (a section is a mapping of its own)" },
		{ "<<: {data_dir: /a}\n", "t:1: <<: unknown key" },
		{ "? [a]\n: b\n", "t:1: a key must be text, found a list" },
		{ "gpu:\n  ? {a: b}\n  : b\n", "t:2: gpu: a key must be text, found a mapping" },
		/* twice */
		{ "data_dir: /a\nsocket: /b\ndata_dir: /a\n",
		  "t:3: data_dir: set twice (first in line 1)" },
		{ "gpu:\n  exclude: []\n  exclude: []\n",
		  "t:3: gpu.exclude: set twice (first in line 2)" },
		{ "gpu:\n  exclude: []\ngpu:\n  nvml_timeout: 1s\n",
		  "t:3: gpu: set twice (first in line 1)" },
		{ "data_dir: /a\n\"data_dir\": /b\n",
		  "t:2: data_dir: set twice (first in line 1)" },
		/* types */
		{ "data_dir:\n", "t:1: data_dir: has no value" },
		{ "nvml_library:\n", "t:1: nvml_library: has no value (\"\" for no NVML)" },
		{ "data_dir: 5\n", "t:1: data_dir: expected text, found '5'" },
		{ "data_dir: yes\n", "t:1: data_dir: expected text, found 'yes'" },
		{ "data_dir: ~\n", "t:1: data_dir: expected text, found '~'" },
		{ "data_dir: [/a]\n", "t:1: data_dir: expected a single value, found a list" },
		{ "data_dir: {a: b}\n", "t:1: data_dir: expected a single value, found a mapping" },
		{ "unclaimed_vfs: off\n", "t:1: unclaimed_vfs: expected text, found 'off'" },
		{ "gpu:\n", "t:1: gpu: expected a mapping, found nothing" },
		{ "gpu: fast\n", "t:1: gpu: expected a mapping, found a single value" },
		{ "gpu: [a]\n", "t:1: gpu: expected a mapping, found a list" },
		{ "gpu:\n  exclude: 0000:41:00.0\n",
		  "t:2: gpu.exclude: expected a list, found a single value" },
		{ "gpu:\n  exclude:\n", "t:2: gpu.exclude: expected a list, found nothing" },
		{ "gpu:\n  exclude: [[a]]\n",
		  "t:2: gpu.exclude[0]: expected a single value, found a list" },
		{ "gpu:\n  exclude:\n  - 0000:41:00.0\n  - a: b\n",
		  "t:4: gpu.exclude[1]: expected a single value, found a mapping" },
		{ "gpu:\n  vf_quarantine_threshold: \"2\"\n",
		  "t:2: gpu.vf_quarantine_threshold: expected a number, found text" },
		{ "gpu:\n  vf_quarantine_threshold: two\n",
		  "t:2: gpu.vf_quarantine_threshold: 'two' is not a whole number" },
		{ "- data_dir: /a\n", "t:1: expected settings (key: value), found a list" },
		{ "data_dir /a\n", "t:1: expected settings (key: value), found a single value" },
		/* values */
		{ "data_dir: state\n", "t:1: data_dir: 'state' must be an absolute path" },
		{ "data_dir: ''\n", "t:1: data_dir: must not be empty" },
		{ "data_dir: \"/a\\nb\"\n", "t:1: data_dir: holds a control character" },
		{ "data_dir: \"/a\\0b\"\n", "t:1: data_dir: holds a NUL" },
		{ "nvml_library: lib/x.so\n",
		  "t:1: nvml_library: 'lib/x.so' must be a file name or an abs" },
		{ "listen: 9400\n", "t:1: listen: expected text, found '9400'" },
		{ "listen: 127.0.0.1\n", "t:1: listen: '127.0.0.1' is not ADDRESS:PORT" },
		{ "listen: 127.0.0.1:65536\n",
		  "t:1: listen: '127.0.0.1:65536' is not ADDRESS:PORT" },
		{ "listen: ::1:80\n", "t:1: listen: '::1:80' is not ADDRESS:PORT" },
		{ "listen: :80\n", "t:1: listen: ':80' is not ADDRESS:PORT" },
		{ "listen: example.com:80\n", "t:1: listen: 'example.com:80' is not ADDRESS:PORT" },
		{ "listen: '[::1:80'\n", "t:1: listen: '[::1:80' is not ADDRESS:PORT" },
		{ "listen: '[]:80'\n", "t:1: listen: '[]:80' is not ADDRESS:PORT" },
		{ "unclaimed_vfs: keep\n", "t:1: unclaimed_vfs: 'keep' is none of: reset, leave" },
		{ "claims: Owner\n", "t:1: claims: 'Owner' is none of: owner, shared" },
		{ "gpu: {placement_policy: best}\n", "t:1: gpu.placement_policy: 'best' is none "
						     "of: least_waste, least_loaded, foresight" },
		{ "gpu: {vf_quarantine_threshold: 0}\n",
		  "t:1: gpu.vf_quarantine_threshold: must be 1 or more" },
		{ "gpu: {vf_quarantine_threshold: -1}\n",
		  "t:1: gpu.vf_quarantine_threshold: '-1' is not a whole number" },
		{ "gpu: {vf_quarantine_threshold: 4294967296}\n",
		  "t:1: gpu.vf_quarantine_threshold: '4294967296' is not a whole number" },
		{ "gpu: {nvml_timeout: 0}\n",
		  "t:1: gpu.nvml_timeout: must lie between 10ms and 3600s" },
		{ "gpu: {nvml_timeout: 9ms}\n",
		  "t:1: gpu.nvml_timeout: must lie between 10ms and 3600s" },
		{ "gpu: {nvml_timeout: 61m}\n",
		  "t:1: gpu.nvml_timeout: must lie between 10ms and 3600s" },
		{ "gpu: {nvml_timeout: -5}\n", "t:1: gpu.nvml_timeout: '-5' is not a duration" },
		{ "gpu: {nvml_timeout: 1.5s}\n",
		  "t:1: gpu.nvml_timeout: '1.5s' is not a duration" },
		{ "gpu: {nvml_timeout: 5 s}\n", "t:1: gpu.nvml_timeout: '5 s' is not a duration" },
		{ "gpu: {nvml_timeout: 99999999999999999999}\n",
		  "t:1: gpu.nvml_timeout: '99999999999999999999' is" },
		{ "gpu: {exclude: [\"41\"]}\n", "t:1: gpu.exclude[0]: '41' is no PCI address" },
		{ "gpu: {exclude: [41:00.0, 41:00.8]}\n",
		  "t:1: gpu.exclude[1]: '41:00.8' is no PCI address" },
		{ "sentinel: {marker_prefixes: []}\n",
		  "t:1: sentinel.marker_prefixes: must not be empty" },
		{ "sentinel: {marker_prefixes: [berth]}\n",
		  "t:1: sentinel.marker_prefixes[0]: 'berth' holds" },
		{ "sentinel: {console_dirs: [log]}\n",
		  "t:1: sentinel.console_dirs[0]: 'log' must be an abs" },
		{ "recover: {services_stop: [~]}\n",
		  "t:1: recover.services_stop[0]: expected text, found '~'" },
		{ "socket: /b\ntls: {certificate: /a, key: /b}\n",
		  "t:2: tls.client_ca: missing (tls needs certificate, key and client_ca)" },
		{ "tls: {}\n", "t:1: tls.certificate: missing" },
		{ "tls: {admins: [a]}\n", "t:1: tls.certificate: missing" },
		{ "tls: {certificate: /a, key: /b, client_ca: /c,\n admins: [x, y], readers: [z, "
		  "y]}\n",
		  "t:1: tls.readers[1]: 'y' stands in tls.admins too" },
		/* YAML that no settings file needs */
		{ "data_dir: &a /x\n", "t:1: data_dir: anchors (&a) are not allowed" },
		{ "data_dir: *a\n", "t:1: data_dir: aliases (*a) are not allowed" },
		{ "gpu: &g\n  nvml_timeout: 1s\n", "t:1: gpu: anchors (&g) are not allowed" },
		{ "data_dir: !!str /x\n",
		  "t:1: data_dir: tags (tag:yaml.org,2002:str) are not allowed" },
		{ "gpu: !x {}\n", "t:1: gpu: tags (!x) are not allowed" },
		{ "--- !x\ndata_dir: /a\n", "t:1: tags (!x) are not allowed" },
		{ "data_dir: /a\n---\nsocket: /b\n", "t:2: a second document is not allowed" },
		{ "---\n---\n", "t:2: a second document is not allowed" },
		/* no YAML */
		{ "data_dir: /a\n  socket: /b\n",
		  "t:2: not valid YAML: mapping values are not allowed" },
		{ "data_dir: \"/a\n", "t:2: not valid YAML: found unexpected end of stream" },
		{ "data_dir: /a\n\tsocket: /b\n", "t:2: not valid YAML: " },
		{ "gpu: {exclude: [\n", "t:2: not valid YAML: " },
		{ "data_dir: /a\n\xe9\n", "t:2: not valid YAML: " },
		{ "data_dir: /a\n# caf\xe9\n", "t:2: not valid YAML: " },
		{ "%YAML 7.0\n---\n", "t:1: not valid YAML: " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct config *c = (struct config *)0x1;
		struct error err = ERROR_INIT;

		if (config_parse(cases[i].text, strlen(cases[i].text), "t", &c, &err) != -EINVAL)
			fail_msg("not refused: %s", cases[i].text);
		if (strncmp(err.msg, cases[i].says, strlen(cases[i].says)) != 0)
			fail_msg("%s\nsaid \"%s\",\n not \"%s\"", cases[i].text, err.msg,
				 cases[i].says);
		assert_int_equal(err.code, EINVAL);
		assert_ptr_equal(c, (struct config *)0x1);
		assert_int_equal(config_parse(cases[i].text, strlen(cases[i].text), "t", &c, NULL),
				 -EINVAL);
	}
}

static void holds_both_sides_of_its_limits(void **state)
{
	static const struct {
		const char *before;
		size_t n;
		const char *after;
		int result;
	} cases[] = {
		{ "socket: /", 106, "", 0 },
		{ "socket: /", 107, "", -EINVAL },
		{ "data_dir: /", 4094, "", 0 },
		{ "data_dir: /", 4095, "", -EINVAL },
		{ "sentinel: {marker_prefixes: [", 32, "]}", 0 },
		{ "sentinel: {marker_prefixes: [", 33, "]}", -EINVAL },
		{ "", 63, ": 1", -EINVAL },
		{ "", 64, ": 1", -EINVAL },
		{ "", 1000, ": 1", -EINVAL },
		{ "#", CONFIG_BYTES_MAX - 1, "", 0 },
		{ "#", CONFIG_BYTES_MAX, "", -EFBIG },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct error err = ERROR_INIT;
		_buf_ struct buf b = BUF_INIT;
		struct config *c = NULL;
		int r;

		buf_add_str(&b, cases[i].before);
		for (size_t j = 0; j < cases[i].n; j++)
			buf_add_char(&b, 'A');
		buf_add_str(&b, cases[i].after);
		r = config_parse(b.data, b.len, "t", &c, &err);
		if (r != cases[i].result)
			fail_msg("case %zu gave %d: %s", i, r, err.msg);
		config_free(c);
	}
}

static void lists_have_a_limit(void **state)
{
	struct error err = ERROR_INIT;
	_buf_ struct buf b = BUF_INIT;
	struct config *c;

	(void)state;
	buf_add_str(&b, "gpu:\n  exclude:\n");
	for (unsigned i = 0; i < CONFIG_ITEMS_MAX; i++)
		buf_printf(&b, "  - %x:00.0\n", i % 256);
	assert_int_equal(config_parse(b.data, b.len, "t", &c, &err), 0);
	assert_int_equal(c->n_exclude, CONFIG_ITEMS_MAX);
	config_free(c);
	buf_add_str(&b, "  - 0:00.0\n");
	assert_int_equal(config_parse(b.data, b.len, "t", &c, &err), -EINVAL);
	assert_string_equal(err.msg, "t:1027: gpu.exclude[1024]: more than 1024 items");
}

static void deep_nesting_is_refused_at_once(void **state)
{
	_buf_ struct buf b = BUF_INIT;
	struct config *c = NULL;

	(void)state;
	buf_add_str(&b, "gpu: {exclude: ");
	for (unsigned i = 0; i < 60000; i++)
		buf_add_char(&b, '[');
	assert_int_equal(config_parse(b.data, b.len, "t", &c, NULL), -EINVAL);
	assert_null(c);
}

static void long_file_names_leave_room_for_the_message(void **state)
{
	struct error err = ERROR_INIT;
	char name[400];
	struct config *c;

	(void)state;
	memset(name, 'x', sizeof name);
	strcpy(name + 300, "/berthd.yaml");
	name[0] = '/';
	assert_int_equal(config_parse("claim: x", 8, name, &c, &err), -EINVAL);
	assert_string_equal(err.msg, "berthd.yaml:1: claim: unknown key (did you mean claims?)");
}

static void a_file_is_read_or_named(void **state)
{
	char path[] = "/tmp/berth-test-config-XXXXXX";
	struct error err = ERROR_INIT;
	struct config *c = NULL;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "claims: shared\n", 15), 15);
	assert_int_equal(config_load(path, &c, &err), 0);
	assert_int_equal(c->claims, CONFIG_CLAIMS_SHARED);
	c = config_free(c);
	assert_int_equal(ftruncate(fd, CONFIG_BYTES_MAX + 1), 0);
	assert_int_equal(config_load(path, &c, &err), -EFBIG);
	close(fd);
	unlink(path);
	assert_int_equal(config_load(path, &c, &err), -ENOENT);
	assert_non_null(strstr(err.msg, path));
	assert_non_null(strstr(err.msg, "No such file"));
	assert_int_equal(config_load("/", &c, &err), -EISDIR);
	assert_null(c);
}

struct changes {
	char text[2000];
};

static void note_change(const struct config_change *change, void *userdata)
{
	struct changes *all = userdata;
	size_t len = strlen(all->text);

	snprintf(all->text + len, sizeof all->text - len, "%s %s>%s%s\n", change->path,
		 change->from, change->to, change->needs_restart ? " restart" : "");
}

static void changes_are_named_key_by_key(void **state)
{
	static const struct {
		const char *from, *to, *changes;
	} cases[] = {
		{ "", "", "" },
		{ "", "reconcile_interval: 1m\nclaims: owner\n", "" }, /* says the defaults */
		{ "", "reconcile_interval: 1500ms\n", "reconcile_interval 1m>1500ms\n" },
		{ "unclaimed_grace: 0\n", "unclaimed_grace: 2h\n", "unclaimed_grace 0s>2h\n" },
		{ "", "claims: shared\nunclaimed_vfs: leave\n",
		  "unclaimed_vfs reset>leave\nclaims owner>shared\n" },
		{ "", "gpu: {exclude: [41:0.4, 81:0.0], vf_quarantine_threshold: 7}\n",
		  "gpu.vf_quarantine_threshold 2>7\ngpu.exclude []>[0000:41:00.4, "
		  "0000:81:00.0]\n" },
		{ "recover: {verify: /x}\n", "", "recover.verify /x>\n" },
		{ "", "data_dir: /x\nlisten: localhost:1\n",
		  "data_dir /var/lib/berth>/x restart\nlisten >localhost:1 restart\n" },
		/* Other files of TLS are no restart; TLS where there was none is. */
		{ "tls: {certificate: /a, key: /b, client_ca: /c}\n",
		  "tls: {certificate: /x, key: /b, client_ca: /c, admins: [y]}\n",
		  "tls.certificate /a>/x\ntls.admins []>[y]\n" },
		{ "", "tls: {certificate: /a, key: /b, client_ca: /c}\n",
		  "tls.certificate >/a restart\ntls.key >/b restart\ntls.client_ca >/c restart\n" },
		{ "tls: {certificate: /a, key: /b, client_ca: /c, readers: [x]}\n", "",
		  "tls.certificate /a> restart\ntls.key /b> restart\ntls.client_ca /c> restart\n"
		  "tls.readers [x]>[] restart\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct config *from = parse(cases[i].from), *to = parse(cases[i].to);
		struct changes all = { "" };

		assert_int_equal(config_compare(from, to, note_change, &all), 0);
		assert_string_equal(all.text, cases[i].changes);
		config_free(from);
		config_free(to);
	}
}

/* What is kept is just what needs a restart. */
static void fixed_settings_are_kept(void **state)
{
	struct config *running = parse("socket: /a\nlisten: localhost:1\nclaims: shared\n");
	struct config *c = parse("socket: /b\nnvml_library: ''\nreconcile_interval: 1h\n"
				 "tls: {certificate: /a, key: /b, client_ca: /c}\n");
	struct changes all = { "" };

	(void)state;
	assert_int_equal(config_keep_fixed(c, running), 0);
	assert_int_equal(config_compare(running, c, note_change, &all), 0);
	assert_string_equal(all.text, "reconcile_interval 1m>1h\nclaims shared>owner\n");
	assert_null(c->tls_certificate);
	config_free(running);
	assert_string_equal(c->socket, "/a");
	config_free(c);
}

/* A TLS listener that stays keeps its roles: a reader must not become more by the loss of a
 * section. */
static void tls_is_kept_as_a_whole(void **state)
{
	struct config *running = parse("tls: {certificate: /a, key: /b, client_ca: /c, "
				       "admins: [root of all], readers: [x, y]}\n");
	struct config *c = parse("claims: shared\n");
	struct changes all = { "" };

	(void)state;
	assert_int_equal(config_keep_fixed(c, running), 0);
	assert_int_equal(config_compare(running, c, note_change, &all), 0);
	assert_string_equal(all.text, "claims owner>shared\n");
	config_free(running);
	assert_int_equal(c->n_tls_readers, 2);
	assert_string_equal(c->tls_readers[1], "y");
	config_free(c);
}

static void a_config_lives_as_long_as_it_is_held(void **state)
{
	struct config *c = parse("claims: shared\n");
	struct config *held = config_ref(c);

	(void)state;
	config_free(c);
	assert_int_equal(held->claims, CONFIG_CLAIMS_SHARED);
	config_free(held);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said_gives_the_defaults),
		cmocka_unit_test(every_key_is_stored),
		cmocka_unit_test(values_at_their_limits_are_taken),
		cmocka_unit_test(refuses_and_names_line_and_key),
		cmocka_unit_test(holds_both_sides_of_its_limits),
		cmocka_unit_test(lists_have_a_limit),
		cmocka_unit_test(deep_nesting_is_refused_at_once),
		cmocka_unit_test(long_file_names_leave_room_for_the_message),
		cmocka_unit_test(a_file_is_read_or_named),
		cmocka_unit_test(changes_are_named_key_by_key),
		cmocka_unit_test(fixed_settings_are_kept),
		cmocka_unit_test(tls_is_kept_as_a_whole),
		cmocka_unit_test(a_config_lives_as_long_as_it_is_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
