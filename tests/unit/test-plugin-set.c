/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/plugin-set.h"
#include "plugin/preferred.h"
#include "plugin/quarantine.h"

/* A function that is not offered, of a card whose functions can be offered under the name. */
static void add_idle(struct discovery *d, const char *name, const struct device *device)
{
	struct device_name could_be = { .card = device->card, .kind = device->kind };

	snprintf(could_be.resource, sizeof could_be.resource, "%s", name);
	snprintf(could_be.source, sizeof could_be.source, "%s", name);
	assert_int_equal(discovery_add_function(d, device), 0);
	assert_int_equal(discovery_add_name(d, &could_be), 0);
}

/* "A:0000:01:00.0 B:0000:02:00.0": devices under resources; a '!' behind one makes it unhealthy, a
 * '~' before it one that is there but not offered. */
static struct discovery *set_of(const char *text)
{
	struct discovery *d = discovery_new();
	char copy[512], *rest = copy, *word;

	assert_non_null(d);
	snprintf(copy, sizeof copy, "%s", text);
	while ((word = strsep(&rest, " "))) {
		struct device device = { .kind = DEVICE_VF, .group = 1, .numa_node = 0 };
		char *colon = strchr(word, ':'), *bang = strchr(word, '!');

		if (!colon)
			continue;
		*colon = '\0';
		if (bang) {
			*bang = '\0';
			strcpy(device.problem, "sick");
		}
		snprintf(device.id, sizeof device.id, "%s", colon + 1);
		assert_int_equal(pci_addr_parse(device.id, &device.address), 0);
		device.card = (struct pci_addr){ .bus = device.address.bus };
		if (*word == '~') {
			add_idle(d, word + 1, &device);
			continue;
		}
		assert_int_equal(discovery_add_function(d, &device), 0);
		assert_int_equal(discovery_add(d, word, word, &device, NULL), 0);
	}
	discovery_sort(d);
	return d;
}

/* The same notation, for comparing. */
static const char *text_of(const struct discovery *d)
{
	static char text[1024];
	size_t n = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < d->n_resources; i++)
		for (unsigned k = 0; k < d->resources[i].n_devices; k++) {
			const struct device *v = &d->resources[i].devices[k];

			n += (size_t)snprintf(text + n, sizeof text - n, "%s%s:%s%s", n ? " " : "",
					      d->resources[i].name, v->id,
					      device_problem(v) ? "!" : "");
		}
	return text;
}

static const char *changes_of(const char *from, const char *to)
{
	struct discovery *a = from ? set_of(from) : NULL, *b = set_of(to);
	struct set_change *changes;
	static char text[512];
	size_t n = 0;
	unsigned count;

	assert_int_equal(plugin_set_diff(a, b, &changes, &count), 0);
	text[0] = '\0';
	for (unsigned i = 0; i < count; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%c%s+%u-%u", n ? " " : "",
				      "sux"[changes[i].kind], changes[i].resource, changes[i].added,
				      changes[i].removed);
	free(changes);
	discovery_free(a);
	discovery_free(b);
	return text;
}

#define V1 "0000:01:00.4"
#define V2 "0000:01:00.5"
#define V3 "0000:02:00.4"

