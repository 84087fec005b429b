/* SPDX-License-Identifier: Apache-2.0 */
#include "config/schema.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "config/check.h"

#define MSEC USEC_PER_MSEC
#define SEC  USEC_PER_SEC
#define HOUR (3600 * USEC_PER_SEC)

enum kind {
	KIND_PATH,    /* absolute */
	KIND_SOCKET,  /* absolute, and short enough for a socket address */
	KIND_LIBRARY, /* absolute, a bare file name, or empty */
	KIND_LISTEN,  /* ADDRESS:PORT */
	KIND_TEXT,
	KIND_COUNT,
	KIND_DURATION,
	KIND_CHOICE, /* an enum; the names are numbered as its values are */
	KIND_BDF_LIST,
	KIND_PATH_LIST,
	KIND_PREFIX_LIST,
	KIND_TEXT_LIST,
	KIND_MIX_LIST,
};

struct config_setting {
	const char *path;
	enum kind kind;
	size_t offset;	      /* of the value in struct config; of the array for a list */
	size_t count_offset;  /* lists: of the number of items */
	uint64_t min, max;    /* numbers; usec for durations */
	const char *standard; /* as in the file; lists: items between blanks; NULL: none */
	const char *(*choice)(unsigned i); /* name of value i, NULL behind the last */
	bool fixed;			   /* cannot change while berthd runs */
};

static const char *unclaimed_choice(unsigned i)
{
	static const char *const names[] = {
		[CONFIG_UNCLAIMED_RESET] = "reset",
		[CONFIG_UNCLAIMED_LEAVE] = "leave",
	};

	return i < ARRAY_SIZE(names) ? names[i] : NULL;
}

static const char *claims_choice(unsigned i)
{
	static const char *const names[] = {
		[CONFIG_CLAIMS_OWNER] = "owner",
		[CONFIG_CLAIMS_SHARED] = "shared",
	};

	return i < ARRAY_SIZE(names) ? names[i] : NULL;
}

static const char *pins_choice(unsigned i)
{
	static const char *const names[] = {
		[CONFIG_PINS_ALWAYS] = "always",
		[CONFIG_PINS_NEVER] = "never",
	};

	return i < ARRAY_SIZE(names) ? names[i] : NULL;
}

static const char *policy_choice(unsigned i)
{
	return i < POLICY_COUNT ? policy_name((enum policy)i) : NULL;
}

#define FIELD(f) .offset = offsetof(struct config, f)
#define LIST(f)	 .offset = offsetof(struct config, f), .count_offset = offsetof(struct config, n_##f)

