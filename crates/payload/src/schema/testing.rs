use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::Pool;

/// Compiles a file like protoc into a set with everything it imports.
pub fn compile(source: &str) -> Vec<u8> {
    struct Source(String);
    impl FileResolver for Source {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            match name {
                "test.proto" => File::from_source(name, &self.0),
                _ => Err(protox::Error::file_not_found(name)),
            }
        }
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(GoogleFileResolver::new());
    resolver.add(Source(source.to_owned()));
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("test.proto").unwrap();
    compiler.encode_file_descriptor_set()
}

pub fn pool(source: &str) -> Pool {
    Pool::decode(&compile(source)).unwrap()
}
