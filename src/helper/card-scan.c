/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/card-scan.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

struct card_scan_waiter {
	struct card_reply *reply;
	bool done;
};

void card_scan_init(struct card_scan *s, const struct holders_roots *roots, int canary_fd)
{
	*s = (struct card_scan){ .roots = *roots, .canary_fd = canary_fd };
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
}

static void hand_out(struct card_reply *reply, const struct holders_vf *vfs, bool partial,
		     int result, const struct error *err)
{
	bool unknown = false;

	for (unsigned i = 0; i < reply->n_vfs; i++) {
		reply->vfs[i].open = vfs ? vfs[i].open : CARD_OPEN_UNKNOWN;
		unknown |= reply->vfs[i].open == CARD_OPEN_UNKNOWN;
	}
	if (vfs && reply->n_vfs > 0)
		str_copy_cut(reply->holder, sizeof reply->holder, vfs[0].holder);
	reply->scan_partial = partial;
	if (result < 0)
		str_copy_cut(reply->text, sizeof reply->text, error_text(err));
	else if (unknown)
		str_copy_cut(reply->text, sizeof reply->text, "a VFIO node could not be looked at");
}

static void scan_for(const struct card_scan *s, struct card_scan_waiter *const *waiters,
		     unsigned n_waiters)
{
	_free_ struct holders_vf *vfs = NULL;
	struct error err = ERROR_INIT;
	unsigned total = 0, at = 0;
	bool partial = false;
	int r;

	for (unsigned w = 0; w < n_waiters; w++)
		total += waiters[w]->reply->n_vfs;
	vfs = calloc(MAX(total, 1U), sizeof *vfs);
	if (vfs) {
		for (unsigned w = 0; w < n_waiters; w++)
			for (unsigned i = 0; i < waiters[w]->reply->n_vfs; i++)
				vfs[at++].vf = waiters[w]->reply->vfs[i].address;
		r = holders_scan(&s->roots, s->canary_fd, vfs, total, &partial, &err);
	} else {
		r = error_set_errno(&err, ENOMEM, "open-handle scan");
	}
	at = 0;
	for (unsigned w = 0; w < n_waiters; w++) {
		hand_out(waiters[w]->reply, vfs ? vfs + at : NULL, partial, r, &err);
		at += waiters[w]->reply->n_vfs;
	}
}

/* Called with the lock held, which is let go for the scan. */
static void scan_for_all(struct card_scan *s)
{
	struct card_scan_waiter *waiters[CARD_SCAN_WAITERS_MAX];
	unsigned n = s->n_waiting;

	memcpy(waiters, s->waiting, n * sizeof(waiters[0]));
	s->n_waiting = 0;
	s->running = true;
	pthread_mutex_unlock(&s->lock);
	scan_for(s, waiters, n);
	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < n; i++)
		waiters[i]->done = true;
	s->running = false;
	pthread_cond_broadcast(&s->changed);
}

void card_scan_run(struct card_scan *s, struct card_reply *reply)
{
	struct card_scan_waiter self = { .reply = reply };

	pthread_mutex_lock(&s->lock);
	s->waiting[s->n_waiting++] = &self;
	while (!self.done) {
		if (s->running)
			pthread_cond_wait(&s->changed, &s->lock);
		else
			scan_for_all(s);
	}
	pthread_mutex_unlock(&s->lock);
}
