# SPDX-License-Identifier: Apache-2.0
"""berthd with a TLS listener, and clients with certificates."""
import http.client
import re
import socket

import certificates
from conftest import request_over


class TlsHost:
    """Certificates in a folder of the test, a berthd that uses them, and requests as this or that client."""

    def __init__(self, sim, start_daemon, settings=None, **tls):
        self.folder = sim.root.parent / "pki"
        self.folder.mkdir()
        self.ca = certificates.Authority(self.folder)
        self.server = self.ca.issue("server", dns=["localhost"], purposes=["server"])
        self.clients = {None: None}
        self.port = free_port()
        files = {"certificate": str(self.server.certificate), "key": str(self.server.key),
                 "client_ca": str(self.ca.path)}
        self.daemon = start_daemon(sim, {"listen": f"127.0.0.1:{self.port}", "tls": {**files, **tls},
                                         **(settings or {})})

    def client(self, name):
        """The certificate of a client of that common name; None: no certificate."""
        if name not in self.clients:
            self.clients[name] = self.ca.issue(f"client{len(self.clients)}", common=name)
        return self.clients[name]

    def connect(self, name, timeout=20):
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=certificates.client_context(
            self.ca.path, self.client(name)))

    def request(self, name, method, path, body=None):
        connection = self.connect(name)
        try:
            return request_over(connection, method, path, body)
        finally:
            connection.close()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def audit_lines(daemon):
    """The audit lines so far, without time and level."""
    return re.findall(r"audit: (.*)", daemon.log())
