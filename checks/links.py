#!/usr/bin/env python3
"""Fails if a document of the repository links to a missing file."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.S)


def main():
    broken = 0
    files = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in files.stdout.split():
        text = (ROOT / name).read_text()
        for target in LINK.findall(CODE.sub("", text)):
            # Rustdoc checks links to items itself.
            is_file = "/" in target or target.endswith(".md")
            if not is_file or re.match(r"[a-z]+:", target):
                continue
            if not (ROOT / name).parent.joinpath(target.split("#")[0]).exists():
                print(f"{name}: no such file: {target}")
                broken += 1
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
