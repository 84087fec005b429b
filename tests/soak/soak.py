#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills berthd at random, many times, and looks after each start whether anything was lost or leaked.

One simulated host; in each round several clients claim and release at random, some open their VFs, the
driver refuses or is slow now and then, and berthd dies by SIGKILL at a random instant or fault point.
After the next start every VF that has a type must have exactly one claim, every acknowledged claim must
be there, and no acknowledged release. Nobody's VFs are left alone (unclaimed_vfs: leave), so that what
leaked stays visible. Prints the counts; exit status 1 when one of them is not 0.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENTS = 4
NAMES = 5  # of each client
PROFILES = ["L40S-1Q", "L40S-2Q", "L40S-4Q", "L40S-8Q", "L40S-12Q", "L40S-24Q"]
SETTINGS = {"reconcile_interval": "200ms", "unclaimed_vfs": "leave", "gpu": {"card_timeout": "1s"}}
SETTLE_SECONDS = 20


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build", help="Meson's folder (build)")
    p.add_argument("--rounds", type=int, default=1000)
    p.add_argument("--seed", type=int, default=None, help="of the random numbers")
    return p.parse_args()


def fault_points():
    text = (ROOT / "docs/fault-points.md").read_text()
    return re.findall(r"^\| `([^`]+)` \|", text, re.M)


class Violation(Exception):
    pass


class Client:
    """Claims and releases names of its own, and remembers what was acknowledged."""

    def __init__(self, number, soak):
        self.soak = soak
        self.random = random.Random(soak.random.random())
        # name -> VF (acknowledged), None (acknowledged release, or never claimed), or
        # ("put", None) / ("delete", VF): the answer did not come
        self.known = {f"c{number}-{i}": None for i in range(NAMES)}
        self.nodes = {}  # name -> its VF's open node
        self.fault = None

    def run(self):
        try:
            while not self.soak.dead.is_set():
                self.act(self.random.choice(list(self.known)))
        except Exception as e:  # shown by the main thread
            self.fault = e

    def act(self, name):
        if self.known[name] is None:
            self.put(name)
        elif name in self.nodes and self.random.random() < 0.5:
            self.nodes.pop(name).close()
        elif name not in self.nodes and self.random.random() < 0.1:
            self.open(name)
        else:
            self.delete(name)

    def ask(self, method, name, body=None):
        answer = self.soak.daemon.try_request(method, f"/claims/{name}", body)
        if answer is None:
            self.soak.dead.set()
        else:
            self.soak.answers[f"{method} {answer.status}"] += 1
        return answer

    def put(self, name):
        self.known[name] = ("put", None)
        answer = self.ask("PUT", name, {"profile": self.random.choice(PROFILES)})
        if answer is None:
            return
        if answer.status == 201:
            self.known[name] = answer.json["vf"]
        elif answer.status in (409, 503):
            self.known[name] = None
        else:
            raise Violation(f"PUT of {name}, which nobody had: {answer}")

    def delete(self, name):
        vf = self.known[name]
        self.known[name] = ("delete", vf)
        answer = self.ask("DELETE", name)
        if answer is None:
            return
        if answer.status == 200 and name not in self.nodes:
            self.known[name] = None
        elif answer.status == 409 and answer.code == "in_use":
            # Where a process cannot be looked into, the driver's EPERM is taken for "open".
            if name not in self.nodes and not self.soak.eperm:
                raise Violation(f"{name} is said to be open: {answer}")
            self.known[name] = vf
        elif answer.status not in (202, 503):  # these go on, or changed nothing
            raise Violation(f"DELETE of {name} at {vf}: {answer}")
        elif not self.soak.dead.is_set():
            self.settle(name)

    def settle(self, name):
        """Waits for the end of a release that goes on by itself."""
        while not self.soak.dead.is_set():
            answer = self.soak.daemon.try_request("GET", f"/claims/{name}")
            if answer is None:
                self.soak.dead.set()
            elif answer.status == 404:
                self.known[name] = None
                return
            elif answer.status == 200 and answer.json["state"] == "bound":
                self.known[name] = answer.json["vf"]
                return
            time.sleep(0.005)

    def open(self, name):
        vf = self.known[name]
        if isinstance(vf, str):
            with contextlib.suppress(OSError):
                self.nodes[name] = open(self.soak.node_of[vf], "rb")

    def check(self, claims):
        """After a start: takes over what is there where no answer came, compares the rest."""
        for name, known in self.known.items():
            claim = claims.pop(name, None)
            vf = claim and claim["vf"]
            if isinstance(known, tuple):
                if known[0] == "delete" and vf not in (None, known[1]):
                    raise Violation(f"{name} was at {known[1]} and is at {vf}")
                if known[0] == "delete" and vf is None and name in self.nodes:
                    raise Violation(f"{name} was released while it was open")
            elif known is None and vf:
                self.soak.ghosts += 1
                raise Violation(f"{name} is back at {vf} although its release was acknowledged")
            elif known and vf != known:
                self.soak.lost += 1
                raise Violation(f"{name} was acknowledged at {known} and is at {vf}")
            if claim and claim["problem"]:
                raise Violation(f"{name}: {claim['problem']}")
            self.known[name] = vf
            if vf is None and name in self.nodes:
                self.nodes.pop(name).close()


