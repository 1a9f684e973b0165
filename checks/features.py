#!/usr/bin/env python3
"""Checks that each feature of the libraries compiles alone, and none at all: `cargo test` only sees them together.

    checks/features.py [CRATE…]"""

import json
import subprocess
import sys

# Code that needs several features is checked by the tests.
CRATES = ["polyrpc-payload", "polyrpc-wire", "polyrpc", "polyrpc-discovery", "polyrpc-console"]


def features(crate):
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"], check=True, capture_output=True, text=True
    )
    package = next(p for p in json.loads(metadata.stdout)["packages"] if p["name"] == crate)
    # A name that starts with `_` is internal: only other features enable it.
    return sorted(name for name in package["features"] if name != "default" and not name.startswith("_"))


def check(crate, chosen):
    command = ["cargo", "check", "--quiet", "--lib", "-p", crate, "--no-default-features"]
    if chosen:
        command += ["--features", chosen]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return done.returncode == 0 and "warning:" not in done.stderr


def main():
    failed = []
    count = 0
    for crate in sys.argv[1:] or CRATES:
        for chosen in ["", *features(crate)]:
            count += 1
            if not check(crate, chosen):
                failed.append(f"{crate} with {chosen or 'no feature'}")
    print(f"{count - len(failed)} of {count} choices of features compile without a warning")
    for name in failed:
        print(f"fails: {name}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
