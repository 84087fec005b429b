# SPDX-License-Identifier: Apache-2.0
"""The packages' life on a clean Debian: installed, used, upgraded, removed, purged.

One machine for all, so the tests depend on each other and run in this order. The host is simulated:
/sys and /dev/vfio of the machine are the simulator's, so that the units run as they are shipped, with
their sandbox. Its root lies below /dev, which the sandbox leaves as it is, as it does the real nodes.
"""
import json
import time

import pytest

from conftest import PACKAGES

HOST = "/dev/host"
MEMBER, STRANGER = 4001, 4002
SETTINGS = f"""# What a real host needs none of, since there the driver's own files are at these places.
nvml_library: {HOST}/lib/libnvidia-ml.so.1
sentinel: {{scan_interval: 200ms}}
recover:
  sriov_manage: {HOST}/sriov-manage
  services_stop: [holder]
  services_start: [holder]
"""


def needs_systemd(machine):
    if not machine.systemd:
        pytest.skip("systemd does not run as first process of a namespace here (no cgroup2 to write to?)")


def berth(machine, arguments):
    return json.loads(machine.out(f"berth --json {arguments}"))


def claims(machine):
    return {c["name"]: c for c in berth(machine, "claims")["claims"]}


def sim(machine):
    """{address: VF} as the simulated driver has them."""
    state = json.loads(machine.out(f"berth-sim ctl --root {HOST} state"))
    return {v["address"]: v for c in state["cards"] for v in c["vfs"]}


def typed(machine):
    return {a for a, v in sim(machine).items() if v["type"]}


def packages(machine, names=PACKAGES):
    return " ".join(machine.out(f"ls /srv/deb/{n}_*.deb") for n in names)


def ready(machine):
    machine.wait_for("berth resources")


# --- Installing


@pytest.fixture(scope="module")
def installed(machine):
    machine.apt(f"install {packages(machine)}")
    return machine


def test_install_brings_what_is_needed(installed):
    """apt has installed nothing but the packages and libraries of Debian, and nothing is missing."""
    assert installed.out("dpkg --audit") == ""
    for program in ("berthd", "berth", "berth-sim", "berth-agent", "berth-device-plugin"):
        assert program in installed.out(f"{program} --version")
    missing = installed.out("ldd /usr/sbin/berthd /usr/bin/berth /usr/bin/berth-sim /usr/libexec/berth/* "
                            "/usr/libexec/berth-device-plugin/* | grep 'not found' || true")
    assert missing == ""


def test_files(installed):
    assert installed.out("getent group berth").startswith("berth:")
    modes = {"/etc/berth": "755 root root", "/var/log/berth": "3770 root berth",
             "/usr/share/doc/berth/examples/berthd.yaml": "644 root root"}
    for path, mode in modes.items():
        assert installed.out(f"stat -c '%a %U %G' {path}") == mode
    assert installed.out("find /usr/local -type f -newer /etc/debian_version | grep -i berth || true") == ""
    for page in ("man1/berth.1", "man1/berth-sim.1", "man5/berthd.yaml.5", "man8/berthd.8", "man8/berth-agent.8"):
        assert ".TH" in installed.out(f"zcat /usr/share/man/{page}.gz")


def test_settings_need_no_editing(installed):
    assert installed.run("test -e /etc/berth/berthd.yaml", check=False).returncode == 1
    installed.run("berthd --check")
    installed.run("berthd --check --config /usr/share/doc/berth/examples/berthd.yaml")


def test_helpers_are_found(installed):
    """The plugin's are its own: it does not need the daemon's package."""
    text = installed.out("berth-device-plugin --list --nvml-library ''")
    assert "berth-card" not in text


