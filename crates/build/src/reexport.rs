//! Names of `buffa`'s crates in generated code, as the re-exports of `polyrpc`.

use proc_macro2::{Group, Ident, Literal, Spacing, TokenStream, TokenTree};
use quote::quote;

/// Leads every path into `buffa`'s crates through `polyrpc`, so that the including crate depends on no other one:
/// `::buffa` becomes `::polyrpc::generated::buffa`.
pub(crate) fn through_polyrpc(tokens: TokenStream) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => out.push(redirect_group(&group).into()),
            TokenTree::Ident(name) if is_crate(&name) && is_after_leading_colons(&out) => {
                out.extend(quote!(polyrpc::generated::#name));
            }
            TokenTree::Literal(text) => out.push(redirect_link(text).into()),
            token => out.push(token),
        }
    }
    out.into_iter().collect()
}

fn redirect_group(group: &Group) -> Group {
    let mut redirected = Group::new(group.delimiter(), through_polyrpc(group.stream()));
    redirected.set_span(group.span());
    redirected
}

fn is_crate(name: &Ident) -> bool {
    CRATES.iter().any(|one| name == one)
}

/// Whether the tokens end in `::` that begins a path, as in `impl ::buffa::Message`, not `super::buffa::Message`.
fn is_after_leading_colons(before: &[TokenTree]) -> bool {
    let [rest @ .., TokenTree::Punct(first), TokenTree::Punct(second)] = before else { return false };
    let colons = first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':';
    colons && !matches!(rest.last(), Some(TokenTree::Ident(name)) if is_segment(name))
}

/// Whether a path may continue after this name.
fn is_segment(name: &Ident) -> bool {
    let name = name.to_string();
    let is_keyword = syn::parse_str::<Ident>(&name).is_err();
    !is_keyword || ["super", "self", "crate", "Self"].contains(&name.as_str())
}

/// Redirects the links in a documentation comment.
fn redirect_link(text: Literal) -> Literal {
    let written = text.to_string();
    if !written.starts_with('"') || !written.contains("[`::buffa") {
        return text;
    }
    written.replace("[`::buffa", "[`::polyrpc::generated::buffa").parse().unwrap_or(text)
}

/// Crates that the code of `buffa-codegen` refers to.
const CRATES: [&str; 3] = ["buffa", "buffa_descriptor", "buffa_types"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_into_the_crates_are_redirected() {
        let cases = [
            ("::buffa::Message", "::polyrpc::generated::buffa::Message"),
            (
                "fn f(a: &mut ::buffa::A) -> ::buffa::B {}",
                "fn f(a: &mut ::polyrpc::generated::buffa::A) -> ::polyrpc::generated::buffa::B {}",
            ),
            ("impl ::buffa_types::A for r#B {}", "impl ::polyrpc::generated::buffa_types::A for r#B {}"),
            ("vec![::buffa::a!(x)]", "vec![::polyrpc::generated::buffa::a!(x)]"),
            ("super::buffa::Message", "super::buffa::Message"),
            ("a::buffa::Message", "a::buffa::Message"),
            ("r#type::buffa::Message", "r#type::buffa::Message"),
            ("buffa::Message", "buffa::Message"),
            ("\"::buffa::Message\"", "\"::buffa::Message\""),
        ];
        for (code, want) in cases {
            let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
            assert_eq!(through_polyrpc(tokens(code)).to_string(), tokens(want).to_string());
        }
    }
}
