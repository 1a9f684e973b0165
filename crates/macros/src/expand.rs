//! Code generation from the parsed service.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};

use crate::parse::{Method, Service};

pub(crate) fn service(service: &Service) -> TokenStream {
    let item = interface(service);
    let server = server(service);
    let asynchronous = stub(service, &format_ident!("{}Client", service.item.ident), false);
    let blocking = stub(service, &format_ident!("{}BlockingClient", service.item.ident), true);
    quote! { #item #server #asynchronous #blocking }
}

/// The trait itself, whose futures must be `Send`.
fn interface(service: &Service) -> TokenStream {
    let mut item = service.item.clone();
    item.supertraits.push(syn::parse_quote!(::core::marker::Send));
    item.supertraits.push(syn::parse_quote!(::core::marker::Sync));
    item.supertraits.push(syn::parse_quote!('static));
    item.items = service.methods.iter().map(|method| syn::TraitItem::Fn(with_send_future(method))).collect();
    // Programs that only call the service do not use the trait itself.
    quote! { #[allow(dead_code)] #item }
}

/// `async fn` as a function that returns a `Send` future; an implementation may still use
/// `async fn`.
fn with_send_future(method: &Method) -> syn::TraitItemFn {
    let mut item = method.item.clone();
    let output = match &item.sig.output {
        syn::ReturnType::Type(_, ty) => ty.clone(),
        syn::ReturnType::Default => unreachable!("parsing has seen the return type"),
    };
    item.sig.asyncness = None;
    item.sig.output = syn::parse_quote! {
        -> impl ::core::future::Future<Output = #output> + ::core::marker::Send
    };
    if let Some(body) = item.default.take() {
        item.default = Some(syn::parse_quote! {{ async move #body }});
    }
    item
}

fn server(service: &Service) -> TokenStream {
    let Service { name, codec, schema, methods, item } = service;
    let (vis, ident) = (&item.vis, &item.ident);
    let server = format_ident!("{ident}Server");
    let doc = format!("Server of `{name}`, implemented by a [`{ident}`].");
    let described = schema.as_ref().map(|schema| quote! { .schema(#schema) });
    let implementation = hygienic_ident("implementation");
    let added = methods.iter().map(|method| registration(method, ident, codec));
    quote! {
        #[doc = #doc]
        #[derive(Debug)]
        #vis struct #server<T>(T);

        impl<T: #ident> #server<T> {
            /// Generates the server.
            #vis fn new(implementation: T) -> Self {
                Self(implementation)
            }
        }

        impl<T: #ident> ::polyrpc::service::Service for #server<T> {
            fn into_builder(self) -> ::polyrpc::service::ServiceBuilder {
                let #implementation = ::std::sync::Arc::new(self.0);
                ::polyrpc::service::ServiceBuilder::new(#name) #described #(#added)*
            }
        }
    }
}

/// Registration of one method.
fn registration(method: &Method, trait_ident: &syn::Ident, codec: &syn::Path) -> TokenStream {
    let (name, ident) = (&method.name, &method.item.sig.ident);
    let (request, message, response) = (method.request(), method.message(), &method.response);
    let add = match (method.client_streams.is_some(), method.server_streams) {
        (false, false) if method.blocking => quote!(blocking_method),
        (false, false) => quote!(method),
        (false, true) => quote!(server_streaming),
        (true, false) => quote!(client_streaming),
        (true, true) => quote!(bidi_streaming),
    };
    let names: Vec<_> = method.arguments.iter().map(|(name, _)| name).collect();
    let pattern = match &names[..] {
        [sole] => quote! { #sole },
        names => quote! { (#(#names,)*) },
    };
    let (cx, implementation) = (hygienic_ident("cx"), hygienic_ident("implementation"));
    let context = method.takes_context.then(|| quote! { &mut #cx, });
    let id = method.id.as_ref().map(|id| quote! { .id(#id) });
    quote! {
        .#add::<#codec, #message, #response, _, _>(#name, {
            let #implementation = ::std::sync::Arc::clone(&#implementation);
            move |#cx: ::polyrpc::Context, #pattern: #request| {
                let #implementation = ::std::sync::Arc::clone(&#implementation);
                #[allow(unused_mut)]
                async move {
                    let mut #cx = #cx;
                    let result = #trait_ident::#ident(&*#implementation, #context #(#names),*).await;
                    (#cx, result.map_err(::core::convert::Into::into))
                }
            }
        }) #id
    }
}

/// An identifier that cannot collide with an argument.
fn hygienic_ident(name: &str) -> syn::Ident {
    syn::Ident::new(name, Span::mixed_site())
}

fn stub(service: &Service, stub: &syn::Ident, blocking: bool) -> TokenStream {
    let Service { name, item, .. } = service;
    let vis = &item.vis;
    let client = if blocking { quote!(::polyrpc::blocking::Client) } else { quote!(::polyrpc::Client) };
    let doc = match blocking {
        false => format!("Client of `{name}`."),
        true => format!("Blocking client of `{name}`."),
    };
    // A blocking stub could not wait for messages of both sides.
    let methods = service.methods.iter().enumerate().filter(|(_, method)| !(blocking && method.streams()));
    let calls = methods.map(|(n, method)| call(service, method, n, blocking));
    let signatures = signatures(service);
    quote! {
        #[doc = #doc]
        #[derive(Debug, Clone)]
        #vis struct #stub(#client);

        impl #stub {
            /// Creates a stub that uses this client; clones of a client share its connections.
            #vis fn new(client: #client) -> Self {
                Self(client)
            }

            #signatures
            #(#calls)*
        }
    }
}

/// Method descriptions shared by all stubs of the service, computed once.
fn signatures(service: &Service) -> TokenStream {
    let Service { name, codec, schema, methods, .. } = service;
    let count = methods.len();
    let pool = match schema {
        Some(schema) => quote! {
            ::core::option::Option::Some(
                ::polyrpc::generated::Pool::decode(#schema).expect("the generated descriptors are valid"),
            )
        },
        None => quote! { ::core::option::Option::None },
    };
    let described = methods.iter().enumerate().map(|(index, method)| {
        let numbered = numbered_name(method, index);
        let (method_name, request, response) = (&method.name, method.message(), &method.response);
        quote! {
            ::polyrpc::client::StubMethod::described::<#codec, #request, #response>(
                #name, #method_name, pool.as_ref(),
            )
            .numbered(#numbered)
        }
    });
    quote! {
        #[allow(dead_code)]
        fn signature(method: usize) -> &'static ::polyrpc::client::StubMethod {
            static SIGNATURES: ::std::sync::LazyLock<[::polyrpc::client::StubMethod; #count]> =
                ::std::sync::LazyLock::new(|| {
                    let pool: ::core::option::Option<::polyrpc::generated::Pool> = #pool;
                    let _ = &pool;
                    [#(#described),*]
                });
            &SIGNATURES[method]
        }
    }
}

/// Number of a method, for protocols with numbered methods: its id and, if different, its position.
fn numbered_name(method: &Method, index: usize) -> String {
    match &method.id {
        Some(id) if id.base10_digits() != index.to_string() => {
            format!("{}#{},{index}", method.name, id.base10_digits())
        }
        _ => format!("{}#{index}", method.name),
    }
}

fn call(service: &Service, method: &Method, n: usize, blocking: bool) -> TokenStream {
    let vis = &service.item.vis;
    let Method { docs, response, item, arguments, .. } = method;
    let ident = &item.sig.ident;
    let with = format_ident!("{}_with", ident.to_string().trim_start_matches("r#"));
    let request = method.request();
    let names: Vec<_> = arguments.iter().map(|(name, _)| name).collect();
    let types = arguments.iter().map(|(_, ty)| ty);
    let packed = match &names[..] {
        [sole] => quote! { #sole },
        names => quote! { (#(#names,)*) },
    };
    let (asyncness, awaited) = match blocking {
        false => (quote!(async), quote!(.await)),
        true => (quote!(), quote!()),
    };
    let with_doc =
        format!("[`{ident}`](Self::{ident}) with a full request and response: metadata, timeout and so on.");
    let received = match method.server_streams {
        true => quote! { ::polyrpc::Streaming<#response> },
        false => quote! { #response },
    };
    let invoked = invocation(service, method, n);
    quote! {
        #(#docs)*
        #vis #asyncness fn #ident(&self, #(#names: #types),*) -> ::polyrpc::client::Result<#received> {
            let response = self.#with(::polyrpc::client::Request::new(#packed))#awaited?;
            ::core::result::Result::Ok(response.message)
        }

        #[doc = #with_doc]
        #vis #asyncness fn #with(
            &self,
            request: ::polyrpc::client::Request<#request>,
        ) -> ::polyrpc::client::Result<::polyrpc::client::Response<#received>> {
            #invoked #awaited
        }
    }
}

/// The client's call of a method with `request`.
fn invocation(service: &Service, method: &Method, n: usize) -> TokenStream {
    let (codec, message, response) = (&service.codec, method.message(), &method.response);
    let types = quote! { #codec, #message, #response };
    match (method.client_streams.is_some(), method.server_streams) {
        (false, false) => quote! { self.0.invoke::<#types>(Self::signature(#n), request) },
        (false, true) => quote! {
            self.0.invoke_streaming::<#types>(
                Self::signature(#n),
                ::polyrpc::client::Request {
                    message: ::polyrpc::Streaming::once(request.message),
                    options: request.options,
                },
            )
        },
        (true, false) => quote! { self.0.invoke_client_streaming::<#types>(Self::signature(#n), request) },
        (true, true) => quote! { self.0.invoke_streaming::<#types>(Self::signature(#n), request) },
    }
}
