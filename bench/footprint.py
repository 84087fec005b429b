# SPDX-License-Identifier: Apache-2.0
"""What berthd and its helpers take while nobody asks for anything.

Memory, processor time, and what wakes the loop, on 2 cards of 32 VFs. The time that the kernel
spends for FUSE is part of it; on a real host sysfs costs less.
"""
import pathlib
import re
import shutil
import subprocess
import time

from host import Tool, running_host
from stats import Check

PROFILE = "L40S-2Q"
CLAIMS = 20
MEMORY_TARGET_MB = 24
CPU_TARGET_PERCENT = 0.5


# --- Memory ---------------------------------------------------------------------------------------

def command_of(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def proportional_kb(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE).group(1))


def memory(host):
    """Proportional set sizes: shared pages are divided among the processes that have them."""
    each = [{"process": command_of(pid), "kb": proportional_kb(pid)} for pid in host.processes()]
    return {"each": each, "mb": round(sum(p["kb"] for p in each) / 1024, 2)}


def use_it(host, options):
    """Buffers and caches get the size they have in service."""
    with Tool(options.build, "burst", host.socket) as burst, \
            Tool(options.build, "load", host.socket, 8) as load:
        for _ in range(2):
            burst.ask(f"PUT {CLAIMS} used {PROFILE}")
            for path in ("/resources", "/gpus", "/claims", "/metrics"):
                load.ask(f"{path} 100")
            burst.ask(f"DELETE {CLAIMS} used")
            host.settle()


# --- Processor time -------------------------------------------------------------------------------

def tasks(pid):
    return list(pathlib.Path(f"/proc/{pid}/task").iterdir())


def ticks(pid):
    """utime + stime of a process, all threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def run_nsec(pid):
    """The scheduler's own account: exact where ticks are sampled."""
    return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks(pid))


def switches(pid):
    """How often a thread of the process went to sleep, which is how often one was woken."""
    return sum(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (t / "status").read_text(),
                             re.MULTILINE).group(1)) for t in tasks(pid))


def idle(host, seconds):
    pids = host.processes()
    before = [(ticks(p), run_nsec(p), switches(p)) for p in pids]
    begun = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begun
    each = []
    for pid, (old_ticks, old_nsec, old_switches) in zip(pids, before):
        each.append({
            "process": command_of(pid),
            "cpu_percent": round((run_nsec(pid) - old_nsec) / elapsed / 1e7, 4),
            "ticks": ticks(pid) - old_ticks,
            "wakeups_per_second": round((switches(pid) - old_switches) / elapsed, 2),
        })
    return {"seconds": round(elapsed, 1), "each": each,
            "cpu_percent": round(sum(p["cpu_percent"] for p in each), 4)}


# --- What wakes the loop --------------------------------------------------------------------------

# With events, and after a wait: a time-out of 0 only asks whether there is more to do.
WOKEN = re.compile(r"\], \d+, (?!0\)|0, NULL|\{tv_sec=0, tv_nsec=0\}).*\) = [1-9]")


def classify(call):
    """The source that a call of the loop reads from."""
    if "<anon_inode:[timerfd]>" in call:
        return "timer"
    if call.startswith(("recvmsg(", "read(")) and ("<UNIX" in call or "<socket:" in call):
        return "helper"
    if "[eventfd]" in call:
        return "thread"
    return None


def parse_trace(text):
    """Each return of epoll_wait, by the first thing read after it."""
    counts = {"timer": 0, "helper": 0, "thread": 0, "other": 0}
    waiting = False
    for line in text.splitlines():
        if line.startswith("epoll_"):
            counts["other"] += waiting
            waiting = WOKEN.search(line) is not None
        elif waiting and classify(line):
            counts[classify(line)] += 1
            waiting = False
    counts["other"] += waiting
    return counts


def wakes(host, seconds):
    """None where it cannot be traced."""
    if not shutil.which("strace"):
        return None
    trace = host.root / "trace"
    done = subprocess.run(
        ["timeout", "-s", "INT", str(seconds), "strace", "-qq", "-yy", "-o", trace, "-e",
         "trace=epoll_wait,epoll_pwait,epoll_pwait2,read,recvmsg,recvfrom,accept4", "-p",
         str(host.daemon.pid)], capture_output=True, text=True, timeout=seconds + 30)
    if not trace.exists() or "attach" in done.stderr:
        return None
    return {"seconds": seconds, **parse_trace(trace.read_text())}


def wake_checks(found, n_cards):
    """The poll asks each card's helper once and so hears from it once: that is its own doing."""
    polls = found["seconds"] + 1
    return [
        Check("wake-timer", "timers that woke the loop, per second: the poll", found["timer"] /
              found["seconds"], "<=", polls / found["seconds"]),
        Check("wake-helper", "answers of helpers that woke it, per second: one a card and poll",
              found["helper"] / found["seconds"], "<=", n_cards * polls / found["seconds"]),
        Check("wake-other", "anything else that woke it", found["thread"] + found["other"], "<=", 0),
    ]


def run(options):
    with running_host(options) as host:
        fresh = memory(host)
        use_it(host, options)
        used = memory(host)
        # The store writes its log back a second after the last claim.
        time.sleep(2.5)
        quiet = idle(host, options.idle_seconds)
    # No pass of the reconciler may fall into what is watched here.
    with running_host(options, settings={"reconcile_interval": "1h"}) as host:
        n_cards = len(host.card_addresses())
        time.sleep(2.5)
        found = wakes(host, options.idle_seconds)
    checks = [
        Check("memory", "proportional set size of berthd and its helpers", max(fresh["mb"], used["mb"]),
              "<=", MEMORY_TARGET_MB, "MB"),
        Check("idle", "processor time of berthd and its helpers, share of a core",
              quiet["cpu_percent"], "<=", CPU_TARGET_PERCENT, "%"),
    ]
    if found:
        checks += wake_checks(found, n_cards)
    return {"figures": {"memory_fresh": fresh, "memory_used": used, "idle": quiet, "wakes": found},
            "checks": checks}
