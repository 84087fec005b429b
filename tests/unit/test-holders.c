/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/holders.h"
#include "plain-tree.h"

#include <cmocka.h>

#define VFS 4

static const struct pci_addr card = { 0, 0x41, 0, 0 };

struct fixture {
	struct plain_tree tree;
	struct holders_roots roots;
	struct holders_vf vfs[VFS]; /* groups and vfioN 41 to 44 */
	int canary;
	pid_t child;
	int child_fd; /* closing it ends the child */
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	assert_non_null(f);
	plain_tree_init(&f->tree);
	plain_tree_card(&f->tree, card, VFS, 0);
	for (unsigned i = 0; i < VFS; i++)
		f->vfs[i].vf = plain_tree_vf(&f->tree, card, i, 4);
	f->roots = (struct holders_roots){ f->tree.sys, f->tree.dev, "/proc" };
	f->canary = memfd_create("canary", MFD_CLOEXEC);
	assert_true(f->canary >= 0);
	f->child_fd = -1;
	*state = f;
	return 0;
}

static void end_child(struct fixture *f)
{
	if (f->child > 0) {
		close(f->child_fd);
		waitpid(f->child, NULL, 0);
	}
	f->child = 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	end_child(f);
	close(f->canary);
	plain_tree_done(&f->tree);
	free(f);
	return 0;
}

