#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Claims a vGPU, prints the path that QEMU wants, waits for Enter, and gives the vGPU back.
# Needs curl and jq:  ./claim.sh vm1 L40S-4Q
set -eu
[ $# = 2 ] || { echo "usage: claim.sh NAME PROFILE" >&2; exit 2; }
name=$(jq -rn --arg text "$1" '$text | @uri')

# ask METHOD [BODY]: one request; prints the answer. What is no success is said, and ends the script.
ask() {
	answer=$(curl -sS --unix-socket "${BERTH_SOCKET:-/run/berth/berthd.sock}" -w '\n%{http_code}' \
		-X "$1" -d "${2:-}" "http://localhost/claims/$name")
	status=${answer##*
}
	body=${answer%
*}
	[ "$status" -lt 300 ] || {
		printf '%s' "$body" | jq -r '"\(.status) \(.code): \(.title): \(.detail // "")"' >&2
		return 1
	}
	printf '%s' "$body"
}

claim=$(ask PUT "$(jq -n --arg profile "$2" '{profile: $profile}')")
printf '%s' "$claim" | jq -r .sysfs_path
read -r _ || true # the VM runs here
ask DELETE >/dev/null
