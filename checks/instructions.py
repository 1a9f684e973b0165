#!/usr/bin/env python3
"""Instructions of a call, client and server together, on twenty paths: compared with those stored in the repository.

    checks/instructions.py PROGRAM              compares; the exit code is 1 if a path takes 2 % more than stored
    checks/instructions.py PROGRAM --bless      stores them instead
    checks/instructions.py PROGRAM --only NAME  only paths whose name contains this

PROGRAM is polyrpc-attack, built in release form. callgrind counts, which does not depend on what else the machine does: two
runs differ by less than 0.5 %. Each figure is the difference of two runs with different numbers of calls, divided by the
difference of the calls: starting and connecting are not in it. Counts of another compiler or another kind of processor
are not compared, since they would tell nothing about the code."""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STORED = Path(__file__).resolve().parent / "instructions.json"
# More than this share above the stored count is worse; less than it below is to be stored.
MARGIN = 0.02
# Calls that are counted, and calls before them.
CALLS, BEFORE = 640, 320
# Exit code if there is nothing to compare with.
INCOMPARABLE = 3

# Name of the combination, calls in flight, bytes of the text.
PATHS = [
    ("baidu_std over TCP", 1, 32),
    ("rpcx over TCP", 1, 32),
    ("gRPC over TCP", 1, 32),
    ("gRPC-Web over TCP", 1, 32),
    ("Connect over TCP", 1, 32),
    ("HTTP over TCP", 1, 32),
    ("JSON-RPC over TCP", 1, 32),
    ("rest_rpc over TCP", 1, 32),
    ("net/rpc gob over TCP", 1, 32),
    ("net/rpc JSON over TCP", 1, 32),
    ("fb_rpc over TCP", 1, 32),
    ("baidu_std over TCP", 64, 32),
    ("rpcx over TCP", 64, 32),
    ("gRPC over TCP", 64, 32),
    ("net/rpc gob over TCP", 64, 32),
    ("baidu_std over Unix", 1, 32),
    ("gRPC over TLS", 1, 32),
    ("baidu_std over WebSocket", 1, 32),
    ("baidu_std over TCP", 1, 65536),
    ("gRPC over TCP", 1, 65536),
]


def name(path):
    combination, in_flight, size = path
    return f"{combination}, {in_flight} in flight, {size} B"


def instructions(program, path, calls):
    """All instructions of a run with this number of calls."""
    combination, in_flight, size = path
    with tempfile.TemporaryDirectory() as folder:
        out = f"--callgrind-out-file={os.path.join(folder, 'out')}"
        command = ["valgrind", "--tool=callgrind", out, program, "instructions", combination]
        command += ["--in-flight", str(in_flight), "--size", str(size), "--rounds", str(calls // in_flight)]
        run = subprocess.run(command, capture_output=True, text=True)
    counted = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or not counted:
        sys.exit(f"{name(path)}: the run failed:\n{run.stdout}{run.stderr}")
    return int(counted.group(1))


def per_call(program, path):
    few, many = (instructions(program, path, calls) for calls in (BEFORE, BEFORE + CALLS))
    return round((many - few) / CALLS)


def build_of(program):
    """What counts depend on beside the code."""
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    # Functions of the C library are chosen by the processor.
    flags = re.search(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    wide = "avx2" if flags and "avx2" in flags.group(1).split() else "no avx2"
    return {"compiler": compiler, "machine": f"{platform.machine()}, {wide}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()

    stored = json.loads(STORED.read_text()) if STORED.exists() else {"build": None, "paths": {}}
    build = build_of(options.program)
    if not options.bless and stored["build"] != build:
        print(f"counts of {stored['build']} are stored, this is {build}: nothing to compare")
        sys.exit(INCOMPARABLE)

    chosen = [path for path in PATHS if options.only in name(path)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = list(pool.map(lambda path: per_call(options.program, path), chosen))
    worse, better = [], []
    for path, count in zip(chosen, counts):
        before = stored["paths"].get(name(path))
        ratio = count / before if before else None
        print(f"{name(path):44} {count:9} instructions a call" + (f", {ratio:.3f} of {before}" if ratio else ""))
        if ratio and ratio > 1 + MARGIN:
            worse.append(name(path))
        elif ratio is None or ratio < 1 - MARGIN:
            better.append(name(path))
    if options.bless:
        kept = {} if not options.only else stored["paths"]
        paths = kept | {name(path): count for path, count in zip(chosen, counts)}
        STORED.write_text(json.dumps({"build": build, "paths": paths}, indent=2) + "\n")
        return
    if worse:
        sys.exit(f"more than {MARGIN:.0%} worse: {'; '.join(worse)}. If it must be, store it: --bless")
    if better:
        print(f"better or new, to be stored by --bless: {'; '.join(better)}")


main()
