//! The built command, as users run it: one program for all tests, since each would be linked with the whole library.

mod authority;
mod bench;
mod bench_report;
mod calls;
mod discover;
mod dump;
mod gateway;
mod grpc;
mod guide;
mod local;
mod mistakes;
mod new;
mod recording;
mod running;
mod serve;
mod shapes;
mod suites;
mod tls;
mod workers;
