#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tenants that forge markers at will, boot after boot, must not take any VF out where a channel is given.

One simulated host; several tenants claim, each boot on whatever VF it gets, and write FAILED and OK
markers and rubbish on their own consoles, before, while and after the release that ends the boot. The agent
behind each claim's channel tells the truth: the driver is up. Neither a failure nor a quarantine may be
recorded for any VF, at any time. At the end one more tenant, without a channel, writes the same markers:
its own VF and no other must get a failure, or the markers were none. Prints the counts; exit status 1 when
one of these does not hold.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TENANTS = 4
PROFILES = ["L40S-1Q", "L40S-2Q", "L40S-4Q", "L40S-8Q"]
SETTINGS = {"gpu": {"vf_quarantine_threshold": 1}, "sentinel": {"scan_interval": "100ms"}}
RUBBISH = [b"\x1b[2J\r\n", b"x" * 5000 + b"\n", b"\0" * 100 + b"\n",
           b"BERTH-GPU-INIT-FAILED\n", b"NVRM: RmInitAdapter failed!\n"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="Meson's folder (build)")
    p.add_argument("--boots", type=int, default=1000)
    p.add_argument("--seed", type=int, default=None, help="of the random numbers")
    return p.parse_args()


class Violation(Exception):
    pass


class TruthfulAgent:
    """Watches, and has seen the driver come up. Outlives a host that hangs up before the answer, as it
    does where the claim has ended meanwhile."""

    ANSWER = b'{"agent": "berth", "state": "ok", "watching": true}\n'

    def __init__(self, path):
        self.asked = 0
        self.hung_up = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:  # closed
                return
            with client:
                try:
                    if client.recv(64) == b"status\n":
                        self.asked += 1
                        client.sendall(self.ANSWER)
                except OSError:
                    self.hung_up += 1

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


class Tenant:
    def __init__(self, number, forge):
        self.forge = forge
        self.random = random.Random(forge.random.random())
        self.name = f"tenant{number}"
        self.console = forge.sim.root / "console" / f"{self.name}.log"
        channel = forge.sim.root / f"{self.name}.sock"
        self.agent = TruthfulAgent(channel)
        self.fields = {"console_log": str(self.console), "channel": f"unix:{channel}"}
        self.fault = None

    def run(self):
        try:
            while self.forge.take_boot():
                self.boot()
        except BaseException as e:  # shown by the main thread; a helper's pytest.fail is no Exception
            self.fault = e
            self.forge.stop.set()

    def write(self, failed):
        """Forgeries and rubbish in any number and order; the last marker is the one that counts."""
        health = self.forge.health
        parts = [self.random.choice([health.failed, health.ok])(self.random.choice(["BERTH", "HYPEMAN"])).encode()
                 for _ in range(self.random.randrange(6))]
        parts += self.random.choices(RUBBISH, k=self.random.randrange(3))
        self.random.shuffle(parts)
        parts += [(health.failed if failed else health.ok)().encode()]
        with open(self.console, "ab", buffering=0) as f:
            f.write(b"".join(parts))
        self.forge.counts["writes that end in FAILED" if failed else "writes that end in OK"] += 1

    def boot(self):
        claim = self.forge.claim(self.name, self.random.choice(PROFILES), **self.fields)
        self.forge.vfs[claim["vf"]] += 1
        asked = self.agent.asked
        failed = self.random.random() < 0.7
        self.write(failed)
        # Most guests live until they were judged (an OK that has nothing to clear is not); the others
        # are gone when berthd comes to it.
        if failed and self.random.random() < 0.8:
            self.forge.wait_for(lambda: self.agent.asked > asked, f"{self.name}'s agent to be asked")
            self.forge.counts["boots judged by the agent's answer"] += 1
            if self.random.random() < 0.3:
                self.write(True)
        self.forge.release(self.name)
        if self.random.random() < 0.2:
            self.write(True)  # a VM manager that lingers; goes to the archive of the next claim


