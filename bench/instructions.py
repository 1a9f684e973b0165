#!/usr/bin/env python3
"""Instructions that the server executes for a call, counted by callgrind: the same in each run, whatever else the machine
does.

    ./dev bench instructions                 of this tree
    ./dev bench instructions OTHER_BINARY    beside another build of polyrpc-bench, with the ratio

Each figure is the difference of two runs with different numbers of calls, divided by the difference of the calls."""

import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile

FEW, MANY = 640, 6400
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Kind of server, protocol, calls in flight, bytes of the message.
CASES = [
    ("baidu_std", 1, 32),
    ("baidu_std", 64, 32),
    ("baidu_std", 1, 1024),
    ("rpcx", 1, 32),
    ("rpcx", 64, 32),
    ("grpc", 1, 32),
    ("grpc", 64, 32),
]


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def baidu_std(call, payload):
    request = field(1, b"example.EchoService") + field(2, b"Echo")
    meta = field(1, request) + varint(4 << 3) + varint(call)
    message = field(1, payload)
    return b"PRPC" + struct.pack(">II", len(meta) + len(message), len(meta)) + meta + message


def rpcx(call, payload):
    blocks = b"".join(struct.pack(">I", len(block)) + block for block in (b"Echo", b"Raw", b"", payload))
    return b"\x08\0\0\0" + struct.pack(">Q", call) + struct.pack(">I", len(blocks)) + blocks


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def grpc(call, payload):
    literal = lambda name, value: b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
    path, kind = b"/example.EchoService/Echo", b"application/grpc"
    block = b"\x83\x86\x04" + bytes([len(path)]) + path + b"\x01\x01x"
    block += b"\x0f\x10" + bytes([len(kind)]) + kind + literal(b"te", b"trailers")
    message = field(1, payload)
    stream = 2 * call - 1
    return frame(1, 4, stream, block) + frame(0, 1, stream, b"\0" + struct.pack(">I", len(message)) + message)


def answered(protocol, data):
    """How many answers lie in the data, and what is left of it."""
    count = 0
    while True:
        if protocol == "grpc":
            length = 9 + int.from_bytes(data[:3], "big") if len(data) >= 9 else None
        elif protocol == "rpcx":
            length = 16 + struct.unpack(">I", data[12:16])[0] if len(data) >= 16 else None
        else:
            length = 12 + struct.unpack(">I", data[4:8])[0] if len(data) >= 12 else None
        if length is None or len(data) < length:
            return count, data
        if protocol == "grpc" and data[3] in (3, 7):
            sys.exit(f"the server refuses: {data[:length]!r}")
        count += protocol != "grpc" or (data[3] == 1 and data[4] & 1)
        data = data[length:]


def call(address, protocol, calls, in_flight, size):
    host, port = address.rsplit(":", 1)
    encode = {"baidu_std": baidu_std, "rpcx": rpcx, "grpc": grpc}[protocol]
    payload = b"x" * size
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if protocol == "grpc":
            settings = frame(4, 0, 0, struct.pack(">HI", 4, 1 << 30))
            connection.sendall(PREFACE + settings + frame(8, 0, 0, struct.pack(">I", 1 << 30)))
        for first in range(1, calls + 1, in_flight):
            connection.sendall(b"".join(encode(first + n, payload) for n in range(in_flight)))
            missing, data = in_flight, b""
            while missing:
                received = connection.recv(1 << 20)
                if not received:
                    sys.exit("the server closed the connection")
                count, data = answered(protocol, data + received)
                missing -= count


def instructions(binary, protocol, calls, in_flight, size):
    arguments = ["grpc-server"]
    if protocol != "grpc":
        name = protocol.replace("_", "-")
        arguments = ["server", "--kind", "polyrpc", "--protocol", name, "--payload", str(size)]
    with tempfile.TemporaryDirectory() as folder:
        out = f"--callgrind-out-file={os.path.join(folder, 'out')}"
        command = ["valgrind", "--tool=callgrind", out, binary, *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
            call(json.loads(server.stdout.readline())["address"], protocol, calls, in_flight, size)
            server.stdin.close()
            told = server.stderr.read()
    return int(re.search(r"Collected : (\d+)", told).group(1))


def per_call(binary, case):
    protocol, in_flight, size = case
    few, many = (instructions(binary, protocol, calls, in_flight, size) for calls in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def main():
    binary, *others = sys.argv[1:]
    for case in CASES:
        protocol, in_flight, size = case
        ours = per_call(binary, case)
        line = f"{protocol:9} {in_flight:3} in flight {size:5} B  {ours:8.0f} instructions a call"
        for other in others:
            theirs = per_call(other, case)
            line += f", other {theirs:8.0f}, ratio {ours / theirs:.3f}"
        print(line, flush=True)


main()
