# SPDX-License-Identifier: Apache-2.0
"""The manifests and the chart: valid to Kubernetes' schema, and as private as they say.

Schemas come from npm's kubernetes-models, installed into the build folder; where npm cannot have it that
test is skipped. The chart uses a small part of Helm's language, which is rendered here.
"""
import functools
import json
import os
import pathlib
import re
import subprocess

import pytest
import yaml

import npm

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/berth-device-plugin"
HERE = pathlib.Path(__file__).parent / "deploy"
BUILD = pathlib.Path(os.environ.get("BERTH_BIN", ROOT / "build/bin")).parent
MANIFESTS = ["minimal", "nvml", "nvml-runtimeclass"]
VARIANTS = {
    "default": {},
    "nvml": {"nvml": {"mode": "hostPath"}},
    "runtime": {"nvml": {"mode": "runtimeClass"}, "podResources": False},
    "all": {"iommufd": True, "names": {"NVIDIA L40S-4Q": "small", "10de:26b9": "a.org/b"}, "podMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True, "labels": {"release": "monitoring"}},
            "berthdHealthFolder": "/var/lib/berth/gpu", "nodeSelector": {"nvidia.com/gpu.present": "true"},
            "imagePullSecrets": [{"name": "registry"}], "seLinuxOptions": {"type": "container_device_plugin_t"},
            "affinity": {"nodeAffinity": {}}, "image": {"tag": "test"}},
}


# --- The part of Helm's language that the chart uses


def lookup(path, scope):
    value = scope
    for part in path.lstrip(".").split("."):
        value = value[part]
    return value


def evaluate(expression, scope):
    value = None
    for stage in (s.strip() for s in expression.split("|")):
        words = re.findall(r'"[^"]*"|\S+', stage)
        arguments = [w[1:-1] if w[0] == '"' else lookup(w, scope) if w[0] == "." else w for w in words]
        if words[0] == "toYaml":
            value = yaml.safe_dump(arguments[1], default_flow_style=False, sort_keys=False).rstrip()
        elif words[0] == ".Files.Get":
            value = (CHART / arguments[1]).read_text()
        elif words[0] == "nindent":
            value = "\n" + "\n".join(" " * int(words[1]) + line for line in value.splitlines())
        elif words[0] == "quote":
            value = json.dumps(str(value))
        elif words[0] == "default":
            value = value or arguments[1]
        elif words[0] == "eq":
            value = arguments[1] == arguments[2]
        elif words[0][0] == "." and len(words) == 1:
            value = arguments[0]
        else:
            raise ValueError(f"not in the renderer: {expression}")
    return value


def render(template, scope):
    # "{{-" eats the blanks and line ends in front of it.
    parts = re.split(r"(\s*\{\{-.*?\}\}|\{\{.*?\}\})", template)
    out, shown = [], [True]
    for part in parts:
        match = re.fullmatch(r"\s*\{\{-?\s*(.*?)\s*\}\}", part)
        if not match:
            out += [part] if all(shown) else []
        elif match[1].startswith("if "):
            shown.append(bool(evaluate(match[1][3:], scope)) if all(shown) else False)
        elif match[1] == "else":
            shown[-1] = not shown[-1]
        elif match[1] == "end":
            shown.pop()
        elif all(shown):
            out.append(str(evaluate(match[1], scope)))
    assert shown == [True]
    return "".join(out)


def merge(base, over):
    return {**base, **{k: merge(base[k], v) if isinstance(v, dict) and isinstance(base.get(k), dict) else v
                       for k, v in over.items()}}


def chart(values):
    scope = {"Values": merge(yaml.safe_load((CHART / "values.yaml").read_text()), values),
             "Files": {"Get": None},
             "Release": {"Name": "berth", "Namespace": "kube-system", "Service": "Helm"},
             "Chart": {"AppVersion": yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]}}
    objects = [yaml.safe_load(render(p.read_text(), scope)) for p in sorted((CHART / "templates").glob("*.yaml"))]
    return [o for o in objects if o]


def manifest(name):
    return yaml.safe_load((DEPLOY / f"manifests/{name}.yaml").read_text())


def daemon_sets():
    yield from ((name, manifest(name)) for name in MANIFESTS)
    for name, values in VARIANTS.items():
        yield f"chart {name}", next(o for o in chart(values) if o["kind"] == "DaemonSet")


def pod_of(daemon_set):
    return daemon_set["spec"]["template"]["spec"]


# --- Schema


@functools.lru_cache
def schemas():
    """Folder with the schemas, or why there is none."""
    return npm.install(HERE, BUILD / "deploy-schemas")


