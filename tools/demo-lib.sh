# SPDX-License-Identifier: Apache-2.0
# Sourced by the demos with the programs' folder: how they show what they do, a root for a simulated host,
# and nothing left of it at the end. They set $sim and $daemon to the pids that they start and log to
# $root.log.
bin=$(cd "$1" && pwd)
export PATH="$bin:$PATH"
root=$(mktemp -d /tmp/berth-demo.XXXXXX)
sim= daemon=

cleanup() {
	status=$?
	trap - EXIT
	if [ "$status" != 0 ] && [ -s "$root.log" ]; then
		echo "--- log of berth-sim and berthd"
		tail -n 30 "$root.log"
	fi
	for pid in $daemon $sim; do
		kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true
	done
	if mountpoint -q "$root/sys" || mountpoint -q "$root/dev"; then
		echo "berth: $root is still mounted" >&2
		exit 1
	fi
	rm -rf "$root" "$root".*
	exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n%s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }
fails() { printf '$ %s\n' "$*"; if "$@"; then echo "unexpected success" >&2; exit 1; fi; }
until_true() { # until_true SECONDS COMMAND...
	limit=$((SECONDS + $1)); shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$limit" ] || { echo "berth: timed out: $*" >&2; exit 1; }
		sleep 0.05
	done
}
