/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND	     UINT64_C(1000000)
#define ATTEMPT_USEC (30 * SECOND)
#define PAUSE_USEC   (15 * SECOND)
#define PHASE_USEC   (600 * SECOND)

void probe_init(struct probe *p, const char *program, uint64_t now_usec)
{
	*p = (struct probe){ .program = program,
			     .output = -1,
			     .next_usec = now_usec,
			     .end_usec = now_usec + PHASE_USEC };
	p->done = access(program, X_OK) < 0;
}

int probe_timeout_ms(const struct probe *p, uint64_t now_usec)
{
	uint64_t at = p->pid ? p->limit_usec : p->next_usec;

	if (p->done || (p->pid && p->killed))
		return -1; /* SIGCHLD ends the wait */
	return at <= now_usec ? 0 : (int)((at - now_usec) / 1000 + 1);
}

static void start(struct probe *p, uint64_t now_usec)
{
	int fds[2];

	p->limit_usec = now_usec + ATTEMPT_USEC;
	p->next_usec = now_usec + PAUSE_USEC;
	p->killed = p->listed = false;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return;
	p->pid = fork();
	if (p->pid == 0) {
		sigset_t none;
		int null = open("/dev/null", O_RDWR);

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		dup2(null, 0);
		dup2(fds[1], 1);
		dup2(null, 2);
		execl(p->program, p->program, "-L", (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	if (p->pid < 0) {
		p->pid = 0;
		close(fds[0]);
		return;
	}
	p->output = fds[0];
}

/* "GPU 0: NVIDIA L40S-4Q (UUID: ...)" */
static void look_at_output(struct probe *p)
{
	char text[256];
	ssize_t n = read(p->output, text, sizeof text);

	if (n > 0 && memmem(text, (size_t)n, "GPU ", 4))
		p->listed = true;
}

bool probe_run(struct probe *p, uint64_t now_usec)
{
	int status;

	if (p->done)
		return false;
	if (p->pid) {
		if (waitpid(p->pid, &status, WNOHANG) != p->pid) {
			if (!p->killed && now_usec >= p->limit_usec) {
				kill(p->pid, SIGKILL);
				p->killed = true;
			}
			return false;
		}
		look_at_output(p);
		close(p->output);
		p->output = -1;
		p->pid = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && p->listed) {
			p->done = true;
			return true;
		}
		p->next_usec = MAX(p->next_usec, now_usec);
	}
	if (now_usec >= p->end_usec)
		p->done = true;
	else if (now_usec >= p->next_usec)
		start(p, now_usec);
	return false;
}
