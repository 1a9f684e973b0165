#!/usr/bin/env python3
"""Lists and calls tools with the official client of the Model Context Protocol, by the newest revision and by one with a handshake.

    tools.py URL ours|gateway
"""

import asyncio
import sys

from cases import ensure, run
from mcp import Client

URL, SERVER = sys.argv[1:3]


async def tool(mode, name, arguments):
    async with Client(URL, mode=mode) as client:
        # The client checks results by the schema that it has listed.
        await client.list_tools()
        return await client.call_tool(name, arguments)


async def names(mode):
    async with Client(URL, mode=mode) as client:
        found, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return found


def returns(mode, name, arguments, wanted):
    def case():
        result = asyncio.run(tool(mode, name, arguments))
        ensure((result.is_error, result.structured_content), (False, wanted))

    return case


def fails(mode, name, arguments, text):
    def case():
        result = asyncio.run(tool(mode, name, arguments))
        ensure((result.is_error, text in result.content[0].text), (True, True))

    return case


def lists(mode, wanted):
    def case():
        found = {one.name: one for one in asyncio.run(names(mode))}
        for name, hint in wanted.items():
            annotations = found[name].annotations
            ensure(bool(annotations and annotations.read_only_hint), hint)
            ensure(found[name].input_schema["type"], "object")

    return case


def cases(mode):
    if SERVER == "ours":
        yield "list", lists(mode, {"add": False, "example_EchoService_Echo": False})
        yield "function", returns(mode, "add", {"arg1": 40, "arg2": 2}, {"result": 42})
        yield "protobuf", returns(mode, "example_EchoService_Echo", {"message": "hi"}, {"message": "hi"})
        yield "failure", fails(mode, "Arith_Error", {"A": 1, "B": 2}, "boom")
        return
    yield "list", lists(mode, {"Arith_Mul": True, "Arith_Div": False, "example_EchoService_Echo": False})
    yield "rpcx", returns(mode, "Arith_Mul", {"A": 7, "B": 8}, {"C": 56})
    yield "rpcx_failure", fails(mode, "Arith_Error", {"A": 1, "B": 2}, "boom")
    yield "rpcx_division_by_zero", fails(mode, "Arith_Div", {"A": 1, "B": 0}, "divide by zero")
    yield "brpc", returns(mode, "example_EchoService_Echo", {"message": "hi"}, {"message": "hi"})
    yield "brpc_failure", fails(mode, "example_EchoService_Echo", {"message": "fail now"}, "failed as asked")


run((f"{mode}_{name}", case) for mode in ["auto", "legacy"] for name, case in cases(mode))
