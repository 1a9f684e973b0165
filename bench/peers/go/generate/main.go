// Command generate writes the Go code of .proto files without protoc: generate PLUGIN-DIRECTORY IMPORT-DIRECTORY FILE…
//
// The plugins are protoc-gen-go and protoc-gen-go-grpc; the code of package x goes to the directory x.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const module = "github.com/polyrpc/polyrpc/bench/peers/go"

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("generate PLUGIN-DIRECTORY IMPORT-DIRECTORY FILE…")
	}
	plugins, imports, files := os.Args[1], os.Args[2], os.Args[3:]
	request, err := compile(imports, files)
	if err != nil {
		log.Fatal(err)
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(filepath.Join(plugins, plugin), request); err != nil {
			log.Fatalf("%s: %v", plugin, err)
		}
	}
}

// compile returns what protoc would send its plugins.
func compile(imports string, files []string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{imports}}}
	compiled, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return nil, err
	}
	parameters := []string{"module=" + module}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: files}
	for _, file := range compiled {
		parameters = append(parameters, fmt.Sprintf("M%s=%s/%s", file.Path(), module, file.Package()))
		request.ProtoFile = append(request.ProtoFile, protodesc.ToFileDescriptorProto(file))
	}
	request.Parameter = proto.String(strings.Join(parameters, ","))
	request.CompilerVersion = &pluginpb.Version{Major: proto.Int32(3), Minor: proto.Int32(21), Patch: proto.Int32(12)}
	// The Go code contains the descriptors; it needs no positions in the source.
	for _, file := range request.ProtoFile {
		file.SourceCodeInfo = &descriptorpb.SourceCodeInfo{}
	}
	return request, nil
}

func run(plugin string, request *pluginpb.CodeGeneratorRequest) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	command := exec.Command(plugin)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, file := range response.File {
		if err := os.MkdirAll(filepath.Dir(file.GetName()), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file.GetName(), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
