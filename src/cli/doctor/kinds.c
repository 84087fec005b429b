/* SPDX-License-Identifier: Apache-2.0 */
/* Every finding that `berth doctor` knows. man/berth-doctor.7.scd lists them for people. */
#include "cli/doctor/report.h"

static const struct {
	const char *id, *title;
} checks[DOCTOR_CHECK_COUNT] = {
	[DOCTOR_CHECK_CONFIG] = { "config", "the settings file" },
	[DOCTOR_CHECK_DAEMON] = { "daemon", "berthd answers" },
	[DOCTOR_CHECK_ACCESS] = { "access", "who may use the socket" },
	[DOCTOR_CHECK_DATA] = { "data", "data_dir and what is in it" },
	[DOCTOR_CHECK_CONSOLES] = { "consoles", "folders of console logs" },
	[DOCTOR_CHECK_TLS] = { "tls", "certificate, key and client CA" },
	[DOCTOR_CHECK_CLOCK] = { "clock", "clock and boot id" },
	[DOCTOR_CHECK_CARDS] = { "cards", "NVIDIA cards and their drivers" },
	[DOCTOR_CHECK_VFS] = { "vfs", "VFs and their drivers" },
	[DOCTOR_CHECK_VFIO] = { "vfio", "IOMMU groups and VFIO nodes" },
	[DOCTOR_CHECK_SYSFS] = { "sysfs", "sysfs can be written" },
	[DOCTOR_CHECK_DRIVER] = { "driver", "version of the host driver" },
	[DOCTOR_CHECK_NVML] = { "nvml", "NVML gives placements" },
	[DOCTOR_CHECK_MODE] = { "mode", "mixed-size mode of the cards" },
	[DOCTOR_CHECK_RESPONSE] = { "response", "the cards' drivers answer" },
	[DOCTOR_CHECK_STORES] = { "stores", "claims database and health records" },
	[DOCTOR_CHECK_CLAIMS] = { "claims", "claims and configured VFs agree" },
	[DOCTOR_CHECK_HEALTH] = { "health", "sick VFs" },
	[DOCTOR_CHECK_RECONCILE] = { "reconcile", "reconciliation gets on" },
	[DOCTOR_CHECK_HANDLES] = { "handles", "open VFs can be seen" },
	[DOCTOR_CHECK_RECOVER] = { "recover", "a card could be recovered" },
	[DOCTOR_CHECK_PLUGIN] = { "plugin", "device plugins beside berthd" },
};

