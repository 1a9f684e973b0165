#!/usr/bin/env python3
"""Packages the published crates, then builds and tests them from their packages, as crates.io would serve them.

    checks/package.py             everything
    checks/package.py --list      only checks that each package is complete
    checks/package.py --unpack    the same, and unpacks them for other scripts; prints the folder

The unpacked packages depend on each other by version. A workspace around them patches crates.io with their folders, which
has the effect of a local registry without a copy of every dependency.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "package"
UNPACKED = PACKAGES / "unpacked"

# Maximum size that crates.io accepts, in bytes.
LARGEST = 10 << 20

# Files that a package must have.
WANTED = ["Cargo.toml", "README.md", "LICENSE"]


def run(*command, **options):
    subprocess.run(command, check=True, **options)


def published():
    """Names and versions of the crates that may be published."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"], check=True, capture_output=True, text=True, cwd=ROOT
    )
    packages = json.loads(metadata.stdout)["packages"]
    return sorted((package["name"], package["version"]) for package in packages if package["publish"] is None)


def package(crates):
    """Writes the packages, including uncommitted changes."""
    shutil.rmtree(PACKAGES, ignore_errors=True)
    names = [argument for name, _ in crates for argument in ("-p", name)]
    run("cargo", "package", "--quiet", "--no-verify", "--allow-dirty", *names, cwd=ROOT)


def check(crates):
    """Returns whether every package is complete; prints the missing files."""
    complete = True
    for name, version in crates:
        path = PACKAGES / f"{name}-{version}.crate"
        with tarfile.open(path) as archive:
            members = {member.name.split("/", 1)[1]: member for member in archive.getmembers()}
        missing = [wanted for wanted in WANTED if wanted not in members]
        if not any(file.startswith("src/") for file in members):
            missing.append("src")
        links = [file for file, member in members.items() if not member.isfile()]
        size = path.stat().st_size
        print(f"{name:20} {len(members):5} files {size / 1024:7.0f} KiB")
        for fault in [
            *(f"has no {file}" for file in missing),
            *(f"has a link, {file}" for file in links),
            *(["is larger than crates.io accepts"] if size > LARGEST else []),
        ]:
            print(f"{name} {fault}", file=sys.stderr)
            complete = False
    return complete


def unpack(crates):
    """Unpacks the packages into a workspace in which they depend on each other."""
    UNPACKED.mkdir(parents=True)
    for name, version in crates:
        with tarfile.open(PACKAGES / f"{name}-{version}.crate") as archive:
            archive.extractall(UNPACKED, filter="data")
        (UNPACKED / f"{name}-{version}").rename(UNPACKED / name)
        # For scripts that replace a source of crates by this folder: the files have no checksums.
        (UNPACKED / name / ".cargo-checksum.json").write_text('{"files":{}}')
    members = "".join(f'    "{name}",\n' for name, _ in crates)
    patches = "".join(f'{name} = {{ path = "{UNPACKED / name}" }}\n' for name, _ in crates)
    # The profiles of the workspace, so that common dependencies are built once.
    profiles = re.search(r"^\[profile\..*", (ROOT / "Cargo.toml").read_text(), re.M | re.S).group()
    (UNPACKED / "Cargo.toml").write_text(
        f'[workspace]\nresolver = "3"\nmembers = [\n{members}]\n\n[patch.crates-io]\n{patches}\n{profiles}'
    )
    # The dependency versions that the repository is tested with.
    shutil.copy(ROOT / "Cargo.lock", UNPACKED / "Cargo.lock")


def main():
    chosen = sys.argv[1:]
    if chosen not in ([], ["--list"], ["--unpack"]):
        print(__doc__, file=sys.stderr)
        return 2
    crates = published()
    package(crates)
    if not check(crates):
        return 1
    if chosen == ["--list"]:
        return 0
    unpack(crates)
    if chosen == ["--unpack"]:
        print(UNPACKED)
        return 0
    run("cargo", "test", "--workspace", "--all-features", "--quiet", cwd=UNPACKED)
    # All checks of a registry, up to the upload.
    names = [argument for name, _ in crates for argument in ("-p", name)]
    run("cargo", "publish", "--dry-run", "--no-verify", "--allow-dirty", *names, cwd=ROOT)
    print(f"{len(crates)} packages build, and their tests pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
