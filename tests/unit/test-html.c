/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "http/html.h"

#include <cmocka.h>

static void gives(void (*f)(struct buf *out, const char *text), const char *text, const char *want)
{
	_buf_ struct buf out = BUF_INIT;

	buf_add_str(&out, "\x01"); /* what is there already stays as it is */
	f(&out, text);
	assert_int_equal(buf_finish(&out), 0);
	assert_string_equal(out.data + 1, want);
	assert_int_equal(out.data[0], 1);
}

static void texts_cannot_leave_their_place(void **state)
{
	(void)state;
	gives(html_text, "", "");
	gives(html_text, "vm-1", "vm-1");
	gives(html_text, "<b>&\"'</b>", "&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;");
	gives(html_text, "&lt;", "&amp;lt;");
	gives(html_text, "a\nb\tc\033d\x7f", "a?b?c?d?");
	gives(html_text, "\xc3\xa4 \xe2\x82\xac", "\xc3\xa4 \xe2\x82\xac");
	gives(html_text, "\xff\xc3", "??");
	/* A cut character must not swallow the entity behind it. */
	gives(html_text, "\xe2\x82<", "??&lt;");
	gives(html_text, "\xc2\x85", "??");
	/* Letters that are written from right to left stay, but stir up nothing around them. */
	gives(html_outside, "\xd7\x90<", "<bdi>\xd7\x90&lt;</bdi>");
	gives(html_outside, "\xe2\x80\xae<", "<bdi>???&lt;</bdi>");
}

static void attributes_are_quoted(void **state)
{
	_buf_ struct buf out = BUF_INIT;

	(void)state;
	html_attr(&out, "title", "\" onclick=\"x");
	assert_int_equal(buf_finish(&out), 0);
	assert_string_equal(out.data, " title=\"&quot; onclick=&quot;x\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_cannot_leave_their_place),
		cmocka_unit_test(attributes_are_quoted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
