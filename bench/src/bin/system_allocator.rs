//! Subjects of the suite `handlers` with the allocator of the system, as a program has it that chooses none.

#[path = "../handlers/kind.rs"]
mod kind;
#[path = "../handlers/subject.rs"]
mod subject;

use std::io;

use clap::Parser;

/// Measures windows of calls; started by `polyrpc-bench handlers`.
#[derive(Debug, Parser)]
enum Command {
    /// A server and its callers in this process.
    HandlersSubject(subject::SubjectOptions),
}

fn main() -> io::Result<()> {
    let Command::HandlersSubject(options) = Command::parse();
    subject::serve(&options)
}
