//! Parsing of the attribute and the trait, with errors at the offending tokens.

use proc_macro2::TokenStream;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, GenericArgument, Ident, ItemTrait, Lit, Meta, Pat, PatType, Path,
    PathArguments, Result, ReturnType, Token, TraitItem, TraitItemFn, Type, parse_quote, parse2,
};

/// A parsed service.
pub(crate) struct Service {
    pub(crate) item: ItemTrait,
    pub(crate) name: String,
    pub(crate) codec: Path,
    pub(crate) schema: Option<Expr>,
    pub(crate) methods: Vec<Method>,
}

/// One method of a service.
pub(crate) struct Method {
    pub(crate) item: TraitItemFn,
    /// Its doc comments.
    pub(crate) docs: Vec<Attribute>,
    /// Its name on the wire.
    pub(crate) name: String,
    pub(crate) blocking: bool,
    /// Its number, for protocols with numbered methods.
    pub(crate) id: Option<syn::LitInt>,
    pub(crate) takes_context: bool,
    pub(crate) arguments: Vec<(Ident, Type)>,
    /// The `T` of `Result<T>`, or of `Result<Streaming<T>>`.
    pub(crate) response: Type,
    /// The `T` of the sole argument if that is a `Streaming<T>`.
    pub(crate) client_streams: Option<Type>,
    pub(crate) server_streams: bool,
}

impl Service {
    pub(crate) fn parse(attribute: TokenStream, item: TokenStream) -> Result<Self> {
        let item: ItemTrait = parse2(item)?;
        if let Some(parameter) = item.generics.params.first() {
            return Err(Error::new_spanned(
                parameter,
                "a service cannot be generic: it has one name and one form",
            ));
        }
        let mut service = Self {
            name: item.ident.to_string(),
            codec: parse_quote!(::polyrpc::codec::Serde),
            schema: None,
            methods: Vec::new(),
            item,
        };
        service.read_attribute(attribute)?;
        for item in std::mem::take(&mut service.item.items) {
            match item {
                TraitItem::Fn(item) => service.methods.push(Method::parse(item)?),
                other => return Err(Error::new_spanned(other, "a service has only methods")),
            }
        }
        Ok(service)
    }

