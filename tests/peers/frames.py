# SPDX-License-Identifier: Apache-2.0
"""A client of HTTP/2 frames, one by one, that does only what a test tells it to (and acks SETTINGS)."""
import socket
import struct
import time

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
TYPES = {"DATA": DATA, "HEADERS": HEADERS, "RST_STREAM": RST_STREAM, "SETTINGS": SETTINGS, "PING": PING,
         "GOAWAY": GOAWAY, "WINDOW_UPDATE": WINDOW_UPDATE}
END_STREAM = ACK = 1
END_HEADERS = 4
PADDED = 8
NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 7, 8, 11
DEADLINE = 20


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(data):
    """gRPC's framing of one message."""
    return b"\0" + struct.pack(">I", len(data)) + data


def request_headers(path, **changes):
    """Pseudo headers first; a change to None leaves that header out. Underscores: hyphens."""
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
               "content-type": "application/grpc", "te": "trailers"}
    for name, value in changes.items():
        name = name.replace("_", "-")
        headers[":" + name if ":" + name in headers else name] = value
    return [(n, v) for n, v in headers.items() if v is not None]


class Frame:
    def __init__(self, kind, flags, stream, payload):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload
        self.fields = {}  # of HEADERS

    def __repr__(self):
        return f"<frame {self.kind} flags={self.flags} stream={self.stream} {self.payload[:40]!r}>"


class Closed(Exception):
    pass


class Connection:
    def __init__(self, path, preface=True, settings=b"", ack_settings=True):
        self.ack_settings = ack_settings
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.settimeout(DEADLINE)
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.buffer = b""
        if preface:
            self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *frames):
        self.socket.sendall(b"".join(frames))

    def headers(self, stream, path, flags=END_HEADERS, **changes):
        return frame(HEADERS, flags, stream, self.encoder.encode(request_headers(path, **changes), huffman=False))

    def call(self, stream, path, data=b"", **changes):
        """A whole request."""
        self.send(self.headers(stream, path, **changes), frame(DATA, END_STREAM, stream, message(data)))

    def _read(self, n):
        while len(self.buffer) < n:
            more = self.socket.recv(1 << 16)
            if not more:
                raise Closed()
            self.buffer += more
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def read(self):
        """The next frame; SETTINGS are acked on the way."""
        head = self._read(9)
        f = Frame(head[3], head[4], struct.unpack(">I", head[5:])[0], self._read(int.from_bytes(head[:3], "big")))
        if f.kind == SETTINGS and not f.flags & ACK and self.ack_settings:
            self.send(frame(SETTINGS, ACK))
        if f.kind == HEADERS:  # also where nobody asks: the table must keep up
            f.fields = dict(self.decoder.decode(f.payload))
        return f

    def read_until(self, wanted):
        end = time.monotonic() + DEADLINE
        while not wanted(f := self.read()):
            assert time.monotonic() < end
        return f

    def answer(self, stream):
        """(headers and trailers as one dict, message bytes with framing, RST_STREAM's code or None)"""
        found, body = {}, b""
        while True:
            f = self.read()
            if f.stream != stream:
                continue
            found.update(f.fields)
            if f.kind == DATA:
                body += f.payload
            if f.kind == RST_STREAM:
                return found, body, int.from_bytes(f.payload, "big")
            if f.flags & END_STREAM and f.kind in (DATA, HEADERS):
                return found, body, None

    def status(self, stream):
        found, _, reset = self.answer(stream)
        assert reset is None, found
        return int(found["grpc-status"]), found.get("grpc-message", "")

    def read_to_end(self):
        """All frames until the server closes."""
        frames = []
        try:
            while True:
                frames.append(self.read())
        except (Closed, ConnectionResetError, BrokenPipeError):
            return frames