class Soak:
    def __init__(self, tests, root, seed):
        self.tests = tests  # the module conftest of the system tests
        self.random = random.Random(seed)
        self.points = fault_points()
        self.sim = tests.Sim(root, "--nvml-latency", 0)
        self.daemon = None
        self.clients = [Client(i, self) for i in range(CLIENTS)]
        self.dead = threading.Event()
        self.answers = collections.Counter()
        self.deaths = collections.Counter()
        self.leaks = self.lost = self.ghosts = 0
        self.node_of = {}
        self.eperm = False  # the driver may refuse with EPERM in this round

    # --- berthd's life ---

    def start(self, fault):
        """Starts berthd; it may die at its fault point before it is ready, and is started again then."""
        if self.daemon is None:
            self.daemon = self.tests.Daemon(self.sim, SETTINGS)
            self.node_of = {a: v["vfio_device"] for a, v in self.daemon.vfs().items()}
            return
        self.daemon.start(fault=fault, ready=None)
        end = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < end:
            if self.daemon.process.poll() is not None:
                if self.daemon.process.returncode != -signal.SIGKILL or not fault:
                    raise Violation(f"berthd ended with {self.daemon.process.returncode}")
                self.deaths[fault.split(":")[0] + " (start)"] += 1
                fault = None
                self.daemon.start(ready=None)
            answer = self.daemon.try_request("GET", "/readyz")
            if answer and answer.status == 200:
                return
            time.sleep(0.01)
        raise Violation("berthd does not get ready")

    def check(self):
        """The invariants. False when berthd died meanwhile (at a fault point): look again later."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            answer = self.daemon.try_request("GET", "/claims")
            vfs = self.daemon.try_request("GET", "/vfs")
            if answer is None or vfs is None:
                return False
            claims = answer.json["claims"]
            owners = {c["vf"] for c in claims}
            typed = self.tests.typed_vfs(self.sim)
            states = {v["state"] for v in vfs.json["vfs"]}
            if len(owners) != len(claims):
                raise Violation("a VF has two claims")
            if (set(typed) == owners and not states & {"undoing", "claiming", "resetting", "unknown"} and
                    all(c["state"] == "bound" for c in claims)):
                break
            if time.monotonic() > end:
                self.leaks += len(set(typed) - owners)
                raise Violation(f"not settled: typed without claim {set(typed) - owners}, claims without a "
                                f"type {owners - set(typed)}, VFs {states}")
            time.sleep(0.01)
        left = {c["name"]: c for c in claims}
        for client in self.clients:
            client.check(left)
        if left:
            raise Violation(f"claims that nobody made: {list(left)}")
        return True

    # --- one round ---

    def trouble(self):
        """Now and then the driver misbehaves for a moment."""
        gpu = self.random.choice(["0000:41:00.0", "0000:81:00.0"])
        kind = self.random.random()
        self.eperm = False
        if kind < 0.10:
            code = self.random.choice(["EIO", "EPERM"])
            self.eperm = code == "EPERM"
            self.sim.ctl("set", "sysfs.write_errno", code, "--gpu", gpu, "--for", "0.1")
        elif kind < 0.20:
            self.sim.ctl("set", "sysfs.release_errno", "EBUSY", "--gpu", gpu, "--for", "0.2")
        elif kind < 0.30:
            self.sim.ctl("set", "sysfs.write_latency_ms", 20, "--gpu", gpu, "--for", "0.2")
        elif kind < 0.33:
            self.sim.ctl("set", "sysfs.write_hang", 1, "--gpu", gpu, "--for", "0.5")

    def choose_fault(self):
        if self.random.random() < 0.5:
            return None
        return f"{self.random.choice(self.points)}:{self.random.choice([1, 1, 2, 3, 5, 8, 13])}"

    def round(self):
        fault = self.choose_fault()
        self.start(fault)
        checked = self.check()
        self.dead.clear()
        if checked:
            self.trouble()
            threads = [threading.Thread(target=c.run) for c in self.clients]
            for t in threads:
                t.start()
            self.dead.wait(self.random.uniform(0.0, 0.15) if fault is None else 0.4)
            by_itself = self.dead.is_set()
            self.daemon.process.kill()
            self.dead.set()
            for t in threads:
                t.join(60)
            for c in self.clients:
                if c.fault:
                    raise c.fault
        else:
            by_itself = True
            self.daemon.process.kill()
        self.daemon.process.wait(timeout=20)
        self.deaths[fault.split(":")[0] if fault and by_itself else "at random"] += 1

    def finish(self):
        """Ends well: everything can be released and nothing stays."""
        self.start(None)
        if not self.check():
            raise Violation("berthd died by itself")
        for c in self.clients:
            for node in c.nodes.values():
                node.close()
            for name, vf in c.known.items():
                if vf and self.daemon.release(name).status not in (200, 202):
                    raise Violation(f"{name} cannot be released")
        self.tests.settled(self.sim, self.daemon)
        left = self.tests.typed_vfs(self.sim)
        self.leaks += len(left)
        if left:
            raise Violation(f"left configured: {left}")

    def close(self):
        for c in self.clients:
            for node in c.nodes.values():
                node.close()
        if self.daemon and self.daemon.process.poll() is None:
            self.daemon.stop()
        self.sim.stop()


def main():
    options = arguments()
    os.environ["BERTH_BIN"] = str(pathlib.Path(options.build).resolve() / "bin")
    sys.path.insert(0, str(ROOT / "tests/system"))
    import conftest

    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    work = pathlib.Path(tempfile.mkdtemp(prefix="berth-soak-"))
    soak = Soak(conftest, work / "sim", seed)
    began = time.monotonic()
    done, broken = 0, None
    try:
        for done in range(1, options.rounds + 1):
            soak.round()
            if done % 100 == 0:
                print(f"soak: {done} rounds, {time.monotonic() - began:.0f} s", flush=True)
        soak.finish()
    except KeyboardInterrupt:
        broken = "interrupted"
    except BaseException as e:  # pytest.fail of a helper is none of Exception's
        broken = f"{type(e).__name__}: {e}"
        with contextlib.suppress(OSError):
            print("\n".join(soak.daemon.log().splitlines()[-80:]), file=sys.stderr)
    finally:
        soak.close()
        shutil.rmtree(work, ignore_errors=True)
    for title, counter in (("deaths", soak.deaths), ("answers", soak.answers)):
        print(f"soak: {title}: " + ", ".join(f"{k} {v}" for k, v in sorted(counter.items())))
    if broken:
        print(f"soak: round {done}, seed {seed}: {broken}")
    print(f"soak: {done} rounds in {time.monotonic() - began:.0f} s: {soak.leaks} leaks, {soak.lost} claims lost, "
          f"{soak.ghosts} releases undone")
    return 1 if broken or soak.leaks or soak.lost or soak.ghosts else 0


if __name__ == "__main__":
    sys.exit(main())
