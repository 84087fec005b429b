/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"

#include <cmocka.h>

/* Passes point "a" `times` times in a child; returns how often it survived, or -1 when it was not
 * SIGKILL that ended it. Only children may pass a point: the environment is read once. */
static int survived(const char *wanted, unsigned times)
{
	int status, fds[2];
	char dot;
	int n = 0;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (wanted)
			setenv("BERTH_FAULT", wanted, 1);
		else
			unsetenv("BERTH_FAULT");
		for (unsigned i = 0; i < times; i++) {
			fault_point("other");
			fault_point("a");
			if (write(fds[1], ".", 1) != 1)
				_exit(2);
		}
		_exit(0);
	}
	close(fds[1]);
	while (read(fds[0], &dot, 1) == 1)
		n++;
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return n == (int)times ? n : -1;
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? n : -1;
}

static void kills_at_the_wanted_passage(void **state)
{
	static const struct {
		const char *wanted;
		int survived; /* of 5 */
	} cases[] = {
		{ NULL, 5 },  { "", 5 },    { "b", 5 },	  { "aa", 5 },	{ "a", 0 },
		{ "a:1", 0 }, { "a:3", 2 }, { "a:5", 4 }, { "a:6", 5 }, { "b:1", 5 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(survived(cases[i].wanted, 5), cases[i].survived);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kills_at_the_wanted_passage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
