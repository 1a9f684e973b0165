#!/usr/bin/env python3
"""Makes the same mistakes with polyrpc, grpcurl, ghz and curl, and compares messages and exit codes with mistakes.md.

    mistakes.py POLYRPC GRPCURL GHZ [--write]

Prints a row per mistake, `ok   NAME` or `FAIL NAME: why`: polyrpc must print the recorded message; the others must exit
with the recorded code, since their messages change between versions. --write rewrites the table; review it before checking it
in.
"""

import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE / "mistakes.md"
PROTO = HERE / "proto" / "names.proto"

HEAD = """# Mistakes, with polyrpc and with other commands

Messages and exit codes of `polyrpc`, grpcurl 1.9.4, ghz 0.121.0 and curl 7.88.1 for the same mistakes: `./dev interop` repeats
and compares them. `mistakes.py --write` records them. `{server}` is a grpc-go server with reflection and the service of
`proto/names.proto`; curl has no protobuf, so it calls `polyrpc serve`. `-` means that a command cannot make the mistake.

"""

NOT_MADE = None


def mistakes(at):
    """Name, and the arguments of each command."""
    echo = "example.EchoService/Echo"
    server = at["server"]

    def call(target, data, *more, url=f"grpc://{server}"):
        return ["call", url, target, data, *more]

    def grpcurl(target, data, *more, address=server):
        return ["-plaintext", *more, "-d", data, address, target]

    def ghz(target, data, *more, address=server):
        return ["--insecure", "-n", "1", "-c", "1", "--call", target, "-d", data, *more, address]

    # curl has no protobuf: it calls our server, which accepts JSON.
    def curl(path, data, *more, address=at["ours"]):
        return ["-H", "Content-Type: application/json", "-d", data, *more, f"http://{address}/{path}"]

    def all_of(target, data):
        return call(target, data), grpcurl(target, data), ghz(target, data), curl(target, data)

    missing = str(HERE / "no.json")
    return [
        ("unknown field", *all_of(echo, '{"txet":"hi"}')),
        ("value of the wrong type", *all_of(echo, '{"text":7}')),
        ("number out of range", *all_of(echo, '{"copies":3000000000}')),
        ("not JSON", *all_of(echo, "hi")),
        ("JSON that ends early", *all_of(echo, '{"text":"hi"')),
        ("unknown method", *all_of("example.EchoService/Ehco", "{}")),
        ("unknown service", *all_of("example.EchoServcie/Echo", "{}")),
        ("no service in the name", *all_of("Echo", "{}")),
        (
            "no server listens",
            call(echo, "{}", url=f"grpc://{at['unused']}"),
            grpcurl(echo, "{}", "-connect-timeout", "2", address=at["unused"]),
            ghz(echo, "{}", "--connect-timeout", "2s", address=at["unused"]),
            curl(echo, "{}", address=at["unused"]),
        ),
        (
            "another protocol: the server speaks rpcx",
            call(echo, "{}", url=f"grpc://{at['rpcx']}"),
            grpcurl(echo, "{}", "-connect-timeout", "2", address=at["rpcx"]),
            ghz(echo, "{}", "--connect-timeout", "2s", address=at["rpcx"]),
            curl(echo, "{}", address=at["rpcx"]),
        ),
        (
            "TLS to a server without TLS",
            call(echo, "{}", url=f"grpcs://{server}"),
            ["-connect-timeout", "2", "-d", "{}", server, echo],
            ["--connect-timeout", "2s", "-n", "1", "-c", "1", "--call", echo, "-d", "{}", server],
            ["-d", "{}", f"https://{server}/{echo}"],
        ),
        (
            "plaintext to a server with TLS only",
            call(echo, "{}", url=f"grpc://{at['tls']}"),
            grpcurl(echo, "{}", "-connect-timeout", "2", address=at["tls"]),
            ghz(echo, "{}", "--connect-timeout", "2s", address=at["tls"]),
            curl(echo, "{}", address=at["tls"]),
        ),
        (
            "an untrusted certificate",
            call(echo, "{}", url=f"grpcs://{at['tls']}"),
            ["-connect-timeout", "2", "-d", "{}", at["tls"], echo],
            ["--connect-timeout", "2s", "-n", "1", "-c", "1", "--call", echo, "-d", "{}", at["tls"]],
            ["-d", "{}", f"https://{at['tls']}/{echo}"],
        ),
        (
            "a server without reflection",
            call("grpc.testing.TestService/UnaryCall", "{}", url=f"grpc://{at['plain']}"),
            grpcurl("grpc.testing.TestService/UnaryCall", "{}", address=at["plain"]),
            ghz("grpc.testing.TestService/UnaryCall", "{}", address=at["plain"]),
            NOT_MADE,
        ),
        (
            "listing a server without reflection",
            ["list", f"grpc://{at['plain']}"],
            ["-plaintext", at["plain"], "list"],
            NOT_MADE,
            NOT_MADE,
        ),
        (
            "describing an unknown name",
            ["list", f"grpc://{server}", "example.EchoReqest"],
            ["-plaintext", server, "describe", "example.EchoReqest"],
            NOT_MADE,
            NOT_MADE,
        ),
        (
            "a call that fails",
            call("Arith/Div", '{"A":7,"B":0}', url=f"grpc://{at['ours']}"),
            grpcurl("Arith/Div", '{"A":7,"B":0}', address=at["ours"]),
            ghz("Arith/Div", '{"A":7,"B":0}', address=at["ours"]),
            curl("Arith/Div", '{"A":7,"B":0}', address=at["ours"]),
        ),
        (
            "a server that does not respond",
            call(echo, "{}", "--timeout", "1", url=f"grpc://{at['silent']}"),
            grpcurl(echo, "{}", "-max-time", "1", address=at["silent"]),
            ghz(echo, "{}", "--connect-timeout", "1s", address=at["silent"]),
            curl(echo, "{}", "--max-time", "1", address=at["silent"]),
        ),
        ("no method", ["call", f"grpc://{server}"], ["-plaintext", server], ["--insecure", server], NOT_MADE),
        (
            "no server",
            ["call"],
            ["-plaintext"],
            ["--insecure", "--call", echo],
            [],
        ),
        (
            "an option that does not exist",
            call(echo, "{}", "--nope"),
            grpcurl(echo, "{}", "-nope"),
            ghz(echo, "{}", "--nope"),
            ["--nope"],
        ),
        (
            "a header without a value",
            call(echo, '{"text":"hi"}', "-H", "tenant"),
            grpcurl(echo, '{"text":"hi"}', "-H", "tenant"),
            ghz(echo, '{"text":"hi"}', "-m", "tenant"),
            curl(echo, "{}", "-H", "tenant"),
        ),
        (
            "an invalid timeout",
            call(echo, "{}", "--timeout", "soon"),
            grpcurl(echo, "{}", "-max-time", "soon"),
            ghz(echo, "{}", "--timeout", "soon"),
            ["--max-time", "soon", f"http://{server}/"],
        ),
        (
            "a .proto that does not exist",
            call(echo, "{}", "--proto", "no.proto"),
            grpcurl(echo, "{}", "-proto", "no.proto"),
            ghz(echo, "{}", "--proto", "no.proto"),
            NOT_MADE,
        ),
        (
            "an invalid .proto",
            call(echo, "{}", "--proto", str(HERE / "run")),
            grpcurl(echo, "{}", "-import-path", str(HERE), "-proto", "run"),
            ghz(echo, "{}", "--proto", str(HERE / "run")),
            NOT_MADE,
        ),
        (
            "a .proto without the service",
            call("example.Other/Echo", "{}", "--proto", str(PROTO)),
            grpcurl("example.Other/Echo", "{}", "-import-path", str(PROTO.parent), "-proto", PROTO.name),
            ghz("example.Other/Echo", "{}", "--proto", str(PROTO)),
            NOT_MADE,
        ),
        (
            "a file of data that does not exist",
            call(echo, f"@{missing}"),
            NOT_MADE,
            ["--insecure", "-n", "1", "-c", "1", "--call", echo, "-D", missing, server],
            curl(echo, f"@{missing}"),
        ),
        (
            "a protocol that does not exist",
            ["call", f"ftpx://{server}", echo, "{}"],
            NOT_MADE,
            NOT_MADE,
            [f"ftpx://{server}/"],
        ),
        (
            "an address without a port",
            ["call", "grpc://localhost", echo, "{}"],
            grpcurl(echo, "{}", "-connect-timeout", "2", address="localhost"),
            NOT_MADE,
            NOT_MADE,
        ),
        (
            "a host that does not exist",
            ["call", "grpc://nowhere.invalid:1", echo, "{}"],
            grpcurl(echo, "{}", "-connect-timeout", "2", address="nowhere.invalid:1"),
            ghz(echo, "{}", "--connect-timeout", "2s", address="nowhere.invalid:1"),
            curl(echo, "{}", address="nowhere.invalid:1"),
        ),
    ]


