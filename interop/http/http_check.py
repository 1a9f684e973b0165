#!/usr/bin/env python3
"""Tests a PolyRPC server as a plain HTTP client, case by case.

    http_check.py [--rpcx-auth-addr ADDR] ADDR [CASE…]
    http_check.py --list

One line per case: `ok   NAME`, `skip NAME: why` or `FAIL NAME: why`; the exit code is 1 if a case failed.
The bytes are written and read by hand where an HTTP library would hide what is tested: pipelining,
chunks, `Expect`, and which of the two sides closes.
"""

import argparse
import base64
import gzip
import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse

LIMIT = 60.0
TOKEN = "bearer tGzv3JOkF0XG5Qx2TlKWIA"
ECHO = "/example.EchoService/Echo"


class Failure(Exception):
    """A case failed."""


class Skipped(Exception):
    """A case cannot run here."""


CASES = {}


def case(function):
    """Registers a case under the name of its function."""
    CASES[function.__name__] = function
    return function


# ---------------------------------------------------------------------------- brpc's mapping


@case
def brpc_json(peer):
    response = peer.post(ECHO, {"message": "hi json"})
    response.is_json(200, {"message": "hi json"})
    equal("content type", response.content_type(), "application/json")


@case
def brpc_json_short_name(peer):
    peer.post("/EchoService/Echo", {"message": "hi"}).is_json(200, {"message": "hi"})


@case
def brpc_json_unicode(peer):
    peer.post(ECHO, {"message": "héllo 世界 🦀"}).is_json(200, {"message": "héllo 世界 🦀"})


@case
def brpc_protobuf(peer):
    for content_type in ("application/proto", "application/x-protobuf"):
        response = peer.post(ECHO, b"\n\x0bhello proto", content_type=content_type)
        equal("status", response.status, 200)
        equal("body", response.body, b"\n\x0bhello proto")
        equal("content type", response.content_type(), content_type)


@case
def brpc_gzip_request(peer):
    body = gzip.compress(json.dumps({"message": "packed " * 200}).encode())
    response = peer.post(ECHO, body, content_type="application/json", headers={"Content-Encoding": "gzip"})
    response.is_json(200, {"message": "packed " * 200})


@case
def brpc_large_body(peer):
    peer.post(ECHO, {"message": "x" * (1 << 20)}).is_json(200, {"message": "x" * (1 << 20)})


@case
def brpc_failure_with_code(peer):
    response = peer.post(ECHO, {"message": "fail-code"})
    equal("status", response.status, 500)
    equal("x-bd-error-code", response.header("x-bd-error-code"), "54321")
    not_empty("error text", response.body)


@case
def brpc_failure_without_code(peer):
    response = peer.post(ECHO, {"message": "fail-generic"})
    equal("status", response.status, 500)
    equal("x-bd-error-code", response.header("x-bd-error-code"), "2001")


@case
def brpc_bad_json(peer):
    response = peer.post(ECHO, b"{bad", content_type="application/json")
    equal("status", response.status, 400)
    equal("x-bd-error-code", response.header("x-bd-error-code"), "1003")


@case
def serde_service(peer):
    peer.post("/Arith/Mul", {"A": 7, "B": 8}).is_json(200, {"C": 56})


@case
def unknown_service(peer):
    equal("status", peer.post("/no.Such/Method", {}).status, 404)


@case
def unknown_method(peer):
    equal("status", peer.post("/example.EchoService/Missing", {}).status, 404)


@case
def unknown_path(peer):
    equal("status", peer.send("GET", "/nosuch").status, 404)


@case
def call_after_failure(peer):
    """Failures of calls leave the connection open."""
    with peer.connect() as connection:
        for body in (b'{"message":"fail-code"}', b"{bad", b'{"message":"fail-generic"}'):
            connection.write(request("POST", ECHO, body, {"Content-Type": "application/json"}))
            differs("status", connection.read_response().status, 200)
        connection.echo_works()


