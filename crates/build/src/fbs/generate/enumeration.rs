//! Enums: newtypes of an integer with named constants, since a newer schema may add values.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::super::schema::{Enum, full_name};
use super::rust::{base, docs, docs_or, ident, integer, unused_ident};

pub(super) fn define(declared: &Enum) -> TokenStream {
    let name = ident(&declared.name);
    let base = base(declared);
    let full_name = full_name(&declared.namespace, &declared.name);
    let doc = docs_or(&declared.docs, &format!("The enum `{full_name}`."));
    let values = declared.values.iter().map(|value| {
        let (doc, name, number) = (docs(&value.docs), ident(&value.name), integer(value.value));
        quote! { #doc pub const #name: Self = Self(#number); }
    });
    let names = declared.values.iter().map(|value| {
        let (constant, name) = (ident(&value.name), &value.name);
        quote! { Self::#constant => #name, }
    });
    let constants = declared.values.iter().map(|value| ident(&value.name));
    let (all, name_of) = (unused_name("ALL", declared), unused_name("name", declared));
    let text = name.to_string();
    let flags = declared.bit_flags.then(|| flags(declared));
    quote! {
        #doc
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct #name(pub #base);

        #[allow(non_upper_case_globals)]
        impl #name {
            #(#values)*

            /// Every value that the schema names, in the schema's order.
            pub const #all: &'static [Self] = &[#(Self::#constants),*];

            /// The name of the value; `None` for one that the schema does not name.
            pub fn #name_of(self) -> ::core::option::Option<&'static str> {
                ::core::option::Option::Some(match self {
                    #(#names)*
                    _ => return ::core::option::Option::None,
                })
            }
        }

        #flags

        impl ::core::fmt::Debug for #name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.#name_of() {
                    ::core::option::Option::Some(name) => f.write_str(name),
                    ::core::option::Option::None => f.debug_tuple(#text).field(&self.0).finish(),
                }
            }
        }

        impl ::polyrpc::flatbuffers::Value for #name {
            type View<'a> = Self;
            const SIZE: usize = <#base as ::polyrpc::flatbuffers::Value>::SIZE;
            const ALIGN: usize = <#base as ::polyrpc::flatbuffers::Value>::ALIGN;

            #[inline]
            fn view(buffer: &[u8], at: usize) -> ::core::option::Option<Self> {
                <#base as ::polyrpc::flatbuffers::Value>::view(buffer, at).map(Self)
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
                ::polyrpc::flatbuffers::Inline::write(self.0, out);
            }
        }
    }
}

/// Returns a name that does not clash with the enum's values.
fn unused_name(name: &str, declared: &Enum) -> Ident {
    unused_ident(name, declared.values.iter().map(|value| &*value.name))
}

/// Additional methods and operators of bit flags.
fn flags(declared: &Enum) -> TokenStream {
    let (name, contains) = (ident(&declared.name), unused_name("contains", declared));
    quote! {
        impl #name {
            /// Whether all bits of `other` are set.
            pub fn #contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl ::core::ops::BitOr for #name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl ::core::ops::BitAnd for #name {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }
    }
}