def test_services_after_install(installed):
    needs_systemd(installed)
    installed.wait_for("systemctl is-active berthd.service")
    assert installed.out("systemctl is-enabled berthd.service berthd.socket berth-agent.service").split() == ["enabled"] * 3
    assert installed.out("stat -c '%a %U %G' /run/berth/berthd.sock") == "660 root berth"
    assert installed.out("stat -c '%a' /var/lib/berth") == "700"
    # No NVIDIA function here: the guest agent has ended, content.
    installed.wait_for("test $(systemctl show -P SubState berth-agent) = dead")
    assert installed.out("systemctl show -P Result berth-agent") == "success"
    plugin = installed.run("systemctl is-enabled berth-device-plugin.service", check=False)
    assert plugin.stdout.strip() == "disabled"
    assert installed.out("systemctl --failed --no-legend") == ""


def test_who_may_use_the_socket(installed):
    needs_systemd(installed)
    group = installed.out("getent group berth").split(":")[2]
    installed.run("berth resources", user=(MEMBER, group))
    stranger = installed.run("berth resources", check=False, user=(STRANGER, STRANGER))
    assert stranger.returncode == 5, stranger.stdout


# --- The main job, with the installed programs alone


def test_demo(installed):
    """What debian/tests runs elsewhere."""
    installed.apt("install --no-install-recommends curl procps python3")
    out = installed.out("/srv/source/debian/tests/simulator")
    assert "configured VFs: 0" in out


# --- The service on a simulated host


@pytest.fixture(scope="module")
def host(installed):
    m = installed
    needs_systemd(m)
    m.run(f"mkdir {HOST}; systemd-run -q --unit host berth-sim run --root {HOST} --cards 2 --vfs 4 --nvml-latency 0")
    m.wait_for(f"berth-sim ctl --root {HOST} state")
    for folder in ("sys/bus", "sys/devices", "dev/vfio"):
        m.run(f"mount --bind {HOST}/{folder} /{folder}")
    m.run(f"install -d -o {MEMBER} -m 700 /var/log/libvirt/qemu")  # a VM manager's
    m.write("/etc/berth/berthd.yaml", SETTINGS)
    m.write("/etc/systemd/system/holder.service", "[Service]\nExecStart=/bin/sleep infinity\n")
    m.run("systemctl daemon-reload; systemctl start holder; systemctl restart berthd")
    ready(m)
    return m


@pytest.fixture(scope="module")
def guest(host):
    """A claim whose VM runs: (VF, pid of the VM)."""
    host.run("berth claim vm1 -p L40S-4Q --console-log /var/log/berth/vm1.log")
    vf = claims(host)["vm1"]["vf"]
    return vf, host.out(f"berth-sim ctl --root {HOST} boot {vf} --init-ms 0 --console /var/log/berth/vm1.log")


def test_sandbox_is_on(host):
    pid = host.out("systemctl show -P MainPID berthd")
    status = dict(line.split(":", 1) for line in host.out(f"cat /proc/{pid}/status").splitlines() if ":" in line)
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    assert int(status["CapBnd"], 16) == 1 << 1 | 1 << 2 | 1 << 19 | 1 << 21  # DAC_OVERRIDE, DAC_READ_SEARCH, SYS_PTRACE, SYS_ADMIN
    inside = f"nsenter -t {pid} -m"
    for path in ("/usr", "/etc/berth", "/sys/kernel", "/proc/sys/kernel"):
        assert host.run(f"{inside} touch {path}/test", check=False).returncode, path
    assert host.out(f"{inside} ls -A /root /tmp") == "/root:\n\n/tmp:"
    for path in ("/sys/devices", "/sys/bus/pci", "/var/lib/berth", "/var/log/berth", "/run/berth"):
        assert "rw" in host.out(f"{inside} findmnt -n -o OPTIONS -T {path} | tail -1").split(","), path


def test_claims_work_in_the_sandbox(host, guest):
    vf, _ = guest
    assert sim(host)[vf]["type"] and sim(host)[vf]["open"]
    gpu = berth(host, "gpus")["gpus"][0]
    assert gpu["source"] == "nvml" and gpu["fallback"] is None
    open_vf = host.run("berth release vm1", check=False)
    assert open_vf.returncode == 1 and "is open" in open_vf.stdout, open_vf.stdout
    # The scan of /proc was complete: a VF that nobody has open can be released.
    host.run("berth claim vm2 -p L40S-8Q; berth release vm2")
    assert "partial" not in host.out("journalctl -u berthd --no-pager")


