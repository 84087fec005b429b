/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small formats of gRPC over HTTP/2: length-prefixed messages, grpc-timeout, grpc-message,
 * content-type. Pure: bytes in, bytes out; the HTTP/2 itself is nghttp2's.
 */
#pragma once

#include "base/macro.h"
#include "grpc/grpc.h"

#define GRPC_PREFIX_SIZE 5 /* compressed flag and big-endian length */

/* Collects the one message of a body that comes in pieces. Memory grows with the bytes that came,
 * not with the length that was announced. */
struct grpc_reader {
	uint8_t prefix[GRPC_PREFIX_SIZE];
	uint8_t n_prefix;
	uint32_t size; /* announced; valid when the prefix is complete */
	uint32_t have;
	uint32_t cap;
	uint32_t max;
	uint8_t *msg;
};

void grpc_reader_init(struct grpc_reader *r, size_t max);
void grpc_reader_done(struct grpc_reader *r);
/* -EMSGSIZE: announced above max. -EOPNOTSUPP: compressed. -EBADMSG: bad flag, or more bytes than
 * one message. -ENOMEM. After a failure only grpc_reader_done() makes sense. */
int grpc_reader_feed(struct grpc_reader *r, const uint8_t *data, size_t n) _must_check_;
/* At the end of the body: 0, -ENODATA when there was no byte, -EBADMSG when it is cut short. */
int grpc_reader_finish(const struct grpc_reader *r) _must_check_;

void grpc_prefix_write(uint8_t ret[static GRPC_PREFIX_SIZE], uint32_t size);

/* "29999983u": at most 8 digits and one of H M S m u n. Nanoseconds are rounded up. -EINVAL. */
int grpc_timeout_parse(const char *text, size_t n, uint64_t *ret_usec) _must_check_;
#define GRPC_TIMEOUT_TEXT_MAX 12
/* The finest unit that 8 digits allow, rounded up. */
void grpc_timeout_format(uint64_t usec, char ret[static GRPC_TIMEOUT_TEXT_MAX]);

#define GRPC_ENCODED_TEXT_MAX (3 * GRPC_TEXT_MAX)
/* Cuts, replaces control characters, percent-encodes. */
void grpc_text_encode(const char *text, char ret[static GRPC_ENCODED_TEXT_MAX]);
/* The other way, as lenient as the specification asks: a broken escape stays as it is. */
void grpc_text_decode(const char *text, size_t n, char ret[static GRPC_TEXT_MAX]);

/* 0 to 16; anything else is GRPC_UNKNOWN. */
enum grpc_status grpc_status_parse(const char *text, size_t n);

/* "application/grpc", and what may follow it: '+' or ';' and more. */
bool grpc_content_type_ok(const char *text, size_t n);
