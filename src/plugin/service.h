/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics, /healthz, /readyz and /devices of the plugin, over TCP where that is wanted.
 */
#pragma once

#include "plugin/plugin.h"

int service_new(struct plugin *p, struct error *err) _must_check_;
void service_done(struct plugin *p);
