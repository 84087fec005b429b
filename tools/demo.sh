#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job on a simulated two-card L40S host: what fits, claims for several VMs, the map, release.
# Leaves nothing behind.
set -euo pipefail
. "$(dirname "$0")/demo-lib.sh" "${1:-build/bin}"

say "A simulated host with two L40S cards (32 VFs each), and berthd on it"
berth-sim run --root "$root" --cards 2 --model l40s >"$root.out" 2>>"$root.log" &
sim=$!
until_true 20 grep -q '^ready' "$root.out"
berthd --config "$root/berthd.yaml" 2>>"$root.log" &
daemon=$!
export BERTH_SOCKET="$root/berthd.sock"
until_true 20 curl -sf --unix-socket "$BERTH_SOCKET" http://localhost/readyz

say "What fits"
run berth resources

say "vGPUs for several VMs"
run berth claim web-1 -p L40S-4Q --owner demo
run berth claim web-2 -p L40S-4Q
run berth claim cad -p L40S-24Q
run berth claim render -p L40S-12Q
for i in 1 2 3 4 5 6; do berth claim "desk-$i" -p L40S-2Q >/dev/null; done
echo "... and desk-1 to desk-6, L40S-2Q each"

say "The cards now"
run berth map
run berth claims

say "A profile for which no placement is free is refused at once (exit status 3)"
fails berth claim big -p L40S-48Q

say "A guest boots on web-1's VF: berthd does not take back what is in use"
vf=$(berth --json claims | python3 -c 'import json,sys; print([c["vf"] for c in json.load(sys.stdin)["claims"] if c["name"] == "web-1"][0])')
guest=$(berth-sim ctl --root "$root" boot "$vf" --init-ms 200)
fails berth release web-1
berth-sim ctl --root "$root" state >/dev/null
kill "$guest"
until_true 20 berth release web-1
echo "released web-1 after its guest had shut down"

say "Everything is given back"
for claim in web-2 cad render desk-1 desk-2 desk-3 desk-4 desk-5 desk-6; do run berth release "$claim"; done
# Placements that a release frees count again when the refresh that it started has landed.
both_free() { berth resources | grep -Eq 'L40S-48Q +49152 MB +2$'; }
until_true 10 both_free
run berth map

say "Nothing is left configured, claimed or mounted"
berth-sim ctl --root "$root" state | python3 -c '
import json, sys
left = [v["address"] for c in json.load(sys.stdin)["cards"] for v in c["vfs"] if v["type"]]
print("configured VFs:", len(left))
sys.exit(bool(left))'
[ "$(berth --json claims | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["claims"]))')" = 0 ]
