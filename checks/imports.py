#!/usr/bin/env python3
"""Fails if modules import each other in a cycle.

    checks/imports.py CRATE [MODULE]     the modules within MODULE (server, client::cluster), or the top-level ones
    checks/imports.py --all              the modules within every module of every crate
    checks/imports.py --edges CRATE …    prints what imports what, with the names

CRATE is a folder, in crates/ or beside it. A module imports what its `use` lines and its paths name. What is
re-exported counts as the module that defines it. Tests do not count.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The root files of every crate, in its folder.
CRATES = ["crates/*", "attack", "bench", "bench/peers/*", "examples", "interop/*"]
ROOTS = ["src/lib.rs", "src/main.rs", "src/*/main.rs", "*/main.rs"]

LITERAL = re.compile(r'r(#*)".*?"\1|"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|\'(?:\\.|[^\\\'])\'', re.S)
TEST = re.compile(r"#\[cfg\((?:test|any\(test\b[^\]]*|all\(test\b[^\]]*)\)\]")
MODULE = re.compile(r"((?:#\[[^\]]*\]\s*)*)(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*(;|\{)")
USE = re.compile(r"(pub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);")
PATH = re.compile(r"(?<![\w:])((?:crate|super|self)(?:::\w+)+)")
CHILD = re.compile(r"(?<![\w:])(\w+)((?:::\w+)+)")


class Module:
    """One module: its children, what it re-exports under which name, and the absolute paths that it names."""

    def __init__(self, text):
        self.text = text
        self.children = set()
        self.exports = {}
        self.globs = []
        self.paths = set()


def roots(crate):
    """The root files of a crate's library and programs."""
    return sorted({root for pattern in ROOTS for root in crate.glob(pattern)})


def read(root):
    """All modules under a root file by their paths, which are tuples of names."""
    modules = {}
    add(modules, (), root, None)
    for path, module in modules.items():
        find_paths(modules, path, module)
    return modules


def add(modules, path, file, text):
    text = without_tests(without_literals(file.read_text())) if text is None else text
    module = modules[path] = Module(text)
    folder = file.parent if file.stem in ("lib", "main", "mod") else file.with_suffix("")
    for match in MODULE.finditer(text):
        name = match.group(2)
        if match.group(3) == "{":
            end = end_of_block(text, match.end() - 1)
            module.children.add(name)
            add(modules, path + (name,), file, text[match.end() : end - 1])
            module.text = module.text.replace(text[match.start() : end], " ")
            continue
        found = [path for path in (folder / f"{name}.rs", folder / name / "mod.rs") if path.exists()]
        if found:
            module.children.add(name)
            add(modules, path + (name,), found[0], None)


def without_literals(text):
    return LITERAL.sub(lambda match: " " if match.group().startswith("/") else '""', text)


def without_tests(text):
    kept, at = [], 0
    for match in TEST.finditer(text):
        if match.start() >= at:
            kept.append(text[at : match.start()])
            at = end_of_block(text, match.end())
    return "".join(kept) + text[at:]


def end_of_block(text, at):
    """The position after the block, or after the statement without one, that starts at or after `at`."""
    depth = 0
    while at < len(text):
        character = text[at]
        depth += {"{": 1, "}": -1}.get(character, 0)
        at += 1
        if depth == 0 and character in "};":
            return at
    return at


def find_paths(modules, path, module):
    for match in USE.finditer(module.text):
        for leaf, name in leaves(match.group(2)):
            target = absolute(modules, path, leaf)
            if target is None:
                continue
            if name == "*":
                module.globs.append(target[:-1])
            if match.group(1):
                module.exports[name] = target
            # A module may re-export what its own children define.
            if not (match.group(1) and target[: len(path)] == path):
                module.paths.add(target)
    text = USE.sub("", module.text)
    for match in PATH.finditer(text):
        target = absolute(modules, path, tuple(match.group(1).split("::")))
        if target:
            module.paths.add(target)
    for match in CHILD.finditer(text):
        if match.group(1) in module.children:
            module.paths.add(path + (match.group(1), *match.group(2).split("::")[1:]))


