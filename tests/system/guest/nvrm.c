/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel module for a test guest: prints what NVIDIA's driver prints when its init fails, once it
 * is loaded and as often as asked to. The real driver needs a GPU. */
#include <linux/module.h>

static int times = 1;
module_param(times, int, 0444);

static int __init nvrm_init(void)
{
	for (int i = 0; i < times; i++) {
		pr_err("NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)\n");
		pr_err("NVRM: GPU 0000:00:05.0: rm_init_adapter failed, device minor number 0\n");
	}
	return 0;
}

static void __exit nvrm_exit(void)
{
}

module_init(nvrm_init);
module_exit(nvrm_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Lines of a failing driver");
