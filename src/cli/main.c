/* SPDX-License-Identifier: Apache-2.0 */
/* The `berth` program: options that come before the command, and the choice of the command. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/cli.h"

static const struct cli_command *const commands[] = {
	&cli_resources, &cli_gpus, &cli_map, &cli_claim,  &cli_release, &cli_claims,   &cli_run,
	&cli_fit,	&cli_vf,   &cli_gpu, &cli_driver, &cli_doctor,	&cli_complete,
};

static void print_usage(FILE *out)
{
	fputs("usage: berth [--socket PATH] [--json] COMMAND [ARGUMENT...]\n\n"
	      "Looks at and hands out the NVIDIA vGPUs of this host, by way of berthd.\n\n"
	      "Commands:\n",
	      out);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!commands[i]->hidden)
			fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
	fputs("\n'berth COMMAND --help' says more, with examples.\n\n"
	      "Options:\n"
	      "  --json         print the daemon's answer as JSON\n"
	      "  --socket PATH  another daemon than " CLI_DEFAULT_SOCKET "\n"
	      "                 (or BERTH_SOCKET in the environment)\n"
	      "  --color WHEN   auto, always or never (auto: on a terminal, without NO_COLOR)\n"
	      "  --help         this text\n"
	      "  --version      the version\n\n"
	      "Exit status: 0 done, 1 error, 2 wrong usage, 3 not enough resources,\n"
	      "4 no such thing, 5 daemon not reachable. 'doctor': 6 warnings, 7 errors.\n\n"
	      "Examples:\n"
	      "  berth resources\n"
	      "  berth claim vm1 -p L40S-4Q\n"
	      "  berth map\n"
	      "  berth release vm1\n",
	      out);
}

static const struct cli_command *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

static int run_command(struct cli *cli, int argc, char **argv)
{
	_free_ char *program = NULL;

	cli->command = find_command(argv[0]);
	if (!cli->command) {
		cli_error(EXIT_STATUS_USAGE, "there is no command \"%s\"", argv[0]);
		fputs("Try 'berth --help'.\n", stderr);
		return EXIT_STATUS_USAGE;
	}
	/* The name under which getopt complains. */
	program = str_printf("berth %s", cli->command->name);
	if (!program)
		return cli_error(EXIT_STATUS_ERROR, "out of memory");
	argv[0] = program;
	optind = 0;
	return cli->command->run(cli, argc, argv);
}

static int run_program(int argc, char **argv)
{
	static const struct option options[] = { CLI_COMMON_OPTIONS,
						 { "version", no_argument, NULL, 'V' },
						 { 0 } };
	const char *socket = getenv("BERTH_SOCKET");
	struct cli cli = { .socket = str_is_empty(socket) ? CLI_DEFAULT_SOCKET : socket,
			   .socket_given = !str_is_empty(socket) };
	static char program[] = "berth";
	int opt;

	if (argc > 0)
		argv[0] = program;
	/* '+': what follows the command is the command's. */
	while ((opt = getopt_long(argc, argv, "+hV", options, NULL)) != -1) {
		switch (opt) {
		case 'h':
			print_usage(stdout);
			return EXIT_STATUS_OK;
		case 'V':
			printf("berth %s\n", BERTH_VERSION);
			return EXIT_STATUS_OK;
		case CLI_OPT_JSON:
			cli.json = true;
			break;
		case CLI_OPT_SOCKET:
			cli.socket = optarg;
			cli.socket_given = true;
			break;
		case CLI_OPT_COLOR:
			if (cli_take_colour(optarg) != CLI_GO_ON)
				return EXIT_STATUS_USAGE;
			break;
		default:
			fputs("Try 'berth --help'.\n", stderr);
			return EXIT_STATUS_USAGE;
		}
	}
	if (optind >= argc) {
		print_usage(stderr);
		return EXIT_STATUS_USAGE;
	}
	return run_command(&cli, argc - optind, argv + optind);
}

int main(int argc, char **argv)
{
	int status;

	file_reserve_standard();
	setlocale(LC_CTYPE, "");
	status = run_program(argc, argv);
	if (status == EXIT_STATUS_OK && (fflush(stdout) != 0 || ferror(stdout)))
		return cli_error(EXIT_STATUS_ERROR, "cannot write to standard output");
	return status;
}