class Forge:
    def __init__(self, tests, health, root, options, seed):
        self.health = health  # the module test_health of the system tests: the markers
        self.wait_for = tests.wait_for
        self.random = random.Random(seed)
        self.sim = tests.Sim(root, "--nvml-latency", 0)
        self.daemon = None
        (self.sim.root / "console").mkdir(exist_ok=True)
        self.daemon = tests.Daemon(self.sim, SETTINGS)
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.boots, self.left = 0, options.boots
        self.counts = collections.Counter()
        self.vfs = collections.Counter()
        self.tenants = [Tenant(i, self) for i in range(TENANTS)]

    def take_boot(self):
        with self.lock:
            if self.left == 0 or self.stop.is_set():
                return False
            self.left -= 1
            self.boots += 1
            return True

    def claim(self, name, profile, **fields):
        answer = self.daemon.claim(name, profile, **fields)
        if answer.status != 201:
            raise Violation(f"{name}: {answer}")
        return answer.json

    def release(self, name):
        answer = self.daemon.release(name)
        if answer.status not in (200, 202):
            raise Violation(f"release of {name}: {answer}")
        self.wait_for(lambda: name not in self.daemon.claims(), f"{name}'s release")

    def recorded(self):
        """{VF: (failures, quarantined)} of all that have anything."""
        vfs = self.daemon.vfs().values()
        return {v["address"]: (len(v["failures"]), v["quarantined"]) for v in vfs if v["failures"] or v["quarantined"]}

    def check(self):
        """The counters only grow, so they also tell of what was there in between."""
        if self.recorded():
            raise Violation(f"VFs have records: {self.recorded()}")
        metrics = self.daemon.metrics()
        for name in (self.health.FAILURES, self.health.QUARANTINES):
            if metrics.get(name, 0):
                raise Violation(f"{name} is {metrics[name]:g}")
        path = self.daemon.data_dir / "gpu/vf-health.json"
        if path.exists() and json.loads(path.read_text())["records"]:
            raise Violation(f"in the file: {path.read_text()}")

    def play(self):
        threads = [threading.Thread(target=t.run) for t in self.tenants]
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            try:
                self.check()
            except BaseException:
                self.stop.set()
                raise
            time.sleep(0.2)
        for tenant in self.tenants:
            if tenant.fault:
                raise tenant.fault
        self.control()
        if self.daemon.metric(self.health.ignored("agent")) == 0:
            raise Violation("no marker was ignored because of the agent's answer")

    def control(self):
        """Nothing stands behind a channel that is not there. Its failure is also the last that is
        judged, so all that came before is settled."""
        self.check()
        log = self.sim.root / "console/control.log"
        vf = self.claim("control", "L40S-2Q", console_log=str(log))["vf"]
        log.write_text(self.health.failed())
        self.wait_for(self.recorded, "the failure without a channel")
        if self.recorded() != {vf: (1, True)}:
            raise Violation(f"without a channel on {vf}: {self.recorded()}")
        self.counts["quarantines without a channel (wanted: 1)"] += 1

    def report(self, seconds):
        print(f"forge: {self.boots} boots in {seconds:.0f} s on {len(self.vfs)} VFs")
        print("forge: " + ", ".join(f"{k} {v}" for k, v in sorted(self.counts.items())))
        asked, hung_up = (sum(getattr(t.agent, n) for t in self.tenants) for n in ("asked", "hung_up"))
        ignored = {r: int(self.daemon.metric(self.health.ignored(r))) for r in ("agent", "claim_changed", "nvml")}
        print(f"forge: agents asked {asked}, berthd hung up {hung_up}, markers ignored {ignored}")

    def close(self):
        for t in self.tenants:
            t.agent.close()
        self.daemon.stop()
        self.sim.stop()


def main():
    options = arguments()
    os.environ["BERTH_BIN"] = str(pathlib.Path(options.build).resolve() / "bin")
    sys.path.insert(0, str(ROOT / "tests/system"))
    import conftest
    import test_health

    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    work = pathlib.Path(tempfile.mkdtemp(prefix="berth-forge-"))
    broken, began = None, time.monotonic()
    forge = Forge(conftest, test_health, work / "sim", options, seed)
    try:
        forge.play()
    except KeyboardInterrupt:
        broken = "interrupted"
    except BaseException as e:  # pytest.fail of a helper is none of Exception's
        broken = f"{type(e).__name__}: {e}"
        print("\n".join(forge.daemon.log().splitlines()[-40:]), file=sys.stderr)
    finally:
        with contextlib.suppress(OSError):
            forge.report(time.monotonic() - began)
        forge.close()
        shutil.rmtree(work, ignore_errors=True)
    print(f"forge: {broken}, seed {seed}" if broken else "forge: no VF has a record")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
