package main

import (
	"context"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// registerNames adds the services of a FileDescriptorProto in text format, which share names with those of `polyrpc serve`.
func registerNames(server *grpc.Server, path string) error {
	file, err := describedBy(path)
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

// describedBy reads a FileDescriptorProto in text format.
func describedBy(path string) (protoreflect.FileDescriptor, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	declared := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal(text, declared); err != nil {
		return nil, err
	}
	return protodesc.NewFile(declared, protoregistry.GlobalFiles)
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
				return answer(method, request)
			},
		})
	}
	return description
}

// failedAsAsked is the failure of a text that begins with `fail`.
const failedAsAsked = "failed as asked"

// answer returns the text as often as the request says.
func answer(method protoreflect.MethodDescriptor, request *dynamicpb.Message) (*dynamicpb.Message, error) {
	text := request.Get(method.Input().Fields().ByName("text")).String()
	if strings.HasPrefix(text, "fail") {
		return nil, status.Error(codes.FailedPrecondition, failedAsAsked)
	}
	if method.Name() == "Shout" {
		text = strings.ToUpper(text)
	}
	response := dynamicpb.NewMessage(method.Output())
	texts := response.Mutable(method.Output().Fields().ByName("texts")).List()
	for range request.Get(method.Input().Fields().ByName("copies")).Int() {
		texts.Append(protoreflect.ValueOfString(text))
	}
	return response, nil
}
