# SPDX-License-Identifier: Apache-2.0
"""What systemd does for a service: listens to its messages, and hands it sockets."""
import os
import socket
import threading

from conftest import wait_for


class Manager:
    """The receiving end of sd_notify, at `folder`/notify; and sockets that outlive the service."""

    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o777)
        self.messages = []  # each a dict of its assignments
        self.sockets = []
        self.thread = threading.Thread(target=self._receive)
        self.thread.start()

    def _receive(self):
        while data := self.socket.recv(65536):
            pairs = (line.partition("=") for line in data.decode().splitlines())
            self.messages.append({key: value for key, _, value in pairs})

    def close(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b"", self.path)
        self.thread.join()
        self.socket.close()
        for s in self.sockets:
            s.close()

    def count(self, key, value=None):
        return sum(key in m and value in (None, m[key]) for m in self.messages)

    def wait(self, key, value=None, times=1, seconds=20):
        wait_for(lambda: self.count(key, value) >= times, f"{key}={value} from the service", seconds)

    def status(self):
        """The last STATUS."""
        told = [m["STATUS"] for m in self.messages if "STATUS" in m]
        return told[-1] if told else None

    def wait_status(self, *parts):
        wait_for(lambda: self.status() and all(p in self.status() for p in parts), f"a status with {parts}")

    def listen_unix(self, path, mode=0o660, kind=socket.SOCK_STREAM, backlog=64):
        s = socket.socket(socket.AF_UNIX, kind)
        s.bind(str(path))
        os.chmod(path, mode)
        if backlog is not None:
            s.listen(backlog)
        self.sockets.append(s)
        return s

    def listen_tcp(self, address="127.0.0.1", port=0):
        s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((address, port))
        s.listen(64)
        self.sockets.append(s)
        return s

    def options(self, *sockets, env=None):
        """Arguments of Daemon.start() that make it this manager's service with these sockets."""
        variables = {"NOTIFY_SOCKET": self.path, **(env or {})}
        if not sockets:
            return {"env": variables}
        high = [os.dup2(s.fileno(), 100 + i) for i, s in enumerate(sockets)]
        moves = " ".join(f"{3 + i}<&{fd} {fd}<&-" for i, fd in enumerate(high))
        variables.update(LISTEN_FDS=str(len(sockets)), LISTEN_FDNAMES=":".join(["berthd.socket"] * len(sockets)))
        return {"env": variables, "pass_fds": high,
                "wrap": ["bash", "-c", f'LISTEN_PID=$$ exec "$@" {moves}', "bash"]}
