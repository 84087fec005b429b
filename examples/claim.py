#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Claims a vGPU, prints the path that QEMU wants, waits for Enter, and gives the vGPU back.

Needs Python alone:  ./claim.py vm1 L40S-4Q
"""
import http.client
import json
import os
import socket
import sys
import urllib.parse


class Berth(http.client.HTTPConnection):
    """berthd on its Unix socket."""

    def __init__(self):
        super().__init__("localhost")

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ.get("BERTH_SOCKET", "/run/berth/berthd.sock"))

    def ask(self, method, path, body=None):
        """The answer to one request; None where there is none to give. Ends the program on a refusal."""
        self.request(method, path, body and json.dumps(body))
        answer = self.getresponse()
        found = json.loads(answer.read() or "null")
        if answer.status >= 300:
            sys.exit(f"{answer.status} {found['code']}: {found['title']}: {found.get('detail', '')}")
        return found


if len(sys.argv) != 3:
    print("usage: claim.py NAME PROFILE", file=sys.stderr)
    sys.exit(2)
path = "/claims/" + urllib.parse.quote(sys.argv[1], safe="")
try:
    berth = Berth()
    claim = berth.ask("PUT", path, {"profile": sys.argv[2]})
    print(claim["sysfs_path"], flush=True)
    sys.stdin.readline()  # the VM runs here
    berth.ask("DELETE", path)
except (OSError, http.client.HTTPException) as e:
    sys.exit(f"berthd cannot be reached: {e}")