@pytest.mark.parametrize("folder", ["/var/log/berth", "/var/log/libvirt/qemu"])
def test_console_log_is_archived(host, folder):
    """Also where folder and log belong to another user."""
    log = f"{folder}/vm3.log"
    host.write(log, "old\n")
    host.run(f"chown {MEMBER} {log}; chmod 600 {log}; berth claim vm3 -p L40S-4Q --console-log {log}")
    assert host.out(f"cat {log}.1") == "old"
    host.run("berth release vm3")


def test_open_handles_of_other_users_are_seen(host):
    host.run("berth claim vm4 -p L40S-4Q")
    node = claims(host)["vm4"]["vfio_group"]
    host.run(f"systemd-run -q --unit user sh -c 'exec 9<>{node}; exec setpriv --reuid {MEMBER} --clear-groups sleep 1000'")
    host.wait_for(f"pgrep -u {MEMBER} sleep")
    refused = host.run("berth release vm4", check=False)
    assert refused.returncode == 1 and "(sleep)" in refused.stdout, refused.stdout
    host.run("systemctl stop user")
    host.run("berth release vm4")


def test_recovery_works_in_the_sandbox(host, guest):
    """sriov-manage and systemctl are started by berthd, inside."""
    used = claims(host)["vm1"]["gpu"]
    other = next(g["address"] for g in berth(host, "gpus")["gpus"] if g["address"] != used)
    before = host.out("systemctl show -P MainPID holder")
    host.run(f"berth gpu cordon {other}; berth gpu recover {other}; berth gpu uncordon {other}")
    assert host.out("systemctl show -P MainPID holder") != before
    assert [g["slots"]["total"] for g in berth(host, "gpus")["gpus"]] == [4, 4]


def test_doctor(host, guest):
    """Nothing is wrong with what the packages and the unit have set up."""
    done = host.run("berth --json doctor", check=False)
    report = json.loads(done.stdout)
    serious = [f for f in report["findings"] if f["severity"] == "error" or f["check"] in ("daemon", "socket", "group")]
    assert not serious and done.returncode in (0, 6), report["findings"]
    assert next(c for c in report["checks"] if c["id"] == "daemon")["state"] == "ok"


def unchanged(host, guest):
    """The claim, the VF, and the VM."""
    vf, pid = guest
    assert sim(host)[vf]["type"] and sim(host)[vf]["open"]
    assert host.run(f"test -d /proc/{pid}", check=False).returncode == 0


def test_restart_leaves_everything(host, guest):
    inode = host.out("stat -c %i /run/berth/berthd.sock")
    host.run("systemd-run -q --unit run berth run -p L40S-4Q -- /bin/sleep infinity")
    host.wait_for("berth --json claims | grep -q run-")
    running = host.out("systemctl show -P MainPID run")
    before = host.out("systemctl show -P MainPID berthd")
    host.run("systemctl restart berthd")
    ready(host)
    assert host.out("systemctl show -P MainPID berthd") != before
    assert host.out("stat -c %i /run/berth/berthd.sock") == inode
    unchanged(host, guest)
    assert claims(host)["vm1"]["vf"] == guest[0]
    assert host.out("systemctl show -P MainPID run") == running and len(claims(host)) == 2
    host.run("systemctl stop run")
    host.wait_for("berth --json claims | grep -vq run-")


def test_stopped_daemon_is_started_by_its_socket(host, guest):
    host.run("systemctl stop berthd.service 2>/dev/null")
    unchanged(host, guest)
    assert host.out("pgrep -f 'berth-(card|nvml)' || true") == ""
    ready(host)  # it is asked, and so it is started
    assert "vm1" in claims(host)
    host.wait_for("systemctl is-active berthd.service")


