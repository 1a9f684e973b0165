//! The command `polyrpc`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    polyrpc_cli::main()
}