def leaves(tree, prefix=()):
    """The paths of a `use` tree, each with its imported name."""
    tree = tree.strip()
    start = tree.find("{")
    if start < 0:
        path, _, alias = tree.partition(" as ")
        names = tuple(name.strip() for name in path.split("::") if name.strip())
        if names and names[-1] == "self":
            names = names[:-1]
        path = prefix + names
        yield path, alias.strip() or (path[-1] if path else "")
        return
    prefix += tuple(name.strip() for name in tree[:start].split("::") if name.strip())
    depth, part = 0, ""
    for character in tree[start + 1 : tree.rindex("}")] + ",":
        if character == "," and depth == 0:
            if part.strip():
                yield from leaves(part, prefix)
            part = ""
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        part += character


def absolute(modules, path, names):
    """A path relative to the crate's root; `None` if it is outside the crate."""
    if not names:
        return None
    if names[0] == "crate":
        return names[1:]
    if names[0] == "self":
        return path + names[1:]
    ups = next((at for at, name in enumerate(names) if name != "super"), len(names))
    if ups:
        return path[: len(path) - ups] + names[ups:]
    return path + names if names[0] in modules[path].children else None


def definer(modules, target, depth=0):
    """The module that defines the target of a path."""
    at = ()
    for position, name in enumerate(target):
        module = modules[at]
        if name in module.children:
            at += (name,)
            continue
        if depth < 12:
            exported = module.exports.get(name)
            if exported and exported != target:
                return definer(modules, exported + target[position + 1 :], depth + 1)
            for glob in module.globs:
                found = definer(modules, glob + target[position:], depth + 1)
                if found != glob:
                    return found
        return at
    return at


def edges(modules, within):
    """The imports between the children of a module, with the imported names."""
    found = defaultdict(lambda: defaultdict(set))
    for path, module in modules.items():
        for target in module.paths:
            ends = child(within, path), child(within, definer(modules, target))
            if None not in ends and ends[0] != ends[1]:
                found[ends[0]][ends[1]].add("::".join(path) + ": " + "::".join(target))
    return found


def child(within, path):
    inside = path[: len(within)] == within and len(path) > len(within)
    return path[len(within)] if inside else None


def circles(graph):
    """The sets of modules that reach each other (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def check(root, modules, path, shows_edges):
    graph = edges(modules, path)
    found = circles(graph)
    where = f"{root.relative_to(ROOT)} {'::'.join(path)}".strip()
    for circle in found:
        print(f"{where}: a circle of {len(circle)}: {', '.join(circle)}")
    shown = graph if shows_edges else []
    if found and not shows_edges:
        shown = [node for circle in found for node in circle]
    for node in shown:
        for other, names in sorted(graph[node].items()):
            if shows_edges or any(node in circle and other in circle for circle in found):
                print(f"  {node} -> {other}: {'; '.join(sorted(names)[:3])}")
    return not found


def check_all():
    results = []
    for crate in (crate for pattern in CRATES for crate in sorted(ROOT.glob(pattern))):
        for root in roots(crate):
            modules = read(root)
            modules_with_children = [path for path, module in modules.items() if len(module.children) > 1]
            results += [check(root, modules, path, False) for path in modules_with_children]
    print(f"{sum(results)} of {len(results)} modules without circles")
    return bool(results) and all(results)


def check_module(crate, path, shows_edges):
    found = [(root, modules) for root in roots(crate) if path in (modules := read(root))]
    if not found:
        sys.exit(f"{crate.relative_to(ROOT)} has no module {'::'.join(path)}")
    return all([check(root, modules, path, shows_edges) for root, modules in found])


def main(arguments):
    sys.setrecursionlimit(10_000)
    if arguments == ["--all"]:
        return 0 if check_all() else 1
    shows_edges = "--edges" in arguments
    names = [argument for argument in arguments if argument != "--edges"]
    folders = [folder for name in names[:1] for folder in (ROOT / "crates" / name, ROOT / name) if folder.is_dir()]
    if not folders or len(names) > 2:
        sys.exit(__doc__)
    path = tuple(names[1].split("::")) if len(names) == 2 else ()
    return 0 if check_module(folders[0], path, shows_edges) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
