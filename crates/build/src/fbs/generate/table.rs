//! Tables: marker, reader and arguments.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::super::schema::{Default, Field, Scalar, Table, Type};
use super::rust::{Names, docs_or, ident, ident_with, number, text, unused_ident};

pub(super) fn define(names: &Names<'_>, declared: &Table) -> TokenStream {
    let fields: Vec<&Field> = declared.fields.iter().filter(|field| !field.deprecated).collect();
    let table = Definition { names, declared, fields };
    let (marker, view, args) = (table.marker(), table.view(), table.args());
    quote! { #marker #view #args }
}

struct Definition<'d> {
    names: &'d Names<'d>,
    declared: &'d Table,
    /// Fields that are not deprecated.
    fields: Vec<&'d Field>,
}

impl Definition<'_> {
    // ------------------------------------------------------------------ the name

    fn marker(&self) -> TokenStream {
        let (name, view) = (ident(&self.declared.name), ident_with(&self.declared.name, "Ref"));
        let full_name = self.declared.full_name();
        let doc = docs_or(&self.declared.docs, &format!("The table `{full_name}`."));
        let identifier = self.declared.identifier.map(|identifier| {
            let bytes = proc_macro2::Literal::byte_string(&identifier);
            quote! { const FILE_IDENTIFIER: ::core::option::Option<[u8; 4]> = ::core::option::Option::Some(*#bytes); }
        });
        // As in flatc's code, deprecated fields are not checked: even a required one may be absent.
        let checks = self.fields.iter().map(|field| self.check(field));
        let keyed = self.impl_keyed();
        quote! {
            #doc
            #[derive(Debug)]
            pub enum #name {}

            impl ::polyrpc::flatbuffers::Table for #name {
                type Ref<'a> = #view<'a>;

                const NAME: &'static str = #full_name;
                #identifier

                #[inline]
                fn over(fields: ::polyrpc::flatbuffers::Fields<'_>) -> #view<'_> {
                    #view(fields)
                }

                fn verify(
                    fields: &mut ::polyrpc::flatbuffers::TableVerifier<'_, '_>,
                ) -> ::core::result::Result<(), ::polyrpc::flatbuffers::Invalid> {
                    #(#checks)*
                    ::core::result::Result::Ok(())
                }
            }

            #keyed
        }
    }

    fn check(&self, field: &Field) -> TokenStream {
        let (name, id, required) = (&field.name, number(field.id), field.required);
        let unions = |method: TokenStream, union: &Type| {
            let view = self.names.type_path(union, "Ref");
            quote! { fields.#method(#name, #id, #required, |kind, value| #view::verify(kind, value))?; }
        };
        match &field.ty {
            Type::Union(_) => unions(quote!(union), &field.ty),
            Type::Vector(element) if matches!(**element, Type::Union(_)) => unions(quote!(unions), element),
            ty => {
                let value = self.names.value(ty);
                let method = if required { quote!(required) } else { quote!(field) };
                let nested = field.nested.map(|table| {
                    let table = self.names.value(&Type::Table(table));
                    quote! { fields.nested::<#table>(#name, #id)?; }
                });
                quote! { fields.#method::<#value>(#name, #id)?; #nested }
            }
        }
    }

    fn impl_keyed(&self) -> Option<TokenStream> {
        let key = self.fields.iter().find(|field| field.key)?;
        if key.ty != Type::Text && key.default == Default::None {
            return None;
        }
        let (name, view, field) =
            (ident(&self.declared.name), ident_with(&self.declared.name, "Ref"), ident(&key.name));
        let (ty, compared) = match &key.ty {
            Type::Text => {
                (quote!(str), quote!(::core::cmp::Ord::cmp(element.#field().as_bytes(), key.as_bytes())))
            }
            Type::Scalar(Scalar::F32 | Scalar::F64) => {
                (self.names.value(&key.ty), quote!(element.#field().total_cmp(key)))
            }
            ty => (self.names.value(ty), quote!(::core::cmp::Ord::cmp(&element.#field(), key))),
        };
        Some(quote! {
            impl ::polyrpc::flatbuffers::Keyed for #name {
                type Key = #ty;

                fn compare(element: #view<'_>, key: &#ty) -> ::core::cmp::Ordering {
                    #compared
                }
            }
        })
    }

    // ------------------------------------------------------------------ reading

    fn view(&self) -> TokenStream {
        let (name, view) = (&self.declared.name, ident_with(&self.declared.name, "Ref"));
        let doc = format!(" [`{name}`] read in place from a message.");
        let accessors = self.fields.iter().map(|field| self.accessor(field));
        let shown = self.fields.iter().map(|field| {
            let (text, name) = (&field.name, ident(&field.name));
            match &field.ty {
                Type::Vector(element) if matches!(**element, Type::Union(_)) => {
                    quote! { .field(#text, &self.#name().collect::<::std::vec::Vec<_>>()) }
                }
                _ => quote! { .field(#text, &self.#name()) },
            }
        });
        quote! {
            #[doc = #doc]
            #[derive(Clone, Copy)]
            pub struct #view<'a>(::polyrpc::flatbuffers::Fields<'a>);

            impl<'a> #view<'a> {
                #(#accessors)*
            }

            impl ::core::fmt::Debug for #view<'_> {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.debug_struct(#name) #(#shown)* .finish()
                }
            }
        }
    }

    fn accessor(&self, field: &Field) -> TokenStream {
        let doc = docs_or(&field.docs, &format!("The field `{}`.", field.name));
        let (name, id) = (ident(&field.name), number(field.id));
        let (ty, body) = match &field.ty {
            Type::Union(_) => self.union_accessor(field),
            Type::Vector(element) if matches!(**element, Type::Union(_)) => {
                self.unions_accessor(element, field.id)
            }
            _ => self.plain_accessor(field),
        };
        let nested = field.nested.map(|table| {
            let taken = self.fields.iter().map(|field| &*field.name);
            let view = unused_ident(&format!("{}_nested", field.name), taken);
            let table = Type::Table(table);
            let (path, of) = (self.names.type_path(&table, "Ref"), self.names.value(&table));
            let doc = format!(" The nested FlatBuffer in `{}`.", field.name);
            quote! {
                #[doc = #doc]
                pub fn #view(self) -> ::core::option::Option<#path<'a>> {
                    let bytes = self.0.get::<[u8]>(#id)?.as_bytes();
                    ::polyrpc::flatbuffers::Fields::root(bytes).map(<#of as ::polyrpc::flatbuffers::Table>::over)
                }
            }
        });
        quote! {
            #doc
            #[inline]
            pub fn #name(self) -> #ty {
                #body
            }
            #nested
        }
    }

    fn plain_accessor(&self, field: &Field) -> (TokenStream, TokenStream) {
        let (id, value) = (number(field.id), self.names.value(&field.ty));
        let view = match &field.ty {
            Type::Text => text(),
            Type::Vector(element) => {
                let element = self.names.value(element);
                quote!(::polyrpc::flatbuffers::Vector<'a, #element>)
            }
            Type::Table(_) => {
                let view = self.names.type_path(&field.ty, "Ref");
                quote!(#view<'a>)
            }
            ty => self.names.value(ty),
        };
        let read = quote!(self.0.get::<#value>(#id));
        match (&field.ty, &field.default) {
            (Type::Table(_), _) if field.required => (view, quote!(self.0.table::<#value>(#id))),
            (_, Default::Text(text)) => {
                (view, quote!(#read.unwrap_or(::polyrpc::flatbuffers::Text::new(#text))))
            }
            (_, Default::Empty) => (view, quote!(#read.unwrap_or_default())),
            (_, Default::None) if field.required => (view, quote!(#read.unwrap_or_default())),
            (_, Default::None) => (quote!(::core::option::Option<#view>), read),
            (ty, default) => {
                let default = self.names.default(ty, default);
                (view, quote!(#read.unwrap_or(#default)))
            }
        }
    }

    fn union_accessor(&self, field: &Field) -> (TokenStream, TokenStream) {
        let (id, view) = (number(field.id), self.names.type_path(&field.ty, "Ref"));
        match field.required {
            true => (quote!(#view<'a>), quote!(#view::read(self.0, #id).unwrap_or(#view::unknown(0)))),
            false => (quote!(::core::option::Option<#view<'a>>), quote!(#view::read(self.0, #id))),
        }
    }

    /// Accessor of a vector of unions; an empty element is `None`.
    fn unions_accessor(&self, element: &Type, id: u16) -> (TokenStream, TokenStream) {
        let view = self.names.type_path(element, "Ref");
        let (id, kinds) = (number(id), number(id - 1));
        (
            quote!(impl Iterator<Item = ::core::option::Option<#view<'a>>> + 'a),
            quote! {
                let values = self.0.get::<[u32]>(#id).unwrap_or_default();
                let kinds = self.0.get::<[u8]>(#kinds).unwrap_or_default();
                kinds.iter().enumerate().map(move |(index, kind)| #view::element(kind, values, index))
            },
        )
    }

    // ------------------------------------------------------------------ writing

    fn args(&self) -> TokenStream {
        let (name, args) = (&self.declared.name, ident_with(&self.declared.name, "Args"));
        let marker = ident(name);
        let doc = format!(" Fields of a [`{name}`] to write.");
        let borrows = self.borrows();
        let (lifetime, elided) = match borrows {
            true => (quote!(<'a>), quote!(<'_>)),
            false => (quote!(), quote!()),
        };
        let fields = self.fields.iter().map(|field| {
            let doc = docs_or(&field.docs, &format!("The field `{}`.", field.name));
            let (name, ty) = (ident(&field.name), self.arg(field));
            quote! { #doc pub #name: #ty, }
        });
        let default = self.default(&args, &elided);
        let build = self.build();
        quote! {
            #[doc = #doc]
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub struct #args #lifetime {
                #(#fields)*
            }

            #default

            impl ::polyrpc::flatbuffers::Build for #args #elided {
                type Table = #marker;

                #build
            }

            impl #args #elided {
                /// A message whose root is this.
                pub fn to_message(&self) -> ::polyrpc::flatbuffers::Message<#marker> {
                    ::polyrpc::flatbuffers::Message::build(self)
                }
            }

            impl ::core::convert::From<#args #elided> for ::polyrpc::flatbuffers::Message<#marker> {
                fn from(args: #args #elided) -> Self {
                    args.to_message()
                }
            }
        }
    }

    fn borrows(&self) -> bool {
        self.names
            .schema
            .tables
            .iter()
            .position(|table| std::ptr::eq(table, self.declared))
            .is_some_and(|at| self.names.table_borrows(at))
    }

    fn arg(&self, field: &Field) -> TokenStream {
        let value = match &field.ty {
            Type::Text => text(),
            Type::Table(_) => {
                let args = self.names.args(&field.ty);
                quote!(&'a #args)
            }
            Type::Union(_) => self.names.args(&field.ty),
            Type::Vector(element) => {
                let element = match &**element {
                    Type::Text => text(),
                    Type::Table(_) | Type::Union(_) => self.names.args(element),
                    element => self.names.value(element),
                };
                quote!(&'a [#element])
            }
            ty => self.names.value(ty),
        };
        match is_optional(field) {
            true => quote!(::core::option::Option<#value>),
            false => value,
        }
    }

    /// `Default` of the arguments; none if a field is mandatory.
    fn default(&self, args: &Ident, elided: &TokenStream) -> Option<TokenStream> {
        let must_be_said =
            |field: &&&Field| field.required && matches!(field.ty, Type::Table(_) | Type::Union(_));
        if self.fields.iter().any(|field| must_be_said(&field)) {
            return None;
        }
        let fields = self.fields.iter().map(|field| {
            let name = ident(&field.name);
            let value = match (&field.ty, &field.default) {
                _ if is_optional(field) => quote!(::core::option::Option::None),
                (Type::Vector(_), _) => quote!(&[]),
                (ty, default) => self.names.default(ty, default),
            };
            quote! { #name: #value, }
        });
        Some(quote! {
            impl ::core::default::Default for #args #elided {
                fn default() -> Self {
                    Self { #(#fields)* }
                }
            }
        })
    }

    fn build(&self) -> TokenStream {
        let marker = ident(&self.declared.name);
        // The value that a field refers to is held in a variable with the field's name.
        let taken = self.fields.iter().map(|field| &*field.name);
        let (builder, table) = (unused_ident("builder", taken.clone()), unused_ident("table", taken));
        let children = self.fields.iter().filter_map(|field| self.child(field, &builder));
        let written = self.writing_order().into_iter().map(|(id, field)| self.write(id, field, &table));
        let receiver = if self.fields.is_empty() { quote!(let _ = self;) } else { quote!() };
        let begin = match self.fields.is_empty() {
            true => quote!(let #table = #builder.table();),
            false => quote!(let mut #table = #builder.table();),
        };
        quote! {
            fn build(
                &self,
                #builder: &mut ::polyrpc::flatbuffers::Builder,
            ) -> ::polyrpc::flatbuffers::Offset<#marker> {
                #receiver
                #(#children)*
                #begin
                #(#written)*
                #table.end()
            }
        }
    }

    /// Writes the value that a field refers to.
    fn child(&self, field: &Field, builder: &Ident) -> Option<TokenStream> {
        let name = ident(&field.name);
        let write = match &field.ty {
            Type::Text => quote!(#builder.string(value)),
            Type::Table(_) => quote!(::polyrpc::flatbuffers::Build::build(value, #builder)),
            Type::Union(_) => quote!(value.build(#builder)),
            Type::Vector(element) => match &**element {
                Type::Text => quote!(#builder.strings(value)),
                Type::Table(_) => quote!(#builder.tables(value)),
                Type::Union(_) => {
                    let kinds = ident_with(&field.name, "_type");
                    let write = quote! {{
                        let kinds: ::std::vec::Vec<u8> = value.iter().map(|element| element.kind()).collect();
                        (#builder.bytes(&kinds), #builder.vector_of(value, |builder, element| element.build(builder)))
                    }};
                    return Some(match field.required {
                        true => quote! { let (#kinds, #name) = { let value = self.#name; #write }; },
                        false => quote! {
                            let (#kinds, #name) = match self.#name {
                                ::core::option::Option::Some(value) => {
                                    let (kinds, values) = #write;
                                    (::core::option::Option::Some(kinds), ::core::option::Option::Some(values))
                                }
                                ::core::option::Option::None => {
                                    (::core::option::Option::None, ::core::option::Option::None)
                                }
                            };
                        },
                    });
                }
                Type::Scalar(Scalar::U8) => quote!(#builder.bytes(value)),
                _ => quote!(#builder.vector(value)),
            },
            Type::Scalar(_) | Type::Enum(_) | Type::Struct(_) | Type::Array(..) => return None,
        };
        Some(match field.required {
            true => quote! { let #name = { let value = self.#name; #write }; },
            false => quote! { let #name = self.#name.map(|value| #write); },
        })
    }

    /// Returns the fields in the order in which Google's generated code writes them: the widest first, then the last. A
    /// union's type is a field of its own.
    fn writing_order(&self) -> Vec<(u16, &Field)> {
        let mut order: Vec<(u16, &Field)> = Vec::new();
        for field in self.fields.iter().rev() {
            order.push((field.id, field));
            if is_union(&field.ty) || is_unions(&field.ty) {
                order.push((field.id - 1, field));
            }
        }
        if !self.declared.original_order {
            order.sort_by_key(|(id, field)| std::cmp::Reverse(self.width(*id, field)));
        }
        order
    }

    /// Width of a field in Google's generator: a struct counts as an offset.
    fn width(&self, id: u16, field: &Field) -> usize {
        match &field.ty {
            Type::Union(_) if id != field.id => 1,
            Type::Scalar(_) | Type::Enum(_) => self.names.schema.inline(&field.ty).0,
            _ => 4,
        }
    }

    fn write(&self, id: u16, field: &Field, table: &Ident) -> TokenStream {
        let (name, is_type, id) = (ident(&field.name), id != field.id, number(id));
        let (put, refer) = match field.required {
            true => (quote!(put), quote!(refer)),
            false => (quote!(put_if), quote!(refer_if)),
        };
        match (&field.ty, &field.default) {
            (Type::Union(_), _) if is_type => match field.required {
                true => quote! { #table.put(#id, self.#name.kind()); },
                false => quote! { #table.put_if(#id, self.#name.map(|value| value.kind())); },
            },
            (Type::Vector(_), _) if is_type => {
                let kinds = ident_with(&field.name, "_type");
                quote! { #table.#refer(#id, #kinds); }
            }
            (Type::Text | Type::Vector(_) | Type::Table(_) | Type::Union(_), _) => {
                quote! { #table.#refer(#id, #name); }
            }
            (_, Default::None) => quote! { #table.#put(#id, self.#name); },
            (ty, default) => {
                let default = self.names.default(ty, default);
                quote! { #table.put_unless(#id, self.#name, #default); }
            }
        }
    }
}

/// Whether a field may be omitted when writing.
fn is_optional(field: &Field) -> bool {
    !field.required
        && !matches!(
            (&field.ty, &field.default),
            (Type::Scalar(_) | Type::Enum(_), Default::Integer(_) | Default::Float(_))
        )
}

fn is_union(ty: &Type) -> bool {
    matches!(ty, Type::Union(_))
}

fn is_unions(ty: &Type) -> bool {
    matches!(ty, Type::Vector(element) if is_union(element))
}
