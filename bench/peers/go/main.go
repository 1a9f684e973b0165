// The echo of the gRPC suite on grpc-go: go-server --listen=ADDRESS --heavy=ADDITIONS --threads=COUNT.
//
// It follows bench/src/process.rs: one line once it listens, one line of resource usage per received line.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/polyrpc/polyrpc/bench/peers/go/example"
	"github.com/polyrpc/polyrpc/bench/peers/go/helloworld"
	"github.com/polyrpc/polyrpc/bench/peers/go/pb"
)

type echo struct {
	example.UnimplementedEchoServiceServer
}

func (echo) Echo(_ context.Context, request *example.EchoRequest) (*example.EchoResponse, error) {
	return &example.EchoResponse{Message: request.Message}, nil
}

type hello struct {
	pb.UnimplementedHelloServer
}

func (hello) Say(_ context.Context, message *pb.BenchmarkMessage) (*pb.BenchmarkMessage, error) {
	ok, hundred := "OK", int32(100)
	message.Field1, message.Field2 = &ok, &hundred
	return message, nil
}

type greeter struct {
	helloworld.UnimplementedGreeterServer
	heavy uint64
}

func (g greeter) SayHello(_ context.Context, request *helloworld.HelloRequest) (*helloworld.HelloReply, error) {
	addUp(g.heavy)
	return &helloworld.HelloReply{Message: "Hello " + request.Name}, nil
}

// Stored, so that the loop has an effect; Go's compiler removes no loop anyway.
var sum uint64

func addUp(count uint64) {
	own := uint64(0)
	for n := uint64(0); n < count; n++ {
		own += n
	}
	sum = own
}

// As many as the suite has calls in flight on one connection: a call by a worker is cheaper than by a separate
// goroutine (README.md). Further calls get a goroutine as usual.
const streamWorkers = 64

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	heavy := flag.Uint64("heavy", 0, "how many numbers the greeter adds up")
	threads := flag.Int("threads", 0, "how many threads run Go code; 0: Go's own default, one for each core")
	flag.Parse()
	runtime.GOMAXPROCS(*threads)
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.NumStreamWorkers(streamWorkers))
	example.RegisterEchoServiceServer(server, echo{})
	helloworld.RegisterGreeterServer(server, greeter{heavy: *heavy})
	pb.RegisterHelloServer(server, hello{})
	fmt.Printf("{\"address\":%q}\n", listener.Addr())
	go answer()
	log.Fatal(server.Serve(listener))
}

func answer() {
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		var spent unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &spent); err != nil {
			log.Fatal(err)
		}
		files, _ := os.ReadDir("/proc/self/fd")
		fmt.Printf("{\"cpu_ns\":%d,\"resident_kib\":%d,\"open_files\":%d}\n", spent.Nano(), resident(), len(files))
	}
	os.Exit(0)
}

func resident() (kib uint64) {
	rollup, _ := os.ReadFile("/proc/self/smaps_rollup")
	for _, line := range strings.Split(string(rollup), "\n") {
		if rest, found := strings.CutPrefix(line, "Rss:"); found {
			fmt.Sscan(rest, &kib)
		}
	}
	return kib
}
