/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "config/schema.h"

#define NAME_SHOWN_MAX 100

struct reader {
	yaml_parser_t yaml;
	yaml_event_t event; /* the present one */
	const char *text;
	size_t len;
	const char *name;
	char path[CONFIG_PATH_MAX * 2];	  /* of the key that is being read; empty at the top */
	size_t seen[CONFIG_SETTINGS_MAX]; /* line of each setting met so far; 0: not met */
	size_t section_seen[CONFIG_SECTIONS_MAX];
	struct config *config;
	struct error *err;
};

static const char *shown_name(const char *name)
{
	const char *slash = strrchr(name, '/');

	/* A path so long would leave no room for what is wrong. */
	return slash && strlen(name) > NAME_SHOWN_MAX ? slash + 1 : name;
}

/* "NAME:LINE: KEY: sentence". */
static int refuse_at(struct reader *r, size_t line, const char *fmt, ...) _printf_(3, 4);
static int refuse_at(struct reader *r, size_t line, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	str_sanitize(text, strlen(text));
	return error_set(r->err, EINVAL, "%.100s:%zu: %.60s%s%s", shown_name(r->name), line,
			 r->path, r->path[0] ? ": " : "", text);
}

static size_t line_of(const struct reader *r)
{
	return r->event.start_mark.line + 1;
}

static size_t line_at_offset(const struct reader *r, size_t offset)
{
	size_t line = 1;

	for (size_t i = 0; i < MIN(offset, r->len); i++)
		line += r->text[i] == '\n';
	return line;
}

static int refuse_syntax(struct reader *r)
{
	const yaml_parser_t *y = &r->yaml;
	const char *problem = y->problem ?: "cannot be parsed";

	r->path[0] = '\0';
	if (y->error == YAML_MEMORY_ERROR)
		return error_set(r->err, ENOMEM, "%.100s: out of memory", shown_name(r->name));
	if (y->error == YAML_READER_ERROR)
		return refuse_at(r, line_at_offset(r, y->problem_offset), "not valid YAML: %s",
				 problem);
	return refuse_at(r, y->problem_mark.line + 1, "not valid YAML: %s%s%s", problem,
			 y->context ? " " : "", y->context ?: "");
}

static int refuse_extras(struct reader *r, const yaml_char_t *anchor, const yaml_char_t *tag)
{
	if (anchor)
		return refuse_at(r, line_of(r), "anchors (&%.40s) are not allowed",
				 (const char *)anchor);
	if (tag)
		return refuse_at(r, line_of(r), "tags (%.40s) are not allowed", (const char *)tag);
	return 0;
}

/* Goes to the next event. What no settings file needs is refused here, wherever it stands. */
static int next_event(struct reader *r)
{
	yaml_event_t *e = &r->event;

	yaml_event_delete(e);
	if (!yaml_parser_parse(&r->yaml, e))
		return refuse_syntax(r);
	if (e->type == YAML_ALIAS_EVENT)
		return refuse_at(r, line_of(r), "aliases (*%.40s) are not allowed",
				 (const char *)e->data.alias.anchor);
	if (e->type == YAML_MAPPING_START_EVENT)
		return refuse_extras(r, e->data.mapping_start.anchor, e->data.mapping_start.tag);
	if (e->type == YAML_SEQUENCE_START_EVENT)
		return refuse_extras(r, e->data.sequence_start.anchor, e->data.sequence_start.tag);
	if (e->type == YAML_SCALAR_EVENT) {
		if (memchr(e->data.scalar.value, 0, e->data.scalar.length))
			return refuse_at(r, line_of(r), "holds a NUL");
		return refuse_extras(r, e->data.scalar.anchor, e->data.scalar.tag);
	}
	return 0;
}

