/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting text into HTML. What comes from outside (names of claims, owners, what a driver says)
 * goes through html_text() or html_attr() and nothing else.
 *
 * Both replace control characters and bytes that are no UTF-8, so that no text can end an element,
 * an attribute or the document.
 */
#pragma once

#include "base/buf.h"

/* Between tags. */
void html_text(struct buf *out, const char *text);
/* The same, set apart from what is around it: a text that changes the direction of writing cannot
 * turn its neighbours. */
void html_outside(struct buf *out, const char *text);
/* ` name="value"`, with a blank in front. */
void html_attr(struct buf *out, const char *name, const char *value);
