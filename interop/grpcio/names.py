#!/usr/bin/env python3
"""A server of grpcio with reflection: it serves the services of a FileDescriptorProto in text format, without generated code.

    names.py FILE

It prints `listening ADDR` once it accepts connections, and ends when its standard input closes.
"""

import sys
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from grpc_reflection.v1alpha import reflection


def answer(name, response):
    """Returns the text as often as the request says."""

    def handler(request, _context):
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


def main():
    with open(sys.argv[1], encoding="utf-8") as text:
        declared = text_format.Parse(text.read(), descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(declared.SerializeToString())
    file = pool.FindFileByName(declared.name)
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
