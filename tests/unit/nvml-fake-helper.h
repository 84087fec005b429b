/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For test-nvml-client: a helper that answers queries with little in them, or misbehaves in the way
 * that the name of its library says.
 */
#pragma once

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/channel.h"
#include "base/str.h"
#include "nvml/message.h"

static const char *mode;
static struct nvml_card_message out;

static void send_or_exit(const void *msg, size_t len)
{
	if (channel_send(CHANNEL_FD, msg, len) < 0)
		_exit(0);
}

static void send_card(const struct nvml_query *q, uint32_t i)
{
	unsigned n = !strcmp(mode, "big") ? PROFILE_TYPES_MAX : 1;

	memset(&out, 0, sizeof out);
	out.kind = NVML_MESSAGE_CARD;
	out.sequence = q->sequence;
	out.card.address = q->cards[i];
	out.card.mode = NVML_MODE_MIXED;
	snprintf(out.card.name, sizeof out.card.name, "card\n%u", i);
	out.card.n_types = n;
	for (unsigned t = 0; t < n; t++) {
		out.card.types[t].profile.type_id = out.card.types[t].placement.type_id = 1000 + t;
		strcpy(out.card.types[t].profile.name, "NVIDIA \xff-4Q");
	}
	if (!strcmp(mode, "address"))
		out.card.address.bus ^= 1;
	if (!strcmp(mode, "bool"))
		memset(&out.card.instances_known, 2, 1);
	if (!strcmp(mode, "type"))
		out.card.types[0].profile.type_id = out.card.types[0].placement.type_id = 0;
	send_or_exit(&out, nvml_card_message_size(&out) - (!strcmp(mode, "length") ? 1 : 0));
}

static void send_end(const struct nvml_query *q)
{
	struct nvml_end_message end;

	memset(&end, 0, sizeof end);
	end.kind = !strcmp(mode, "kind") ? NVML_MESSAGE_QUERY : NVML_MESSAGE_END;
	end.sequence = q->sequence;
	end.query_usec = 42;
	strcpy(end.driver, "580.178.05");
	end.restart = !strcmp(mode, "restart") || !strcmp(mode, "library");
	if (!strcmp(mode, "library")) {
		end.reason = NVML_REASON_LIBRARY;
		end.nvml_error = 18;
		strcpy(end.text, "nvmlInit_v2: mismatch (18)");
	}
	send_or_exit(&end, sizeof end - (!strcmp(mode, "end-length") ? 1 : 0));
}

/* The modes that never come to a whole answer. */
static void misbehave(const struct nvml_query *q)
{
	if (!strcmp(mode, "hang"))
		for (;;)
			pause();
	if (!strcmp(mode, "close")) {
		close(CHANNEL_FD);
		for (;;)
			pause();
	}
	if (!strcmp(mode, "crash"))
		raise(SIGKILL);
	if (!strcmp(mode, "exit"))
		_exit(3);
	if (!strcmp(mode, "half")) {
		send_card(q, 0);
		_exit(4);
	}
	if (!strcmp(mode, "early")) {
		send_card(q, 0);
		send_end(q);
	}
	if (!strcmp(mode, "tiny"))
		send_or_exit("x", 1);
	if (!strcmp(mode, "huge")) {
		static char bytes[sizeof out + 1];

		send_or_exit(bytes, sizeof bytes);
	}
}

static void be_helper(const char *library)
{
	struct nvml_query q;
	struct stat st;
	size_t len;

	mode = library;
	if (str_starts_with(library, "once:")) {
		const char *dir = getenv("BERTH_HELPER_DIR");
		char flag[PATH_MAX];
		FILE *f;

		snprintf(flag, sizeof flag, "%s/flag", dir);
		mode = library + strlen("once:");
		if (stat(flag, &st) == 0)
			mode = "good";
		else if ((f = fopen(flag, "w")))
			fclose(f);
	}
	while (channel_recv(CHANNEL_FD, &q, sizeof q, &len) > 0) {
		misbehave(&q);
		if (!strcmp(mode, "gives-up") && q.sequence == 1) {
			send_card(&q, 0);
			continue;
		}
		if (!strcmp(mode, "stale")) {
			q.sequence--;
			send_card(&q, 0);
			send_end(&q);
			q.sequence++;
		}
		for (uint32_t i = 0; i < q.n_cards; i++)
			send_card(&q, i);
		if (!strcmp(mode, "more"))
			send_card(&q, 0);
		send_end(&q);
		if (!strcmp(mode, "last"))
			_exit(0);
		if (!strcmp(mode, "babble"))
			send_end(&q);
	}
	if (!strcmp(mode, "deaf"))
		for (;;)
			pause();
	_exit(0);
}