static const struct config_setting settings[] = {
	{ "data_dir", KIND_PATH, FIELD(data_dir), .fixed = true, .standard = "/var/lib/berth" },
	{ "socket", KIND_SOCKET, FIELD(socket), .fixed = true,
	  .standard = "/run/berth/berthd.sock" },
	{ "listen", KIND_LISTEN, FIELD(listen), .fixed = true },
	{ "sysfs_root", KIND_PATH, FIELD(sysfs_root), .fixed = true, .standard = "/sys" },
	{ "dev_root", KIND_PATH, FIELD(dev_root), .fixed = true, .standard = "/dev" },
	{ "proc_root", KIND_PATH, FIELD(proc_root), .fixed = true, .standard = "/proc" },
	{ "boot_id_file", KIND_PATH, FIELD(boot_id_file), .fixed = true,
	  .standard = "/proc/sys/kernel/random/boot_id" },
	{ "nvml_library", KIND_LIBRARY, FIELD(nvml_library), .fixed = true,
	  .standard = "libnvidia-ml.so.1" },
	{ "reconcile_interval", KIND_DURATION, FIELD(reconcile_interval_usec), .min = 10 * MSEC,
	  .max = 24 * HOUR, .standard = "60s" },
	{ "unclaimed_vfs", KIND_CHOICE, FIELD(unclaimed_vfs), .choice = unclaimed_choice,
	  .standard = "reset" },
	{ "unclaimed_grace", KIND_DURATION, FIELD(unclaimed_grace_usec), .min = 0, .max = 24 * HOUR,
	  .standard = "30s" },
	{ "claims", KIND_CHOICE, FIELD(claims), .choice = claims_choice, .standard = "owner" },
	{ "gpu.vf_quarantine_threshold", KIND_COUNT, FIELD(vf_quarantine_threshold), .min = 1,
	  .max = UINT32_MAX, .standard = "2" },
	{ "gpu.nvml_timeout", KIND_DURATION, FIELD(nvml_timeout_usec), .min = 10 * MSEC,
	  .max = HOUR, .standard = "5s" },
	{ "gpu.card_timeout", KIND_DURATION, FIELD(card_timeout_usec), .min = 10 * MSEC,
	  .max = HOUR, .standard = "15s" },
	{ "gpu.placement_policy", KIND_CHOICE, FIELD(placement_policy), .choice = policy_choice,
	  .standard = "foresight" },
	{ "gpu.pin_placements", KIND_CHOICE, FIELD(pin_placements), .choice = pins_choice,
	  .standard = "always" },
	{ "gpu.expected_mix", KIND_MIX_LIST, LIST(expected_mix) },
	{ "gpu.exclude", KIND_BDF_LIST, LIST(exclude) },
	{ "sentinel.scan_interval", KIND_DURATION, FIELD(scan_interval_usec), .min = 10 * MSEC,
	  .max = HOUR, .standard = "5s" },
	{ "sentinel.contradiction_window", KIND_DURATION, FIELD(contradiction_window_usec),
	  .min = 0, .max = HOUR, .standard = "60s" },
	{ "sentinel.marker_prefixes", KIND_PREFIX_LIST, LIST(marker_prefixes), .min = 1,
	  .standard = "BERTH HYPEMAN" },
	{ "sentinel.console_dirs", KIND_PATH_LIST, LIST(console_dirs),
	  .standard = "/var/log/berth /var/log/libvirt/qemu" },
	{ "recover.sriov_manage", KIND_PATH, FIELD(recover_sriov_manage),
	  .standard = "/usr/lib/nvidia/sriov-manage" },
	{ "recover.services_stop", KIND_TEXT_LIST, LIST(recover_services_stop) },
	{ "recover.services_start", KIND_TEXT_LIST, LIST(recover_services_start) },
	{ "recover.verify", KIND_TEXT, FIELD(recover_verify) },
	{ "recover.timeout", KIND_DURATION, FIELD(recover_timeout_usec), .min = SEC,
	  .max = 24 * HOUR, .standard = "2m" },
	{ "tls.certificate", KIND_PATH, FIELD(tls_certificate) },
	{ "tls.key", KIND_PATH, FIELD(tls_key) },
	{ "tls.client_ca", KIND_PATH, FIELD(tls_client_ca) },
	{ "tls.admins", KIND_TEXT_LIST, LIST(tls_admins) },
	{ "tls.readers", KIND_TEXT_LIST, LIST(tls_readers) },
};

static void *at(const struct config *c, size_t offset)
{
	return (char *)(uintptr_t)c + offset;
}

/* Arrays of any item type; copied, since their pointers have different types. */
static void *get_array(const struct config_setting *s, const struct config *c)
{
	void *array;

	memcpy(&array, at(c, s->offset), sizeof array);
	return array;
}

static void set_array(const struct config_setting *s, struct config *c, void *array)
{
	memcpy(at(c, s->offset), &array, sizeof array);
}

const struct config_setting *config_setting_find(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (strcmp(settings[i].path, path) == 0)
			return &settings[i];
	return NULL;
}

const struct config_setting *config_setting_at(size_t index)
{
	return index < ARRAY_SIZE(settings) ? &settings[index] : NULL;
}

const char *config_setting_path(const struct config_setting *s)
{
	return s->path;
}

bool config_setting_is_fixed(const struct config_setting *s)
{
	return s->fixed;
}

size_t config_setting_index(const struct config_setting *s)
{
	return (size_t)(s - settings);
}

bool config_setting_is_list(const struct config_setting *s)
{
	return s->kind >= KIND_BDF_LIST;
}