# ---------------------------------------------------------------------------- HTTP/1.1 itself


@case
def keep_alive(peer):
    with peer.connect() as connection:
        for _ in range(3):
            connection.echo_works()


@case
def pipelining(peer):
    """Requests sent in one piece are answered in order."""
    texts = [f"number {n}" for n in range(10)]
    with peer.connect() as connection:
        connection.write(b"".join(echo_request(text) for text in texts))
        for text in texts:
            connection.read_response().is_json(200, {"message": text})


@case
def pipelining_keeps_order_past_failures(peer):
    with peer.connect() as connection:
        connection.write(echo_request("one") + echo_request("fail-code") + echo_request("three"))
        connection.read_response().is_json(200, {"message": "one"})
        equal("status", connection.read_response().status, 500)
        connection.read_response().is_json(200, {"message": "three"})


@case
def byte_by_byte(peer):
    with peer.connect() as connection:
        for byte in echo_request("slow"):
            connection.write(bytes([byte]))
        connection.read_response().is_json(200, {"message": "slow"})


@case
def chunked_request(peer):
    """Chunks of any size, an extension and a trailer form one body."""
    body = b'{"message":"in chunks"}'
    chunks = b"5;note=x\r\n" + body[:5] + b"\r\n1\r\n" + body[5:6] + b"\r\n"
    chunks += b"%X\r\n" % len(body[6:]) + body[6:] + b"\r\n0\r\nX-Trailer: t\r\n\r\n"
    head = f"POST {ECHO} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with peer.connect() as connection:
        connection.write(head.encode() + chunks)
        connection.read_response().is_json(200, {"message": "in chunks"})
        connection.echo_works()


@case
def expect_continue(peer):
    """The body is sent only after 100 Continue."""
    body = b'{"message":"asked for"}'
    head = f"POST {ECHO} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    with peer.connect() as connection:
        connection.write(head.encode())
        equal("status", connection.read_response(body_follows=False).status, 100)
        connection.write(body)
        connection.read_response().is_json(200, {"message": "asked for"})
        connection.echo_works()


@case
def connection_close(peer):
    with peer.connect() as connection:
        connection.write(echo_request("bye", {"Connection": "close"}))
        connection.read_response().is_json(200, {"message": "bye"})
        connection.is_closed()