static const char *kind_of_event(const yaml_event_t *e)
{
	if (e->type == YAML_SEQUENCE_START_EVENT)
		return "a list";
	if (e->type == YAML_MAPPING_START_EVENT)
		return "a mapping";
	if (e->data.scalar.length == 0 && e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
		return "nothing";
	return "a single value";
}

static int store_scalar(struct reader *r, const struct config_setting *s)
{
	bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	struct error why = ERROR_INIT;
	int code;

	code = config_setting_set(s, r->config, (const char *)r->event.data.scalar.value, plain,
				  &why);
	if (code == -ENOMEM)
		return error_set(r->err, ENOMEM, "%s", why.msg);
	return code < 0 ? refuse_at(r, line_of(r), "%s", why.msg) : 0;
}

static int read_list(struct reader *r, const struct config_setting *s)
{
	size_t path_len = strlen(r->path);
	size_t line = line_of(r);
	struct error why = ERROR_INIT;
	int code;

	if (r->event.type != YAML_SEQUENCE_START_EVENT)
		return refuse_at(r, line, "expected a list, found %s", kind_of_event(&r->event));
	config_setting_clear(s, r->config);
	for (unsigned i = 0;; i++) {
		snprintf(r->path + path_len, sizeof r->path - path_len, "[%u]", i);
		code = next_event(r);
		if (code < 0)
			return code;
		if (r->event.type == YAML_SEQUENCE_END_EVENT)
			break;
		if (r->event.type != YAML_SCALAR_EVENT)
			return refuse_at(r, line_of(r), "expected a single value, found %s",
					 kind_of_event(&r->event));
		code = store_scalar(r, s);
		if (code < 0)
			return code;
	}
	r->path[path_len] = '\0';
	if (config_setting_check_list(s, r->config, &why) < 0)
		return refuse_at(r, line, "%s", why.msg);
	return 0;
}

static int refuse_unknown(struct reader *r)
{
	const char *meant = config_suggest(r->path);
	const char *dot = strchr(r->path, '.');
	size_t section = dot ? (size_t)(dot - r->path) + 1 : 0;

	if (!meant)
		return refuse_at(r, line_of(r), "unknown key");
	/* Within the same section its name need not be said again. */
	if (section > 0 && strncmp(meant, r->path, section) == 0)
		meant += section;
	return refuse_at(r, line_of(r), "unknown key (did you mean %s?)", meant);
}

/* Goes to the next key of a mapping and puts its full path into r->path. 1, or 0 at the end. */
static int next_key(struct reader *r, const char *section)
{
	const char *key;
	int code;

	snprintf(r->path, sizeof r->path, "%s", section);
	code = next_event(r);
	if (code < 0)
		return code;
	if (r->event.type == YAML_MAPPING_END_EVENT)
		return 0;
	if (r->event.type != YAML_SCALAR_EVENT)
		return refuse_at(r, line_of(r), "a key must be text, found %s",
				 kind_of_event(&r->event));
	key = (const char *)r->event.data.scalar.value;
	snprintf(r->path, sizeof r->path, "%s%s%s", section, section[0] ? "." : "", key);
	/* A dot in a key would pass for a section ("gpu.exclude: []" at the top). */
	if (strchr(key, '.'))
		return refuse_at(r, line_of(r), "unknown key (a section is a mapping of its own)");
	if (strlen(r->path) >= CONFIG_PATH_MAX)
		return refuse_at(r, line_of(r), "unknown key");
	return 1;
}

/* Notes the line of a key; refuses a second one. */
static int note_key(struct reader *r, size_t *seen)
{
	if (*seen)
		return refuse_at(r, line_of(r), "set twice (first in line %zu)", *seen);
	*seen = line_of(r);
	return 0;
}

static int read_setting(struct reader *r, const struct config_setting *s)
{
	int code;

	r->config->is_empty = false;
	code = note_key(r, &r->seen[config_setting_index(s)]);
	if (code == 0)
		code = next_event(r);
	if (code < 0)
		return code;
	if (config_setting_is_list(s))
		return read_list(r, s);
	if (r->event.type != YAML_SCALAR_EVENT)
		return refuse_at(r, line_of(r), "expected a single value, found %s",
				 kind_of_event(&r->event));
	return store_scalar(r, s);
}

static int read_section(struct reader *r, const char *section, size_t *seen)
{
	int code;

	code = note_key(r, seen);
	if (code == 0)
		code = next_event(r);
	if (code < 0)
		return code;
	if (r->event.type != YAML_MAPPING_START_EVENT)
		return refuse_at(r, line_of(r), "expected a mapping, found %s",
				 kind_of_event(&r->event));
	while ((code = next_key(r, section)) > 0) {
		const struct config_setting *s = config_setting_find(r->path);

		code = s ? read_setting(r, s) : refuse_unknown(r);
		if (code < 0)
			return code;
	}
	return code;
}

static int read_top(struct reader *r)
{
	int code;

	while ((code = next_key(r, "")) > 0) {
		const struct config_setting *s = config_setting_find(r->path);
		int section = config_section_find(r->path);

		if (s)
			code = read_setting(r, s);
		else if (section >= 0)
			code = read_section(r, config_section_name(section),
					    &r->section_seen[section]);
		else
			code = refuse_unknown(r);
		if (code < 0)
			return code;
	}
	return code;
}

/* Which of the two would count is nobody's guess. */
static int check_tls_names(struct reader *r, size_t line)
{
	const struct config *c = r->config;

	for (size_t i = 0; i < c->n_tls_readers; i++)
		for (size_t j = 0; j < c->n_tls_admins; j++)
			if (strcmp(c->tls_readers[i], c->tls_admins[j]) == 0) {
				snprintf(r->path, sizeof r->path, "tls.readers[%zu]", i);
				return refuse_at(r, line, "'%.60s' stands in tls.admins too",
						 c->tls_readers[i]);
			}
	return 0;
}

/* What no single key can know. */
static int check_whole(struct reader *r)
{
	const struct config *c = r->config;
	size_t line = r->section_seen[config_section_find("tls")];
	const char *missing = !c->tls_certificate ? "tls.certificate"
			      : !c->tls_key	  ? "tls.key"
			      : !c->tls_client_ca ? "tls.client_ca"
						  : NULL;

	if (line == 0)
		return 0;
	if (!missing)
		return check_tls_names(r, line);
	snprintf(r->path, sizeof r->path, "%s", missing);
	return refuse_at(r, line, "missing (tls needs certificate, key and client_ca)");
}

static bool is_nothing(const yaml_event_t *e)
{
	return e->type == YAML_SCALAR_EVENT && e->data.scalar.length == 0 &&
	       e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static int read_document(struct reader *r)
{
	int code;

	code = next_event(r);
	if (code < 0)
		return code;
	if (r->event.type == YAML_MAPPING_START_EVENT)
		code = read_top(r);
	else if (!is_nothing(&r->event))
		code = refuse_at(r, line_of(r), "expected settings (key: value), found %s",
				 kind_of_event(&r->event));
	if (code == 0)
		code = next_event(r); /* the document's end */
	return code;
}

static int read_stream(struct reader *r)
{
	int code;

	code = next_event(r); /* the stream's start */
	if (code == 0)
		code = next_event(r);
	if (code == 0 && r->event.type == YAML_DOCUMENT_START_EVENT) {
		code = read_document(r);
		if (code == 0)
			code = next_event(r);
		if (code == 0 && r->event.type != YAML_STREAM_END_EVENT)
			code = refuse_at(r, line_of(r), "a second document is not allowed");
	}
	return code < 0 ? code : check_whole(r);
}

int config_parse(const char *text, size_t len, const char *name, struct config **ret,
		 struct error *err)
{
	_cleanup_(config_freep) struct config *c = NULL;
	struct reader r = { .text = text, .len = len, .name = name, .err = err };
	int code;

	if (len > CONFIG_BYTES_MAX)
		return error_set(err, EFBIG, "%.100s: longer than %d bytes", shown_name(name),
				 CONFIG_BYTES_MAX);
	if (config_default(&c) < 0 || !yaml_parser_initialize(&r.yaml))
		return error_set(err, ENOMEM, "%.100s: out of memory", shown_name(name));
	yaml_parser_set_encoding(&r.yaml, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text, len);
	r.config = c;
	code = read_stream(&r);
	yaml_event_delete(&r.event);
	yaml_parser_delete(&r.yaml);
	if (code < 0)
		return code;
	*ret = TAKE(c);
	return 0;
}

int config_load(const char *path, struct config **ret, struct error *err)
{
	_free_ char *text = NULL;
	size_t len;
	int code;

	code = file_read_at(AT_FDCWD, path, CONFIG_BYTES_MAX, &text, &len);
	if (code == -EFBIG)
		return error_set(err, EFBIG, "%.100s: longer than %d bytes", shown_name(path),
				 CONFIG_BYTES_MAX);
	if (code < 0)
		return error_set_errno(err, code, "%.100s: cannot be read", shown_name(path));
	return config_parse(text, len, path, ret, err);
}

int config_default(struct config **ret)
{
	_cleanup_(config_freep) struct config *c = calloc(1, sizeof *c);
	int code;

	if (!c)
		return -ENOMEM;
	c->refs = 1;
	c->is_empty = true;
	code = config_set_defaults(c);
	if (code < 0)
		return code;
	*ret = TAKE(c);
	return 0;
}

struct config *config_ref(struct config *c)
{
	c->refs++;
	return c;
}

struct config *config_free(struct config *c)
{
	if (c && --c->refs == 0) {
		config_clear(c);
		free(c);
	}
	return NULL;
}
