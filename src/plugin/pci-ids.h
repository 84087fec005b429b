/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU names from the pci.ids list: those of vendor 10de, and only device lines of its own section.
 *
 * The same device id stands under other vendors too, and as subsystem line below other devices;
 * searching the whole file named GPUs after RAID controllers (kubevirt-gpu-device-plugin #21, #42).
 */
#pragma once

#include <stdio.h>

#include "base/error.h"
#include "plugin/names.h"

/* Where Debian and NVIDIA's image have the list. */
#define PCI_IDS_PATHS "/usr/share/misc/pci.ids", "/usr/pci.ids", "/usr/share/hwdata/pci.ids"

/* The name of NVIDIA's device. -ENOENT when the list has none, -EFBIG when it is too long. */
int pci_ids_find(FILE *list, uint32_t device_id, char ret[static NAME_SOURCE_MAX]) _must_check_;
