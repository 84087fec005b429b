/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's file in DIR/lib: the one that was built, less the symbols that the simulated driver
 * does not have, with that driver's version written in.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/file.h"
#include "base/str.h"
#include "sim/simnvml.h"

#define LIBRARY_NAME "libnvidia-ml.so.1"
#define LIBRARY_MAX  ((size_t)16 << 20)

/* Has to be what lib-session.c starts its version text with. */
#define VERSION_MARK "fakenvml version: "
#define VERSION_ROOM 80

/* First branch whose library has the symbol (the header's change log). */
static const struct {
	uint32_t since;
	const char *name;
} symbol_since[] = {
	{ 550, "nvmlDeviceGetVgpuHeterogeneousMode" },
	{ 550, "nvmlDeviceSetVgpuHeterogeneousMode" },
	{ 550, "nvmlDeviceGetVgpuTypeSupportedPlacements" },
	{ 550, "nvmlDeviceGetVgpuTypeCreatablePlacements" },
	{ 550, "nvmlDeviceSetVgpuCapabilities" },
	{ 550, "nvmlVgpuInstanceGetPlacementId" },
	{ 550, "nvmlVgpuTypeGetGspHeapSize" },
	{ 550, "nvmlVgpuTypeGetFbReservation" },
	{ 560, "nvmlVgpuTypeGetBAR1Info" },
	{ 560, "nvmlSystemGetDriverBranch" },
	{ 565, "nvmlVgpuInstanceGetRuntimeStateSize" },
	{ 575, "nvmlVgpuTypeGetMaxInstancesPerGpuInstance" },
	{ 575, "nvmlGpuInstanceGetCreatableVgpus" },
	{ 575, "nvmlGpuInstanceGetActiveVgpus" },
	{ 575, "nvmlGpuInstanceGetVgpuTypeCreatablePlacements" },
	{ 575, "nvmlGpuInstanceGetVgpuHeterogeneousMode" },
	{ 575, "nvmlGpuInstanceSetVgpuHeterogeneousMode" },
};

const char *simnvml_branch_lacks(uint32_t branch, size_t i)
{
	for (size_t k = 0; k < ARRAY_SIZE(symbol_since); k++)
		if (branch < symbol_since[k].since && !i--)
			return symbol_since[k].name;
	return NULL;
}

struct symbols {
	Elf64_Sym *sym;
	size_t count;
	const char *names; /* ends with a NUL */
	size_t names_size;
};

static bool in_file(uint64_t offset, uint64_t n, size_t size)
{
	return offset <= size && n <= size - offset;
}

/* The dynamic symbol table, found by the section headers; every offset checked. */
static bool find_symbols(char *data, size_t size, struct symbols *ret)
{
	Elf64_Ehdr *eh = (Elf64_Ehdr *)data;
	Elf64_Shdr *sh;

	if (size < sizeof(*eh) || memcmp(eh->e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh->e_ident[EI_CLASS] != ELFCLASS64 || eh->e_ident[EI_DATA] != ELFDATA2LSB ||
	    eh->e_shentsize != sizeof(*sh) || eh->e_shoff % _Alignof(Elf64_Shdr) ||
	    !in_file(eh->e_shoff, (uint64_t)eh->e_shnum * sizeof(*sh), size))
		return false;
	sh = (Elf64_Shdr *)(data + eh->e_shoff);
	for (unsigned i = 0; i < eh->e_shnum; i++) {
		const Elf64_Shdr *str;

		if (sh[i].sh_type != SHT_DYNSYM)
			continue;
		if (sh[i].sh_link >= eh->e_shnum || sh[i].sh_entsize != sizeof(Elf64_Sym) ||
		    sh[i].sh_offset % _Alignof(Elf64_Sym) ||
		    !in_file(sh[i].sh_offset, sh[i].sh_size, size))
			return false;
		str = &sh[sh[i].sh_link];
		if (str->sh_type != SHT_STRTAB || !str->sh_size ||
		    !in_file(str->sh_offset, str->sh_size, size) ||
		    data[str->sh_offset + str->sh_size - 1] != '\0')
			return false;
		ret->sym = (Elf64_Sym *)(data + sh[i].sh_offset);
		ret->count = sh[i].sh_size / sizeof(Elf64_Sym);
		ret->names = data + str->sh_offset;
		ret->names_size = str->sh_size;
		return true;
	}
	return false;
}

/* The entry loses its name. The hash table still leads there, and the loader's comparison of names
 * then fails: dlsym() finds nothing, and nothing in the library itself binds by these names. */
static bool hide_symbol(const struct symbols *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++) {
		if (s->sym[i].st_shndx == SHN_UNDEF || s->sym[i].st_name >= s->names_size ||
		    strcmp(s->names + s->sym[i].st_name, name) != 0)
			continue;
		s->sym[i].st_name = 0;
		return true;
	}
	return false;
}

static bool is_repeated(const char *const names[], size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (strcmp(names[k], names[i]) == 0)
			return true;
	return false;
}

static bool write_version(char *data, size_t size, const char *driver)
{
	char *at = memmem(data, size, VERSION_MARK, sizeof(VERSION_MARK) - 1);
	/* NVML puts the number of the CUDA generation in front: 12 up to R575, 13 from R580 on. */
	int cuda = strtoul(driver, NULL, 10) >= 580 ? 13 : 12;

	if (!at || size - (size_t)(at - data) < sizeof(VERSION_MARK) - 1 + VERSION_ROOM)
		return false;
	snprintf(at + sizeof(VERSION_MARK) - 1, VERSION_ROOM, "%d.%s", cuda, driver);
	return true;
}

int simnvml_install_library(const char *from, const char *dir_lib, const char *driver,
			    const char *const missing[], size_t n_missing, const char **ret_unknown,
			    struct error *err)
{
	const char *unknown = NULL;
	_free_ char *data = NULL, *path = NULL;
	struct symbols symbols;
	size_t size;
	int r;

	r = file_read_at(AT_FDCWD, from, LIBRARY_MAX, &data, &size);
	if (r < 0)
		return error_set_errno(err, r, "cannot read the library %s", from);
	if (!find_symbols(data, size, &symbols) || !write_version(data, size, driver))
		return error_set(err, EBADMSG, "%s is not the simulator's NVML library", from);
	for (size_t i = 0; i < n_missing; i++)
		if (!is_repeated(missing, i) && !hide_symbol(&symbols, missing[i]))
			unknown = missing[i];
	path = str_printf("%s/" LIBRARY_NAME, dir_lib);
	if (!path)
		return error_set(err, ENOMEM, "out of memory");
	/* A new file in place of the old one: processes that have loaded that keep it. */
	r = file_replace(path, data, size, 0755);
	if (r < 0)
		return error_set_errno(err, r, "cannot write %s", path);
	*ret_unknown = unknown;
	return 0;
}
