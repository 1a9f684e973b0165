use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let proto = "../../../crates/cli/proto";
    let files = protox::compile(["example.proto", "helloworld.proto", "benchmark.proto"], [proto])?;
    // tarpc carries any serde type; its messages have the same fields.
    tonic_prost_build::configure()
        .build_server(false)
        .type_attribute(".pb", "#[derive(serde::Serialize, serde::Deserialize)]")
        .compile_fds(files)?;
    Ok(())
}
