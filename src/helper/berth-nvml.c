/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth-nvml: the only process that loads libnvidia-ml.so.1.
 *
 * Answers queries that arrive on CHANNEL_FD until end of file. A call may hang in the driver for
 * ever or crash; then this process is what is lost. The library is loaded and initialised by the
 * first query and stays so: that holds /dev/nvidia* open, which blocks changes of SR-IOV until the
 * process ends.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/channel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "nvml/query.h"

static void usage(FILE *f)
{
	fputs("Usage: berth-nvml --library PATH\n"
	      "Asks NVML about vGPUs on behalf of berthd, which starts it with a socket at "
	      "descriptor 3.\n"
	      "\n"
	      "  --library PATH  libnvidia-ml.so.1, by path or by name\n"
	      "  --help          this text\n"
	      "  --version       the version\n"
	      "\n"
	      "Examples:\n"
	      "  berth gpus            (asks berthd, which asks this program)\n"
	      "  berth doctor          (whether NVML works; without berthd by way of this "
	      "program)\n"
	      "  berth driver release  (ends it, so that /dev/nvidia* is free)\n"
	      "See berth-nvml(8).\n",
	      f);
}

/* A newer query, or the end: nobody waits for the answer to this one. */
static bool something_waits(void)
{
	struct pollfd p = { .fd = CHANNEL_FD, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* Loads the library if that is still to be done. NULL, and the reason in `end`, when it cannot be.
 */
static struct nvml_session *open_session(const char *library, struct nvml_end_message *end)
{
	struct error err = ERROR_INIT;
	struct nvml_session *s = NULL;
	struct nvml_api api;
	int r;

	r = nvml_api_load(library, &api, &err);
	if (r < 0) {
		end->reason = NVML_REASON_LIBRARY;
		/* A file that was mapped stays mapped: a better one needs another process. */
		end->restart = r == -ENOSYS;
		str_copy_cut(end->text, sizeof end->text, error_text(&err));
		return NULL;
	}
	if (nvml_session_new(&api, &s) < 0) {
		end->reason = NVML_REASON_ERROR;
		str_copy_cut(end->text, sizeof end->text, "out of memory");
		return NULL;
	}
	nvml_session_set_interrupted(s, something_waits);
	return s;
}

static int send_message(const void *msg, size_t len)
{
	int r = channel_send(CHANNEL_FD, msg, len);

	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		log_error("channel: cannot send bytes=%zu: %s", len, strerror(-r));
	return r;
}

static int answer_query(const char *library, struct nvml_session **session,
			const struct nvml_query *q)
{
	static struct nvml_card_message card;
	struct nvml_end_message end;
	uint64_t begun = clock_now_usec();
	int r;

	/* Padding is sent as well. */
	memset(&end, 0, sizeof end);
	end.kind = NVML_MESSAGE_END;
	end.sequence = q->sequence;
	if (!*session)
		*session = open_session(library, &end);
	if (*session && nvml_session_start(*session, begun, &end)) {
		nvml_session_set_mixed(*session, q->set_mixed);
		for (uint32_t i = 0; i < q->n_cards; i++) {
			card.kind = NVML_MESSAGE_CARD;
			card.sequence = q->sequence;
			if (!nvml_session_query_card(*session, q->cards[i], &card.card))
				return 0;
			r = send_message(&card, nvml_card_message_size(&card));
			if (r < 0)
				return r;
		}
		nvml_session_finish(*session, clock_now_usec(), &end);
	}
	end.query_usec = clock_now_usec() - begun;
	return send_message(&end, sizeof end);
}

/* Returns the exit status. */
static int serve(const char *library)
{
	struct nvml_session *session = NULL;
	struct nvml_query query;
	size_t len;
	int status = 1;
	int r;

	for (;;) {
		r = channel_recv(CHANNEL_FD, &query, sizeof query, &len);
		if (r == 0)
			status = 0;
		else if (r < 0)
			log_error("channel: cannot receive: %s", strerror(-r));
		if (r <= 0)
			break;
		if (len != sizeof query || query.kind != NVML_MESSAGE_QUERY ||
		    query.version != NVML_MESSAGE_VERSION || query.n_cards > NVML_CARDS_MAX) {
			log_error("channel: not a query of version %d, ending",
				  NVML_MESSAGE_VERSION);
			break;
		}
		r = answer_query(library, &session, &query);
		if (r < 0) {
			/* Nobody is left to answer to. */
			status = r == -EPIPE || r == -ECONNRESET ? 0 : 1;
			break;
		}
	}
	nvml_session_free(session);
	return status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "library", required_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};
	const char *library = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'l':
			library = optarg;
			break;
		case 'h':
			usage(stdout);
			return 0;
		case 'v':
			puts("berth-nvml " BERTH_VERSION);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (!library || optind != argc) {
		usage(stderr);
		return 2;
	}
	log_init("berth-nvml", LOG_LEVEL_INFO);
	/* A signal to the whole group or unit: NVML is still shut down in order, at the end of file
	 * that the parent, which gets the signal too, brings about. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	return serve(library);
}
