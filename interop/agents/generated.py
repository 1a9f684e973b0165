#!/usr/bin/env python3
"""Validates an OpenAPI document, generates a client from it, and calls the server with that.

    generated.py URL DOCUMENT
"""

import importlib
import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from cases import ensure, run
from openapi_spec_validator import validate

URL, DOCUMENT = sys.argv[1:3]
FOLDER = Path(tempfile.mkdtemp())


def document():
    if DOCUMENT.startswith("http"):
        with urllib.request.urlopen(DOCUMENT) as answer:
            return json.load(answer)
    return json.loads(Path(DOCUMENT).read_text())


def is_valid():
    validate(document())


def generate():
    file = FOLDER / "openapi.json"
    file.write_text(json.dumps(document()))
    program = Path(sys.executable).with_name("openapi-python-client")
    command = [program, "generate", "--path", file, "--output-path", FOLDER / "made", "--meta", "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ensure(done.returncode, 0)
    sys.path.insert(0, str(FOLDER))


def call(operation, model, fields):
    """Calls an operation of the generated client with a message."""
    client = importlib.import_module("made").Client(base_url=URL)
    message = getattr(importlib.import_module("made.models"), model).from_dict(fields)
    answer = importlib.import_module(f"made.api.{operation}").sync(client=client, body=message)
    return type(answer).__name__, answer.to_dict()


def succeeds():
    echo = call("example_echo_service.example_echo_service_echo", "ExampleEchoRequest", {"message": "hi"})
    ensure(echo, ("ExampleEchoResponse", {"message": "hi"}))


def fails():
    models = importlib.import_module("made.models")
    name = "ArithArgs" if hasattr(models, "ArithArgs") else "Args"
    kind, failure = call("arith.arith_error", name, {"A": 1, "B": 2})
    ensure((kind, "boom" in failure["message"], failure["details"]), ("PolyrpcFailure", True, []))


run([("document_is_valid", is_valid), ("client_is_generated", generate), ("generated_client_calls", succeeds),
     ("generated_client_reads_failures", fails)])
