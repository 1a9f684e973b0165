#!/usr/bin/env python3
"""grpcio without generated code: a server with reflection of the services of a FileDescriptorProto in text format, and a caller of
the first of them.

    names.py FILE
    names.py FILE ADDR

The server prints `listening ADDR` once it accepts connections, and ends when its standard input closes. The caller prints a line for
each case.
"""

import sys
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from grpc_reflection.v1alpha import reflection


# The failure of a text that begins with `fail`.
FAILURE = "failed as asked"

# Seconds for a call.
LIMIT = 60


def answer(name, response):
    """Returns the text as often as the request says."""

    def handler(request, context):
        if request.text.startswith("fail"):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, FAILURE)
        text = request.text.upper() if name == "Shout" else request.text
        return response(texts=[text] * request.copies)

    return handler


def handlers(service):
    methods = {}
    for method in service.methods:
        request = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        methods[method.name] = grpc.unary_unary_rpc_method_handler(
            answer(method.name, response),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def call(service, address):
    """Makes a call with a result and one with a failure; returns whether both are right."""
    method = service.methods_by_name["Echo"]
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    with grpc.insecure_channel(address) as channel:
        echo = channel.unary_unary(
            f"/{service.full_name}/Echo",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        results = {"echo": None, "failure": "the call succeeded"}
        try:
            texts = list(echo(request(text="héllo", copies=2), timeout=LIMIT).texts)
            if texts != ["héllo"] * 2:
                results["echo"] = f"got {texts}"
        except grpc.RpcError as error:
            results["echo"] = error
        try:
            echo(request(text="fail", copies=1), timeout=LIMIT)
        except grpc.RpcError as error:
            results["failure"] = None if FAILURE in error.details() else error
    for name, why in results.items():
        print(f"ok   {name}" if why is None else f"FAIL {name}: {' '.join(str(why).split())}")
    return not any(results.values())


def main():
    with open(sys.argv[1], encoding="utf-8") as text:
        declared = text_format.Parse(text.read(), descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(declared.SerializeToString())
    file = pool.FindFileByName(declared.name)
    if len(sys.argv) > 2:
        sys.exit(0 if call(next(iter(file.services_by_name.values())), sys.argv[2]) else 1)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    services = list(file.services_by_name.values())
    for service in services:
        server.add_generic_rpc_handlers((handlers(service),))
    reflection.enable_server_reflection([*(service.full_name for service in services), reflection.SERVICE_NAME], server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening 127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main()
