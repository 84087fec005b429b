/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of all settings: path, kind, range, default. Private to config/config.c; reading the
 * file's structure is config.c's part.
 */
#pragma once

#include "base/buf.h"
#include "config/config.h"

#define CONFIG_PATH_MAX	    64 /* "section.key" with NUL */
#define CONFIG_SETTINGS_MAX 64
#define CONFIG_SECTIONS_MAX 8

struct config_setting;

/* NULL when there is none of that path ("gpu.exclude"). */
const struct config_setting *config_setting_find(const char *path);
/* NULL behind the last. */
const struct config_setting *config_setting_at(size_t index);
const char *config_setting_path(const struct config_setting *s);
bool config_setting_is_fixed(const struct config_setting *s); /* cannot change at run time */
/* Number of a setting, below CONFIG_SETTINGS_MAX. */
size_t config_setting_index(const struct config_setting *s);
bool config_setting_is_list(const struct config_setting *s);

/* Stores a scalar, or adds an item to a list. `plain`: written without quotes, so that YAML may
 * call it a number, a truth value or nothing. The message lacks file, line and key. */
int config_setting_set(const struct config_setting *s, struct config *c, const char *value,
		       bool plain, struct error *err) _must_check_;
/* The value as a person would write it; a list in brackets, nothing for one that is not set. */
void config_setting_format(const struct config_setting *s, const struct config *c, struct buf *out);
/* Of settings that are a text or a list of texts. -ENOMEM. */
int config_setting_copy(const struct config_setting *s, struct config *to,
			const struct config *from) _must_check_;
/* Empties a list. */
void config_setting_clear(const struct config_setting *s, struct config *c);
/* Judges a whole list once its last item is in. */
int config_setting_check_list(const struct config_setting *s, const struct config *c,
			      struct error *err) _must_check_;

int config_set_defaults(struct config *c) _must_check_; /* -ENOMEM */
void config_clear(struct config *c);

/* Number of the section of that name, below CONFIG_SECTIONS_MAX, or -ENOENT. */
int config_section_find(const char *name);
const char *config_section_name(int section); /* NULL behind the last */
/* The path that a mistyped one most likely meant, or NULL. */
const char *config_suggest(const char *path);