/* What YAML takes for null, a truth value or a number when it stands there without quotes. */
static bool is_text_by_accident(const char *value)
{
	static const char *const words[] = { "",    "~",  "null", "true", "false",
					     "yes", "no", "on",	  "off" };
	char *end;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcasecmp(value, words[i]) == 0)
			return true;
	if (!strchr("+-.0123456789", value[0]))
		return false;
	strtod(value, &end);
	return *end == '\0';
}

static int check_string(const struct config_setting *s, const char *value, struct error *err)
{
	int r;

	switch (s->kind) {
	case KIND_PATH:
	case KIND_PATH_LIST:
		return config_check_path(value, err);
	case KIND_SOCKET:
		r = config_check_path(value, err);
		if (r == 0 && strlen(value) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
			r = error_set(err, EINVAL, "is too long for a socket (at most %zu bytes)",
				      sizeof((struct sockaddr_un *)NULL)->sun_path - 1);
		return r;
	case KIND_LIBRARY:
		return config_check_library(value, err);
	case KIND_LISTEN:
		return config_check_listen(value, err);
	case KIND_PREFIX_LIST:
		return config_check_prefix(value, err);
	case KIND_MIX_LIST:
		return config_mix_item(value, NULL, 0, NULL, err);
	case KIND_TEXT:
	case KIND_TEXT_LIST:
		return config_check_text(value, err);
	case KIND_COUNT:
	case KIND_DURATION:
	case KIND_CHOICE:
	case KIND_BDF_LIST:
		break;
	}
	assert(false);
	return -EINVAL;
}

static int set_string(const struct config_setting *s, struct config *c, const char *value,
		      struct error *err)
{
	char **field = at(c, s->offset);
	char *copy;
	int r = check_string(s, value, err);

	if (r < 0)
		return r;
	copy = strdup(value);
	if (!copy)
		return error_set(err, ENOMEM, "out of memory");
	free(*field);
	*field = copy;
	return 0;
}

static int set_count(const struct config_setting *s, struct config *c, const char *value,
		     struct error *err)
{
	uint32_t n;

	if (str_to_u32(value, &n) < 0)
		return error_set(err, EINVAL, "'%.60s' is not a whole number", value);
	if (n < s->min || n > s->max)
		return error_set(err, EINVAL, "must be %ju or more", (uintmax_t)s->min);
	*(uint32_t *)at(c, s->offset) = n;
	return 0;
}

static int set_duration(const struct config_setting *s, struct config *c, const char *value,
			struct error *err)
{
	uint64_t usec;

	if (str_to_usec(value, &usec) < 0)
		return error_set(err, EINVAL, "'%.60s' is not a duration such as 500ms, 2s or 1m",
				 value);
	if (usec < s->min || usec > s->max)
		return error_set(err, EINVAL, "must lie between %jums and %jus",
				 (uintmax_t)(s->min / MSEC), (uintmax_t)(s->max / SEC));
	*(uint64_t *)at(c, s->offset) = usec;
	return 0;
}

static int set_choice(const struct config_setting *s, struct config *c, const char *value,
		      struct error *err)
{
	char known[120] = "";
	size_t used = 0;

	/* All enums of settings are unsigned ints to the compiler; the table has no other. */
	_Static_assert(sizeof(enum policy) == sizeof(unsigned) &&
			       sizeof(enum config_claims) == sizeof(unsigned) &&
			       sizeof(enum config_unclaimed) == sizeof(unsigned),
		       "enums must have the size of unsigned");
	for (unsigned i = 0; s->choice(i); i++) {
		if (strcmp(value, s->choice(i)) == 0) {
			*(unsigned *)at(c, s->offset) = i;
			return 0;
		}
		used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
					 s->choice(i));
		used = MIN(used, sizeof known - 1);
	}
	return error_set(err, EINVAL, "'%.60s' is none of: %s", value, known);
}

/* Adds an item of `size` bytes to the array of a list. */
static int append(const struct config_setting *s, struct config *c, const void *item, size_t size,
		  struct error *err)
{
	size_t *n = at(c, s->count_offset);
	char *array;

