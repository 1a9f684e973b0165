fn main() -> Result<(), polyrpc_build::Error> {
    polyrpc_build::compile(["shop.proto"], ["."])
}
