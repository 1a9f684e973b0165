#!/usr/bin/env python3
"""The public API of a crate as text, one item a line, compared with the snapshot in checks/public-api.

    checks/public_api.py            compares; a line that is missing now breaks users
    checks/public_api.py --bless    writes the snapshots

It reads rustdoc's JSON, which only a nightly compiler writes. It also counts the public types that a crate defines, each
once, and lists the crates whose types appear in public signatures: each of them is a promise to follow that crate's
versions. `--types` prints the counted types."""

import difflib
import json
import os
import re
import subprocess
import sys

# Crate, the most public types it may define, and the crates whose types it may show.
CRATES = [
    (
        "polyrpc",
        150,
        {"bytes", "futures_core", "metrics", "prost", "serde_core", "tokio"},
    ),
    ("polyrpc-console", 17, set()),
    ("polyrpc-discovery", 18, {"bytes", "futures_core"}),
    ("polyrpc-otel", 1, {"opentelemetry"}),
    ("polyrpc-tower", 5, {"http", "http_body", "tower_service"}),
]
STD = {"std", "core", "alloc"}
TYPES = {"struct", "enum", "union", "trait", "type_alias"}
SNAPSHOTS = "checks/public-api"


def rustdoc(crate):
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    flags = "-Z unstable-options --output-format json --cap-lints allow"
    subprocess.run(
        ["cargo", "+nightly", "doc", "--quiet", "--no-deps", "--lib", "--all-features", "-p", crate],
        check=True,
        env={**os.environ, "RUSTDOCFLAGS": flags, "CARGO_TARGET_DIR": f"{target}/public-api"},
    )
    with open(f"{target}/public-api/doc/{crate.replace('-', '_')}.json") as file:
        return json.load(file)


