/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/terminal.h"
#include "client/http-client.h"

/* --- Options -------------------------------------------------------------------------------- */

void cli_print_help(const struct cli_command *command)
{
	printf("usage: berth %s%s%s\n\n%s\n\n%s", command->name, *command->args ? " " : "",
	       command->args, command->summary, command->help);
	printf("\nCommon options:\n"
	       "  --json         print the daemon's answer as JSON\n"
	       "  --socket PATH  another daemon than " CLI_DEFAULT_SOCKET "\n"
	       "                 (or BERTH_SOCKET in the environment)\n"
	       "  --color WHEN   auto, always or never (auto: on a terminal, without NO_COLOR)\n");
}

int cli_take_colour(const char *when)
{
	static const char *const names[] = {
		[TERMINAL_COLOUR_AUTO] = "auto",
		[TERMINAL_COLOUR_ALWAYS] = "always",
		[TERMINAL_COLOUR_NEVER] = "never",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(when, names[i]) == 0) {
			terminal_set_colour((enum terminal_colour)i);
			return CLI_GO_ON;
		}
	}
	return cli_error(EXIT_STATUS_USAGE, "--color wants auto, always or never, not \"%s\"",
			 when);
}

int cli_common_option(struct cli *cli, int opt)
{
	switch (opt) {
	case 'h':
		cli_print_help(cli->command);
		return EXIT_STATUS_OK;
	case CLI_OPT_JSON:
		cli->json = true;
		return CLI_GO_ON;
	case CLI_OPT_SOCKET:
		cli->socket = optarg;
		cli->socket_given = true;
		return CLI_GO_ON;
	case CLI_OPT_COLOR:
		return cli_take_colour(optarg);
	default:
		/* getopt has said what is wrong. */
		fprintf(stderr, "Try 'berth %s --help'.\n", cli->command->name);
		return EXIT_STATUS_USAGE;
	}
}

int cli_usage_error(const struct cli *cli, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	terminal_make_safe(text);
	fprintf(stderr, "berth %s: %s\nTry 'berth %s --help'.\n", cli->command->name, text,
		cli->command->name);
	return EXIT_STATUS_USAGE;
}

int cli_check_args(const struct cli *cli, int argc, int min_args, int max_args)
{
	int n = argc - optind;

	if (n < min_args)
		return cli_usage_error(cli, "an argument is missing (usage: berth %s %s)",
				       cli->command->name, cli->command->args);
	if (n > max_args)
		return cli_usage_error(cli, "too many arguments");
	return CLI_GO_ON;
}

int cli_parse(struct cli *cli, int argc, char **argv, int min_args, int max_args)
{
	static const struct option options[] = { CLI_COMMON_OPTIONS, { 0 } };
	int opt, r;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		r = cli_common_option(cli, opt);
		if (r != CLI_GO_ON)
			return r;
	}
	return cli_check_args(cli, argc, min_args, max_args);
}

/* --- Output --------------------------------------------------------------------------------- */

int cli_error(int status, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	terminal_make_safe(text);
	fprintf(stderr, "berth: %s\n", text);
	return status;
}

int cli_print(const char *text)
{
	if (fputs(text, stdout) >= 0 && fflush(stdout) == 0)
		return EXIT_STATUS_OK;
	return cli_error(EXIT_STATUS_ERROR, "cannot write the result: %s", strerror(errno));
}

int cli_print_json(const json_t *json)
{
	/* On a terminal nothing but ASCII, so that no escape sequence gets through in a string. */
	size_t flags = JSON_INDENT(2) | JSON_ENCODE_ANY |
		       (isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0);
	_free_ char *text = NULL;
	int r;

	if (!json)
		return EXIT_STATUS_OK;
	text = json_dumps(json, flags);
	if (!text)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	if (isatty(STDOUT_FILENO))
		for (char *c = text; *c; c++)
			if (*c == 0x7f)
				*c = '?';
	r = cli_print(text);
	return r == EXIT_STATUS_OK ? cli_print("\n") : r;
}

const char *cli_field(const json_t *object, const char *key, char *ret, size_t size)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_string(value) && json_string_length(value) > 0)
		str_copy_cut(ret, size, json_string_value(value));
	else if (json_is_integer(value))
		snprintf(ret, size, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		snprintf(ret, size, "%g", json_real_value(value));
	else if (json_is_boolean(value))
		str_copy_cut(ret, size, json_is_true(value) ? "yes" : "no");
	else
		str_copy_cut(ret, size, "-");
	terminal_make_safe(ret);
	return ret;
}

json_int_t cli_field_int(const json_t *object, const char *key, json_int_t missing)
{
	const json_t *value = json_object_get(object, key);

	return json_is_integer(value) ? json_integer_value(value) : missing;
}

bool cli_field_is_set(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!value || json_is_null(value) || json_is_false(value))
		return false;
	return !json_is_string(value) || json_string_length(value) > 0;
}

const json_t *cli_field_array(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	/* jansson takes NULL for an array of no elements. */
	return json_is_array(value) ? value : NULL;
}
