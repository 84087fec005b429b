/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `berth map --watch`: the map as it is now, drawn again whenever the daemon says that something
 * changed.
 *
 * On a terminal it has the whole screen, which comes back as it was at the end, at SIGINT, SIGTERM
 * and SIGTSTP. Elsewhere (and on a dumb terminal) each new map is printed below the last one; with
 * --json each is one line. A daemon that goes away is said and tried again; one that is not there
 * at the start is an error.
 */
#pragma once

#include "cli/cli.h"

/* The exit status. It does not return after a signal that ends it. */
int map_watch(const struct cli *cli);
