#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A wedged VF on a simulated host: how it comes about, is noticed, leaves, and how its card is brought
# back. Leaves nothing behind.
set -euo pipefail
exec 2>&1
. "$(dirname "$0")/demo-lib.sh" "${1:-build/bin}"

console() { echo "$root/console/$1.log"; }
claim() { # claim NAME: with a console log, as a VM manager does it
	run berth claim "$1" -p L40S-4Q --console-log "$(console "$1")" >"$root.claim"
	sed -n 1,2p "$root.claim"
	vf=$(berth --json claims | python3 -c '
import json, sys
print(*(c["vf"] for c in json.load(sys.stdin)["claims"] if c["name"] == sys.argv[1]))' "$1")
}
boot() { # boot NAME MS: a guest on $vf whose driver takes so long
	printf '$ boot a guest on %s, driver init takes %s ms\n' "$vf" "$2"
	guest=$(berth-sim ctl --root "$root" boot "$vf" --console "$(console "$1")" --init-ms "$2")
}
health() { berth vf list | grep "$vf"; }
has_failed() { health | grep -Eq "$1"; }
shut_down() { kill "$guest"; until_true 20 berth release "$1"; }

say "A simulated host with one L40S card and two VFs, and berthd on it"
berth-sim run --root "$root" --cards 1 --vfs 2 >"$root.out" 2>>"$root.log" &
sim=$!
until_true 20 grep -q '^ready' "$root.out"
printf 'sentinel: {scan_interval: 200ms, console_dirs: ["%s/console"]}\n' "$root" >"$root.sentinel"
sed '/^sentinel:/,/^[^ ]/{/^sentinel:/d;/^ /d}' "$root/berthd.yaml" >"$root.yaml"
cat "$root.sentinel" >>"$root.yaml"
berthd --config "$root.yaml" 2>>"$root.log" &
daemon=$!
export BERTH_SOCKET="$root/berthd.sock"
until_true 20 curl -sf --unix-socket "$BERTH_SOCKET" http://localhost/readyz

say "A neighbour has one VF, vm0 gets the other"
claim neighbour
claim vm0
bad=$vf

say "vm0 is killed with SIGKILL while its guest driver initialises: that wedges the VF"
boot vm0 60000
until_true 20 grep -q . "$(console vm0)"
run kill -KILL "$guest"
until_true 20 berth release vm0

say "Nothing on the host shows it: the VF is free and looks healthy"
run berth vf list

say "The next guest on it fails. Its agent says so on the console, and berthd notes it"
claim vm1
boot vm1 300
until_true 20 has_failed "1 failed"
grep -m 1 RmInitAdapter "$(console vm1)"
tail -n 1 "$(console vm1)"
run berth vf list
shut_down vm1

say "One failure may be chance. The second one, of another assignment, is enough: quarantine"
claim vm2
boot vm2 300
until_true 20 has_failed quarantined
run berth vf list
shut_down vm2
run berth resources >"$root.claim"
head -n 3 "$root.claim"

say "No guest gets that VF any more. With the neighbour on the other one nothing is left (exit status 3)"
fails berth claim vm3 -p L40S-4Q

say "The card is to be brought back; that needs it empty"
fails berth gpu recover 0000:41:00.0
run berth gpu cordon 0000:41:00.0
run berth release neighbour
run berth gpu recover 0000:41:00.0
run berth gpu uncordon 0000:41:00.0

say "Both VFs work again"
for name in vm4 vm5; do
	claim $name
	[ "$vf" = "$bad" ] && again=$name
done
vf=$bad
boot "$again" 300
until_true 20 grep -q GPU-INIT-OK "$(console "$again")"
tail -n 1 "$(console "$again")"
run berth vf list
shut_down "$again"
for name in vm4 vm5; do berth release $name >/dev/null 2>&1 || true; done

say "What berthd said meanwhile"
grep -E 'sentinel:|recover:' "$root.log" | cut -d' ' -f3-
