#!/usr/bin/env python3
"""Whether the tests would notice: a random sample of small changes of the code, each tested on its own.

    checks/mutants.py [SEED] [--count 20] [--crate wire] [--under PATH] [--minutes 60] [--list]

The mutants are made in a copy of the committed files (target/mutants/tree), with a build folder of its own. A mutant is
*detected* if a test fails, *hangs* if the tests take four times as long as without it, *unviable* if it does not
compile, and *missed* if all tests pass. The exit code is 1 if a mutant is missed or hangs: argue each, or add a test."""

import argparse
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "mutants"
# What is replaced by what; each side is a whole token.
OPERATORS = {
    "==": ["!="],
    "!=": ["=="],
    "<": ["<=", ">="],
    ">": [">=", "<="],
    "<=": ["<", ">"],
    ">=": [">", "<"],
    "&&": ["||"],
    "||": ["&&"],
    "+": ["-"],
    "-": ["+"],
    "*": ["+"],
    "/": ["*"],
    "%": ["/"],
    "+=": ["-="],
    "-=": ["+="],
    "|=": ["&="],
    "&=": ["|="],
    "<<": [">>"],
    ">>": ["<<"],
}
# Between blanks, as rustfmt writes binary operators: generics, references and closures are not.
BINARY = re.compile(r"(?<= )(==|!=|<=|>=|&&|\|\||\+=|-=|\|=|&=|<<|>>|<|>|\+|-|\*|/|%)(?= )")
NEGATION = re.compile(r"(?<=[ (])!(?=[a-z(])")
FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:async )?fn \w+[^;{]*?(?:-> ([^{;]+?) )?\{$", re.MULTILINE)
VALUES = {"bool": ["true", "false"], "usize": ["0", "1"], "u32": ["0", "1"], "u64": ["0", "1"], None: ["()"]}


class Mutant:
    def __init__(self, file, start, end, text, name):
        self.file, self.start, self.end, self.text, self.name = file, start, end, text, name

    def __str__(self):
        line = self.file.read_text()[: self.start].count("\n") + 1
        return f"{self.file.relative_to(WORK / 'tree')}:{line}: {self.name}"


def code_of(text):
    """The text with comments, strings and tests blanked out, so that positions stay."""
    tests = text.find("#[cfg(test)]\nmod ")
    end = len(text) if tests < 0 else tests
    blank = lambda match: re.sub(r"[^\n]", "\0", match.group())
    pattern = r'//[^\n]*|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.|[^\'\\])\'|#!?\[[^\]]*\]'
    return re.sub(pattern, blank, text[:end])


def body_end(code, start):
    depth = 0
    for at in range(start, len(code)):
        depth += (code[at] == "{") - (code[at] == "}")
        if depth == 0:
            return at
    return None


def mutants_of(file):
    code = code_of(file.read_text())
    for match in BINARY.finditer(code):
        for text in OPERATORS[match.group()]:
            yield Mutant(file, *match.span(), text, f"`{match.group()}` → `{text}`")
    for match in NEGATION.finditer(code):
        yield Mutant(file, *match.span(), "", "`!` removed")
    for match in FUNCTION.finditer(code):
        end, kind = body_end(code, match.end() - 1), match.group(2)
        if end is None or "const fn" in match.group() or kind not in VALUES:
            continue
        name = re.search(r"fn (\w+)", match.group()).group(1)
        for value in VALUES[kind]:
            yield Mutant(file, match.end(), end, f" {value} ", f"body of `{name}` → `{value}`")


def is_tested_elsewhere(path):
    return any(part in ("tests", "tests.rs", "testing.rs", "invariants.rs") for part in path.parts)


def cargo(arguments, limit):
    """Runs the tests; `ok`, `failed` or `hangs`, and whether it compiled."""
    command = ["cargo", *arguments]
    with subprocess.Popen(
        command, cwd=WORK / "tree", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            subprocess.run(["kill", "-9", "--", f"-{process.pid}"], check=False)
            return "hangs", ""
        return "ok" if process.returncode == 0 else "failed", output


def tests(crate, limit):
    package = "polyrpc" if crate == "polyrpc" else f"polyrpc-{crate}"
    build = ["--target-dir", str(WORK / "build"), "-p", package, "--quiet"]
    compiled, output = cargo(["test", *build, "--no-run"], 1800)
    if compiled != "ok":
        return "unviable", output
    return cargo(["test", *build], limit)


def copy_tree():
    WORK.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(WORK / "tree", ignore_errors=True)
    (WORK / "tree").mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x"], cwd=WORK / "tree", input=archive, check=True)


def judge(mutant, crate, limit):
    original = mutant.file.read_text()
    mutant.file.write_text(original[: mutant.start] + mutant.text + original[mutant.end :])
    try:
        verdict, _ = tests(crate, limit)
    finally:
        mutant.file.write_text(original)
    return {"ok": "missed", "failed": "detected"}.get(verdict, verdict)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--count", type=int, default=20, help="viable mutants to test")
    parser.add_argument("--crate", default="wire", help="folder below crates/")
    parser.add_argument("--under", default="", help="only files whose path below src/ starts with this")
    parser.add_argument("--minutes", type=float, default=60, help="no further mutant is begun after this")
    parser.add_argument("--list", action="store_true", help="prints the sample, tests nothing")
    return parser.parse_args()


def main():
    chosen = options()
    copy_tree()
    source = WORK / "tree" / "crates" / chosen.crate / "src"
    if not source.is_dir():
        sys.exit(f"there is no folder crates/{chosen.crate}/src")
    files = [file for file in sorted(source.rglob("*.rs")) if not is_tested_elsewhere(file.relative_to(source))]
    files = [file for file in files if str(file.relative_to(source)).startswith(chosen.under)]
    population = [mutant for file in files for mutant in mutants_of(file)]
    random.Random(chosen.seed).shuffle(population)
    print(f"{len(population)} mutants of crates/{chosen.crate}, seed {chosen.seed}", flush=True)
    if chosen.list:
        print(*population[: chosen.count], sep="\n")
        return 0
    begun = time.monotonic()
    verdict, output = tests(chosen.crate, 3600)
    if verdict != "ok":
        sys.exit(f"the tests fail without a mutant:\n{output[-2000:]}")
    rebuilt = time.monotonic()
    tests(chosen.crate, 3600)
    limit = max(4 * (time.monotonic() - rebuilt), 60)
    counts = {"detected": 0, "missed": 0, "hangs": 0, "unviable": 0}
    for mutant in population:
        viable = counts["detected"] + counts["missed"] + counts["hangs"]
        if viable >= chosen.count or time.monotonic() - begun > chosen.minutes * 60:
            break
        name = str(mutant)
        verdict = judge(mutant, chosen.crate, limit)
        counts[verdict] += 1
        print(f"{verdict:8}  {name}", flush=True)
    viable = counts["detected"] + counts["missed"] + counts["hangs"]
    share = 100 * counts["detected"] / viable if viable else 0.0
    print(f"\n{counts['detected']} of {viable} viable mutants detected, {share:.1f} %; {counts}")
    return 1 if counts["missed"] or counts["hangs"] or not viable else 0


sys.exit(main())