	if (*n >= CONFIG_ITEMS_MAX)
		return error_set(err, EINVAL, "more than %d items", CONFIG_ITEMS_MAX);
	array = reallocarray(get_array(s, c), *n + 1, size);
	if (!array)
		return error_set(err, ENOMEM, "out of memory");
	memcpy(array + *n * size, item, size);
	set_array(s, c, array);
	(*n)++;
	return 0;
}

static int add_address(const struct config_setting *s, struct config *c, const char *value,
		       struct error *err)
{
	struct pci_addr address;

	if (pci_addr_parse(value, &address) < 0)
		return error_set(err, EINVAL, "'%.60s' is no PCI address such as 0000:41:00.4",
				 value);
	return append(s, c, &address, sizeof address, err);
}

static int add_string(const struct config_setting *s, struct config *c, const char *value,
		      struct error *err)
{
	_free_ char *copy = NULL;
	int r = check_string(s, value, err);

	if (r < 0)
		return r;
	copy = strdup(value);
	if (!copy)
		return error_set(err, ENOMEM, "out of memory");
	r = append(s, c, &copy, sizeof copy, err);
	if (r == 0)
		copy = NULL;
	return r;
}

static int store(const struct config_setting *s, struct config *c, const char *value,
		 struct error *err)
{
	switch (s->kind) {
	case KIND_PATH:
	case KIND_SOCKET:
	case KIND_LIBRARY:
	case KIND_LISTEN:
	case KIND_TEXT:
		return set_string(s, c, value, err);
	case KIND_COUNT:
		return set_count(s, c, value, err);
	case KIND_DURATION:
		return set_duration(s, c, value, err);
	case KIND_CHOICE:
		return set_choice(s, c, value, err);
	case KIND_BDF_LIST:
		return add_address(s, c, value, err);
	case KIND_PATH_LIST:
	case KIND_PREFIX_LIST:
	case KIND_TEXT_LIST:
	case KIND_MIX_LIST:
		return add_string(s, c, value, err);
	}
	assert(false);
	return -EINVAL;
}

int config_setting_set(const struct config_setting *s, struct config *c, const char *value,
		       bool plain, struct error *err)
{
	if (plain && strcmp(value, "") == 0)
		return error_set(err, EINVAL, "has no value%s",
				 s->kind == KIND_LIBRARY ? " (\"\" for no NVML)" : "");
	if (s->kind == KIND_COUNT && !plain)
		return error_set(err, EINVAL, "expected a number, found text");
	if (s->kind != KIND_COUNT && s->kind != KIND_DURATION && plain &&
	    is_text_by_accident(value))
		return error_set(err, EINVAL,
				 "expected text, found '%.60s' (put it in quotes if it is meant)",
				 value);
	return store(s, c, value, err);
}

void config_setting_clear(const struct config_setting *s, struct config *c)
{
	void *array = get_array(s, c);
	size_t *n = at(c, s->count_offset);

	for (size_t i = 0; s->kind != KIND_BDF_LIST && i < *n; i++)
		free(((char **)array)[i]);
	free(array);
	set_array(s, c, NULL);
	*n = 0;
}

int config_setting_check_list(const struct config_setting *s, const struct config *c,
			      struct error *err)
{
	if (*(const size_t *)at(c, s->count_offset) < s->min)
		return error_set(err, EINVAL, "must not be empty");
	return 0;
}

static void format_duration(struct buf *out, uint64_t usec)
{
	static const struct {
		uint64_t usec;
		const char *unit;
	} units[] = { { HOUR, "h" }, { 60 * SEC, "m" }, { SEC, "s" }, { MSEC, "ms" }, { 1, "us" } };
	size_t i = usec == 0 ? 2 : 0;

	while (usec % units[i].usec != 0)
		i++;
	buf_printf(out, "%ju%s", (uintmax_t)(usec / units[i].usec), units[i].unit);
}

