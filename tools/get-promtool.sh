#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the path of a promtool: the installed one, else the one of Debian's package prometheus, unpacked below
# FOLDER (build/tools). The package is not installed, since it would start a server.
set -eu
folder=${1:-$(dirname "$0")/../build/tools}
if command -v promtool; then
	exit 0
fi
if [ ! -x "$folder/promtool" ]; then
	command -v apt-get >/dev/null || { echo "get-promtool: no promtool, and no apt-get to fetch it" >&2; exit 1; }
	mkdir -p "$folder"
	work=$(mktemp -d "$folder/promtool.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(
		cd "$work"
		sandbox=
		[ "$(id -u)" != 0 ] || sandbox="-o APT::Sandbox::User=root"
		# shellcheck disable=SC2086
		apt-get -qq $sandbox download prometheus >/dev/null
		dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xf - ./usr/bin/promtool
	) || { echo "get-promtool: Debian's package prometheus cannot be had" >&2; exit 1; }
	mv "$work/usr/bin/promtool" "$folder/promtool" # at once, for those who run beside us
fi
echo "$folder/promtool"