#define KIND(ID, NAME, CHECK, SEVERITY, TITLE, WHY, HOW)                                           \
	[DOCTOR_##ID] = { NAME, DOCTOR_CHECK_##CHECK, DOCTOR_##SEVERITY, TITLE, WHY, HOW }

/* clang-format off */
static const struct doctor_kind kinds[DOCTOR_ID_COUNT] = {
KIND(CONFIG_INVALID, "config-invalid", CONFIG, ERROR,
     "the settings file is refused",
     "berthd does not start with it, since a setting that was misread could cost running VMs their vGPUs.",
     "correct the line that is named; berthd.yaml(5) explains the keys\n"
     "berthd --config {} --check"),
KIND(CONFIG_UNREADABLE, "config-unreadable", CONFIG, ERROR,
     "the settings file cannot be read",
     "Without it the checks below use the default settings, which may not be berthd's.",
     "run berth doctor as root, or name the file: berth doctor --config FILE"),
KIND(CONFIG_DEFAULTS, "config-defaults", CONFIG, INFO,
     "there is no settings file; the defaults hold",
     "That is meant to work. One default matters beside other programs: VFs that are configured, unclaimed and not "
     "open are reset (unclaimed_vfs).",
     "nothing, or write {}; berthd.yaml(5) explains the keys"),
KIND(CONFIG_DIFFERS, "config-differs", CONFIG, WARNING,
     "berthd runs with other settings than the file's",
     "The file was changed after berthd was started, or berthd was started with another one.",
     "systemctl restart berthd    (VMs and claims stay as they are)\n"
     "or name its file: berth doctor --config FILE"),
KIND(EXCLUDE_UNKNOWN, "exclude-unknown", CONFIG, WARNING,
     "gpu.exclude names a device that is not there",
     "A mistyped address protects nothing: berthd may use and reset the device that was meant.",
     "lspci -d 10de:    (shows the addresses)\n"
     "correct gpu.exclude"),
KIND(DAEMON_ABSENT, "daemon-absent", DAEMON, WARNING,
     "berthd is not running",
     "Nothing is handed out or taken back, and much of this host could not be looked at.",
     "systemctl start berthd\n"
     "journalctl -u berthd -n 20    (if it does not stay)"),
KIND(DAEMON_REFUSED, "daemon-refused", DAEMON, WARNING,
     "nobody listens on berthd's socket",
     "berthd was killed and left the socket behind; nothing is handed out or taken back until it runs again. "
     "VMs and claims are not affected.",
     "systemctl start berthd\n"
     "journalctl -u berthd -n 20    (why it ended)"),
KIND(DAEMON_FORBIDDEN, "daemon-forbidden", DAEMON, WARNING,
     "you may not use berthd's socket",
     "What berthd knows could not be looked at.",
     "run berth doctor as root, or join the socket's group: usermod -aG berth USER, then log in again"),
KIND(DAEMON_SILENT, "daemon-silent", DAEMON, ERROR,
     "berthd does not answer",
     "Its loop never waits for the driver, so something is wrong with berthd itself or with what listens there.",
     "journalctl -u berthd -n 50\n"
     "systemctl restart berthd    (VMs and claims stay as they are)"),
KIND(DAEMON_VERSION, "daemon-version", DAEMON, WARNING,
     "berthd is of another version than this program",
     "After an upgrade the old berthd goes on running until it is restarted.",
     "systemctl restart berthd    (VMs and claims stay as they are)"),
KIND(DAEMON_NOT_READY, "daemon-not-ready", DAEMON, ERROR,
     "berthd is not ready to hand out vGPUs",
     "Claims are refused until it is.",
     "journalctl -u berthd -n 50"),
KIND(GROUP_MISSING, "group-missing", ACCESS, INFO,
     "there is no group berth",
     "The socket is root's alone, so only root can claim vGPUs.",
     "groupadd --system berth\n"
     "systemctl restart berthd"),
KIND(GROUP_NOT_MEMBER, "group-not-member", ACCESS, INFO,
     "you are not in the socket's group",
     "berth commands of this user are refused by the socket.",
     "usermod -aG {} USER    (as root; then log in again)"),
KIND(SOCKET_GROUP, "socket-group", ACCESS, INFO,
     "the socket is not of the group berth",
     "Members of the group berth cannot use it.",
     "systemctl restart berthd    (the group may have been made after its start)\n"
     "chgrp berth {}    (until the next restart)"),
KIND(SOCKET_OPEN, "socket-open", ACCESS, WARNING,
     "everybody on this host may use the socket",
     "Any user can claim vGPUs and release those of the same uid.",
     "chmod o= {}"),
KIND(NOT_ROOT, "not-root", ACCESS, INFO,
     "not run as root",
     "The checks that say so were not made, or only in part.",
     "sudo berth doctor"),
KIND(DATA_DIR_MISSING, "data-dir-missing", DATA, ERROR,
     "data_dir is not there although berthd runs",
     "Claims and health records cannot be stored.",
     "restore {} from a backup, or find out what removed or unmounted it\n"
     "systemctl restart berthd"),
KIND(DATA_DIR_UNUSABLE, "data-dir-unusable", DATA, ERROR,
     "data_dir cannot be used",
     "berthd keeps claims and health records there and does not start without it.",
     "correct data_dir in the settings, or the folder {}"),
KIND(DATA_DIR_WRITABLE, "data-dir-writable", DATA, ERROR,
     "others may write to data_dir",
     "Whoever may write there can forge claims and health records, and so have a running VM's vGPU reset.",
     "chown root: {}\n"
     "chmod 0700 {}"),
KIND(DATA_DIR_READABLE, "data-dir-readable", DATA, INFO,
     "others may look into data_dir",
     "Nothing in there is secret, but berthd itself would have made it with mode 0700.",
     "chmod 0700 {}"),
KIND(DISK_LOW, "disk-low", DATA, WARNING,
     "little room is left where data_dir is",
     "When it is full no claim can be stored: new claims are refused.",
     "df -h {}\n"
     "make room there"),
KIND(HEALTH_FILE_WRITABLE, "health-file-writable", DATA, ERROR,
     "others may write the health records",
     "Whoever may write them can quarantine every VF or set a sick one free.",
     "chown root: {}\n"
     "chmod 0600 {}"),
KIND(HEALTH_FILE_INVALID, "health-file-invalid", DATA, ERROR,
     "the health records cannot be used",
     "berthd hands out nothing while they cannot be read: a sick VF might be among them.",
     "correct the file by hand, or move it away to forget all quarantines: mv {} {}.bad"),
KIND(CONSOLE_DIR_MISSING, "console-dir-missing", CONSOLES, INFO,
     "a folder of console logs is not there",
     "Console logs below it cannot be watched for sick VFs. That is fine where no VM logs there.",
     "mkdir -p {}    (or leave it out of sentinel.console_dirs)"),
KIND(CONSOLE_DIR_WRITABLE, "console-dir-writable", CONSOLES, WARNING,
     "everybody may write to a folder of console logs",
     "Any user can put a forged console log in place, and so quarantine a VF.",
     "chmod o-w {}"),
KIND(CONSOLE_DIR_UNREADABLE, "console-dir-unreadable", CONSOLES, WARNING,
     "a folder of console logs cannot be read",
     "Reports of sick VFs from there are missed.",
     "ls -ld {}\n"
     "correct sentinel.console_dirs or the folder"),
KIND(TLS_FILE_MISSING, "tls-file-missing", TLS, ERROR,
     "a file of the TLS settings cannot be read",
     "berthd does not serve TLS without it.",
     "correct the tls section of the settings, or the file {}"),
KIND(TLS_KEY_OPEN, "tls-key-open", TLS, WARNING,
     "others may read the private key",
     "Whoever has it can pass for this berthd.",
     "chmod 0600 {}\n"
     "have a new key made if others have had the time to read it"),
KIND(CLOCK_WRONG, "clock-wrong", CLOCK, WARNING,
     "the clock is wrong",
     "Claims and health records get wrong times, and TLS certificates seem not to be valid yet.",
     "timedatectl set-ntp true    (or: date -s ...)"),
KIND(CLOCK_UNSYNCHRONISED, "clock-unsynchronised", CLOCK, INFO,
     "no time service keeps the clock",
     "Times in claims and logs may differ from those of other hosts. berth itself does not rely on them.",
     "timedatectl set-ntp true"),
KIND(BOOT_ID_UNREADABLE, "boot-id-unreadable", CLOCK, ERROR,
     "the boot id cannot be read",
     "berthd does not start: it could not tell claims of this boot from those of an earlier one.",
     "correct boot_id_file in the settings"),
KIND(HOST_UNREADABLE, "host-unreadable", CARDS, ERROR,
     "the PCI devices of this host cannot be listed",
     "berthd sees no cards.",
     "ls {}/bus/pci/devices\n"
     "correct sysfs_root in the settings"),
KIND(NO_CARD, "no-card", CARDS, WARNING,
     "there is no NVIDIA card on this host",
     "There is nothing to hand out.",
     "lspci -d 10de:\n"
     "check the machine's firmware settings and the seating of the card"),
KIND(CARD_UNREADABLE, "card-unreadable", CARDS, WARNING,
     "something of a card could not be read",
     "The card may be used in part or not at all.",
     "dmesg | grep -i {}"),
KIND(CARD_WRONG_DRIVER, "card-wrong-driver", CARDS, WARNING,
     "a card that can do SR-IOV is not bound to the driver nvidia",
     "It has no VFs, so no vGPU comes from it. Passed through whole on purpose, it can be put into gpu.exclude.",
     "modprobe nvidia\n"
     "dmesg | grep -i nvrm    (why the driver did not take it)\n"
     "echo {} > /sys/bus/pci/drivers_probe"),
KIND(CARD_NO_VFS, "card-no-vfs", CARDS, WARNING,
     "a card has no VFs although it could have some",
     "No vGPU comes from it. sriov-manage that is run before the driver has finished starting makes no VFs and "
     "yet exits with 0.",
     "/usr/lib/nvidia/sriov-manage -e {}\n"
     "nvidia-smi vgpu -i {} -shm 1    (for profiles of different sizes on one card; after sriov-manage)\n"
     "at boot: order the unit that does this after nvidia-vgpud.service and nvidia-vgpu-mgr.service, and try again "
     "until ls -d /sys/bus/pci/devices/{}/virtfn* shows some"),
KIND(CARD_EXCLUDED, "card-excluded", CARDS, INFO,
     "a card is excluded by the settings",
     "It is shown and never used.",
     "nothing, or take it out of gpu.exclude"),
KIND(CARD_CORDONED, "card-cordoned", CARDS, INFO,
     "a card is cordoned",
     "It takes no new claims.",
     "berth gpu uncordon {}    (when it shall take claims again)"),
KIND(PASSTHROUGH_ONLY, "passthrough-only", CARDS, INFO,
     "this host passes whole cards through and has no vGPUs",
     "berthd shows the cards and refuses claims.",
     "nothing; for vGPUs install NVIDIA's vGPU host driver and bind the cards to it"),
KIND(MDEV_FRAMEWORK, "mdev-framework", CARDS, ERROR,
     "the host driver uses mediated devices (mdev)",
     "berth hands out vGPUs of the vendor VFIO framework only; claims are refused here.",
     "use a kernel and a vGPU host driver (branch 550 or later) with the vendor VFIO framework: its VFs have a "
     "folder nvidia/ in sysfs"),
KIND(NUMA_UNKNOWN, "numa-unknown", CARDS, INFO,
     "a card does not say to which NUMA node it belongs",
     "Claims that ask for a node never get this card, and Kubernetes gets no topology for it.",
     "look for a firmware update, or for its setting of NUMA per socket"),
KIND(VF_WRONG_DRIVER, "vf-wrong-driver", VFS, WARNING,
     "VFs are not bound to the driver nvidia",
     "They are no vGPUs and are never handed out. A VF that was bound to another driver is dead until its card's "
     "VFs are switched off and on.",
     "libvirt: set managed='no' in the VM's <hostdev>; managed='yes' takes the VF from its driver\n"
     "remove driver_override, vfio-pci.ids= and udev rules that bind NVIDIA's devices to vfio-pci\n"
     "berth gpu recover {}    (or, with no vGPU of the card in use: /usr/lib/nvidia/sriov-manage -d {} and then -e "
     "{})"),
KIND(VF_NO_INTERFACE, "vf-no-interface", VFS, ERROR,
     "VFs are bound to nvidia, but have no nvidia/current_vgpu_type",
     "The driver that is loaded is not a vGPU host driver with the vendor VFIO framework, or its vGPU part did not "
     "start.",
     "systemctl status nvidia-vgpud nvidia-vgpu-mgr\n"
     "dmesg | grep -i -e nvrm -e vgpu\n"
     "install the vGPU host driver (not a datacenter, guest or consumer driver), branch 550 or later"),
KIND(VF_UNREADABLE, "vf-unreadable", VFS, WARNING,
     "VFs cannot be read",
     "They are not handed out.",
     "dmesg | grep -i {}\n"
     "berth gpu recover {}    (when it stays so)"),
KIND(VF_EXCLUDED, "vf-excluded", VFS, INFO,
     "VFs are excluded by the settings",
     "They are shown and never used.",
     "nothing, or take them out of gpu.exclude"),
KIND(VFIO_MISSING, "vfio-missing", VFIO, ERROR,
     "VFIO is not there",
     "No VM can open a VF.",
     "modprobe vfio-pci\n"
     "echo vfio-pci > /etc/modules-load.d/vfio.conf"),
KIND(VFIO_NODE_MISSING, "vfio-node-missing", VFIO, WARNING,
     "VFs have no VFIO node",
     "A VM that gets one of them cannot open it.",
     "ls -l /dev/vfio /dev/vfio/devices\n"
     "udevadm trigger --subsystem-match=vfio    (or: systemctl restart systemd-udevd)"),
KIND(IOMMU_OFF, "iommu-off", VFIO, ERROR,
     "the IOMMU is off",
     "VFs are in no IOMMU group and cannot be given to a VM.",
     "enable VT-d or AMD-Vi and SR-IOV in the machine's firmware\n"
     "add intel_iommu=on iommu=pt (Intel) or iommu=pt (AMD) to the kernel's command line, and reboot"),
KIND(IOMMU_GROUP_SHARED, "iommu-group-shared", VFIO, WARNING,
     "VFs share an IOMMU group",
     "A group goes to one VM: berthd offers one VF of it at a time, so the host has fewer usable VFs than it shows.",
     "enable ACS in the machine's firmware, or use a slot of another root port\n"
     "for d in /sys/kernel/iommu_groups/*/devices/*; do echo $d; done    (shows the groups)"),
KIND(SYSFS_READ_ONLY, "sysfs-read-only", SYSFS, ERROR,
     "sysfs is mounted read-only where berthd runs",
     "No VF can be configured or released: every claim is refused.",
     "in a container: privileged: true, and mount the host's /sys writable\n"
     "under systemd: no ProtectKernelTunables= or ReadOnlyPaths=/sys in the unit\n"
     "on the host: mount -o remount,rw /sys"),
KIND(DRIVER_TOO_OLD, "driver-too-old", DRIVER, ERROR,
     "the host driver is older than branch 550",
     "It has no vendor VFIO framework and its NVML no placements: berth hands out nothing here.",
     "install NVIDIA's vGPU host driver of branch 550 or later (570 or later is better)"),
KIND(DRIVER_BEFORE_570, "driver-before-570", DRIVER, INFO,
     "the host driver is older than branch 570",
     "A placement is taken only when a VM boots, so berthd asks for it through vgpu_params (gpu.pin_placements) and "
     "cannot move it afterwards; a VF that other programs configured counts as where the driver would put it first.",
     "nothing, or install the vGPU host driver of branch 570 or later"),
KIND(DRIVER_MISMATCH, "driver-mismatch", DRIVER, ERROR,
     "the NVIDIA library and the loaded kernel driver are of different versions",
     "NVML refuses to work (error 18), so placements are not known. It happens after an upgrade without a reboot.",
     "reboot, or stop the VMs and load the new module:\n"
     "systemctl stop nvidia-vgpu-mgr nvidia-vgpud; berth driver release; rmmod nvidia_vgpu_vfio nvidia; modprobe "
     "nvidia; systemctl start nvidia-vgpud nvidia-vgpu-mgr; berth driver resume"),
KIND(NVML_OFF, "nvml-off", NVML, INFO,
     "NVML is switched off by the settings",
     "Capacity comes from the VFs' own lists, which says less: see docs/placement.md.",
     "nothing, or take nvml_library out of the settings"),
KIND(NVML_RELEASED, "nvml-released", NVML, WARNING,
     "berthd was told to keep its hands off the driver",
     "Somebody ran berth driver release; until it is resumed placements are not known.",
     "berth driver resume"),
KIND(NVML_HELPER_MISSING, "nvml-helper-missing", NVML, ERROR,
     "the program berth-nvml is not where it should be",
     "NVML cannot be asked, so placements are not known.",
     "install the package berth again"),
KIND(NVML_LIBRARY_MISSING, "nvml-library-missing", NVML, ERROR,
     "libnvidia-ml.so.1 cannot be opened",
     "Placements are not known; capacity comes from the VFs' own lists, and a claim may be refused though there is "
     "room.",
     "ldconfig -p | grep nvidia-ml\n"
     "install the vGPU host driver's user space part, or set nvml_library to its path"),
KIND(NVML_LIBRARY_UNUSABLE, "nvml-library-unusable", NVML, ERROR,
     "libnvidia-ml.so.1 is there and cannot be loaded",
     "It is of another architecture, cut, or not readable. Placements are not known meanwhile.",
     "file -L the library that is named\n"
     "install the vGPU host driver again, or correct nvml_library"),
KIND(NVML_SYMBOL_MISSING, "nvml-symbol-missing", NVML, ERROR,
     "the NVIDIA library is too old",
     "It does not have a function that tells placements (branch 550 and later have them).",
     "install the vGPU host driver of branch 550 or later\n"
     "ls -l the library that is named    (an old copy may shadow the driver's)"),
KIND(NVML_HANGS, "nvml-hangs", NVML, ERROR,
     "NVML does not answer",
     "The driver hangs in a call. Placements are as last known, or not known; berthd goes on asking.",
     "dmesg | grep -i -e nvrm -e xid\n"
     "nvidia-smi    (in another terminal; it probably hangs, too)\n"
     "a reboot of the host is the only sure cure"),
KIND(NVML_ERROR, "nvml-error", NVML, ERROR,
     "NVML fails for the whole host",
     "Placements are not known; capacity comes from the VFs' own lists.",
     "nvidia-smi\n"
     "dmesg | grep -i -e nvrm -e xid"),
KIND(CARD_NVML_ERROR, "card-nvml-error", NVML, ERROR,
     "NVML fails for one card",
     "That card's placements are not known; the other cards are not affected. \"GPU is lost\" is a card that fell off "
     "the bus.",
     "dmesg | grep -i -e nvrm -e xid\n"
     "berth gpu cordon {}    (keeps new claims away)\n"
     "reset or reseat the card, or reboot, when its VMs are gone"),
KIND(PLACEMENTS_OLD, "placements-old", NVML, WARNING,
     "the placements in use are old",
     "berthd asks NVML at least once each reconcile_interval; something keeps it from that.",
     "journalctl -u berthd -n 50"),
KIND(PLACEMENT_DRIFT, "placement-drift", NVML, WARNING,
     "NVML and the VFs do not agree on what is placed",
     "The driver holds room that no VF shows (a vGPU that did not go with its VM); berthd counts the smaller "
     "number.",
     "berth gpu recover {}    (when its VMs are gone)"),
KIND(CARD_EQUAL_SIZE, "card-equal-size", MODE, INFO,
     "a card is in equal-size mode",
     "All vGPUs on it have to be of one size: the first one decides, and the profiles of other sizes do not fit "
     "until it is empty again.",
     "nothing, or with no vGPU on the card: nvidia-smi vgpu -i {} -shm 1"),
KIND(CARD_MIG, "card-mig", MODE, INFO,
     "a card is in MIG mode",
     "It is shown, and nothing is claimed on it.",
     "nothing, or with no vGPU on the card: nvidia-smi -i {} -mig 0"),
KIND(CARD_NO_PLACEMENTS, "card-no-placements", MODE, INFO,
     "NVML knows no placements of a card",
     "Capacity comes from its VFs' own lists.",
     "nothing; the card cannot mix sizes"),
KIND(MIXED_MODE_LOST, "mixed-mode-lost", MODE, WARNING,
     "a card is not in mixed-size mode although it was, or its likes are",
     "Switching the VFs off and on (sriov-manage) and a reboot take the mode away. Profiles of different sizes do not "
     "share the card until it is on again.",
     "with no vGPU on the card: nvidia-smi vgpu -i {} -shm 1\n"
     "at boot: run that after sriov-manage, never before"),
KIND(CARD_STUCK, "card-stuck", RESPONSE, ERROR,
     "a card's driver hangs",
     "Nothing can be claimed or released on it until the call returns; the other cards go on.",
     "dmesg | grep -i -e nvrm -e xid\n"
     "berth gpus    (berthd uses the card again by itself when the driver answers)\n"
     "a reboot of the host is the only sure cure"),
KIND(HEALTH_STORE_UNAVAILABLE, "health-store-unavailable", STORES, ERROR,
     "berthd cannot use the health records",
     "It hands out nothing: a sick VF might be among them.",
     "correct gpu/vf-health.json in data_dir by hand, or move it away to forget all quarantines; berthd notices "
     "within a second"),
KIND(CLAIMS_STORE_UNAVAILABLE, "claims-store-unavailable", STORES, ERROR,
     "berthd cannot use its claims database",
     "It hands out nothing and resets nothing, since it cannot know which VF is whose. Running VMs go on.",
     "journalctl -u berthd | grep database\n"
     "make room on the disk, or restore claims.db and claims.gen together from a backup; to start anew move both away "
     "and restart berthd: configured VFs are then adopted as external claims"),
KIND(CLAIM_PROBLEM, "claim-problem", CLAIMS, WARNING,
     "a claim's VF is not as it should be",
     "vf_missing: it is gone. type_lost, type_changed: something else reset or configured it. card_stuck: its driver "
     "hangs. The claim stays until it is released.",
     "berth release {}    (when its VM is gone; then claim again)\n"
     "find out what else writes to VFs on this host"),
KIND(VF_UNCLAIMED, "vf-unclaimed", CLAIMS, INFO,
     "VFs are configured and no claim names them",
     "They are not handed out. berthd resets those that no process has open, unless unclaimed_vfs is leave; at its "
     "first start it adopts them instead.",
     "berth vf list"),
KIND(VF_UNCLAIMED_OPEN, "vf-unclaimed-open", CLAIMS, WARNING,
     "VFs are in use without a claim",
     "Something else hands out VFs on this host. berthd leaves them alone while they are open, and then resets them.",
     "set unclaimed_vfs: leave, or put them into gpu.exclude, if another program manages them\n"
     "else have that VM use berth claim"),
KIND(VF_QUARANTINED, "vf-quarantined", HEALTH, INFO,
     "VFs are quarantined",
     "Guests' drivers failed on them, so they are not handed out. Clearing the record mends nothing.",
     "berth gpu cordon {}\n"
     "wait until its claims are released, then: berth gpu recover {}\n"
     "docs/health.md explains it, also by hand"),
KIND(VF_FAILING, "vf-failing", HEALTH, INFO,
     "guests' drivers failed on VFs, less often than it takes for quarantine",
     "Several VFs at once point to a guest driver that does not match the host's rather than to sick VFs.",
     "berth vf list"),
KIND(RECONCILE_FAILING, "reconcile-failing", RECONCILE, WARNING,
     "something berthd tries again and again fails",
     "VFs that cannot be reset or looked at are not handed out.",
     "journalctl -u berthd -n 50"),
KIND(SCAN_BLIND, "scan-blind", HANDLES, ERROR,
     "berthd cannot see which VFs are open",
     "It refuses releases and resets nothing, since a VM might be using the VF.",
     "in a container: hostPID: true, and the capability SYS_PTRACE\n"
     "under systemd: no PrivatePIDs=, no ProtectProc=, and CAP_SYS_PTRACE in CapabilityBoundingSet="),
KIND(SCAN_PARTIAL, "scan-partial", HANDLES, INFO,
     "single processes cannot be looked into",
     "If one of them had a VF open berthd would not see it; the driver itself then refuses the release.",
     "nothing, or find out what hides them (user namespaces, security modules, hidepid= of /proc)"),
KIND(CARD_HELD, "card-held", RECOVER, INFO,
     "programs have the NVIDIA driver open",
     "sriov-manage refuses to switch a card's VFs while they do, and so fails berth gpu recover, unless "
     "recover.services_stop stops them.",
     "fuser -v /dev/nvidia*"),
KIND(SERVICES_STOP_EMPTY, "services-stop-empty", RECOVER, WARNING,
     "recover.services_stop is empty while services hold the driver",
     "berth gpu recover would fail at its SR-IOV cycle and leave the card cordoned.",
     "name them in the settings, in the order in which to stop them:\n"
     "recover: {services_stop: [{}], services_start: [...]}"),
KIND(SRIOV_MANAGE_MISSING, "sriov-manage-missing", RECOVER, WARNING,
     "sriov-manage is not there",
     "berth gpu recover cannot bring back a card with a sick VF.",
     "set recover.sriov_manage to where the driver's package put it; the usual place is /usr/lib/nvidia/sriov-manage"),
KIND(RECOVERY_FAILED, "recovery-failed", RECOVER, WARNING,
     "the last recovery of a card failed",
     "The card stays cordoned.",
     "mend what the step says, then: berth gpu recover {}\n"
     "or give it up: berth gpu uncordon {}"),
KIND(PLUGIN_AND_RESET, "plugin-and-reset", PLUGIN, ERROR,
     "a device plugin offers VFs that berthd resets",
     "The plugin hands out VFs that others have configured. berthd takes such a VF for nobody's, and resets it when no "
     "VM has had it open for unclaimed_grace.",
     "set unclaimed_vfs: leave, or list the plugin's cards in gpu.exclude\n"
     "systemctl restart berthd"),
};
/* clang-format on */

const struct doctor_kind *doctor_kind(enum doctor_id id)
{
	return &kinds[id];
}

const char *doctor_severity_name(enum doctor_severity s)
{
	switch (s) {
	case DOCTOR_INFO:
		return "info";
	case DOCTOR_WARNING:
		return "warning";
	case DOCTOR_ERROR:
		return "error";
	}
	return "error";
}

const char *doctor_check_id(enum doctor_check c)
{
	return checks[c].id;
}

const char *doctor_check_title(enum doctor_check c)
{
	return checks[c].title;
}
