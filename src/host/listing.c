/* SPDX-License-Identifier: Apache-2.0 */
#include "host/listing.h"

#include <dirent.h>
#include <errno.h>

const char *listing_next(struct listing *l, int *ret_error)
{
	for (;;) {
		struct dirent64 *e;

		if (l->pos >= l->len) {
			l->len = getdents64(l->fd, l->data, sizeof l->data);
			l->pos = 0;
			if (l->len <= 0) {
				*ret_error = l->len < 0 ? -errno : 0;
				return NULL;
			}
		}
		e = (struct dirent64 *)(void *)(l->data + l->pos);
		l->pos += e->d_reclen;
		if (e->d_name[0] != '.')
			return e->d_name;
	}
}
