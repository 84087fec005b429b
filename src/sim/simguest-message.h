/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest process and the simulator say to each other over the guest's channel.
 */
#pragma once

#include "base/macro.h"

/* Guest to simulator. */
enum simguest_message {
	SIMGUEST_OPENED,      /* holds its node; answered */
	SIMGUEST_OPEN_FAILED, /* and ends */
	SIMGUEST_INIT_OVER,   /* the init window has passed; answered */
	SIMGUEST_BYE,	      /* shuts down cleanly */
};

struct simguest_answer {
	int result; /* 0 or -errno: the guest ends */
	bool wedged;
};
