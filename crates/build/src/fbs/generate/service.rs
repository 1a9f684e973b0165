//! Trait of a service, as for a `.proto`.

use std::collections::HashMap;

use proc_macro2::TokenStream;
use quote::quote;

use super::super::schema::{Method, Service, Type};
use super::rust::{Names, docs, ident};
use crate::error::{Kind, Position, SourceLocation};
use crate::service::snake_case;
use crate::{Config, Error};

pub(super) fn define(names: &Names<'_>, declared: &Service, config: &Config) -> Result<TokenStream, Error> {
    let mut methods = Vec::new();
    let mut known: HashMap<String, &str> = HashMap::new();
    for (index, method) in declared.methods.iter().enumerate() {
        if config.skip_streaming && (method.client_streams || method.server_streams) {
            continue;
        }
        let rust = snake_case(&method.name);
        if let Some(other) = known.insert(rust.clone(), &method.name) {
            let methods = [other, &method.name].map(|name| format!("{}.{name}", declared.full_name()));
            let (line, column) = method.at;
            let at = SourceLocation::new(&names.schema.files[declared.file].name, Position { line, column });
            return Err(Kind::SameName { at, methods, rust }.into());
        }
        methods.push(define_method(names, declared, method, index, config));
    }
    let (doc, name, rust) = (docs(&declared.docs), declared.full_name(), ident(&declared.name));
    Ok(quote! {
        #doc
        #[::polyrpc::service(name = #name, codec = ::polyrpc::codec::FlatBuffers)]
        pub trait #rust {
            #(#methods)*
        }
    })
}

fn define_method(
    names: &Names<'_>,
    declared: &Service,
    method: &Method,
    index: usize,
    config: &Config,
) -> TokenStream {
    let (doc, name, rust) = (docs(&method.docs), &method.name, ident(&snake_case(&method.name)));
    let message = |table| {
        let table = names.value(&Type::Table(table));
        quote!(::polyrpc::flatbuffers::Message<#table>)
    };
    let (request, response) = (message(method.request), message(method.response));
    let (argument, request) = match method.client_streams {
        true => (quote!(requests), quote!(::polyrpc::Streaming<#request>)),
        false => (quote!(request), request),
    };
    let response = match method.server_streams {
        true => quote!(::polyrpc::Streaming<#response>),
        false => response,
    };
    // A skipped method must not change the indexes of the following ones.
    let id = method.id.or_else(|| if config.skip_streaming { u32::try_from(index).ok() } else { None });
    let id = id.map(|id| {
        let id = proc_macro2::Literal::u32_unsuffixed(id);
        quote! { , id = #id }
    });
    let full_name = format!("{}.{name}", declared.full_name());
    let blocking = config.blocking.contains(&full_name).then(|| quote! { , blocking });
    quote! {
        #doc
        #[rpc(name = #name #id #blocking)]
        async fn #rust(&self, cx: &mut ::polyrpc::Context, #argument: #request) -> ::polyrpc::Result<#response>;
    }
}
