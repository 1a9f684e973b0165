use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let proto = "../../../crates/cli/proto";
    let files = protox::compile(["example.proto", "helloworld.proto", "benchmark.proto"], [proto])?;
    tonic_prost_build::configure().build_client(false).compile_fds(files)?;
    Ok(())
}