class Api:
    """Walks the public modules and prints each item once, under the shortest public path."""

    def __init__(self, doc):
        self.doc, self.index, self.paths = doc, doc["index"], doc["paths"]
        self.crates = {int(id): crate["name"] for id, crate in doc["external_crates"].items()}
        self.lines, self.external = set(), {}
        # The path of each type that the crate defines, by its id: some have two.
        self.types = {}
        self.seen = set()

    def walk(self):
        root = self.index[str(self.doc["root"])]
        self.module(root, root["name"])
        return self

    def module(self, module, path):
        for id in module["inner"]["module"]["items"]:
            item = self.index.get(str(id))
            if item is None or item["visibility"] not in ("public", "default"):
                continue
            kind = next(iter(item["inner"]))
            if kind == "use":
                self.use(item["inner"]["use"], path)
            else:
                self.item(item, f"{path}::{item['name']}")

    def use(self, use, path):
        target = self.index.get(str(use["id"]))
        if target is None:
            summary = self.paths.get(str(use["id"]))
            if summary is not None:
                self.lines.add(f"use {path}::{use['name']} = {'::'.join(summary['path'])}")
        elif use["is_glob"]:
            if "module" in target["inner"]:
                self.module(target, path)
        else:
            self.item(target, f"{path}::{use['name']}")

    def item(self, item, path):
        kind, inner = next(iter(item["inner"].items()))
        if (item["id"], path) in self.seen or item.get("docs") == "hidden" or "#[doc(hidden)]" in map(str, item["attrs"]):
            return
        self.seen.add((item["id"], path))
        if kind == "module":
            self.module(item, path)
            return
        if kind in TYPES:
            self.types.setdefault(item["id"], path)
        self.lines.add(self.head(kind, inner, path))
        if kind in ("struct", "enum", "union"):
            self.members(inner, path)
        if kind == "trait":
            for id in inner["items"]:
                self.member(self.index[str(id)], path)

    def members(self, inner, path):
        if "variants" in inner:
            for id in inner["variants"]:
                self.variant(self.index[str(id)], path)
        if "kind" in inner:
            self.fields(inner["kind"], path)
        for id in inner["impls"]:
            found = self.index.get(str(id))
            if found is not None:
                self.implementation(found["inner"]["impl"], path)

    def fields(self, kind, path):
        if isinstance(kind, dict) and "plain" in kind:
            for id in kind["plain"]["fields"]:
                field = self.index[str(id)]
                if field["visibility"] in ("public", "default"):
                    self.lines.add(f"field {path}::{field['name']}: {self.type(field['inner']['struct_field'])}")
        elif isinstance(kind, dict) and "tuple" in kind:
            for index, id in enumerate(kind["tuple"]):
                field = self.index.get(str(id)) if id is not None else None
                if field is not None and field["visibility"] in ("public", "default"):
                    self.lines.add(f"field {path}::{index}: {self.type(field['inner']['struct_field'])}")

    def variant(self, variant, path):
        self.lines.add(f"variant {path}::{variant['name']}")
        kind = variant["inner"]["variant"]["kind"]
        if isinstance(kind, dict) and "struct" in kind:
            kind = {"plain": kind["struct"]}
        self.fields(kind, f"{path}::{variant['name']}")

    def implementation(self, block, path):
        if block["is_synthetic"] or block["blanket_impl"]:
            return
        if block["trait"] is None:
            for id in block["items"]:
                member = self.index.get(str(id))
                if member is not None and member["visibility"] == "public":
                    self.member(member, path)
        else:
            trait = self.path(block["trait"])
            self.lines.add(f"impl {trait} for {path}")

    def member(self, member, path):
        kind, inner = next(iter(member["inner"].items()))
        self.lines.add(self.head(kind, inner, f"{path}::{member['name']}"))

    def head(self, kind, inner, path):
        if kind == "function":
            signature = inner["sig"]
            inputs = ", ".join(self.argument(name, type) for name, type in signature["inputs"])
            output = f" -> {self.type(signature['output'])}" if signature["output"] else ""
            asyncness = "async " if inner["header"]["is_async"] else ""
            return f"{asyncness}fn {path}{self.generics(inner['generics'])}({inputs}){output}"
        if kind == "constant":
            return f"const {path}: {self.type(inner['type'])}"
        if kind == "assoc_const":
            return f"const {path}: {self.type(inner['type'])}"
        if kind == "assoc_type":
            return f"type {path}"
        if kind == "type_alias":
            return f"type {path}{self.generics(inner['generics'])} = {self.type(inner['type'])}"
        if kind == "trait":
            bounds = " + ".join(self.bound(bound) for bound in inner["bounds"])
            return f"trait {path}{self.generics(inner['generics'])}" + (f": {bounds}" if bounds else "")
        if kind in ("struct", "enum", "union"):
            return f"{kind} {path}{self.generics(inner['generics'])}"
        return f"{kind} {path}"

    def argument(self, name, type):
        if name == "self":
            text = self.type(type)
            return {"Self": "self", "&Self": "&self", "&mut Self": "&mut self"}.get(text, f"self: {text}")
        return self.type(type)

    def generics(self, generics):
        names = [p["name"] for p in generics["params"] if not p["name"].startswith(("impl ", "'_"))]
        for parameter in generics["params"]:
            for bound in (parameter["kind"].get("type") or {}).get("bounds", []):
                self.bound(bound)
        return f"<{', '.join(names)}>" if names else ""

    def bound(self, bound):
        if "trait_bound" in bound:
            return self.path(bound["trait_bound"]["trait"])
        return bound.get("outlives") or "use<>"

    def path(self, path):
        summary = self.paths.get(str(path["id"]))
        name = path["path"].split("::")[-1]
        if summary is not None:
            crate = self.crates.get(summary["crate_id"])
            if crate is not None and crate not in STD and not crate.startswith("polyrpc"):
                self.external.setdefault(crate, set()).add("::".join(summary["path"]))
        args = path.get("args")
        return name + (self.arguments(args) if args else "")

    def arguments(self, args):
        if "parenthesized" in args:
            inputs = ", ".join(map(self.type, args["parenthesized"]["inputs"]))
            output = args["parenthesized"]["output"]
            return f"({inputs})" + (f" -> {self.type(output)}" if output else "")
        if "angle_bracketed" not in args:
            return ""
        given = []
        for arg in args["angle_bracketed"]["args"]:
            if "type" in arg:
                given.append(self.type(arg["type"]))
            elif "lifetime" in arg:
                given.append(arg["lifetime"])
        for constraint in args["angle_bracketed"]["constraints"]:
            binding = constraint["binding"]
            if "equality" in binding and "type" in binding["equality"]:
                given.append(f"{constraint['name']} = {self.type(binding['equality']['type'])}")
            elif "constraint" in binding:
                given.append(f"{constraint['name']}: {' + '.join(map(self.bound, binding['constraint']))}")
        return f"<{', '.join(given)}>" if given else ""

    def type(self, type):
        kind, inner = next(iter(type.items()))
        if kind == "resolved_path":
            return self.path(inner)
        if kind in ("generic", "primitive"):
            return inner
        if kind == "borrowed_ref":
            lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
            return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{self.type(inner['type'])}"
        if kind == "tuple":
            return f"({', '.join(map(self.type, inner))})"
        if kind == "slice":
            return f"[{self.type(inner)}]"
        if kind == "array":
            return f"[{self.type(inner['type'])}; {inner['len']}]"
        if kind == "impl_trait":
            return "impl " + " + ".join(map(self.bound, inner))
        if kind == "dyn_trait":
            return "dyn " + " + ".join(self.path(poly["trait"]) for poly in inner["traits"])
        if kind == "qualified_path":
            return f"{self.type(inner['self_type'])}::{inner['name']}"
        if kind == "function_pointer":
            signature = inner["sig"]
            output = f" -> {self.type(signature['output'])}" if signature["output"] else ""
            return f"fn({', '.join(self.type(type) for _, type in signature['inputs'])}){output}"
        return kind


def check(crate, most_types, shown, bless):
    api = Api(rustdoc(crate)).walk()
    text = "\n".join(sorted(api.lines, key=lambda line: (re.sub(r"^\w+( \w+)? ", "", line), line))) + "\n"
    path = f"{SNAPSHOTS}/{crate}.txt"
    print(f"{crate}: defines {len(api.types)} public types, at most {most_types}; shows {', '.join(sorted(api.external)) or 'no crate'}")
    faults = []
    if len(api.types) > most_types:
        faults.append(f"{crate} has {len(api.types)} public types")
    if "--types" in sys.argv[1:]:
        print("\n".join(f"  {path}" for path in sorted(api.types.values())))
    for name in sorted(set(api.external) - shown):
        faults.append(f"{crate} shows types of {name}: {', '.join(sorted(api.external[name])[:5])}")
    if bless:
        with open(path, "w") as file:
            file.write(text)
        return faults
    with open(path) as file:
        before = file.read()
    if before != text:
        changes = difflib.unified_diff(before.splitlines(), text.splitlines(), path, "now", lineterm="", n=0)
        faults.append("\n".join([f"the API of {crate} has changed; if that is meant: checks/public_api.py --bless", *changes]))
    return faults


def main():
    bless = "--bless" in sys.argv[1:]
    os.makedirs(SNAPSHOTS, exist_ok=True)
    faults = [fault for crate in CRATES for fault in check(*crate, bless)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
