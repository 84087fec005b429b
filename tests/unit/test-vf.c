/* SPDX-License-Identifier: Apache-2.0 */
/* One VF's attributes, and the sequences of configure and release, on plain files. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "host/vf-change.h"
#include "host/vf.h"
#include "model/placement.h"
#include "plain-tree.h"

#include <cmocka.h>

static const struct pci_addr card = { 0, 0x41, 0, 0 };

struct fixture {
	struct plain_tree tree;
	struct pci_addr vf;
	enum card_open open; /* what the scan says */
	unsigned n_scans;
	const char *write_during_scan;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	assert_non_null(f);
	plain_tree_init(&f->tree);
	plain_tree_card(&f->tree, card, 1, 0);
	f->vf = plain_tree_vf(&f->tree, card, 0, 4);
	f->open = CARD_OPEN_NO;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	plain_tree_done(&f->tree);
	free(f);
	return 0;
}

static void put(struct fixture *f, const char *attribute, const char *text)
{
	plain_tree_write(&f->tree, plain_tree_device(f->vf, attribute), text);
}

static const char *get(struct fixture *f, const char *attribute)
{
	return plain_tree_read(&f->tree, plain_tree_device(f->vf, attribute));
}

/* --- Texts ---------------------------------------------------------------------------------- */

static void parses_types(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint32_t type;
	} cases[] = {
		{ "0\n", 0, 0 },
		{ "1145\n", 0, 1145 },
		{ "1145", 0, 1145 },
		{ " 7 \n", 0, 7 },
		{ "", -EBADMSG, 9 },
		{ "\n", -EBADMSG, 9 },
		{ "-1\n", -EBADMSG, 9 },
		{ "1145x\n", -EBADMSG, 9 },
		{ "99999999999\n", -EBADMSG, 9 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t type = 9;

		if (vf_parse_type(cases[i].text, strlen(cases[i].text), &type) != cases[i].r ||
		    type != cases[i].type)
			fail_msg("'%s'", cases[i].text);
	}
}

