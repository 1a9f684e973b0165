//! The `.proto` files, parsed and linked.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use buffa_codegen::generated::descriptor::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use buffa_codegen::{decode_failure, tooling_decode_options};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use crate::Error;
use crate::error::Kind;

/// Creates the resolver of imports: the given directories, then the well-known files.
fn resolver(includes: &[PathBuf]) -> ChainFileResolver {
    let mut resolver = ChainFileResolver::new();
    for include in includes {
        resolver.add(IncludeFileResolver::new(include.clone()));
    }
    resolver.add(GoogleFileResolver::new());
    resolver.add(Annotations);
    resolver
}

/// Files that declare the option `google.api.http`.
struct Annotations;

impl FileResolver for Annotations {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "google/api/annotations.proto" => {
                File::from_source(name, include_str!("../proto/google/api/annotations.proto"))
            }
            "google/api/http.proto" => {
                File::from_source(name, include_str!("../proto/google/api/http.proto"))
            }
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// Named files and all that they import.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Files with their comments, each after those that it imports.
    pub(crate) files: Vec<FileDescriptorProto>,
    /// Names of the named files.
    named: HashSet<String>,
    /// Paths of the files.
    pub(crate) paths: Vec<PathBuf>,
}

impl Sources {
    pub(crate) fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<Self, Error> {
        if files.is_empty() {
            return Err(Kind::NoFiles.into());
        }
        let here = [PathBuf::from(".")];
        let includes = if includes.is_empty() { &here } else { includes };
        let mut compiler = Compiler::with_file_resolver(resolver(includes));
        compiler.include_imports(true).include_source_info(true);
        for file in files {
            compiler
                .open_file(file)
                .map_err(|error| missing(file, includes).unwrap_or(Kind::Proto(error)))?;
        }
        Ok(Self {
            files: decode(&compiler.encode_file_descriptor_set())?,
            named: compiler.files().filter(|file| !file.is_import()).map(|file| file.name().into()).collect(),
            paths: compiler.files().filter_map(|file| file.path().map(Path::to_owned)).collect(),
        })
    }

    /// Whether a file was named, and not only imported.
    pub(crate) fn is_named(&self, file: &FileDescriptorProto) -> bool {
        self.named.contains(name(file))
    }

    /// Returns the files to generate messages for: the named ones and those whose types they use, except those that are
    /// generated elsewhere.
    pub(crate) fn to_generate(&self, extern_paths: &[(String, String)]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut used: HashSet<&str> = HashSet::new();
        // In reverse order: a file comes after the files whose types it uses.
        for file in self.files.iter().rev() {
            let wanted = self.is_named(file)
                || !is_external(file, extern_paths)
                    && types(file).iter().any(|ty| used.contains(ty.as_str()));
            if wanted {
                used.extend(references(file));
                names.push(name(file).to_owned());
            }
        }
        names.reverse();
        names
    }

    /// Returns these files and all that they import, each after those that it imports.
    pub(crate) fn closure(&self, files: &[&FileDescriptorProto]) -> Vec<FileDescriptorProto> {
        let mut wanted: HashSet<&str> = files.iter().map(|file| name(file)).collect();
        for file in self.files.iter().rev() {
            if wanted.contains(name(file)) {
                wanted.extend(file.dependency.iter().map(String::as_str));
            }
        }
        self.files.iter().filter(|file| wanted.contains(name(file))).cloned().collect()
    }
}

/// Name of a file: its path relative to the import directory.
pub(crate) fn name(file: &FileDescriptorProto) -> &str {
    file.name.as_deref().unwrap_or_default()
}

/// Package of a file, empty if it has none.
pub(crate) fn package(file: &FileDescriptorProto) -> &str {
    file.package.as_deref().unwrap_or_default()
}

/// Converts the types of `protox` to those of `buffa`, through the encoded bytes.
fn decode(set: &[u8]) -> Result<Vec<FileDescriptorProto>, Error> {
    let options = tooling_decode_options().map_err(Kind::Descriptors)?;
    let set: FileDescriptorSet = options.decode_from_slice(set).map_err(|error| {
        Kind::Descriptors(decode_failure("FileDescriptorSet", &error, options.element_memory_limit()))
    })?;
    Ok(set.file)
}

/// Distinguishes a file that does not exist from one that is under no include directory; `protox` reports the latter
/// for both.
fn missing(file: &Path, includes: &[PathBuf]) -> Option<Kind> {
    let exists = file.exists() || includes.iter().any(|include| include.join(file).exists());
    (!exists).then(|| Kind::NotFound { file: file.to_owned(), includes: includes.to_vec() })
}

/// Whether the types of a file are generated elsewhere.
fn is_external(file: &FileDescriptorProto, extern_paths: &[(String, String)]) -> bool {
    let package = format!(".{}.", package(file));
    let covers = |proto: &str| package.strip_prefix(proto).is_some_and(|rest| rest.starts_with('.'));
    covers(".google.protobuf") || extern_paths.iter().any(|(proto, _)| covers(proto) || proto == ".")
}

/// Full names of the types that a file defines, with a leading dot.
fn types(file: &FileDescriptorProto) -> Vec<String> {
    let root = if package(file).is_empty() { String::new() } else { format!(".{}", package(file)) };
    let mut types = Vec::new();
    let full =
        |scope: &str, name: &Option<String>| format!("{scope}.{}", name.as_deref().unwrap_or_default());
    types.extend(file.enum_type.iter().map(|ty| full(&root, &ty.name)));
    let mut messages: Vec<(String, &DescriptorProto)> =
        file.message_type.iter().map(|message| (full(&root, &message.name), message)).collect();
    while let Some((scope, message)) = messages.pop() {
        types.extend(message.enum_type.iter().map(|ty| full(&scope, &ty.name)));
        messages.extend(message.nested_type.iter().map(|inner| (full(&scope, &inner.name), inner)));
        types.push(scope);
    }
    types
}

/// Full names of the types that a file's fields and methods use, with a leading dot.
fn references(file: &FileDescriptorProto) -> Vec<&str> {
    let mut fields: Vec<_> = file.extension.iter().collect();
    let mut messages: Vec<&DescriptorProto> = file.message_type.iter().collect();
    while let Some(message) = messages.pop() {
        fields.extend(message.field.iter().chain(&message.extension));
        messages.extend(&message.nested_type);
    }
    let methods = file.service.iter().flat_map(|service| &service.method);
    let of_methods = methods.flat_map(|method| [method.input_type.as_deref(), method.output_type.as_deref()]);
    fields.into_iter().map(|field| field.type_name.as_deref()).chain(of_methods).flatten().collect()
}
