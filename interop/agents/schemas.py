#!/usr/bin/env python3
"""Validates the JSON of random messages by their JSON Schema.

    schemas.py PROGRAM      (polyrpc-messages)
"""

import copy
import json
import subprocess
import sys
from pathlib import Path

from cases import ensure, run
from jsonschema import Draft202012Validator

PROGRAM = sys.argv[1]
HERE = Path(__file__).parent
COUNT = 1000


def messages(file, name, dialect):
    command = [PROGRAM, HERE / file, name, dialect, str(COUNT)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    schema, *values = [json.loads(line) for line in lines if line]
    ensure(len(values), COUNT)
    return schema, values


def validates(file, name, dialect):
    def case():
        schema, values = messages(file, name, dialect)
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator(schema)
        for value in values:
            validator.validate(value)
        # It is no schema that anything fits.
        for spoil in (lambda one: one.update(unknown=1), lambda one: one.update(dict.fromkeys(one, [[]]))):
            rejected = 0
            for value in filter(None, values):
                wrong = copy.deepcopy(value)
                spoil(wrong)
                rejected += not validator.is_valid(wrong)
            ensure(rejected, len(list(filter(None, values))))

    return case


run((f"{name}_in_{dialect}", validates(file, name, dialect))
    for file, name in [("kinds.proto", "kinds.All"), ("closed.proto", "closed.All")]
    for dialect in ["proto3", "brpc"])
