//! Structs: fields at fixed offsets, read and written as a whole.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::super::schema::{Scalar, Struct, StructField, Type, full_name};
use super::rust::{Names, docs, docs_or, ident};

pub(super) fn define(names: &Names<'_>, declared: &Struct) -> TokenStream {
    let name = ident(&declared.name);
    let doc =
        docs_or(&declared.docs, &format!("The struct `{}`.", full_name(&declared.namespace, &declared.name)));
    let fields = declared.fields.iter().map(|field| {
        let (doc, name, ty) = (docs(&field.docs), ident(&field.name), names.value(&field.ty));
        quote! { #doc pub #name: #ty, }
    });
    let (size, align) = (Literal::usize_unsuffixed(declared.size), Literal::usize_unsuffixed(declared.align));
    let members = declared.fields.iter().map(|field| {
        let (name, offset) = (ident(&field.name), Literal::usize_unsuffixed(field.offset));
        quote! { #name: ::polyrpc::flatbuffers::member(buffer, at, #offset)?, }
    });
    let written = declared.fields.iter().map(|field| {
        let (name, to) = (ident(&field.name), field.offset + names.schema.inline(&field.ty).0);
        let (from, to) = (Literal::usize_unsuffixed(field.offset), Literal::usize_unsuffixed(to));
        quote! { ::polyrpc::flatbuffers::Inline::write(self.#name, &mut out[#from..#to]); }
    });
    let default = default(declared);
    let derived = default.is_none().then(|| quote! { Default, });
    let keyed = impl_keyed(names, declared);
    quote! {
        #doc
        #[derive(Clone, Copy, Debug, #derived PartialEq)]
        pub struct #name {
            #(#fields)*
        }

        #default

        impl ::polyrpc::flatbuffers::Value for #name {
            type View<'a> = Self;
            const SIZE: usize = #size;
            const ALIGN: usize = #align;

            #[inline]
            fn view(buffer: &[u8], at: usize) -> ::core::option::Option<Self> {
                ::core::option::Option::Some(Self { #(#members)* })
            }

            #[inline]
            fn verify(
                verifier: &mut ::polyrpc::flatbuffers::Verifier<'_>,
                at: usize,
            ) -> ::core::result::Result<(), ::polyrpc::flatbuffers::Invalid> {
                verifier.inline::<Self>(at)
            }
        }

        impl ::polyrpc::flatbuffers::Inline for #name {
            #[inline]
            fn write(self, out: &mut [u8]) {
                #(#written)*
            }
        }

        #keyed
    }
}

/// Manual `Default`, where it cannot be derived: for long arrays.
fn default(declared: &Struct) -> Option<TokenStream> {
    if !declared.fields.iter().any(|field| matches!(field.ty, Type::Array(..))) {
        return None;
    }
    let name = ident(&declared.name);
    let fields = declared.fields.iter().map(|field| {
        let name = ident(&field.name);
        match &field.ty {
            Type::Array(_, count) => {
                let count = usize::from(*count);
                quote! { #name: [::core::default::Default::default(); #count], }
            }
            _ => quote! { #name: ::core::default::Default::default(), },
        }
    });
    Some(quote! {
        impl ::core::default::Default for #name {
            fn default() -> Self {
                Self { #(#fields)* }
            }
        }
    })
}

fn impl_keyed(names: &Names<'_>, declared: &Struct) -> Option<TokenStream> {
    let key = declared.fields.iter().find(|field| field.key)?;
    let StructField { name: field, ty, .. } = key;
    let (name, field, key) = (ident(&declared.name), ident(field), names.value(ty));
    let compared = match ty {
        Type::Scalar(Scalar::F32 | Scalar::F64) => quote!(element.#field.total_cmp(key)),
        _ => quote!(::core::cmp::Ord::cmp(&element.#field, key)),
    };
    matches!(ty, Type::Scalar(_) | Type::Enum(_)).then(|| {
        quote! {
            impl ::polyrpc::flatbuffers::Keyed for #name {
                type Key = #key;

                fn compare(element: Self, key: &#key) -> ::core::cmp::Ordering {
                    #compared
                }
            }
        }
    })
}