def started(command, prefix):
    """Starts a server. Returns it and the address that it prints after the prefix."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in server.stdout:
        if line.startswith(prefix):
            return server, line[len(prefix) :].strip()
    raise SystemExit(f"the server did not start: {command}")


def certificate(folder):
    """Creates a self-signed certificate. Returns the server options for it."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    return ["--tls-cert", f"{folder}/cert.pem", "--tls-key", f"{folder}/key.pem"]


def run_command(program, arguments, at):
    """Returns the first lines of the output, and the exit code."""
    if arguments is NOT_MADE:
        return "-"
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    text = done.stderr + done.stdout if done.returncode else done.stdout + done.stderr
    lines = [line.strip() for line in text.splitlines()]
    if program[0].endswith("ghz") and done.returncode == 0:
        # Keep the failures of its report.
        lines = lines[lines.index("Status code distribution:") :] if "Status code distribution:" in lines else lines
    lines = [line for line in lines if line and not line.startswith(("Usage: polyrpc", "For more information"))]
    return f"{normalized(' / '.join(lines[:6]), at)} (exit {done.returncode})"


def normalized(text, at):
    """Replaces text that differs between runs or machines, and characters that a table cannot contain."""
    for name, address in at.items():
        text = text.replace(address, f"{{{name}}}").replace(address.replace("127.0.0.1", "localhost"), f"{{{name}}}")
    # Go's protobuf writes "proto:" with this space in some builds, so that nobody compares its texts.
    text = text.replace("\u00a0", " ")
    text = text.replace(str(HERE.parent) + "/", "")
    text = re.sub(r"127\.0\.0\.1:\d{4,5}", "{client}", text)
    text = re.sub(r"on \d+\.\d+\.\d+\.\d+:53\b", "on {resolver}", text)
    text = re.sub(r"\bport \d{4,5}\b", "port N", text)
    # A closed connection is reported in several ways.
    text = re.sub(r"the connection broke: [^/]*\(os error \d+\)", "the server closed the connection", text)
    text = re.sub(r"\b\d+ milliseconds\b", "TIME", text)
    text = re.sub(r"\b\d+(\.\d+)? ?(ns|µs|us|ms|s)\b", "TIME", text)
    text = re.sub(r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S*", "TIME", text)
    text = text.replace("|", "\\|").replace("`", "'").replace("\t", " ")
    return (text[:220] + "…") if len(text) > 220 else text


def row(name, commands, at, recorded):
    """Makes a mistake, again if its row differs from the recorded one: on a busy machine a probe or a connection may be late."""
    for _ in range(5):
        made = (name, *(run_command(program, arguments, at) for program, arguments in commands))
        cells = lines(table([made]))[-1][1]
        if name not in recorded or difference(cells, recorded[name]) is None:
            break
    return made


def table(rows):
    lines = ["| mistake | polyrpc | grpcurl | ghz | curl |", "|---|---|---|---|---|"]
    for name, *cells in rows:
        lines.append("| " + " | ".join([name, *(cell if cell == "-" else f"`{cell}`" for cell in cells)]) + " |")
    return HEAD + "\n".join(lines) + "\n"


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[4:] not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    polyrpc, grpcurl, ghz = sys.argv[1:4]
    curl = ["curl", "--silent", "--show-error", "-w", " HTTP %{http_code}"]
    peer = str(HERE / "grpc" / "bin" / "peer")
    with tempfile.TemporaryDirectory() as folder, socket.socket() as unused, socket.socket() as silent:
        unused.bind(("127.0.0.1", 0))
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        serve = [polyrpc, "serve", "--listen", "127.0.0.1:0"]
        servers = {
            "server": started([peer, "names", str(PROTO.with_suffix(".txtpb"))], "listening "),
            "plain": started([peer, "plain"], "listening "),
            "ours": started(serve, "listening main "),
            "rpcx": started([*serve, "--protocols", "rpcx"], "listening main "),
            "tls": started([*serve, *certificate(folder), "--tls-required"], "listening main "),
        }
        at = {name: address for name, (_, address) in servers.items()}
        at["unused"] = f"127.0.0.1:{unused.getsockname()[1]}"
        at["silent"] = f"127.0.0.1:{silent.getsockname()[1]}"
        programs = ([polyrpc], [grpcurl], [ghz], curl)
        recorded = {} if sys.argv[4:] else dict(lines(TABLE.read_text()))
        try:
            rows = [row(name, list(zip(programs, arguments)), at, recorded) for name, *arguments in mistakes(at)]
        finally:
            for server, _ in servers.values():
                server.kill()
    found = table(rows)
    if sys.argv[4:]:
        TABLE.write_text(found)
        return 0
    return 0 if compare(found, TABLE.read_text()) else 1


def compare(found, recorded):
    """Prints a row per mistake. Returns whether all are as recorded."""
    known, same = dict(lines(recorded)), True
    for name, cells in lines(found):
        fault = difference(cells, known.pop(name, None))
        print(f"FAIL {name}: {fault}" if fault else f"ok   {name}")
        same = same and not fault
    for name in known:
        print(f"FAIL {name}: it is recorded but was not made")
    return same and not known


def lines(text):
    """Returns the rows of the table: the name of a mistake, and the output of each command."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [(name, cells) for name, *cells in rows if name != "mistake"]


def difference(found, known):
    if known is None:
        return "not recorded: run mistakes.py --write"
    if found[0] != known[0]:
        return f"polyrpc prints {found[0]}, not {known[0]}"
    for command, now, before in zip(["grpcurl", "ghz", "curl"], found[1:], known[1:]):
        if exit_code(now) != exit_code(before):
            return f"{command} prints {now}, not {before}"
    return None


def exit_code(cell):
    return re.findall(r"\(exit -?\d+\)", cell)[-1:]


if __name__ == "__main__":
    sys.exit(main())
