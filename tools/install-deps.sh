#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what tools/packages.txt, or the list that is given, names and this machine lacks. Does nothing when all is there.
set -eu
list=${1:-$(dirname "$0")/packages.txt}
missing=
if ! command -v dpkg-query >/dev/null; then
	echo "berth: not a Debian system; install these yourself (Debian's names):" >&2
	sed 's/#.*//' "$list" | tr -s ' \n' ' ' >&2
	echo >&2
	exit 0
fi
for package in $(sed 's/#.*//' "$list"); do
	[ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" = "install ok installed" ] ||
		missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "berth: installing$missing"
as_root=
if [ "$(id -u)" != 0 ]; then
	as_root=sudo
	command -v sudo >/dev/null || { echo "berth: run as root: apt-get install$missing" >&2; exit 1; }
fi
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing >/dev/null
