#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of docs/page.md: screenshots.py FOLDER. As root, in an own UTS namespace, so that the
page's host has a name of its own."""
import os
import pathlib
import subprocess
import sys

import browser

NAME = "gpu-07"


def main():
    if os.geteuid() == 0 and os.uname().nodename != NAME:
        return subprocess.run(["unshare", "--uts", "sh", "-c", f'hostname {NAME} && exec "$0" "$@"', sys.executable,
                               *sys.argv]).returncode
    why = browser.missing()
    if why:
        print(f"screenshots: {why}", file=sys.stderr)
        return 1
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with browser.folder() as folder:
        status = browser.run("screenshots.js", folder, out, timeout=300).returncode
    for picture in sorted(out.glob("page-*.png")):
        print(f"{picture} {picture.stat().st_size // 1024} KiB")
    return status


if __name__ == "__main__":
    sys.exit(main())