def complaints(objects):
    folder, why = schemas()
    if not folder:
        pytest.skip(why)
    done = subprocess.run(["node", HERE / "validate.js", folder], input=json.dumps(objects), capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_schema():
    objects = [manifest(name) for name in MANIFESTS]
    for values in VARIANTS.values():
        objects += [o for o in chart(values) if o["apiVersion"] != "monitoring.coreos.com/v1"]
    assert not complaints(objects)


def test_schema_check_finds_mistakes():
    wrong = manifest("minimal")
    wrong["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] = [0]
    pod_of(wrong)["containers"][0]["securtyContext"] = {}
    assert len(complaints([wrong])) == 1


# --- What the documents promise


@pytest.mark.parametrize("name, daemon_set", list(daemon_sets()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_variant(name, daemon_set):
    spec, pod = daemon_set["spec"], pod_of(daemon_set)
    container = pod["containers"][0]
    assert spec["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert pod["automountServiceAccountToken"] is False and "serviceAccountName" not in pod
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert {"name": "VFIO_VGPU_RESCAN_INTERVAL", "value": "30s"} in container["env"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    mounts = {m["name"]: m for m in container["volumeMounts"]}
    assert set(mounts) == {v["name"] for v in pod["volumes"]}
    assert [n for n, m in mounts.items() if not m.get("readOnly")] == ["device-plugins"]
    privileged = container["securityContext"].get("privileged", False)
    assert privileged == (name in ("nvml", "chart nvml"))
    if not privileged:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_minimal_sees_two_folders_only():
    assert {v["hostPath"]["path"] for v in pod_of(manifest("minimal"))["volumes"]} == \
        {"/var/lib/kubelet/device-plugins", "/dev/vfio"}


def test_nvml_binds_one_file():
    volumes = {v["name"]: v["hostPath"] for v in pod_of(manifest("nvml"))["volumes"]}
    assert volumes["nvml"]["type"] == "File" and volumes["nvml"]["path"].endswith("/libnvidia-ml.so.1")
    assert pod_of(manifest("nvml-runtimeclass"))["runtimeClassName"] == "nvidia"


def test_arguments_are_options_of_the_program():
    text = (ROOT / "src/plugin/main.c").read_text()
    known = set(re.findall(r'\{ "([a-z-]+)", (?:no|required)_argument', text))
    for name, daemon_set in daemon_sets():
        for argument in pod_of(daemon_set)["containers"][0]["args"]:
            assert argument[2:].split("=")[0] in known, (name, argument)


def test_names_of_the_chart_are_read_by_the_plugin(tmp_path):
    config = next(o for o in chart(VARIANTS["all"]) if o["kind"] == "ConfigMap")
    (tmp_path / "names").write_text(config["data"]["names"])
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    done = subprocess.run([BUILD / "bin/berth-device-plugin", "--list", "--sysfs-root", tmp_path, "--names",
                           tmp_path / "names", "--nvml-library", ""], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def test_the_chart_has_the_rules():
    """Those about the plugin, as they are in data/monitoring; and the job that they expect."""
    objects = {o["kind"]: o for o in chart(VARIANTS["all"])}
    rules = yaml.safe_load((ROOT / "data/monitoring/berth-rules.yml").read_text())
    assert objects["PrometheusRule"]["spec"]["groups"] == [
        g for g in rules["groups"] if g["name"] == "berth-device-plugin"]
    assert objects["PrometheusRule"]["metadata"]["labels"] == {"release": "monitoring"}
    monitor = objects["PodMonitor"]["spec"]
    labels = objects["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert labels[monitor["jobLabel"]] == "berth-device-plugin"
    assert not {"PodMonitor", "PrometheusRule"} & {o["kind"] for o in chart(VARIANTS["default"])}


def test_kubevirt_examples_go_together():
    cr = yaml.safe_load((DEPLOY / "kubevirt/kubevirt-cr.yaml").read_text())
    permitted = cr["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"]
    assert all(d["externalResourceProvider"] for d in permitted)
    vm = yaml.safe_load((DEPLOY / "kubevirt/vm.yaml").read_text())
    for gpu in vm["spec"]["template"]["spec"]["domain"]["devices"]["gpus"]:
        assert gpu["deviceName"] in {d["resourceName"] for d in permitted}
        assert "." not in gpu["name"]


def test_image_has_what_the_programs_need():
    text = (DEPLOY / "Dockerfile").read_text()
    for package in ("libsystemd0", "libmicrohttpd12", "libjansson4", "libnghttp2-14", "libprotobuf-c1", "pci.ids"):
        assert package in text
    for program in ("berth-device-plugin", "berth-card", "berth-nvml"):
        assert f"/build/bin/{program}" in text