static void format_list(const struct config_setting *s, const struct config *c, struct buf *out)
{
	const size_t n = *(const size_t *)at(c, s->count_offset);
	const void *array = get_array(s, c);

	buf_add_char(out, '[');
	for (size_t i = 0; i < n; i++) {
		char address[PCI_ADDR_MAX];

		buf_add_str(out, i ? ", " : "");
		buf_add_str(out,
			    s->kind == KIND_BDF_LIST
				    ? pci_addr_format(((const struct pci_addr *)array)[i], address)
				    : ((char *const *)array)[i]);
	}
	buf_add_char(out, ']');
}

void config_setting_format(const struct config_setting *s, const struct config *c, struct buf *out)
{
	switch (s->kind) {
	case KIND_PATH:
	case KIND_SOCKET:
	case KIND_LIBRARY:
	case KIND_LISTEN:
	case KIND_TEXT:
		buf_add_str(out, *(char *const *)at(c, s->offset) ?: "");
		return;
	case KIND_COUNT:
		buf_printf(out, "%u", *(const uint32_t *)at(c, s->offset));
		return;
	case KIND_DURATION:
		format_duration(out, *(const uint64_t *)at(c, s->offset));
		return;
	case KIND_CHOICE:
		buf_add_str(out, s->choice(*(const unsigned *)at(c, s->offset)));
		return;
	case KIND_BDF_LIST:
	case KIND_PATH_LIST:
	case KIND_PREFIX_LIST:
	case KIND_TEXT_LIST:
	case KIND_MIX_LIST:
		format_list(s, c, out);
		return;
	}
}

static int copy_text(const struct config_setting *s, struct config *to, const struct config *from)
{
	const char *text = *(char *const *)at(from, s->offset);
	char **field = at(to, s->offset);
	char *copy = NULL;

	if (text) {
		copy = strdup(text);
		if (!copy)
			return -ENOMEM;
	}
	free(*field);
	*field = copy;
	return 0;
}

static int copy_list(const struct config_setting *s, struct config *to, const struct config *from)
{
	const size_t n = *(const size_t *)at(from, s->count_offset);
	char *const *array = get_array(s, from);
	int r = 0;

	assert(s->kind != KIND_BDF_LIST);
	config_setting_clear(s, to);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = add_string(s, to, array[i], NULL);
	return r;
}

int config_setting_copy(const struct config_setting *s, struct config *to,
			const struct config *from)
{
	assert(s->kind < KIND_COUNT || config_setting_is_list(s));
	return config_setting_is_list(s) ? copy_list(s, to, from) : copy_text(s, to, from);
}

static int set_default(const struct config_setting *s, struct config *c)
{
	_free_ char *text = NULL;
	char *item, *rest;
	int r = 0;

	if (!s->standard)
		return 0;
	if (!config_setting_is_list(s))
		return config_setting_set(s, c, s->standard, s->kind == KIND_COUNT, NULL);
	text = strdup(s->standard);
	if (!text)
		return -ENOMEM;
	rest = text;
	while (r == 0 && (item = strsep(&rest, " ")))
		r = config_setting_set(s, c, item, false, NULL);
	return r;
}

int config_set_defaults(struct config *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		int r = set_default(&settings[i], c);

		if (r < 0)
			return r;
	}
	return 0;
}

void config_clear(struct config *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		const struct config_setting *s = &settings[i];

		if (config_setting_is_list(s))
			config_setting_clear(s, c);
		else if (s->kind < KIND_COUNT)
			free(*(char **)at(c, s->offset));
	}
	*c = (struct config){ 0 };
}

static const char *const sections[] = { "gpu", "sentinel", "recover", "tls" };

_Static_assert(ARRAY_SIZE(settings) <= CONFIG_SETTINGS_MAX, "raise CONFIG_SETTINGS_MAX");
_Static_assert(ARRAY_SIZE(sections) <= CONFIG_SECTIONS_MAX, "raise CONFIG_SECTIONS_MAX");

int config_section_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++)
		if (strcmp(sections[i], name) == 0)
			return (int)i;
	return -ENOENT;
}

const char *config_section_name(int section)
{
	return section < (int)ARRAY_SIZE(sections) ? sections[section] : NULL;
}
