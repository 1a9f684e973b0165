package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// callNames calls `Echo` of a FileDescriptorProto in text format, once with a result and once with a failure.
func callNames(address, path string) {
	file, err := describedBy(path)
	if err != nil {
		fmt.Println("FAIL describe:", err)
		os.Exit(1)
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println("FAIL connect:", err)
		os.Exit(1)
	}
	service := file.Services().Get(0)
	method := service.Methods().ByName("Echo")
	echo := func(text string, copies int32) ([]string, error) {
		request := dynamicpb.NewMessage(method.Input())
		fields := method.Input().Fields()
		request.Set(fields.ByName("text"), protoreflect.ValueOfString(text))
		request.Set(fields.ByName("copies"), protoreflect.ValueOfInt32(copies))
		response := dynamicpb.NewMessage(method.Output())
		limited, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := connection.Invoke(limited, "/"+string(service.FullName())+"/Echo", request, response)
		var texts []string
		list := response.Get(method.Output().Fields().ByName("texts")).List()
		for i := range list.Len() {
			texts = append(texts, list.Get(i).String())
		}
		return texts, err
	}
	passed := true
	report := func(name string, err error) {
		if err != nil {
			passed = false
			fmt.Printf("FAIL %s: %v\n", name, err)
			return
		}
		fmt.Println("ok  ", name)
	}
	texts, err := echo("héllo", 2)
	if err == nil && !slices.Equal(texts, []string{"héllo", "héllo"}) {
		err = fmt.Errorf("got %q", texts)
	}
	report("echo", err)
	switch _, err = echo("fail", 1); {
	case err == nil:
		err = errors.New("the call succeeded")
	case strings.Contains(status.Convert(err).Message(), failedAsAsked):
		err = nil
	}
	report("failure", err)
	if !passed {
		os.Exit(1)
	}
}
