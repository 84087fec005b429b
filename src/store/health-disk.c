/* SPDX-License-Identifier: Apache-2.0 */
#include "store/health-disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "store/health-store.h"

#define FILE_BYTES_MAX (16U << 20)
/* A file changed twice within a tick of the kernel's clock has the same times both times, so one
 * that was changed just before the look is looked at once more. */
#define SETTLED_NSEC INT64_C(100000000)

int health_disk_init(struct health_disk *d, const char *data_dir)
{
	*d = (struct health_disk){ 0 };
	d->folder = str_printf("%s/gpu", data_dir);
	d->path = str_printf("%s/gpu/vf-health.json", data_dir);
	if (d->folder && d->path)
		return 0;
	health_disk_done(d);
	return -ENOMEM;
}

void health_disk_done(struct health_disk *d)
{
	free(d->folder);
	free(d->path);
	*d = (struct health_disk){ 0 };
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool is_settled(const struct stat *st)
{
	struct timespec now;
	int64_t age;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	/* Far from now on either side: someone set the clock or the time. */
	if (llabs((long long)now.tv_sec - (long long)st->st_mtim.tv_sec) > 1)
		return true;
	age = (now.tv_sec - st->st_mtim.tv_sec) * INT64_C(1000000000) + now.tv_nsec -
	      st->st_mtim.tv_nsec;
	return age > SETTLED_NSEC || age < -SETTLED_NSEC;
}

static void remember(struct health_disk *d, const struct stat *st)
{
	d->exists = true;
	d->n_missing = 0;
	d->st = *st;
	d->settled = is_settled(st);
}

/* -ENOENT when there is none; no other failure gives that. */
static int read_file(const char *path, struct health *ret, struct stat *ret_st, struct error *err)
{
	_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	_free_ char *text = NULL;
	struct stat st;
	size_t len;
	int r;

	if (fd < 0)
		return error_set_errno(err, errno, "%s", path);
	if (fstat(fd, &st) < 0)
		return error_set_errno(err, errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, EINVAL, "%s: not a regular file", path);
	r = file_read_fd(fd, FILE_BYTES_MAX, &text, &len);
	if (r < 0)
		return error_set_errno(err, r == -ENOENT ? EIO : r, "%s", path);
	r = health_parse(text, len, ret, err);
	if (r < 0)
		return error_wrap(err, "%s", path);
	*ret_st = st;
	return 0;
}

/* A writer that was killed between its fsync and its rename left a whole file; before that, a cut
 * one. */
static int take_over(struct health_disk *d, struct health *ret, struct error *note,
		     struct error *err)
{
	_free_ char *tmp = str_printf("%s.tmp", d->path);
	struct health h = { 0 };
	struct stat st = { 0 };
	int r;

	if (!tmp)
		return error_set(err, ENOMEM, "out of memory");
	r = read_file(tmp, &h, &st, err);
	if (r == -ENOENT) {
		*ret = h;
		return 1;
	}
	if (r == -EINVAL) {
		(void)error_set(note, 0, "starting without records, none were stored: %s",
				error_text(err));
		if (unlink(tmp) < 0)
			return error_set_errno(err, errno, "%s: removing it", tmp);
		*ret = h;
		return 1;
	}
	if (r < 0)
		return r;
	if (rename(tmp, d->path) < 0)
		r = -errno;
	else
		r = file_sync_folder_of(d->path);
	if (r < 0) {
		health_done(&h);
		return error_set_errno(err, r, "%s: taking it over", tmp);
	}
	remember(d, &st);
	(void)error_set(note, 0, "%s: taken over, there was no file without .tmp", tmp);
	*ret = h;
	return 1;
}

/* A file that was there may be missing for the moment in which an editor replaces it; one that
 * stays away was removed by somebody, which says what an empty one would. */
static int look_at_nothing(struct health_disk *d, struct health *ret, struct error *note,
			   struct error *err)
{
	struct stat st;

	if (!d->prepared && !d->exists)
		return take_over(d, ret, note, err);
	if (stat(d->folder, &st) < 0)
		return error_set_errno(err, errno == ENOENT ? ENOTDIR : errno,
				       "%s: the folder is gone", d->folder);
	if (d->exists && d->n_missing++ == 0)
		return error_set(err, ENOENT, "%s: the file is gone", d->path);
	if (d->exists)
		(void)error_set(note, 0, "%s: the file was removed, there are no records now",
				d->path);
	d->exists = false;
	*ret = (struct health){ 0 };
	return 1;
}

static int make_folder(const struct health_disk *d, struct error *err)
{
	int r = file_make_dirs(d->folder, 0755);

	if (r == 0)
		r = file_sync_folder_of(d->folder);
	return r < 0 ? error_set_errno(err, r, "%s", d->folder) : 0;
}

/* Of a state file that is in use, a temporary one beside it is older than it or was never complete.
 */
static void drop_leftover(const struct health_disk *d)
{
	_free_ char *tmp = str_printf("%s.tmp", d->path);

	/* If it cannot go, the next write says so. */
	if (tmp)
		(void)unlink(tmp);
}

bool health_disk_is_unchanged(const struct health_disk *d)
{
	struct stat st;

	if (!d->prepared)
		return false;
	if (lstat(d->path, &st) < 0)
		return errno == ENOENT && !d->exists;
	return d->exists && d->settled && is_same_file(&st, &d->st);
}

int health_disk_look(struct health_disk *d, bool force, struct health *ret, struct error *note,
		     struct error *err)
{
	struct stat st = { 0 };
	int r;

	*note = ERROR_INIT;
	if (!force && health_disk_is_unchanged(d))
		return 0;
	if (!d->prepared) {
		r = make_folder(d, err);
		if (r < 0)
			return r;
	}
	r = read_file(d->path, ret, &st, err);
	if (r == -ENOENT) {
		r = look_at_nothing(d, ret, note, err);
		d->prepared = d->prepared || r >= 0;
		return r;
	}
	/* Whatever is wrong with it, it is there. */
	d->n_missing = 0;
	if (r < 0) {
		d->exists = true;
		d->settled = false;
		return r;
	}
	if (!d->prepared)
		drop_leftover(d);
	d->prepared = true;
	remember(d, &st);
	return 1;
}

int health_disk_write(struct health_disk *d, const struct health *h, struct error *err)
{
	_free_ char *text = NULL;
	struct stat st;
	size_t len;
	int r;

	r = health_render(h, &text, &len);
	if (r < 0)
		return error_set_errno(err, r, "%s", d->path);
	st.st_ino = 0; /* of no file */
	r = file_replace_stat(d->path, text, len, 0644, &st);
	if (st.st_ino != 0)
		remember(d, &st);
	return r < 0 ? error_set_errno(err, r, "%s: writing it", d->path) : 0;
}