@case
def http_1_0_closes(peer):
    with peer.connect() as connection:
        connection.write(echo_request("old").replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        connection.read_response().is_json(200, {"message": "old"})
        connection.is_closed()


@case
def http_1_0_keep_alive(peer):
    with peer.connect() as connection:
        old = echo_request("old", {"Connection": "keep-alive"}).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        connection.write(old)
        connection.read_response().is_json(200, {"message": "old"})
        connection.echo_works()


@case
def malformed_header_is_400_and_close(peer):
    with peer.connect() as connection:
        connection.write(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: many\r\n\r\n")
        equal("status", connection.read_response().status, 400)
        connection.is_closed()


@case
def two_lengths_are_400_and_close(peer):
    """A length together with chunks allows request smuggling (RFC 9112, 6.1)."""
    head = f"POST {ECHO} HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with peer.connect() as connection:
        connection.write(head.encode())
        equal("status", connection.read_response().status, 400)
        connection.is_closed()


@case
def curl(peer):
    version, body = curl_posts(peer, "--http1.1")
    equal("version", version, "1.1")
    equal("reply", json.loads(body), {"message": "from curl"})


@case
def curl_http2(peer):
    version, body = curl_posts(peer, "--http2-prior-knowledge")
    equal("version", version, "2")
    equal("reply", json.loads(body), {"message": "from curl"})


@case
def curl_http2_by_upgrade(peer):
    version, body = curl_posts(peer, "--http2")
    equal("version", version, "2")
    equal("reply", json.loads(body), {"message": "from curl"})


def curl_posts(peer, *options, data=b'{"message":"from curl"}', content_type="application/json", path=ECHO):
    """The HTTP version that curl negotiated, and the received body."""
    if not shutil.which("curl"):
        raise Skipped("curl is not installed")
    command = ["curl", "-sS", "--max-time", str(LIMIT), "-H", f"Content-Type: {content_type}", *options]
    command += ["--data-binary", "@-", "-w", "%{stderr}%{http_version}", f"http://{peer.addr}{path}"]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    equal(f"exit code ({done.stderr.decode()})", done.returncode, 0)
    return done.stderr.decode(), done.stdout


# ---------------------------------------------------------------------------- gRPC-Web


@case
def grpc_web(peer):
    response = peer.grpc_web(ECHO, grpc_frame(b"\x0a\x02hi"), "application/grpc-web+proto")
    equal("status", response.status, 200)
    equal("content type", response.content_type(), "application/grpc-web+proto")
    is_grpc_web_answer(response.body, b"\x0a\x02hi")


@case
def grpc_web_text(peer):
    body = base64.b64encode(grpc_frame(b"\x0a\x02hi"))
    response = peer.grpc_web(ECHO, body, "application/grpc-web-text")
    equal("content type", response.content_type(), "application/grpc-web-text+proto")
    # A server may pad each of its parts: the text is a concatenation of base64 texts.
    parts = [part for part in re.split(rb"(?<==)(?!=)", response.body) if part]
    is_grpc_web_answer(b"".join(base64.b64decode(part) for part in parts), b"\x0a\x02hi")


@case
def grpc_web_over_http2(peer):
    options = ("--http2-prior-knowledge", "-H", "X-Grpc-Web: 1")
    data = grpc_frame(b"\x0a\x02hi")
    version, body = curl_posts(peer, *options, data=data, content_type="application/grpc-web")
    equal("version", version, "2")
    is_grpc_web_answer(body, b"\x0a\x02hi")


@case
def grpc_web_failure(peer):
    response = peer.grpc_web("/example.EchoService/Nope", grpc_frame(b""), "application/grpc-web")
    equal("status", response.status, 200)
    told = response.headers if "grpc-status" in response.headers else grpc_web_parts(response.body)[1]
    equal("grpc-status", told["grpc-status"], "12")


def grpc_frame(message):
    return b"\0" + len(message).to_bytes(4, "big") + message


def is_grpc_web_answer(body, want):
    messages, trailers = grpc_web_parts(body)
    equal("messages", messages, [want])
    equal("grpc-status", trailers.get("grpc-status"), "0")


def grpc_web_parts(body):
    """The messages and the trailers, which gRPC-Web sends as a frame too."""
    messages, trailers = [], {}
    while body:
        flags, length = body[0], int.from_bytes(body[1:5], "big")
        part, body = body[5 : 5 + length], body[5 + length :]
        equal("bytes of a frame", len(part), length)
        if flags & 0x80:
            lines = part.decode().strip().split("\r\n")
            trailers = dict(line.lower().split(":", 1) for line in lines)
            trailers = {name: value.strip() for name, value in trailers.items()}
        else:
            messages.append(part)
    return messages, trailers


# ---------------------------------------------------------------------------- rpcx's gateway


@case
def gateway_ok(peer):
    headers = {"X-RPCX-MessageID": "12345678", "X-RPCX-Meta": "k1=v1"}
    response = peer.gateway("Arith", "Meta", headers)
    response.is_json(200, {"C": 56})
    equal("X-RPCX-MessageID", response.header("x-rpcx-messageid"), "12345678")
    equal("X-RPCX-ServicePath", response.header("x-rpcx-servicepath"), "Arith")
    equal("X-RPCX-ServiceMethod", response.header("x-rpcx-servicemethod"), "Meta")
    equal("X-RPCX-SerializeType", response.header("x-rpcx-serializetype"), "1")
    meta = urllib.parse.parse_qs(response.header("x-rpcx-meta"))
    equal("metadata echo", meta.get("echo"), ["v1"])


@case
def gateway_path(peer):
    headers = {"X-RPCX-SerializeType": "1", "X-RPCX-ServiceMethod": "Mul"}
    peer.post("/Arith", {"A": 7, "B": 8}, headers=headers).is_json(200, {"C": 56})


@case
def gateway_msgpack(peer):
    body = bytes.fromhex("82a14107a14208")
    response = peer.gateway("Arith", "Mul", {"X-RPCX-SerializeType": "3"}, body)
    equal("status", response.status, 200)
    equal("body", response.body, bytes.fromhex("81a14338"))


@case
def gateway_function(peer):
    peer.gateway("a.fake.service", "mul").is_json(200, {"C": 56})


@case
def gateway_error(peer):
    response = peer.gateway("Arith", "Error")
    response.is_gateway_error(500)
    equal("X-RPCX-ErrorMessage", response.header("x-rpcx-errormessage"), "boom")


@case
def gateway_unknown_service(peer):
    peer.gateway("NoSuch", "Mul").is_gateway_error(500)


@case
def gateway_unknown_method(peer):
    peer.gateway("Arith", "Nope").is_gateway_error(500)


@case
def gateway_missing_method(peer):
    headers = {"X-RPCX-SerializeType": "1", "X-RPCX-ServicePath": "Arith"}
    peer.post("/", {"A": 7, "B": 8}, headers=headers).is_gateway_error(200)


@case
def gateway_missing_serialize_type(peer):
    headers = {"X-RPCX-ServicePath": "Arith", "X-RPCX-ServiceMethod": "Mul"}
    peer.post("/", {"A": 7, "B": 8}, headers=headers).is_gateway_error(200)


@case
def gateway_auth_ok(peer):
    peer.with_auth().gateway("Arith", "Mul", {"Authorization": TOKEN}).is_json(200, {"C": 56})


@case
def gateway_auth_refused(peer):
    peer.with_auth().gateway("Arith", "Mul", {"Authorization": "bearer x"}).is_gateway_error(401)


# ---------------------------------------------------------------------------- JSON-RPC 2.0


@case
def jsonrpc_ok(peer):
    for call_id in (1, "one"):
        reply = peer.jsonrpc(method="Arith.Mul", params={"A": 7, "B": 8}, id=call_id)
        equal("reply", reply, {"jsonrpc": "2.0", "result": {"C": 56}, "id": call_id})


@case
def jsonrpc_one_positional_param(peer):
    equal("result", peer.jsonrpc(method="echo", params=["hi"], id=1).get("result"), "hi")


@case
def jsonrpc_positional_params(peer):
    equal("result", peer.jsonrpc(method="add", params=[1, 2], id=1).get("result"), 3)


@case
def jsonrpc_full_name(peer):
    """The method starts after the last dot."""
    reply = peer.jsonrpc(method="example.EchoService.Echo", params={"message": "hi"}, id=1)
    equal("result", reply.get("result"), {"message": "hi"})


@case
def jsonrpc_error(peer):
    is_jsonrpc_error(peer.jsonrpc(method="Arith.Error", params={"A": 7, "B": 8}, id=2), -32603, 2, "boom")


@case
def jsonrpc_unknown_method(peer):
    is_jsonrpc_error(peer.jsonrpc(method="Arith.Nope", params={}, id=4), -32603, 4)


@case
def jsonrpc_unknown_service(peer):
    is_jsonrpc_error(peer.jsonrpc(method="NoSuch.Mul", params={}, id=5), -32603, 5)


@case
def jsonrpc_method_without_dot(peer):
    is_jsonrpc_error(peer.jsonrpc(method="Arith", params={"A": 7, "B": 8}, id=3), -32601, 3)


@case
def jsonrpc_parse_error(peer):
    reply = peer.jsonrpc_raw(b"{bad")
    is_jsonrpc_error(json.loads(reply.body), -32700, None)


@case
def jsonrpc_notification(peer):
    response = peer.jsonrpc_raw({"jsonrpc": "2.0", "method": "Arith.Mul", "params": {"A": 7, "B": 8}})
    equal("body", response.body, b"")


@case
def jsonrpc_notification_without_params(peer):
    """This crashes the process of rpcx v1.9; ours continues."""
    response = peer.jsonrpc_raw({"jsonrpc": "2.0", "method": "Arith.Mul"})
    equal("body", response.body, b"")
    jsonrpc_ok(peer)


@case
def jsonrpc_batch(peer):
    """Responses may arrive in any order; a notification among the calls has none."""
    batch = [
        {"jsonrpc": "2.0", "method": "Arith.Mul", "params": {"A": 2, "B": 3}, "id": 1},
        {"jsonrpc": "2.0", "method": "Arith.Mul", "params": {"A": 0, "B": 0}},
        {"jsonrpc": "2.0", "method": "Arith.Error", "params": {"A": 1, "B": 1}, "id": "two"},
        7,
    ]
    replies = json.loads(peer.jsonrpc_raw(batch).body)
    by_id = {reply.get("id"): reply for reply in replies}
    equal("ids", set(by_id), {1, "two", None})
    equal("result", by_id[1].get("result"), {"C": 6})
    is_jsonrpc_error(by_id["two"], -32603, "two", "boom")
    is_jsonrpc_error(by_id[None], -32600, None)


@case
def jsonrpc_batch_of_notifications(peer):
    notification = {"jsonrpc": "2.0", "method": "Arith.Mul", "params": {"A": 7, "B": 8}}
    equal("body", peer.jsonrpc_raw([notification, notification]).body, b"")


@case
def jsonrpc_empty_batch(peer):
    is_jsonrpc_error(json.loads(peer.jsonrpc_raw([]).body), -32600, None)


def is_jsonrpc_error(reply, code, call_id, message=None):
    equal("jsonrpc", reply.get("jsonrpc"), "2.0")
    equal("id", reply.get("id"), call_id)
    error = reply.get("error") or {}
    equal("error.code", error.get("code"), code)
    not_empty("error.message", error.get("message"))
    if message is not None:
        equal("error.message", error["message"], message)
    equal("result", reply.get("result"), None)


# ---------------------------------------------------------------------------- helpers


class Peer:
    """The server under test."""

    def __init__(self, addr, rpcx_auth_addr=None):
        self.addr = addr
        self.rpcx_auth_addr = rpcx_auth_addr

    def with_auth(self):
        if not self.rpcx_auth_addr:
            raise Skipped("needs --rpcx-auth-addr")
        return Peer(self.rpcx_auth_addr)

    def connect(self):
        return Connection(self.addr)

    def send(self, method, path, body=b"", headers=None):
        with self.connect() as connection:
            connection.write(request(method, path, body, headers or {}))
            return connection.read_response()

    def post(self, path, body, content_type="application/json", headers=None):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        return self.send("POST", path, body, {"Content-Type": content_type, **(headers or {})})

    def grpc_web(self, path, body, content_type):
        return self.post(path, body, content_type, {"X-Grpc-Web": "1"})

    def gateway(self, service, method, headers=None, body=b'{"A":7,"B":8}'):
        names = {"X-RPCX-ServicePath": service, "X-RPCX-ServiceMethod": method, "X-RPCX-SerializeType": "1"}
        return self.send("POST", "/", body, {**names, **(headers or {})})

    def jsonrpc_raw(self, body):
        response = self.post("/", body, headers={"X-JSONRPC-2.0": "true"})
        if response.status not in (200, 202, 204):
            raise Failure(f"status: got {response.status}, want 200")
        return response

    def jsonrpc(self, **call):
        return json.loads(self.jsonrpc_raw({"jsonrpc": "2.0", **call}).body)


class Connection:
    """One connection, read frame by frame."""

    def __init__(self, addr):
        host, port = addr.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=LIMIT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.input.close()
        self.socket.close()

    def write(self, data):
        self.socket.sendall(data)

    def read_response(self, body_follows=True):
        status_line = self.input.readline().decode("latin-1")
        parts = status_line.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1."):
            raise Failure(f"no status line: {status_line!r}")
        headers = self.read_headers()
        body = self.read_body(headers) if body_follows and int(parts[1]) not in (204, 304) else b""
        return Response(int(parts[1]), headers, body)

    def read_headers(self):
        headers = {}
        while (line := self.input.readline().strip()) != b"":
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                raise Failure(f"no header: {line!r}")
            headers[name.lower()] = value.strip()
        return headers

    def read_body(self, headers):
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self.read_chunks()
        if "content-length" not in headers:
            raise Failure("the response has neither a length nor chunks")
        length = int(headers["content-length"])
        body = self.input.read(length)
        equal("bytes of the body", len(body), length)
        return body

    def read_chunks(self):
        body = b""
        while (size := int(self.input.readline().split(b";")[0], 16)) > 0:
            body += self.input.read(size)
            equal("end of a chunk", self.input.read(2), b"\r\n")
        self.read_headers()
        return body

    def is_closed(self):
        equal("after the response", self.input.read(1), b"")

    def echo_works(self):
        self.write(echo_request("still here"))
        self.read_response().is_json(200, {"message": "still here"})


class Response:
    """A status, headers by their names in lower case, and a body."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def header(self, name):
        return self.headers.get(name, "")

    def content_type(self):
        return self.header("content-type").split(";")[0].strip()

    def is_json(self, status, value):
        if self.status != status:
            raise Failure(f"status: got {self.status} ({brief(self.body)}), want {status}")
        equal("body", json.loads(self.body), value)

    def is_gateway_error(self, status):
        equal("status", self.status, status)
        equal("X-RPCX-MessageStatusType", self.header("x-rpcx-messagestatustype"), "Error")
        not_empty("X-RPCX-ErrorMessage", self.header("x-rpcx-errormessage"))
        equal("body", self.body, b"")


def request(method, path, body, headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def echo_request(text, headers=None):
    body = json.dumps({"message": text}).encode()
    return request("POST", ECHO, body, {"Content-Type": "application/json", **(headers or {})})


def equal(what, got, want):
    if got != want:
        raise Failure(f"{what}: got {brief(got)}, want {brief(want)}")


def differs(what, got, unwanted):
    if got == unwanted:
        raise Failure(f"{what}: got {brief(got)}")


def not_empty(what, value):
    if not value:
        raise Failure(f"{what} is empty")


def brief(value):
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


def run(name, peer):
    """Runs a case, prints its line and returns whether it counts as passed."""
    try:
        CASES[name](peer)
    except Skipped as why:
        print(f"skip {name}: {why}", flush=True)
    except Failure as why:
        print(f"FAIL {name}: {why}", flush=True)
        return False
    except Exception as why:  # an answer of another shape than any case foresaw is a failure too
        print(f"FAIL {name}: {type(why).__name__}: {why}", flush=True)
        return False
    else:
        print(f"ok   {name}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("addr", nargs="?", help="host:port of the server")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="run these alone")
    parser.add_argument("--rpcx-auth-addr", help="host:port of a listener that asks for rpcx's token")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return 0
    if not arguments.addr:
        parser.error("the address of the server is missing")
    if unknown := [name for name in arguments.cases if name not in CASES]:
        parser.error(f"no case named {', '.join(unknown)}")
    peer = Peer(arguments.addr, arguments.rpcx_auth_addr)
    passed = [run(name, peer) for name in arguments.cases or CASES]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
