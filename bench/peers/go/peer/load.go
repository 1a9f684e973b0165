package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// load says what a client does. Its flags are those of every own client of `polyrpc bench suite`.
type load struct {
	address, contract    string
	message              []byte
	callers, connections int
	warmup, window       time.Duration
	interval             time.Duration
	codec                string
}

// caller makes one call and checks its reply.
type caller func() error

// connection returns a caller. Several use one connection at the same time.
type connection interface {
	caller(*load) (caller, error)
}

type connector func(*load) (connection, error)

// result is what a client prints at its end.
type result struct {
	Succeeded uint64  `json:"succeeded"`
	Failed    uint64  `json:"failed"`
	Error     string  `json:"error,omitempty"`
	WindowS   float64 `json:"window_s"`
	CPUS      float64 `json:"cpu_s"`
	RSS       uint64  `json:"rss_bytes"`
	// During the window.
	AllocatedBytes uint64 `json:"allocated_bytes"`
	Allocations    uint64 `json:"allocations"`
	// The response times in nanoseconds: HDR V2, deflated, in base64.
	HDR string `json:"hdr"`
}

func parse(arguments []string) (*load, error) {
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	l := &load{}
	var message string
	var warmup, window, interval float64
	flags.StringVar(&l.address, "address", "", "the server's host:port")
	flags.StringVar(&l.contract, "contract", "say581", "echo, hello or say581")
	flags.StringVar(&message, "message", "", "a file with the encoded request")
	flags.IntVar(&l.callers, "callers", 1, "how many goroutines call")
	flags.IntVar(&l.connections, "connections", 1, "how many connections they share")
	flags.Float64Var(&warmup, "warmup", 0.5, "seconds before the measurement")
	flags.Float64Var(&window, "window", 1, "seconds of the measurement")
	flags.StringVar(&l.codec, "codec", "protobuf", "for rpcx: protobuf, json or msgpack")
	flags.Float64Var(&interval, "interval", 0, "seconds from the start of a call to that of the next one of a caller")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if l.callers < 1 || l.connections < 1 || l.connections > l.callers {
		return nil, fmt.Errorf("%d callers cannot use %d connections", l.callers, l.connections)
	}
	seconds := func(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }
	l.warmup, l.window, l.interval = seconds(warmup), seconds(window), seconds(interval)
	var err error
	l.message, err = os.ReadFile(message)
	return l, err
}

// A shard of the histogram: a histogram for each of thousands of callers would take gigabytes.
type shard struct {
	sync.Mutex
	times *hdrhistogram.Histogram
}

const shards = 64

const (
	warming = iota
	measuring
	ended
)

func call(arguments []string, connect connector) error {
	l, err := parse(arguments)
	if err != nil {
		return err
	}
	callers, err := l.open(connect)
	if err != nil {
		return err
	}
	var phase atomic.Int32
	var failed atomic.Uint64
	var firstError atomic.Pointer[string]
	var all [shards]shard
	for n := range all {
		all[n].times = hdrhistogram.New(1, int64(time.Hour), 3)
	}
	var running sync.WaitGroup
	for n, once := range callers {
		own := &all[n%shards]
		running.Go(func() {
			// The end of a call is the start of the next one, so that no time of a caller is left out.
			last := time.Now()
			for phase.Load() != ended {
				err := once()
				now := time.Now()
				if phase.Load() == measuring {
					if err == nil {
						own.Lock()
						_ = own.times.RecordValue(now.Sub(last).Nanoseconds())
						own.Unlock()
					} else {
						failed.Add(1)
						text := err.Error()
						firstError.CompareAndSwap(nil, &text)
					}
				}
				if l.interval > 0 {
					time.Sleep(l.interval - now.Sub(last))
					now = time.Now()
				}
				last = now
			}
		})
	}
	time.Sleep(l.warmup)
	var heapBefore, heapAfter runtime.MemStats
	runtime.ReadMemStats(&heapBefore)
	before := cpu()
	fmt.Println("begin")
	begun := time.Now()
	phase.Store(measuring)
	time.Sleep(l.window)
	phase.Store(ended)
	window, spent := time.Since(begun), cpu()-before
	// What is asked now was measured before.
	res := result{Failed: failed.Load(), WindowS: window.Seconds(), CPUS: spent.Seconds(), RSS: resident()}
	fmt.Println("end")
	runtime.ReadMemStats(&heapAfter)
	res.AllocatedBytes = heapAfter.TotalAlloc - heapBefore.TotalAlloc
	res.Allocations = heapAfter.Mallocs - heapBefore.Mallocs
	waitFor(&running, 5*time.Second)
	sum := hdrhistogram.New(1, int64(time.Hour), 3)
	for n := range all {
		all[n].Lock()
		sum.Merge(all[n].times)
		all[n].Unlock()
	}
	res.Succeeded = uint64(sum.TotalCount())
	if text := firstError.Load(); text != nil {
		res.Error = *text
	}
	encoded, err := sum.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return err
	}
	res.HDR = string(encoded)
	return json.NewEncoder(os.Stdout).Encode(res)
}

// open makes the connections, and one checked call on each.
func (l *load) open(connect connector) ([]caller, error) {
	connections := make([]connection, l.connections)
	errs := make([]error, l.connections)
	var opening sync.WaitGroup
	limit := make(chan struct{}, 256)
	for n := range connections {
		limit <- struct{}{}
		opening.Go(func() {
			defer func() { <-limit }()
			var once caller
			if connections[n], errs[n] = connect(l); errs[n] == nil {
				if once, errs[n] = connections[n].caller(l); errs[n] == nil {
					errs[n] = once()
				}
			}
		})
	}
	opening.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	callers := make([]caller, l.callers)
	for n := range callers {
		var err error
		if callers[n], err = connections[n%l.connections].caller(l); err != nil {
			return nil, err
		}
	}
	return callers, nil
}

// waitFor waits for calls that have not ended; one that hangs does not keep the result.
func waitFor(running *sync.WaitGroup, most time.Duration) {
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(most):
	}
}

func cpu() time.Duration {
	var spent unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &spent); err != nil {
		return 0
	}
	return time.Duration(spent.Nano())
}

// resident is the largest resident memory so far, in bytes.
func resident() (bytes uint64) {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(status), "\n") {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			fmt.Sscan(rest, &bytes)
		}
	}
	return bytes * 1024
}

var errReply = fmt.Errorf("the reply is not what was asked for")
