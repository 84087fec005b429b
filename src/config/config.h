/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's settings: berthd.yaml read strictly, with the defaults filled in.
 *
 * One wrong letter in a settings file once made a program forget what it was responsible for, so
 * nothing is guessed here: an unknown or doubled key, a wrong type, a value out of range, a second
 * document, an anchor, an alias or a tag refuses the whole file, and the message names file, line
 * and the key's full path. What the settings mean is not this module's business.
 */
#pragma once

#include "base/error.h"
#include "model/pci.h"
#include "model/policy.h"

#define CONFIG_BYTES_MAX  65536 /* of the file */
#define CONFIG_ITEMS_MAX  1024	/* of one list */
#define CONFIG_WEIGHT_MAX 1000000

enum config_unclaimed {
	CONFIG_UNCLAIMED_RESET,
	CONFIG_UNCLAIMED_LEAVE,
};

enum config_claims {
	CONFIG_CLAIMS_OWNER,  /* only the claim's uid and root may release it */
	CONFIG_CLAIMS_SHARED, /* everybody who may use the socket */
};

enum config_pins {
	CONFIG_PINS_ALWAYS, /* before driver 570 a claim's placement is asked for through
			       vgpu_params */
	CONFIG_PINS_NEVER,  /* ... left to the driver when the VM boots */
};

/* Texts are never NULL but where it says so. Paths are absolute. Once read it does not change; what
 * goes on while another takes its place holds a reference. */
struct config {
	unsigned refs;
	bool is_empty; /* nothing was set: only defaults */
	char *data_dir;
	char *socket;
	char *listen; /* "ADDRESS:PORT", IPv6 in brackets; NULL: no TCP */
	char *sysfs_root;
	char *dev_root;
	char *proc_root;
	char *boot_id_file;
	char *nvml_library; /* empty: no NVML */
	uint64_t reconcile_interval_usec;
	uint64_t unclaimed_grace_usec; /* may be 0 */
	enum config_unclaimed unclaimed_vfs;
	enum config_claims claims;

	/* gpu */
	uint32_t vf_quarantine_threshold; /* 1 or more */
	uint64_t nvml_timeout_usec;
	uint64_t card_timeout_usec;
	enum policy placement_policy;
	enum config_pins pin_placements;
	char **expected_mix; /* "PROFILE=WEIGHT"; empty: every size alike */
	size_t n_expected_mix;
	struct pci_addr *exclude; /* cards or VFs that are shown and never written */
	size_t n_exclude;

	/* sentinel */
	uint64_t scan_interval_usec;
	uint64_t contradiction_window_usec; /* may be 0 */
	char **marker_prefixes;		    /* at least one */
	size_t n_marker_prefixes;
	char **console_dirs;
	size_t n_console_dirs;

	/* recover */
	char *recover_sriov_manage;
	char **recover_services_stop; /* systemd units, in order */
	size_t n_recover_services_stop;
	char **recover_services_start;
	size_t n_recover_services_start;
	char *recover_verify; /* command; NULL: none */
	uint64_t recover_timeout_usec;

	/* tls: all three or none (NULL) */
	char *tls_certificate;
	char *tls_key;
	char *tls_client_ca;
	char **tls_admins; /* names in client certificates; none stands in both lists */
	size_t n_tls_admins;
	char **tls_readers;
	size_t n_tls_readers;
};

/* The defaults alone. -ENOMEM. */
int config_default(struct config **ret) _must_check_;

/* Settings from the file's text; `name` is what messages call the file. -EINVAL with the message
 * "NAME:LINE: KEY: what is wrong", -EFBIG above CONFIG_BYTES_MAX, -ENOMEM. No text at all, or only
 * comments, gives the defaults. */
int config_parse(const char *text, size_t len, const char *name, struct config **ret,
		 struct error *err) _must_check_;

/* The same from a file; one that cannot be read, or is not there, is an error. */
int config_load(const char *path, struct config **ret, struct error *err) _must_check_;

struct config *config_ref(struct config *c);
/* Gives up one reference; a config begins with one. */
struct config *config_free(struct config *c);

/* A setting whose value differs between two configs. */
struct config_change {
	const char *path;
	const char *from, *to;
	bool needs_restart;
};

/* Tells of each in the order of the table. TLS as a whole, on or off, needs a restart; its files do
 * not. -ENOMEM. */
int config_compare(const struct config *from, const struct config *to,
		   void (*fn)(const struct config_change *change, void *userdata),
		   void *userdata) _must_check_;
/* Gives settings that need a restart the values of the one that runs. -ENOMEM. */
int config_keep_fixed(struct config *c, const struct config *running) _must_check_;

/* "PROFILE=WEIGHT" of expected_mix. ret_profile may be NULL to only check. -EINVAL with a sentence.
 */
int config_mix_item(const char *item, char *ret_profile, size_t size, uint32_t *ret_weight,
		    struct error *err) _must_check_;

static inline void config_freep(struct config **c)
{
	config_free(*c);
}