static void parses_placements(void **state)
{
	static const struct {
		const char *text;
		uint16_t id;
	} cases[] = {
		{ "0\n", 0 },
		{ "44\n", 44 },
		{ "65534\n", 65534 },
		{ "65535\n", PLACEMENT_NONE },
		{ "65536\n", PLACEMENT_NONE },
		{ "4294967295\n", PLACEMENT_NONE },
		{ "-1\n", PLACEMENT_NONE },
		{ "Not Applicable\n", PLACEMENT_NONE },
		{ "", PLACEMENT_NONE },
		{ "\n", PLACEMENT_NONE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (vf_parse_placement(cases[i].text, strlen(cases[i].text)) != cases[i].id)
			fail_msg("'%s'", cases[i].text);
}

static void finds_the_pin_among_parameters(void **state)
{
	static const struct {
		const char *text;
		bool pinned;
	} cases[] = {
		{ "vgpu-placement-id=6\n", true },
		{ "frame_rate_limiter=0, vgpu-placement-id=6, disable_vnc=1\n", true },
		{ "disable_vnc=1,vgpu-placement-id=6", true },
		{ "vgpu-placement-id=60\n", false },
		{ "vgpu-placement-id=\n", false },
		{ "x-vgpu-placement-id=6\n", false },
		{ "vgpu-placement-id=6x\n", false },
		{ ",,,", false },
		{ "", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (vf_params_pin(cases[i].text, strlen(cases[i].text), 6) != cases[i].pinned)
			fail_msg("'%s'", cases[i].text);
}

/* --- Attributes ----------------------------------------------------------------------------- */

static void a_vf_without_driver_folder_is_gone(void **state)
{
	struct fixture *f = *state;
	int fd = 77;

	plain_tree_remove(&f->tree, plain_tree_device(f->vf, "nvidia"));
	assert_int_equal(vf_open(f->tree.sys, f->vf, &fd), -ENOENT);
	assert_int_equal(fd, 77);
}

static void the_reader_follows_changes_and_reopens(void **state)
{
	struct fixture *f = *state;
	struct vf_reader reader = VF_READER_INIT;
	uint32_t type = 9;
	uint16_t placement = 9;

	assert_int_equal(vf_reader_read(&reader, f->tree.sys, f->vf, &type, &placement), 0);
	assert_int_equal(type, 0);
	assert_int_equal(placement, PLACEMENT_NONE);
	assert_true(reader.has_placement_file);
	put(f, "nvidia/current_vgpu_type", "1147\n");
	put(f, "nvidia/placement_id", "12\n");
	assert_int_equal(vf_reader_read(&reader, f->tree.sys, f->vf, &type, &placement), 0);
	assert_int_equal(type, 1147);
	assert_int_equal(placement, 12);

	/* What a kept descriptor cannot read any more, a new one does. */
	close(reader.type_fd);
	reader.type_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC); /* pread at 0: EIO */
	assert_int_equal(vf_reader_read(&reader, f->tree.sys, f->vf, &type, &placement), 0);
	assert_int_equal(type, 1147);

	put(f, "nvidia/current_vgpu_type", "\n");
	assert_int_equal(vf_reader_read(&reader, f->tree.sys, f->vf, &type, &placement), -EBADMSG);
	plain_tree_remove(&f->tree, plain_tree_device(f->vf, NULL));
	assert_int_equal(vf_reader_read(&reader, f->tree.sys, f->vf, &type, &placement), -ENOENT);
	assert_int_equal(type, 1147);
	vf_reader_done(&reader);
}

static void before_570_there_is_no_placement_file(void **state)
{
	struct fixture *f = *state;
	struct vf_reader reader = VF_READER_INIT;
	uint32_t type;
	uint16_t placement;

	unlink(plain_tree_path(&f->tree, plain_tree_device(f->vf, "nvidia/placement_id")));
	put(f, "nvidia/current_vgpu_type", "1147\n");
	assert_int_equal(vf_reader_read(&reader, f->tree.sys, f->vf, &type, &placement), 0);
	assert_int_equal(placement, PLACEMENT_NONE);
	assert_false(reader.has_placement_file);
	vf_reader_done(&reader);
}

/* The folder of a real L40S VF. */
static void reads_the_capture_of_an_l40s(void **state)
{
	const char *shared = getenv("BERTH_SHARED");
	struct pci_addr vf = { 0, 0x26, 0, 4 };
	struct vf_reader reader = VF_READER_INIT;
	struct profile_list list;
	unsigned bad_lines = 9;
	_close_ int fd = -1;
	char root[512];
	uint32_t type = 9;
	uint16_t placement = 9;

	(void)state;
	snprintf(root, sizeof root, "%s/data/captures/harvester/sys",
		 shared ? shared : "../shared");
	if (access(root, R_OK) < 0) {
		print_message("SKIPPED: %s is not there (BERTH_SHARED names its folder)\n", root);
		skip();
	}
	assert_int_equal(vf_open(root, vf, &fd), 0);
	assert_int_equal(vf_read_type(fd, &type), 0);
	assert_int_equal(type, 0);
	assert_int_equal(vf_read_list(fd, &list, &bad_lines, NULL), 0);
	assert_int_equal(list.n, 23);
	assert_int_equal(bad_lines, 0);
	assert_int_equal(list.items[22].type_id, 2164);
	assert_int_equal(vf_reader_read(&reader, root, vf, &type, &placement), 0);
	assert_int_equal(placement, PLACEMENT_NONE);
	vf_reader_done(&reader);
}

/* --- Configure ------------------------------------------------------------------------------ */

static struct card_reply run_configure(struct fixture *f, uint32_t type, uint16_t placement,
				       bool pin)
{
	struct card_request request = { .op = CARD_OP_CONFIGURE, .n_vfs = 1, .vfs = { f->vf } };
	struct card_reply reply = { .op = CARD_OP_CONFIGURE };

	request.type_id = type;
	request.placement_id = placement;
	request.pin = pin;
	vf_configure(f->tree.sys, &request, &reply);
	return reply;
}

static void configures_at_the_drivers_choice(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply;

	put(f, "nvidia/placement_id", "8\n");
	reply = run_configure(f, 1147, PLACEMENT_NONE, false);
	assert_int_equal(reply.result, 0);
	assert_int_equal(reply.step, CARD_STEP_DONE);
	assert_false(reply.steered);
	assert_int_equal(reply.vfs[0].type_id, 1147);
	assert_int_equal(reply.vfs[0].placement_id, 8);
	assert_string_equal(get(f, "nvidia/current_vgpu_type"), "1147");
	assert_string_equal(get(f, "nvidia/placement_id"), "8\n");
}

static void steers_only_where_the_driver_chose_otherwise(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply;

	put(f, "nvidia/placement_id", "8\n");
	reply = run_configure(f, 1147, 8, false);
	assert_false(reply.steered);
	assert_string_equal(get(f, "nvidia/placement_id"), "8\n"); /* not written */
	put(f, "nvidia/current_vgpu_type", "0\n");
	reply = run_configure(f, 1147, 12, false);
	assert_int_equal(reply.result, 0);
	assert_true(reply.steered);
	assert_int_equal(reply.steer_error, 0);
	assert_int_equal(reply.vfs[0].placement_id, 12);
}

static void a_placement_that_cannot_be_written_keeps_the_drivers(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply;

	unlink(plain_tree_path(&f->tree, plain_tree_device(f->vf, "nvidia/placement_id")));
	reply = run_configure(f, 1147, 12, false);
	assert_int_equal(reply.result, 0);
	assert_int_equal(reply.step, CARD_STEP_DONE);
	assert_false(reply.steered);
	assert_int_equal(reply.steer_error, -ENOENT);
	assert_true(reply.text[0] != '\0');
	assert_int_equal(reply.vfs[0].placement_id, PLACEMENT_NONE);
	assert_false(reply.vfs[0].has_placement_file);
}

static void pins_through_vgpu_params(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply;

	unlink(plain_tree_path(&f->tree, plain_tree_device(f->vf, "nvidia/placement_id")));
	reply = run_configure(f, 1147, 6, true);
	assert_int_equal(reply.result, 0);
	assert_true(reply.steered);
	assert_string_equal(get(f, "nvidia/vgpu_params"), "vgpu-placement-id=6");
	assert_int_equal(reply.vfs[0].placement_id, PLACEMENT_NONE); /* not before the VM boots */
}

static void a_configured_or_missing_vf_is_left_alone(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply;

	put(f, "nvidia/current_vgpu_type", "1145\n");
	reply = run_configure(f, 1147, PLACEMENT_NONE, false);
	assert_int_equal(reply.result, -EEXIST);
	assert_int_equal(reply.step, CARD_STEP_BEFORE);
	assert_int_equal(reply.vfs[0].type_id, 1145);
	assert_string_equal(get(f, "nvidia/current_vgpu_type"), "1145\n");
	plain_tree_remove(&f->tree, plain_tree_device(f->vf, NULL));
	reply = run_configure(f, 1147, PLACEMENT_NONE, false);
	assert_int_equal(reply.result, -ENOENT);
	assert_int_equal(reply.step, CARD_STEP_BEFORE);
	assert_int_equal(reply.vfs[0].error, -ENOENT);
}

/* --- Release -------------------------------------------------------------------------------- */

static void check(struct card_reply *reply, void *userdata)
{
	struct fixture *f = userdata;

	f->n_scans++;
	reply->vfs[0].open = f->open;
	if (f->open == CARD_OPEN_YES)
		strcpy(reply->holder, "pid 7 (vm)");
	if (f->write_during_scan)
		put(f, "nvidia/current_vgpu_type", f->write_during_scan);
}

static struct card_reply run_release(struct fixture *f, uint32_t type)
{
	struct card_request request = { .op = CARD_OP_RELEASE, .n_vfs = 1, .vfs = { f->vf } };
	struct card_reply reply = { .op = CARD_OP_RELEASE };

	request.type_id = type;
	f->n_scans = 0;
	vf_release(f->tree.sys, &request, check, f, &reply);
	return reply;
}

static void releases_what_is_closed_and_ours(void **state)
{
	struct fixture *f = *state;
	static const uint32_t expected[] = { 1147, 0 };

	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		struct card_reply reply;

		put(f, "nvidia/current_vgpu_type", "1147\n");
		reply = run_release(f, expected[i]);
		assert_int_equal(reply.result, 0);
		assert_int_equal(reply.step, CARD_STEP_DONE);
		assert_int_equal(reply.vfs[0].open, CARD_OPEN_NO);
		assert_int_equal(reply.vfs[0].type_id, 0);
		assert_int_equal(f->n_scans, 1);
		assert_string_equal(get(f, "nvidia/current_vgpu_type"), "0");
	}
}

static void does_not_write_to_an_open_vf_or_an_unknown_one(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply;

	put(f, "nvidia/current_vgpu_type", "1147\n");
	f->open = CARD_OPEN_YES;
	reply = run_release(f, 1147);
	assert_int_equal(reply.result, -EBUSY);
	assert_int_equal(reply.step, CARD_STEP_SCAN);
	assert_string_equal(reply.text, "held open by pid 7 (vm)");
	f->open = CARD_OPEN_UNKNOWN;
	reply = run_release(f, 1147);
	assert_int_equal(reply.result, -EAGAIN);
	assert_int_equal(reply.step, CARD_STEP_SCAN);
	assert_string_equal(get(f, "nvidia/current_vgpu_type"), "1147\n");
}

static void does_not_clear_what_others_configured(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply;

	put(f, "nvidia/current_vgpu_type", "1145\n");
	reply = run_release(f, 1147);
	assert_int_equal(reply.result, -ESTALE);
	assert_int_equal(reply.step, CARD_STEP_CHANGED);
	assert_int_equal(reply.vfs[0].type_id, 1145);
	assert_int_equal(f->n_scans, 0);

	/* Also when it happens while /proc is looked through. */
	put(f, "nvidia/current_vgpu_type", "1147\n");
	f->write_during_scan = "1145\n";
	reply = run_release(f, 1147);
	assert_int_equal(reply.step, CARD_STEP_CHANGED);
	assert_string_equal(get(f, "nvidia/current_vgpu_type"), "1145\n");
}

static void a_free_vf_needs_nothing(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply = run_release(f, 1147);

	assert_int_equal(reply.result, 0);
	assert_int_equal(reply.step, CARD_STEP_DONE);
	assert_int_equal(f->n_scans, 0);
	assert_string_equal(get(f, "nvidia/current_vgpu_type"), "0\n");
}

static void a_missing_vf_is_reported(void **state)
{
	struct fixture *f = *state;
	struct card_reply reply;

	plain_tree_remove(&f->tree, plain_tree_device(f->vf, NULL));
	reply = run_release(f, 1147);
	assert_int_equal(reply.result, -ENOENT);
	assert_int_equal(reply.step, CARD_STEP_BEFORE);
	assert_int_equal(f->n_scans, 0);
}

/* --- Messages ------------------------------------------------------------------------------- */

static void messages_are_checked(void **state)
{
	static struct card_reply reply;
	struct card_request request = { .version = CARD_MESSAGE_VERSION,
					.op = CARD_OP_READ,
					.n_vfs = 64 };

	(void)state;
	reply.version = CARD_MESSAGE_VERSION;
	reply.op = CARD_OP_LIST;
	reply.types.n = 3;
	assert_int_equal(card_reply_check(&reply, card_reply_size(&reply)), 0);
	assert_int_equal(card_reply_check(&reply, card_reply_size(&reply) - 1), -EBADMSG);
	assert_int_equal(card_reply_check(&reply, 8), -EBADMSG);
	assert_int_equal(card_reply_check(&reply, sizeof reply), -EBADMSG);
	memset(reply.text, 'x', sizeof reply.text);
	assert_int_equal(card_reply_check(&reply, card_reply_size(&reply)), -EBADMSG);
	assert_int_equal(card_request_check(&request, sizeof request), 0);
	assert_int_equal(card_request_check(&request, sizeof request - 1), -EBADMSG);
	request.n_vfs = 65;
	assert_int_equal(card_request_check(&request, sizeof request), -EBADMSG);
	request.n_vfs = 1;
	request.op = (enum card_op)9;
	assert_int_equal(card_request_check(&request, sizeof request), -EBADMSG);
	assert_string_equal(card_op_name(CARD_OP_RELEASE), "release");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parses_types),
		cmocka_unit_test(parses_placements),
		cmocka_unit_test(finds_the_pin_among_parameters),
		cmocka_unit_test(reads_the_capture_of_an_l40s),
		cmocka_unit_test(messages_are_checked),
		TEST(a_vf_without_driver_folder_is_gone),
		TEST(the_reader_follows_changes_and_reopens),
		TEST(before_570_there_is_no_placement_file),
		TEST(configures_at_the_drivers_choice),
		TEST(steers_only_where_the_driver_chose_otherwise),
		TEST(a_placement_that_cannot_be_written_keeps_the_drivers),
		TEST(pins_through_vgpu_params),
		TEST(a_configured_or_missing_vf_is_left_alone),
		TEST(releases_what_is_closed_and_ours),
		TEST(does_not_write_to_an_open_vf_or_an_unknown_one),
		TEST(does_not_clear_what_others_configured),
		TEST(a_free_vf_needs_nothing),
		TEST(a_missing_vf_is_reported),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
