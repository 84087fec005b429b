/* SPDX-License-Identifier: Apache-2.0 */
/* creatable_vgpu_types: whatever the driver prints, the list that comes out keeps its promises. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "model/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = ERROR_INIT;
	struct profile_list list;
	unsigned bad = 0;
	int r;

	r = profile_list_parse((const char *)data, size, &list, &bad, &err);
	if (list.n > PROFILE_TYPES_MAX || (r < 0 && list.n != PROFILE_TYPES_MAX))
		abort();
	if ((bad > 0 || r < 0) != (err.msg[0] != '\0'))
		abort();
	for (unsigned i = 0; i < list.n; i++) {
		const struct profile *p = &list.items[i];

		if (p->type_id == 0 || !p->name[0] || !str_is_utf8(p->name, strlen(p->name)))
			abort();
		if (profile_list_find_id(&list, p->type_id) != p ||
		    !profile_list_find_name(&list, p->name))
			abort();
	}
	return 0;
}
