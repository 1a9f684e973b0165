//! Trait of a service.

use std::collections::HashMap;

use buffa_codegen::context::CodeGenContext;
use buffa_codegen::generated::descriptor::source_code_info::Location;
use buffa_codegen::generated::descriptor::{
    FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto,
};
use buffa_codegen::idents::{make_field_ident, rust_path_to_tokens};
use proc_macro2::{Ident, TokenStream};
use quote::quote;

use crate::error::{Kind, SourceLocation};
use crate::{Config, Error, doc, reexport, source};

/// Generates the traits of a file's services. They are in the module of the package's messages, next to
/// `FILE_DESCRIPTOR_SET`.
pub(crate) fn define(
    context: &CodeGenContext<'_>,
    file: &FileDescriptorProto,
    config: &Config,
) -> Result<Vec<TokenStream>, Error> {
    let define = |(index, service)| Service { context, file, config, index, service }.define();
    file.service.iter().enumerate().map(define).collect()
}

/// Formats traits as source text.
pub(crate) fn format(traits: Vec<TokenStream>) -> Result<String, Error> {
    let mut text = String::new();
    for tokens in traits {
        text.push_str(&prettyplease::unparse(
            &syn::parse2(reexport::through_polyrpc(tokens)).map_err(Kind::Syntax)?,
        ));
        text.push('\n');
    }
    Ok(text)
}

/// Service with its declaration.
struct Service<'a> {
    context: &'a CodeGenContext<'a>,
    file: &'a FileDescriptorProto,
    config: &'a Config,
    index: usize,
    service: &'a ServiceDescriptorProto,
}

impl Service<'_> {
    fn define(&self) -> Result<TokenStream, Error> {
        let mut methods = Vec::new();
        let mut names = HashMap::new();
        for (index, method) in self.service.method.iter().enumerate() {
            if self.config.skip_streaming && is_streaming(method) {
                continue;
            }
            let rust = make_field_ident(&snake_case(method_name(method)));
            if let Some(other) = names.insert(rust.clone(), method) {
                let methods = [self.full_name_of(other), self.full_name_of(method)];
                return Err(Kind::SameName {
                    at: self.location_of_method(index),
                    methods,
                    rust: rust.to_string(),
                }
                .into());
            }
            methods.push(self.method(index, method, &rust));
        }

        let docs = self.docs(&[SERVICE, self.index]);
        let (name, rust) = (self.full_name(), make_field_ident(self.name()));
        Ok(quote! {
            #(#[doc = #docs])*
            #[::polyrpc::service(
                name = #name,
                codec = ::polyrpc::codec::Protobuf,
                schema = FILE_DESCRIPTOR_SET
            )]
            pub trait #rust {
                #(#methods)*
            }
        })
    }

    fn method(&self, index: usize, method: &MethodDescriptorProto, rust: &Ident) -> TokenStream {
        let docs = self.docs(&[SERVICE, self.index, METHOD, index]);
        let name = method_name(method);
        let (request, reply) = (self.rust_type(&method.input_type), self.rust_type(&method.output_type));
        let (argument, request) = match method.client_streaming {
            Some(true) => (quote!(requests), quote!(::polyrpc::Streaming<#request>)),
            _ => (quote!(request), request),
        };
        let reply = match method.server_streaming {
            Some(true) => quote!(::polyrpc::Streaming<#reply>),
            _ => reply,
        };
        let full_name = self.full_name_of(method);
        let blocking = self.config.blocking.contains(&full_name).then(|| quote! { , blocking });
        quote! {
            #(#[doc = #docs])*
            #[rpc(name = #name #blocking)]
            async fn #rust(&self, cx: &mut ::polyrpc::Context, #argument: #request) -> ::polyrpc::Result<#reply>;
        }
    }

    /// Path from the package's module to a message.
    fn rust_type(&self, message: &Option<String>) -> TokenStream {
        let message = message.as_deref().unwrap_or_default();
        let path = self.context.rust_type_relative(message, source::package(self.file), 0);
        rust_path_to_tokens(&path.expect("the types of methods were resolved when the file was linked"))
    }

    fn docs(&self, path: &[usize]) -> Vec<String> {
        let comment = self.location(path).and_then(|location| {
            location.leading_comments.as_deref().or(location.trailing_comments.as_deref())
        });
        doc::lines(comment.unwrap_or_default())
    }

    fn location_of_method(&self, method: usize) -> SourceLocation {
        let span = self.location(&[SERVICE, self.index, METHOD, method]).map(|location| &location.span[..]);
        let (line, column) = match span {
            Some(&[line, column, ..]) => (line + 1, column + 1),
            _ => (1, 1),
        };
        SourceLocation { file: source::name(self.file).to_owned(), line, column }
    }

    /// Returns the source location of the element at `path`: field numbers and indexes alternate, as defined in
    /// `descriptor.proto`.
    fn location(&self, path: &[usize]) -> Option<&Location> {
        let is_here = |location: &&Location| {
            location.path.len() == path.len()
                && location.path.iter().zip(path).all(|(&a, &b)| usize::try_from(a) == Ok(b))
        };
        self.file.source_code_info.location.iter().find(is_here)
    }

    fn name(&self) -> &str {
        self.service.name.as_deref().unwrap_or_default()
    }

    fn full_name(&self) -> String {
        match source::package(self.file) {
            "" => self.name().to_owned(),
            package => format!("{package}.{}", self.name()),
        }
    }

    fn full_name_of(&self, method: &MethodDescriptorProto) -> String {
        format!("{}.{}", self.full_name(), method_name(method))
    }
}

/// `FileDescriptorProto.service`
const SERVICE: usize = 6;
/// `ServiceDescriptorProto.method`
const METHOD: usize = 2;

fn method_name(method: &MethodDescriptorProto) -> &str {
    method.name.as_deref().unwrap_or_default()
}

/// Whether a method streams in a direction.
fn is_streaming(method: &MethodDescriptorProto) -> bool {
    method.client_streaming.unwrap_or_default() || method.server_streaming.unwrap_or_default()
}

/// Converts `SayHello` to `say_hello`, `GetHTTPInfo` to `get_http_info`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    // Last letter of the current word; a digit belongs to the preceding word.
    let mut letter: Option<char> = None;
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        let begins_lower = rest.peek().is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && letter.is_some_and(|letter| letter.is_ascii_lowercase() || begins_lower)
        {
            snake.push('_');
        }
        if !c.is_ascii_digit() {
            letter = (c != '_').then_some(c);
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snake_case_splits_at_capitals_and_keeps_acronyms() {
        let cases = [
            ("Echo", "echo"),
            ("SayHello", "say_hello"),
            ("say_hello", "say_hello"),
            ("sayHello", "say_hello"),
            ("GetHTTPInfo", "get_http_info"),
            ("HTTP", "http"),
            ("Get2", "get2"),
            ("GetV2Info", "get_v2_info"),
            ("Get_Info", "get_info"),
            ("A", "a"),
        ];
        for (name, want) in cases {
            assert_eq!(snake_case(name), want, "{name}");
        }
    }
}