    fn read_attribute(&mut self, attribute: TokenStream) -> Result<()> {
        for option in parse_options(attribute)? {
            match option {
                Meta::NameValue(option) if option.path.is_ident("name") => self.name = text(&option.value)?,
                Meta::NameValue(option) if option.path.is_ident("codec") => self.codec = path(&option.value)?,
                Meta::NameValue(option) if option.path.is_ident("schema") => self.schema = Some(option.value),
                other => {
                    return Err(Error::new_spanned(
                        other,
                        "expected `name = \"…\"`, `codec = …` or `schema = …`",
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Method {
    fn parse(mut item: TraitItemFn) -> Result<Self> {
        if item.sig.asyncness.is_none() {
            return Err(Error::new_spanned(&item.sig, "a method of a service is an `async fn`"));
        }
        if let Some(parameter) = item.sig.generics.params.first() {
            return Err(Error::new_spanned(parameter, "a method of a service cannot be generic"));
        }
        let response = response(&item.sig.output)?;
        let streamed = stream_item(&response);
        let mut method = Self {
            docs: item.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).cloned().collect(),
            name: pascal_case(&item.sig.ident),
            blocking: false,
            id: None,
            takes_context: false,
            arguments: Vec::new(),
            client_streams: None,
            server_streams: streamed.is_some(),
            response: streamed.unwrap_or(response),
            item: item.clone(),
        };
        method.read_attributes(&mut item.attrs)?;
        method.read_arguments(&item)?;
        if method.blocking && method.streams() {
            return Err(Error::new_spanned(
                &item.sig,
                "a method that streams cannot be `blocking`: its messages come and go on the connection's task",
            ));
        }
        method.item = item;
        Ok(method)
    }

    /// Removes `#[rpc(…)]` from the method, and parses it.
    fn read_attributes(&mut self, attributes: &mut Vec<Attribute>) -> Result<()> {
        let (ours, others) = std::mem::take(attributes)
            .into_iter()
            .partition::<Vec<_>, _>(|attribute| attribute.path().is_ident("rpc"));
        *attributes = others;
        if let [_, second, ..] = &ours[..] {
            return Err(Error::new_spanned(second, "a method has one `#[rpc(…)]` with all options"));
        }
        for attribute in ours {
            for option in parse_options(attribute.meta.require_list()?.tokens.clone())? {
                match option {
                    Meta::Path(option) if option.is_ident("blocking") => self.blocking = true,
                    Meta::NameValue(option) if option.path.is_ident("name") => {
                        self.name = text(&option.value)?
                    }
                    Meta::NameValue(option) if option.path.is_ident("id") => {
                        self.id = Some(parse_number(&option.value)?)
                    }
                    other => {
                        return Err(Error::new_spanned(
                            other,
                            "expected `name = \"…\"`, `id = …` or `blocking`",
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn read_arguments(&mut self, item: &TraitItemFn) -> Result<()> {
        let mut inputs = item.sig.inputs.iter();
        match inputs.next() {
            Some(FnArg::Receiver(receiver))
                if receiver.reference.is_some() && receiver.mutability.is_none() => {}
            other => {
                let message = "a method of a service takes `&self` first";
                return Err(Error::new(other.map_or_else(|| item.sig.span(), Spanned::span), message));
            }
        }
        for (n, input) in inputs.enumerate() {
            let FnArg::Typed(PatType { pat, ty, .. }) = input else { continue };
            if n == 0 && is_context(ty) {
                self.takes_context = true;
                continue;
            }
            let Pat::Ident(name) = &**pat else {
                return Err(Error::new_spanned(pat, "an argument of a service's method needs a name"));
            };
            self.arguments.push((name.ident.clone(), (**ty).clone()));
        }
        self.read_streams()
    }

    /// Returns the stream argument, which must be the only one.
    fn read_streams(&mut self) -> Result<()> {
        self.client_streams = self.arguments.iter().find_map(|(_, ty)| stream_item(ty));
        match &self.arguments[..] {
            [_, other, ..] if self.client_streams.is_some() => {
                Err(Error::new_spanned(&other.1, "a stream of requests is a method's only argument"))
            }
            _ => Ok(()),
        }
    }

    /// Whether it streams in a direction.
    pub(crate) fn streams(&self) -> bool {
        self.client_streams.is_some() || self.server_streams
    }

    /// The type of a request's message.
    pub(crate) fn message(&self) -> Type {
        self.client_streams.clone().unwrap_or_else(|| self.request())
    }

    /// The type of the request: one argument alone, several as a list.
    pub(crate) fn request(&self) -> Type {
        match &self.arguments[..] {
            [(_, sole)] => sole.clone(),
            arguments => {
                let types = arguments.iter().map(|(_, ty)| ty);
                parse_quote!((#(#types,)*))
            }
        }
    }
}

/// Parses a list of options.
///
/// # Errors
///
/// If the syntax is wrong, or an option is given twice.
fn parse_options(tokens: TokenStream) -> Result<Punctuated<Meta, Token![,]>> {
    let options: Punctuated<Meta, _> = syn::parse::Parser::parse2(Punctuated::parse_terminated, tokens)?;
    let mut seen = Vec::new();
    for option in &options {
        // Other paths are no option.
        let Some(name) = option.path().get_ident() else { continue };
        if seen.contains(&name) {
            return Err(Error::new_spanned(option, "this option is given twice"));
        }
        seen.push(name);
    }
    Ok(options)
}

fn parse_number(value: &Expr) -> Result<syn::LitInt> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.base10_parse::<i32>().is_ok() => {
            Ok(number.clone())
        }
        other => Err(Error::new_spanned(other, "expected a number from 0 to 2147483647")),
    }
}

fn text(value: &Expr) -> Result<String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.value()),
        other => Err(Error::new_spanned(other, "expected a string")),
    }
}

fn path(value: &Expr) -> Result<Path> {
    match value {
        Expr::Path(path) => Ok(path.path.clone()),
        other => Err(Error::new_spanned(other, "expected the path of a codec")),
    }
}

/// Whether a type is `&mut Context`, by any path.
fn is_context(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    let Type::Path(path) = &*reference.elem else { return false };
    reference.mutability.is_some() && path.path.segments.last().is_some_and(|last| last.ident == "Context")
}

/// The `T` of a `Streaming<T>`, by any path. A message may be named `Streaming` too, but has no parameter.
fn stream_item(ty: &Type) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Streaming")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(message) => Some(message.clone()),
        _ => None,
    }
}

/// The `T` of `-> Result<T>`.
fn response(output: &ReturnType) -> Result<Type> {
    let message = "a method of a service returns a `Result<…>`";
    let ReturnType::Type(_, ty) = output else { return Err(Error::new_spanned(output, message)) };
    let Type::Path(path) = &**ty else { return Err(Error::new_spanned(ty, message)) };
    let last = path.path.segments.last().filter(|last| last.ident == "Result");
    let Some(PathArguments::AngleBracketed(arguments)) = last.map(|last| &last.arguments) else {
        return Err(Error::new_spanned(ty, message));
    };
    match arguments.args.first() {
        Some(GenericArgument::Type(response)) => Ok(response.clone()),
        _ => Err(Error::new_spanned(ty, message)),
    }
}

/// Converts `say_hello` to the peers' spelling `SayHello`.
fn pascal_case(name: &Ident) -> String {
    let name = name.to_string();
    let words = name.trim_start_matches("r#").split('_');
    words
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn error(attribute: TokenStream, item: TokenStream) -> String {
        Service::parse(attribute, item).err().expect("an error").to_string()
    }

    #[test]
    fn option_given_twice_is_rejected() {
        let method = quote! { async fn echo(&self) -> Result<()>; };
        let service = error(quote! { name = "A", name = "B" }, quote! { trait Echo { #method } });
        assert_eq!(service, "this option is given twice");
        let method = error(quote! {}, quote! { trait Echo { #[rpc(id = 1, name = "A", id = 2)] #method } });
        assert_eq!(method, "this option is given twice");
        let item =
            quote! { trait Echo { #[rpc(id = 1)] #[rpc(id = 2)] async fn echo(&self) -> Result<()>; } };
        assert_eq!(error(quote! {}, item), "a method has one `#[rpc(…)]` with all options");
        assert!(Service::parse(quote! { name = "A" }, quote! { trait Echo {} }).is_ok());
    }
}
