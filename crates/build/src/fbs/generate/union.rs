//! Unions: enums of the members, for reading and for writing.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::super::schema::{Member, Type, Union, full_name};
use super::rust::{Names, docs, ident, ident_with, text, unused_ident};

pub(super) fn define(names: &Names<'_>, declared: &Union) -> TokenStream {
    let view = view(names, declared);
    let args = args(names, declared);
    quote! { #view #args }
}

fn view(names: &Names<'_>, declared: &Union) -> TokenStream {
    let view = ident_with(&declared.name, "Ref");
    let doc =
        format!(" A value of the union `{}`, read in place.", full_name(&declared.namespace, &declared.name));
    let more = docs(&declared.docs);
    let blank = (!declared.docs.is_empty()).then(|| quote! { #[doc = ""] });
    let variants = declared.members.iter().map(|member| {
        let (doc, name, ty) = (docs(&member.docs), ident(&member.name), view_type(names, &member.ty));
        quote! { #doc #name(#ty), }
    });
    let arms = |holder: TokenStream, argument: TokenStream| {
        let arms = declared.members.iter().map(move |member| {
            let (number, name, ty) =
                (Literal::u8_unsuffixed(member.number), ident(&member.name), names.value(&member.ty));
            quote! { #number => #holder.union::<#ty>(#argument).map(Self::#name), }
        });
        quote! { #(#arms)* }
    };
    let (of_field, of_element) = (arms(quote!(fields), quote!(id)), arms(quote!(values), quote!(index)));
    let checks = declared.members.iter().map(check(names));
    let unknown = unused_ident("Unknown", declared.members.iter().map(|member| &*member.name));
    quote! {
        #[doc = #doc]
        #blank
        #more
        #[derive(Clone, Copy, Debug)]
        pub enum #view<'a> {
            #(#variants)*
            /// Something of a newer schema, by the number of its type.
            #unknown(u8, ::core::marker::PhantomData<&'a ()>),
        }

        impl<'a> #view<'a> {
            /// Reads the union whose value has this id.
            pub(crate) fn read(
                fields: ::polyrpc::flatbuffers::Fields<'a>,
                id: u16,
            ) -> ::core::option::Option<Self> {
                match fields.get::<u8>(id - 1)? {
                    0 => ::core::option::Option::None,
                    #of_field
                    kind => ::core::option::Option::Some(Self::unknown(kind)),
                }
            }

            /// Reads one of several unions.
            pub(crate) fn element(
                kind: u8,
                values: ::polyrpc::flatbuffers::Vector<'a, u32>,
                index: usize,
            ) -> ::core::option::Option<Self> {
                match kind {
                    0 => ::core::option::Option::None,
                    #of_element
                    kind => ::core::option::Option::Some(Self::unknown(kind)),
                }
            }

            pub(crate) fn unknown(kind: u8) -> Self {
                Self::#unknown(kind, ::core::marker::PhantomData)
            }

            pub(crate) fn verify(
                kind: u8,
                value: &mut ::polyrpc::flatbuffers::UnionVerifier<'_, '_>,
            ) -> ::core::result::Result<(), ::polyrpc::flatbuffers::Invalid> {
                match kind {
                    #(#checks)*
                    _ => ::core::result::Result::Ok(()),
                }
            }
        }
    }
}

fn check<'n>(names: &'n Names<'_>) -> impl Fn(&'n Member) -> TokenStream {
    |member| {
        let (number, ty) = (Literal::u8_unsuffixed(member.number), names.value(&member.ty));
        match member.ty {
            Type::Struct(_) => quote! { #number => value.structure::<#ty>(), },
            _ => quote! { #number => value.value::<#ty>(), },
        }
    }
}

fn view_type(names: &Names<'_>, ty: &Type) -> TokenStream {
    match ty {
        Type::Table(_) => {
            let view = names.type_path(ty, "Ref");
            quote!(#view<'a>)
        }
        Type::Text => text(),
        _ => names.value(ty),
    }
}

fn args(names: &Names<'_>, declared: &Union) -> TokenStream {
    let args = ident_with(&declared.name, "Args");
    let doc = format!(" A value of the union `{}` to write.", full_name(&declared.namespace, &declared.name));
    let borrows = declared.members.iter().any(|member| matches!(member.ty, Type::Table(_) | Type::Text));
    let (lifetime, elided) = match borrows {
        true => (quote!(<'a>), quote!(<'_>)),
        false => (quote!(), quote!()),
    };
    let variants = declared.members.iter().map(|member| {
        let (doc, name) = (docs(&member.docs), ident(&member.name));
        let ty = match &member.ty {
            Type::Table(_) => {
                let args = names.args(&member.ty);
                quote!(&'a #args)
            }
            Type::Text => text(),
            ty => names.value(ty),
        };
        quote! { #doc #name(#ty), }
    });
    let kinds = declared.members.iter().map(|member| {
        let (name, number) = (ident(&member.name), Literal::u8_unsuffixed(member.number));
        quote! { Self::#name(_) => #number, }
    });
    let builds = declared.members.iter().map(|member| {
        let name = ident(&member.name);
        let built = match &member.ty {
            Type::Table(_) => quote!(::polyrpc::flatbuffers::Build::build(value, builder).untyped()),
            Type::Text => quote!(builder.string(value).untyped()),
            _ => quote!(builder.structure(value).untyped()),
        };
        quote! { Self::#name(value) => #built, }
    });
    quote! {
        #[doc = #doc]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum #args #lifetime {
            #(#variants)*
        }

        impl #args #elided {
            pub(crate) fn kind(self) -> u8 {
                match self {
                    #(#kinds)*
                }
            }

            pub(crate) fn build(
                self,
                builder: &mut ::polyrpc::flatbuffers::Builder,
            ) -> ::polyrpc::flatbuffers::Offset<()> {
                match self {
                    #(#builds)*
                }
            }
        }
    }
}