/* A process that has `path` open and says so; `prepare` runs in it after the open. */
static void hold(struct fixture *f, const char *path, void (*prepare)(int hold_fd, int ready_fd))
{
	int life[2], ready[2];
	char c;

	assert_int_equal(pipe2(life, O_CLOEXEC), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	f->child = fork();
	assert_true(f->child >= 0);
	if (f->child == 0) {
		int fd = open(plain_tree_path(&f->tree, path), O_RDONLY);

		close(life[1]);
		close(ready[0]);
		prctl(PR_SET_NAME, "vm \033[1m");
		if (prepare)
			prepare(life[0], ready[1]);
		if (fd < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		(void)!read(life[0], &c, 1);
		_exit(0);
	}
	close(life[0]);
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	f->child_fd = life[1];
}

static int scan(struct fixture *f, bool *ret_partial)
{
	return holders_scan(&f->roots, f->canary, f->vfs, VFS, ret_partial, NULL);
}

static void expect(const struct fixture *f, enum card_open a, enum card_open b, enum card_open c,
		   enum card_open d)
{
	const enum card_open want[VFS] = { a, b, c, d };

	for (unsigned i = 0; i < VFS; i++)
		if (f->vfs[i].open != want[i])
			fail_msg("VF %u: %d instead of %d", i, (int)f->vfs[i].open, (int)want[i]);
}

static void nothing_is_open(void **state)
{
	struct fixture *f = *state;
	bool partial;
	int fd;

	/* The scanning process itself does not count. */
	fd = open(plain_tree_path(&f->tree, "dev/vfio/41"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(scan(f, &partial), 0);
	expect(f, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_NO);
	close(fd);
	/* In a container the first process may be closed even to root. */
	print_message("scan of this machine: %s\n", partial ? "partial" : "complete");
}

static void finds_the_group_node(void **state)
{
	struct fixture *f = *state;
	bool partial;
	char want[64];

	hold(f, "dev/vfio/42", NULL);
	assert_int_equal(scan(f, &partial), 0);
	expect(f, CARD_OPEN_NO, CARD_OPEN_YES, CARD_OPEN_NO, CARD_OPEN_NO);
	snprintf(want, sizeof want, "pid %d (vm ?[1m)", (int)f->child);
	assert_string_equal(f->vfs[1].holder, want);
	assert_string_equal(f->vfs[0].holder, "");
	end_child(f);
	assert_int_equal(scan(f, &partial), 0);
	expect(f, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_NO);
}

static void finds_the_device_node(void **state)
{
	struct fixture *f = *state;
	bool partial;

	hold(f, "dev/vfio/devices/vfio44", NULL);
	assert_int_equal(scan(f, &partial), 0);
	expect(f, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_YES);
}

/* Link texts of another mount namespace name other files; the node counts, not its name. */
static void names_do_not_matter(void **state)
{
	struct fixture *f = *state;
	bool partial;

	assert_int_equal(link(plain_tree_path(&f->tree, "dev/vfio/43"),
			      plain_tree_path(&f->tree, "elsewhere")),
			 0);
	hold(f, "elsewhere", NULL);
	unlink(plain_tree_path(&f->tree, "dev/vfio/41"));
	plain_tree_write(&f->tree, "dev/vfio/41", "");
	assert_int_equal(scan(f, &partial), 0);
	expect(f, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_YES, CARD_OPEN_NO);
}

static void character_devices_match_by_number(void **state)
{
	struct fixture *f = *state;
	char *node = plain_tree_path(&f->tree, "dev/vfio/41");
	char *copy = plain_tree_path(&f->tree, "container-node");
	bool partial;

	unlink(node);
	/* The numbers of /dev/zero, which can be opened; a container has its own node of it. */
	if (mknod(node, S_IFCHR | 0600, makedev(1, 5)) < 0 ||
	    mknod(copy, S_IFCHR | 0600, makedev(1, 5)) < 0)
		skip();
	if (open(copy, O_RDONLY | O_CLOEXEC) < 0)
		skip(); /* mounted nodev */
	hold(f, "container-node", NULL);
	assert_int_equal(scan(f, &partial), 0);
	assert_int_equal(f->vfs[0].open, CARD_OPEN_YES);
	end_child(f);
}

static void a_vf_without_nodes_is_closed(void **state)
{
	struct fixture *f = *state;
	bool partial;

	plain_tree_remove(&f->tree, plain_tree_device(f->vfs[0].vf, "vfio-dev"));
	unlink(plain_tree_path(&f->tree, plain_tree_device(f->vfs[0].vf, "iommu_group")));
	plain_tree_remove(&f->tree, plain_tree_device(f->vfs[1].vf, NULL));
	plain_tree_remove(&f->tree, "dev/vfio/devices");
	hold(f, "dev/vfio/43", NULL);
	assert_int_equal(scan(f, &partial), 0);
	expect(f, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_YES, CARD_OPEN_NO);
}

static void *sleep_in_thread(void *userdata)
{
	char c;

	(void)!write(((int *)userdata)[1], "x", 1);
	(void)!read(((int *)userdata)[0], &c, 1);
	_exit(0);
}

static void end_first_thread(int hold_fd, int ready_fd)
{
	static int fds[2];
	pthread_t thread;

	fds[0] = hold_fd;
	fds[1] = ready_fd;
	if (pthread_create(&thread, NULL, sleep_in_thread, fds) == 0)
		pthread_exit(NULL);
}

/* /proc/<pid>/fd of such a process is empty. */
static void a_process_whose_first_thread_ended_is_seen(void **state)
{
	struct fixture *f = *state;
	bool partial, zombie = false;
	char path[64], text[512];

	hold(f, "dev/vfio/42", end_first_thread);
	/* The thread may say that it runs before the first one is gone. */
	snprintf(path, sizeof path, "/proc/%d/stat", (int)f->child);
	while (!zombie) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = read(fd, text, sizeof text - 1);

		close(fd);
		assert_true(n > 0);
		text[n] = '\0';
		zombie = strstr(text, ") Z ") != NULL;
	}
	assert_int_equal(scan(f, &partial), 0);
	expect(f, CARD_OPEN_NO, CARD_OPEN_YES, CARD_OPEN_NO, CARD_OPEN_NO);
}

static void without_proc_nothing_is_known(void **state)
{
	struct fixture *f = *state;
	bool partial = true;

	f->roots.proc_root = plain_tree_path(&f->tree, "nowhere");
	assert_int_equal(scan(f, &partial), -ENOENT);
	expect(f, CARD_OPEN_UNKNOWN, CARD_OPEN_UNKNOWN, CARD_OPEN_UNKNOWN, CARD_OPEN_UNKNOWN);
	assert_true(partial); /* untouched */

	/* An empty proc, or one in which we have no entry. */
	plain_tree_dir(&f->tree, "proc/1/fd");
	f->roots.proc_root = plain_tree_path(&f->tree, "proc");
	assert_int_equal(scan(f, &partial), -ENOENT);
	plain_tree_link(&f->tree, "proc/self", "1");
	assert_int_equal(scan(f, &partial), -ENODATA);
	expect(f, CARD_OPEN_UNKNOWN, CARD_OPEN_UNKNOWN, CARD_OPEN_UNKNOWN, CARD_OPEN_UNKNOWN);
}

static void a_canary_that_is_not_seen_makes_it_unknown(void **state)
{
	struct fixture *f = *state;
	struct error err = ERROR_INIT;
	bool partial;

	char pid[16], entry[32], target[32];

	/* A proc whose entry "self" is another process. */
	hold(f, "dev/vfio/42", NULL);
	snprintf(pid, sizeof pid, "%d", (int)f->child);
	snprintf(entry, sizeof entry, "proc/%s", pid);
	snprintf(target, sizeof target, "/proc/%s", pid);
	plain_tree_link(&f->tree, "proc/self", pid);
	plain_tree_link(&f->tree, entry, target);
	f->roots.proc_root = plain_tree_path(&f->tree, "proc");
	close(f->canary);
	f->canary = memfd_create("canary",
				 MFD_CLOEXEC); /* one that the other process has not got */
	assert_int_equal(holders_scan(&f->roots, f->canary, f->vfs, VFS, &partial, &err), -ENODATA);
	assert_non_null(strstr(error_text(&err), "known to be open"));
}

static void drop_ptrace(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	syscall(SYS_capget, &header, data);
	data[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
	if (syscall(SYS_capset, &header, data) < 0)
		_exit(2);
}

/* In a child, since dropping a capability is for good. */
static void without_the_capability_nothing_is_known_to_be_closed(void **state)
{
	struct fixture *f = *state;
	bool partial;
	pid_t pid;
	int status;

	hold(f, "dev/vfio/42", NULL);
	pid = fork();
	if (pid == 0) {
		drop_ptrace();
		_exit(scan(f, &partial) == -EPERM && f->vfs[0].open == CARD_OPEN_UNKNOWN &&
				      f->vfs[1].open != CARD_OPEN_NO
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_node_that_cannot_be_looked_at_is_unknown(void **state)
{
	struct fixture *f = *state;
	bool partial;

	unlink(plain_tree_path(&f->tree, "dev/vfio/41"));
	plain_tree_link(&f->tree, "dev/vfio/41", "41"); /* ELOOP */
	assert_int_equal(scan(f, &partial), 0);
	expect(f, CARD_OPEN_UNKNOWN, CARD_OPEN_NO, CARD_OPEN_NO, CARD_OPEN_NO);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_open),
		TEST(finds_the_group_node),
		TEST(finds_the_device_node),
		TEST(names_do_not_matter),
		TEST(character_devices_match_by_number),
		TEST(a_vf_without_nodes_is_closed),
		TEST(a_process_whose_first_thread_ended_is_seen),
		TEST(without_proc_nothing_is_known),
		TEST(a_canary_that_is_not_seen_makes_it_unknown),
		TEST(without_the_capability_nothing_is_known_to_be_closed),
		TEST(a_node_that_cannot_be_looked_at_is_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
