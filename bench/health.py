# SPDX-License-Identifier: Apache-2.0
"""From a marker on a console to the quarantine, while all consoles are flooded; and the agent's size.

64 guests write 1 MB a second each; now and then one of them reports a failure. What berthd grows by
meanwhile is compared with the same berthd when the logs were quiet.
"""
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import time

from footprint import run_nsec
from host import BenchError, UnixConnection, running_host, wait_for
from stats import Check

PROFILE = "L40S-1Q"
CLAIMS = 64
CARDS = 4  # in mixed-size mode a card has 16 places for this profile
BYTES_PER_SECOND = 1_000_000  # of each log
CHUNK_BYTES = 16384
SCAN_SECONDS = 5  # the default of sentinel.scan_interval
MARKERS = 4
GROW_SECONDS = 6  # before the first marker: a whole scan falls into it
PAUSE_SECONDS = 0.7  # between markers: no divisor of the scan interval
FLOOD_LIMIT_SECONDS = 18
LINE = b"[   12.345678] virtio_net virtio0 eth0: a line as a guest's kernel and services write them\n"
MARKER = (b"2026/08/25 19:10:00 [guest-agent] BERTH-GPU-INIT-FAILED ts=2026-08-25T19:10:00Z "
          b'nvrm="NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)"\n')
GROWTH_TARGET_MB = 2
AGENT_DISK_TARGET_KB = 120
AGENT_MEMORY_TARGET_KB = 200


def resident_kb(pid):
    """Counted page by page: the sums in status lag behind."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Rss:\s+(\d+) kB", text, re.MULTILINE).group(1))


# --- The guests -----------------------------------------------------------------------------------

def flood(paths):
    """Whole lines, each chunk in one write, so that a marker of somebody else falls between lines.
    Catches up where it was late."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    chunk = LINE * (CHUNK_BYTES // len(LINE))
    logs = [os.open(p, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for p in paths]
    written, begun = 0, time.monotonic()
    while (elapsed := time.monotonic() - begun) < FLOOD_LIMIT_SECONDS:
        if written * len(chunk) > elapsed * BYTES_PER_SECOND:
            time.sleep(0.002)
            continue
        for log in logs:
            os.write(log, chunk)
        written += 1


class Flood:
    """Another process, so that what watches berthd is not held up by it."""

    def __init__(self, paths):
        self.paths = paths
        self.begun = None
        self.process = multiprocessing.get_context("fork").Process(target=flood, args=(paths,), daemon=True)

    def mb_per_second(self):
        """Of the slowest log."""
        return min(p.stat().st_size for p in self.paths) / (time.monotonic() - self.begun) / 1e6

    def __enter__(self):
        self.begun = time.monotonic()
        self.process.start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()


# --- berthd ---------------------------------------------------------------------------------------

def claim(host, name, log):
    connection = UnixConnection(host.socket)
    try:
        connection.request("PUT", f"/claims/{name}",
                           f'{{"profile": "{PROFILE}", "console_log": "{log}"}}',
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 201:
        raise BenchError(f"claim {name} refused: {body.decode()}")


def write_marker(path):
    with open(path, "ab", buffering=0) as f:
        f.write(MARKER)


def watch(host, seconds, ended=lambda: False):
    """The most memory that berthd had until it ended, or for so long."""
    most, end = 0, time.monotonic() + seconds
    while time.monotonic() < end and not ended():
        most = max(most, resident_kb(host.daemon.pid))
        time.sleep(0.01)
    return most


def quarantines(host):
    return int(host.metric("berth_quarantined_vfs"))


def marker_to_quarantine(host, path, count):
    """Seconds, and the most memory meanwhile. count: the quarantines that there are then."""
    begun = time.monotonic()
    write_marker(path)
    most = watch(host, 2 * SCAN_SECONDS, lambda: quarantines(host) >= count)
    if quarantines(host) < count:
        raise BenchError("a marker in a growing log led to no quarantine")
    return time.monotonic() - begun, most


def sentinel(host):
    folder = host.root / "console"
    folder.mkdir(exist_ok=True)
    paths = [folder / f"guest-{n}.log" for n in range(CLAIMS)]
    for path in paths:
        claim(host, path.stem, path)
        path.write_bytes(LINE)
    host.settle()
    # The first quarantine is not measured: buffers and the file of records come to be with it.
    quiet_seconds, _ = marker_to_quarantine(host, paths[0], 1)
    quiet = watch(host, 1, lambda: quarantines(host) > 1)  # asks as often as below
    with Flood(paths) as guests:
        busy = -run_nsec(host.daemon.pid)
        most = watch(host, GROW_SECONDS, lambda: quarantines(host) > 1)
        times = []
        for n in range(1, MARKERS + 1):
            seconds, kb = marker_to_quarantine(host, paths[n * (CLAIMS // MARKERS) - 1], n + 1)
            times.append(seconds)
            most = max(most, kb, watch(host, PAUSE_SECONDS))
        busy += run_nsec(host.daemon.pid)
        rate, elapsed = guests.mb_per_second(), time.monotonic() - guests.begun
    return {"quiet_kb": quiet, "flooded_kb": most, "growth_mb": round((most - quiet) / 1024, 3),
            "quiet_seconds": round(quiet_seconds, 3), "seconds": [round(t, 3) for t in times],
            "worst_seconds": max(times), "mb_per_second_of_each": round(rate, 3),
            "flood_seconds": round(elapsed, 1), "cpu_percent": round(busy / elapsed / 1e7, 1)}


# --- The agent ------------------------------------------------------------------------------------

def agent(options, root):
    """After its start and a first report; kmsg is a FIFO, a console a file."""
    program = options.build / "bin/berth-agent"
    kmsg, console = root / "kmsg", root / "agent-console"
    os.mkfifo(kmsg)
    console.touch()
    writer = os.open(kmsg, os.O_RDWR)
    process = subprocess.Popen([program, "--force", "--kmsg", kmsg, "--console", console, "--nvidia-smi",
                                root / "none", "--vsock-port", "0", "--virtio-port", root / "none"])
    try:
        os.write(writer, b"4,1,1,-;NVRM: GPU 0000:00:05.0: RmInitAdapter failed! (0x22:0x65:884)\n")
        wait_for(lambda: b"INIT-FAILED" in console.read_bytes(), "the agent's report")
        return {"disk_kb": round(program.stat().st_size / 1024, 1), "resident_kb": resident_kb(process.pid)}
    finally:
        process.terminate()
        process.wait(timeout=5)
        os.close(writer)


def run(options):
    with running_host(options, cards=CARDS, vfs=CLAIMS // CARDS, latency_ms=0,
                      settings={"gpu": {"vf_quarantine_threshold": 1}}) as host:
        found = sentinel(host)
        guest = agent(options, host.root)
    checks = [
        Check("marker", "marker to quarantine, share of scan_interval, the slowest",
              found["worst_seconds"] / SCAN_SECONDS, "<=", 1),
        Check("log-memory", "berthd's memory above that with quiet logs", found["growth_mb"], "<=",
              GROWTH_TARGET_MB, "MB"),
        Check("log-rate", "what each of the logs really grew by, a second",
              found["mb_per_second_of_each"], ">=", 0.95 * BYTES_PER_SECOND / 1e6, "MB"),
        Check("agent-disk", "berth-agent's file", guest["disk_kb"], "<=", AGENT_DISK_TARGET_KB, "KB"),
        Check("agent-memory", "berth-agent's resident memory", guest["resident_kb"], "<=",
              AGENT_MEMORY_TARGET_KB, "KB"),
    ]
    return {"figures": {"sentinel": found, "agent": guest}, "checks": checks}
