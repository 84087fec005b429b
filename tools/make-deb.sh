#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages from a copy of the tree and leaves them in the folder that is given.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/berth-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
source="$work/berth-$(dpkg-parsechangelog -l "$top/debian/changelog" -S Version)"
mkdir "$source"

# What git knows or would add; else everything but what builds leave. Neither pollutes the tree.
cd "$top"
if git rev-parse --git-dir >/dev/null 2>&1; then
	git ls-files -z --cached --others --exclude-standard |
		tar -c --null --ignore-failed-read --files-from=- 2>/dev/null | tar -x -C "$source"
else
	tar -c --exclude='./build*' --exclude=./.git --exclude=__pycache__ . | tar -x -C "$source"
fi
# Other people's umask must not show in the packages.
chmod -R u=rwX,go=rX "$source"

cd "$source"
if ! dpkg-buildpackage -us -uc >"$work/log" 2>&1; then
	cat "$work/log" >&2
	exit 1
fi
mv "$work/log" "$work/build.log"
# The last ones; whatever else lies there is somebody's.
find "$out" -maxdepth 1 -type f \( -name 'berth[_-]*' -o -name build.log \) -delete
find "$work" -maxdepth 1 -type f -exec mv -t "$out" {} +
ls -l "$out" | awk 'NR > 1 { print $5, $9 }'
