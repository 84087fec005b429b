/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* What a killed child gets to be collected in; after that it hangs in the kernel. */
#define COLLECT_USEC (200 * USEC_PER_MSEC)

void *doctor_probe_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static _noreturn_ void run_child(doctor_probe_fn fn, const void *context, void *memory)
{
	int null = open("/dev/null", O_RDWR);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
	    dup2(null, STDERR_FILENO) < 0 || close_range(STDERR_FILENO + 1, ~0U, 0) < 0)
		_exit(1);
	fn(context, memory);
	_exit(0);
}

/* True when the process has ended before the deadline. */
static bool wait_for_end(int pidfd, uint64_t deadline_usec)
{
	for (;;) {
		struct pollfd p = { .fd = pidfd, .events = POLLIN };
		uint64_t now = clock_now_usec();
		uint64_t left = now < deadline_usec ? deadline_usec - now : 0;
		int n = poll(&p, 1, (int)MIN((left + 999) / USEC_PER_MSEC, UINT64_C(60000)));

		if (n > 0)
			return true;
		if ((n < 0 && errno != EINTR) || left == 0)
			return false;
	}
}

struct doctor_probe doctor_probe_start(doctor_probe_fn fn, const void *context, void *memory)
{
	struct doctor_probe p = { .pid = fork(), .pidfd = -1 };

	if (p.pid == 0)
		run_child(fn, context, memory);
	if (p.pid > 0)
		p.pidfd = pidfd_open(p.pid, 0);
	if (p.pidfd < 0)
		p.error = -errno;
	return p;
}

int doctor_probe_wait(struct doctor_probe *p, uint64_t deadline_usec)
{
	_close_ int pidfd = TAKE_FD(p->pidfd);
	siginfo_t info = { 0 };
	bool in_time = pidfd >= 0 && wait_for_end(pidfd, deadline_usec);

	if (!in_time && p->pid > 0)
		kill(p->pid, SIGKILL);
	/* Left behind where even that does not end it; init collects it some day. */
	if (!in_time && pidfd >= 0 && wait_for_end(pidfd, clock_now_usec() + COLLECT_USEC))
		waitpid(p->pid, NULL, 0);
	if (!in_time)
		return p->error < 0 ? p->error : -ETIMEDOUT;
	if (waitid((idtype_t)P_PIDFD, (id_t)pidfd, &info, WEXITED) < 0)
		return -errno;
	return info.si_code == CLD_EXITED && info.si_status == 0 ? 0 : -ECHILD;
}

int doctor_probe_run(doctor_probe_fn fn, const void *context, void *memory, uint64_t timeout_usec)
{
	struct doctor_probe p = doctor_probe_start(fn, context, memory);

	return doctor_probe_wait(&p, clock_now_usec() + timeout_usec);
}