static void test_diff(void **state)
{
	static const struct {
		const char *from, *to, *changes;
	} cases[] = {
		{ NULL, "A:" V1 " B:" V2, "sA+1-0 sB+1-0" },
		{ "A:" V1, "A:" V1, "" },		    /* nothing changed */
		{ "A:" V2 " A:" V1, "A:" V1 " A:" V2, "" }, /* nor does the order count */
		{ "A:" V1, "A:" V1 " A:" V2, "uA+1-0" },
		{ "A:" V1 " A:" V2, "A:" V2, "uA+0-1" },
		{ "A:" V1 " A:" V2, "A:" V1 " A:" V3, "uA+1-1" },
		{ "A:" V1, "A:" V1 "!", "uA+0-0" },	 /* health */
		{ "A:" V1 " B:" V2, "B:" V2, "xA+0-1" }, /* B is left alone */
		{ "A:" V1 " B:" V2, "A:" V1 " A:" V2, "uA+1-0 xB+0-1" },
		{ "A:" V1, "", "xA+0-1" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(changes_of(cases[i].from, cases[i].to), cases[i].changes);
}

/* pods: NULL not asked, "?" no answer yet, else "A:..." as above. */
static void check_compute(const char *scanned, const char *current, const char *pods,
			  const char *sick, const char *expected)
{
	struct discovery *s = set_of(scanned), *c = current ? set_of(current) : NULL, *next;
	struct pod_devices p = { .asked = pods != NULL, .known = pods && *pods != '?' };
	struct pci_addr vf;
	struct quarantine q = { .loaded = true };

	if (p.known) {
		struct discovery *had = set_of(pods);

		for (unsigned i = 0; i < had->n_resources; i++)
			for (unsigned k = 0; k < had->resources[i].n_devices; k++)
				assert_int_equal(pod_devices_add(&p, had->resources[i].name,
								 strlen(had->resources[i].name),
								 had->resources[i].devices[k].id),
						 0);
		discovery_free(had);
	}
	if (sick) {
		assert_int_equal(pci_addr_parse(sick, &vf), 0);
		q.vfs = &vf;
		q.n = 1;
	}
	assert_int_equal(plugin_set_compute(s, c, &p, &q, &next), 0);
	assert_string_equal(text_of(next), expected);
	discovery_free(next);
	discovery_free(s);
	discovery_free(c);
	pod_devices_done(&p);
}

static void test_compute(void **state)
{
	(void)state;
	/* Without pods the set follows the scan. */
	check_compute("A:" V1, NULL, NULL, NULL, "A:" V1);
	check_compute("A:" V1, "A:" V1 " A:" V2 " B:" V3, NULL, NULL, "A:" V1);
	/* What a pod has stays, unhealthy; what none has goes. */
	check_compute("A:" V1, "A:" V1 " A:" V2 " B:" V3, "A:" V2, NULL, "A:" V1 " A:" V2 "!");
	check_compute("", "A:" V1 " B:" V3, "B:" V3, NULL, "B:" V3 "!");
	/* A pod that has the ID under another resource does not count. */
	check_compute("", "A:" V1, "B:" V1, NULL, "");
	/* No answer yet: everything may be had. */
	check_compute("", "A:" V1 " B:" V3, "?", NULL, "A:" V1 "! B:" V3 "!");
	/* Reconfigured while a pod has it: not for others under its new name. */
	check_compute("B:" V1, "A:" V1, "A:" V1, NULL, "A:" V1 "!");
	check_compute("B:" V1, "A:" V1, "", NULL, "B:" V1);
	/* It returned: healthy again. */
	check_compute("A:" V1, "A:" V1 "!", "A:" V1, NULL, "A:" V1);
	/* Since before the start: it stays listed, and is not offered under another name. */
	check_compute("~A:" V1, NULL, "A:" V1, NULL, "A:" V1 "!");
	check_compute("A:" V1 " ~A:" V2, NULL, "A:" V2, NULL, "A:" V1 " A:" V2 "!");
	check_compute("B:" V1 " ~A:" V2, NULL, "A:" V1, NULL, "A:" V1 "!");
	check_compute("B:" V1 " B:" V2, NULL, "A:" V1, NULL, "B:" V2);
	check_compute("~A:" V1, NULL, "?", NULL, "");
	check_compute("~A:" V1, NULL, "", NULL, "");
	check_compute("A:" V1, NULL, "A:" V2, NULL, "A:" V1 " A:" V2 "!"); /* off the bus */
	/* Another plugin's: neither the name nor the device is ours. */
	check_compute("A:" V1, NULL, "C:" V2, NULL, "A:" V1);
	check_compute("~A:" V1, NULL, "C:" V1, NULL, "");
	check_compute("~A:" V3, NULL, "A:" V1, NULL, "");
	/* Quarantined: unhealthy where a pod has or may have it, else gone. */
	check_compute("A:" V1 " A:" V2, NULL, NULL, V1, "A:" V1 "! A:" V2);
	check_compute("A:" V1 " A:" V2, NULL, "A:" V1, V1, "A:" V1 "! A:" V2);
	check_compute("A:" V1 " A:" V2, NULL, "A:" V2, V1, "A:" V2);
	check_compute("A:" V1 " A:" V2, NULL, "?", V1, "A:" V1 "! A:" V2);
}

static void test_presence_is_carried_over(void **state)
{
	struct discovery *scanned = set_of("A:" V1 " A:" V2), *current = set_of("A:" V1), *next;
	struct pod_devices pods = { 0 };
	struct quarantine q = { .loaded = true };

	(void)state;
	strcpy(current->resources[0].devices[0].presence, "its node is missing");
	assert_int_equal(plugin_set_compute(scanned, current, &pods, &q, &next), 0);
	assert_string_equal(text_of(next), "A:" V1 "! A:" V2);
	discovery_free(next);
	discovery_free(scanned);
	discovery_free(current);
}

static void test_names_are_for_one_source(void **state)
{
	struct device vf = { .kind = DEVICE_VF }, mdev = { .kind = DEVICE_MDEV };
	struct discovery *d = discovery_new();

	(void)state;
	assert_int_equal(discovery_add(d, "A", "NVIDIA A", &vf, NULL), 0);
	assert_int_equal(discovery_add(d, "A", "NVIDIA B", &vf, NULL), -EEXIST);
	assert_int_equal(discovery_add(d, "A", "NVIDIA A", &mdev, NULL), -EEXIST);
	assert_int_equal(d->resources[0].n_devices, 1);
	discovery_free(d);
}

/* Devices of node and card; what is chosen of them. */
static void check_choice(const char *must, unsigned size, const char *expected)
{
	static const struct {
		const char *id;
		int node;
		uint8_t card;
	} devices[] = {
		{ "a1", 0, 1 }, { "a2", 0, 2 }, { "a3", 0, 2 },
		{ "b1", 1, 3 }, { "b2", 1, 3 }, { "n1", -1, 4 },
	};
	struct resource r = { .n_devices = ARRAY_SIZE(devices) };
	const char *available[ARRAY_SIZE(devices)], *musts[4];
	struct device list[ARRAY_SIZE(devices)] = { 0 };
	unsigned chosen[PREFERRED_MAX], n_must = 0;
	char copy[64], *rest = copy, *word, text[128] = "";
	int n;

	r.devices = list;
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
		strcpy(list[i].id, devices[i].id);
		list[i].numa_node = devices[i].node;
		list[i].card.bus = devices[i].card;
		available[ARRAY_SIZE(devices) - 1 - i] =
			devices[i].id; /* a kubelet's order means nothing */
	}
	snprintf(copy, sizeof copy, "%s", must);
	while ((word = strsep(&rest, " ")))
		if (*word)
			musts[n_must++] = word;
	n = preferred_choose(&r, available, ARRAY_SIZE(devices), musts, n_must, size, chosen);
	if (!expected) {
		assert_int_equal(n, -EINVAL);
		return;
	}
	for (int i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "",
			 available[chosen[i]]);
	assert_string_equal(text, expected);
}

static void test_preferred(void **state)
{
	(void)state;
	check_choice("", 0, "");
	check_choice("", 2, "b1 b2");	    /* the node that is just large enough */
	check_choice("", 3, "a1 a2 a3");    /* one node */
	check_choice("", 4, "a1 a2 a3 b1"); /* the largest first */
	check_choice("", 9, "a1 a2 a3 b1 b2 n1");
	check_choice("a2", 2, "a2 a3"); /* its node, and on it its card */
	check_choice("n1", 2, "n1 b1");
	check_choice("b2 a1", 3,
		     "b2 a1 b1");	/* both nodes are in use: the smaller one that is enough */
	check_choice("a1 a2", 1, NULL); /* more than wanted */
	check_choice("zz", 1, NULL);	/* not available */
}

static void test_quarantine_file(void **state)
{
	static const struct {
		const char *text;
		int n;
	} cases[] = {
		{ "{\"version\": 1, \"records\": []}", 0 },
		{ "{\"version\": 1, \"records\": [{\"vf_address\": \"0000:41:00.4\", \"failures\": "
		  "[]}]}",
		  0 },
		{ "{\"version\": 1, \"records\": [{\"vf_address\": \"0000:41:00.4\", "
		  "\"quarantined_at\": \"x\"}]}",
		  1 },
		{ "", -1 },
		{ "{}", -1 },
		{ "{\"version\": 2, \"records\": []}", -1 },
		{ "{\"version\": 1}", -1 },
		{ "{\"version\": 1, \"records\": [{}]}", -1 },
		{ "{\"version\": 1, \"records\": []} x", -1 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct pci_addr *vfs = NULL;
		unsigned n = 0;
		int r = quarantine_parse(cases[i].text, strlen(cases[i].text), &vfs, &n, NULL);

		assert_int_equal(r < 0 ? -1 : (int)n, cases[i].n);
		free(vfs);
	}
}

static void test_unreadable_is_not_empty(void **state)
{
	struct pci_addr vf = { .bus = 0x41 };
	struct quarantine q = { 0 };

	(void)state;
	assert_true(quarantine_load("/proc/self/mem", &q, NULL) < 0);
	assert_true(quarantine_has(&q, vf)); /* nothing was ever known: nothing counts as well */
	assert_int_equal(quarantine_load("/nonexistent/file", &q, NULL), 1);
	assert_false(quarantine_has(&q, vf));
	assert_true(quarantine_load("/proc/self/mem", &q, NULL) < 0);
	assert_false(quarantine_has(&q, vf)); /* as known last */
	quarantine_done(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_diff),
		cmocka_unit_test(test_compute),
		cmocka_unit_test(test_presence_is_carried_over),
		cmocka_unit_test(test_names_are_for_one_source),
		cmocka_unit_test(test_preferred),
		cmocka_unit_test(test_quarantine_file),
		cmocka_unit_test(test_unreadable_is_not_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
