package main

import (
	"context"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// registerNames adds the services of a FileDescriptorProto in text format, which share names with those of `polyrpc serve`.
func registerNames(server *grpc.Server, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	declared := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal(text, declared); err != nil {
		return err
	}
	file, err := protodesc.NewFile(declared, protoregistry.GlobalFiles)
	if err != nil {
		return err
	}
	// The reflection service reads the global registry.
	if err := protoregistry.GlobalFiles.RegisterFile(file); err != nil {
		return err
	}
	for i := range file.Services().Len() {
		server.RegisterService(described(file.Services().Get(i)), nil)
	}
	reflection.Register(server)
	return nil
}

func described(service protoreflect.ServiceDescriptor) *grpc.ServiceDesc {
	description := &grpc.ServiceDesc{
		ServiceName: string(service.FullName()),
		HandlerType: (*any)(nil),
		Metadata:    service.ParentFile().Path(),
	}
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		description.Methods = append(description.Methods, grpc.MethodDesc{
			MethodName: string(method.Name()),
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				request := dynamicpb.NewMessage(method.Input())
				if err := decode(request); err != nil {
					return nil, err
				}
				return answer(method, request), nil
			},
		})
	}
	return description
}

// answer returns the text as often as the request says.
func answer(method protoreflect.MethodDescriptor, request *dynamicpb.Message) *dynamicpb.Message {
	text := request.Get(method.Input().Fields().ByName("text")).String()
	if method.Name() == "Shout" {
		text = strings.ToUpper(text)
	}
	response := dynamicpb.NewMessage(method.Output())
	texts := response.Mutable(method.Output().Fields().ByName("texts")).List()
	for range request.Get(method.Input().Fields().ByName("copies")).Int() {
		texts.Append(protoreflect.ValueOfString(text))
	}
	return response
}
