/// Converts a name as bvar does (`bvar/variable.cpp`, `to_underscored_name`): `example.EchoService` becomes
/// `example_echo_service`.
pub(crate) fn to_underscored(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 8);
    let mut was_upper = true;
    for letter in name.chars() {
        match letter {
            'A'..='Z' => {
                if !was_upper && !text.ends_with('_') {
                    text.push('_');
                }
                text.push(letter.to_ascii_lowercase());
            }
            'a'..='z' | '0'..='9' => text.push(letter),
            _ if text.is_empty() || text.ends_with('_') => {}
            _ => text.push('_'),
        }
        was_upper = letter.is_ascii_uppercase();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::to_underscored;

    #[test]
    fn names_are_those_of_bvar() {
        for (name, want) in [
            ("example.EchoService.Echo", "example_echo_service_echo"),
            ("foo-inl.h", "foo_inl_h"),
            ("foo::bar::Apple_Car", "foo_bar_apple_car"),
            ("HTTPServer", "httpserver"),
            ("日本 x", "x"),
        ] {
            assert_eq!(to_underscored(name), want);
        }
    }
}
