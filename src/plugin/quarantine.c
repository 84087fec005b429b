/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/quarantine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/file.h"

#define RECORDS_MAX 4096

static int take_records(const json_t *records, struct pci_addr *vfs, unsigned *n, struct error *err)
{
	const json_t *record;
	size_t i;

	json_array_foreach((json_t *)records, i, record) {
		const char *text = json_string_value(json_object_get(record, "vf_address"));
		struct pci_addr vf;

		if (!text || pci_addr_parse(text, &vf) < 0)
			return error_set(err, EINVAL, "record %zu has no vf_address", i + 1);
		if (json_object_get(record, "quarantined_at"))
			vfs[(*n)++] = vf;
	}
	return 0;
}

int quarantine_parse(const char *text, size_t len, struct pci_addr **ret, unsigned *ret_n,
		     struct error *err)
{
	_free_ struct pci_addr *vfs = NULL;
	const json_t *records;
	json_error_t json_err;
	unsigned n = 0;
	json_t *root;
	int r;

	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &json_err);
	if (!root)
		return error_set(err, EINVAL, "line %d: %s", json_err.line, json_err.text);
	records = json_object_get(root, "records");
	if (json_integer_value(json_object_get(root, "version")) != 1)
		r = error_set(err, EINVAL, "its version is not 1");
	else if (!json_is_array(records) || json_array_size(records) > RECORDS_MAX)
		r = error_set(err, EINVAL, "it has no list of records");
	else {
		vfs = calloc(json_array_size(records) + 1, sizeof *vfs);
		r = vfs ? take_records(records, vfs, &n, err)
			: error_set(err, ENOMEM, "out of memory");
	}
	json_decref(root);
	if (r < 0)
		return r;
	*ret = TAKE(vfs);
	*ret_n = n;
	return 0;
}

int quarantine_load(const char *path, struct quarantine *q, struct error *err)
{
	struct pci_addr *vfs = NULL;
	_free_ char *text = NULL;
	unsigned n = 0;
	bool changed;
	size_t len;
	int r;

	r = file_read_at(AT_FDCWD, path, QUARANTINE_FILE_MAX, &text, &len);
	if (r == 0) {
		r = quarantine_parse(text, len, &vfs, &n, err);
	} else if (r == -ENOENT || r == -ENOTDIR) {
		r = 0;
	} else {
		error_set_errno(err, r, "%s", path);
	}
	changed = (r < 0) != q->unreadable && !q->loaded;
	q->unreadable = r < 0;
	if (r < 0)
		return r;
	q->loaded = true;
	changed |= n != q->n || (n > 0 && memcmp(vfs, q->vfs, n * sizeof *vfs) != 0);
	free(q->vfs);
	q->vfs = vfs;
	q->n = n;
	return changed;
}

void quarantine_done(struct quarantine *q)
{
	free(q->vfs);
	*q = (struct quarantine){ 0 };
}
