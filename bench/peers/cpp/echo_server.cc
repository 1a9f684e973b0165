// The echo of the gRPC suite on gRPC C++: cpp-server --listen=ADDRESS --heavy=ADDITIONS --threads=COUNT.
//
// It follows bench/src/process.rs: one line once it listens, one line of resource usage per received line. Services
// use the callback API, as recommended by gRPC's performance guide.

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "benchmark.grpc.pb.h"
#include "example.grpc.pb.h"
#include "helloworld.grpc.pb.h"

namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

ServerUnaryReactor* Finish(CallbackServerContext* context) {
  auto* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

class EchoService final : public example::EchoService::CallbackService {
  ServerUnaryReactor* Echo(CallbackServerContext* context, const example::EchoRequest* request,
                           example::EchoResponse* response) override {
    response->set_message(request->message());
    return Finish(context);
  }
};

class Hello final : public pb::Hello::CallbackService {
  ServerUnaryReactor* Say(CallbackServerContext* context, const pb::BenchmarkMessage* request,
                          pb::BenchmarkMessage* response) override {
    *response = *request;
    response->set_field1("OK");
    response->set_field2(100);
    return Finish(context);
  }
};

void AddUp(uint64_t count) {
  volatile uint64_t sum = 0;
  for (uint64_t n = 0; n < count; ++n) sum = sum + n;
}

class Greeter final : public helloworld::Greeter::CallbackService {
 public:
  explicit Greeter(uint64_t heavy) : heavy_(heavy) {}

 private:
  ServerUnaryReactor* SayHello(CallbackServerContext* context, const helloworld::HelloRequest* request,
                               helloworld::HelloReply* response) override {
    AddUp(heavy_);
    response->set_message("Hello " + request->name());
    return Finish(context);
  }

  const uint64_t heavy_;
};

void TellVitals() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  const int64_t cpu_ns = spent.tv_sec * int64_t{1000000000} + spent.tv_nsec;
  int64_t resident_kib = 0;
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    if (word == "Rss:") rollup >> resident_kib;
  }
  int64_t open_files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++open_files;
  std::cout << "{\"cpu_ns\":" << cpu_ns << ",\"resident_kib\":" << resident_kib << ",\"open_files\":" << open_files
            << "}" << std::endl;
}

// As many as allowed: the suite opens 10,000 connections. If this fails, the first one over the limit reports it.
void AllowOpenFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int count, char** arguments) {
  std::string listen = "127.0.0.1:0";
  uint64_t heavy = 0;
  for (int n = 1; n < count; ++n) {
    const std::string argument = arguments[n];
    if (argument.rfind("--listen=", 0) == 0) {
      listen = argument.substr(9);
    } else if (argument.rfind("--heavy=", 0) == 0) {
      heavy = std::strtoull(argument.c_str() + 8, nullptr, 10);
    } else if (argument.rfind("--threads=", 0) == 0) {
      // Unused with the callback API; accepted so that all peers have the same arguments.
    } else {
      std::cerr << "unknown argument " << argument << std::endl;
      return 2;
    }
  }

  AllowOpenFiles();
  EchoService echo;
  Hello hello;
  Greeter greeter(heavy);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&echo);
  builder.RegisterService(&hello);
  builder.RegisterService(&greeter);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    std::cerr << "cannot listen on " << listen << std::endl;
    return 1;
  }
  std::cout << "{\"address\":\"" << listen.substr(0, listen.rfind(':')) << ":" << port << "\"}" << std::endl;
  for (std::string line; std::getline(std::cin, line);) TellVitals();
  // A test server has no state to save.
  std::_Exit(0);
}
