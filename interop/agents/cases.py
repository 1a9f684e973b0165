"""Runs named cases, and prints a line for each."""

import sys
import traceback


def run(cases):
    """Runs (name, function) pairs; exits with 1 if one failed."""
    failed = False
    for name, case in cases:
        try:
            case()
            print(f"ok   {name}", flush=True)
        except Exception as error:  # a failed case must not hide the others
            failed = True
            traceback.print_exc()
            print(f"FAIL {name}: {type(error).__name__} {' '.join(str(error).split())}", flush=True)
    sys.exit(1 if failed else 0)


def ensure(found, wanted):
    """Fails unless both are equal."""
    if found != wanted:
        raise AssertionError(f"got {found!r}, want {wanted!r}")