def test_reload(host):
    before = host.out("systemctl show -P MainPID berthd")
    host.run("systemctl reload berthd")
    ready(host)
    assert host.out("systemctl show -P MainPID berthd") == before


def test_crash_is_restarted(host, guest):
    before = host.out("systemctl show -P MainPID berthd")
    host.run("systemctl kill --kill-whom=main -s SEGV berthd")
    host.wait_for(f"test $(systemctl show -P MainPID berthd) != {before} && systemctl is-active berthd")
    ready(host)
    unchanged(host, guest)


def test_hung_driver_does_not_hang_the_stop(host, guest):
    """A write that does not return, not even for SIGKILL: the stop ends, the card stays alone, and the
    next berthd undoes what the write does when it returns after all."""
    host.run("mkdir -p /run/systemd/system/berthd.service.d")
    host.write("/run/systemd/system/berthd.service.d/test.conf", "[Service]\nTimeoutStopSec=2\n")
    host.run(f"systemctl daemon-reload; berth-sim ctl --root {HOST} set sysfs.write_hang 1")
    host.run("systemd-run -q --unit claim berth claim hung -p L40S-4Q")
    host.wait_for("berth --json vf list | grep -q claiming")
    host.run("systemctl stop berthd.service", check=False)
    assert host.out("systemctl show -P ActiveState berthd") in ("inactive", "failed")
    assert host.out("pgrep -x berth-card")
    host.run("rm -r /run/systemd/system/berthd.service.d; systemctl daemon-reload; systemctl reset-failed")
    host.run("systemctl start berthd")
    ready(host)
    host.wait_for("berth --json gpus | grep -q '\"stuck\": *true'")
    host.run(f"berth-sim ctl --root {HOST} set sysfs.write_hang 0")
    end = time.monotonic() + 30
    while typed(host) != {guest[0]}:
        assert time.monotonic() < end, typed(host)
        time.sleep(0.2)
    unchanged(host, guest)


# --- Upgrade, removal, purge


def test_upgrade_over_itself(host, guest):
    inode = host.out("stat -c %i /run/berth/berthd.sock")
    before = host.out("systemctl show -P MainPID berthd")
    host.apt(f"install --reinstall {packages(host)}")
    ready(host)
    assert host.out("systemctl show -P MainPID berthd") != before
    assert host.out("stat -c %i /run/berth/berthd.sock") == inode
    assert claims(host)["vm1"]["problem"] is None
    assert "nvml_library" in host.out("cat /etc/berth/berthd.yaml")
    unchanged(host, guest)


def test_remove_keeps_the_records(host, guest):
    host.apt("remove berth")
    assert host.run("systemctl is-active berthd.service berthd.socket", check=False).returncode
    assert host.run("test -e /run/berth/berthd.sock", check=False).returncode
    host.run("test -s /var/lib/berth/claims.db; test -s /etc/berth/berthd.yaml; getent group berth")
    unchanged(host, guest)
    host.apt(f"install {packages(host, ['berth'])}")
    ready(host)
    assert claims(host)["vm1"]["vf"] == guest[0]


def test_purge(host, guest):
    host.apt("purge berth")
    assert host.run("test -e /var/lib/berth", check=False).returncode
    # Console logs are the VM managers', and settings that a person wrote are that person's.
    host.run("test -e /var/log/berth/vm1.log && test -e /etc/berth/berthd.yaml")
    unchanged(host, guest)
    assert host.out("systemctl --failed --no-legend") == ""


def test_purge_leaves_nothing_of_ours(installed):
    installed.run("rm -rf /var/log/berth /etc/berth")
    installed.apt("purge " + " ".join(PACKAGES))
    left = installed.out("find / -xdev -path /srv -prune -o -path /proc -prune -o -name '*berth*' -print | "
                         "grep -v -e '^/var/lib/dpkg' -e '^/var/log' -e '^/etc/group' -e '^/run' || true")
    assert left == ""
