use super::*;

const GOOD: &str = r#"
[[listen]]
address = "127.0.0.1:0"

[[upstream]]
name = "users"
url = "rpcx://127.0.0.1:1"

[[route]]
to = "users"
"#;

fn problem(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn smallest_configuration_is_accepted() {
    let config = Config::parse(GOOD).unwrap();
    assert_eq!((config.listen.len(), config.upstream.len(), config.route.len()), (1, 1, 1));
    assert_eq!(config.route[0].line, 9);
}

#[test]
fn problems_name_their_line_and_a_suggestion() {
    for (from, to, error) in [
        ("address =", "adress =", "line 3: unknown field `adress`"),
        ("url =", "ulr =", "did you mean `url`?"),
        (
            "to = \"users\"",
            "to = \"user\"",
            "line 9: there is no upstream `user`\n  hint: did you mean `users`?",
        ),
        ("to = \"users\"", "to = {users = 0}", "line 9: the route leads nowhere"),
        ("to = \"users\"", "to = \"users\"\ntimeout = \"2x\"", "line 11: `2x` is not a time"),
        ("to = \"users\"", "to = \"users\"\non_loss = \"drop\"", "line 11: unknown variant `drop`"),
        ("[[route]]", "[[route]", "line 9: "),
        ("[[route]]\nto = \"users\"", "", "there is no [[route]]"),
        ("[[route]]", "[[routes]]", "line 9: unknown field `routes`"),
        (
            "to = \"users\"",
            "to = \"users\"\nmirror = {to = \"usres\"}",
            "line 9: there is no upstream `usres`",
        ),
        (
            "to = \"users\"",
            "to = \"users\"\nmirror = {to = \"users\", share = 2.0}",
            "2 is not between 0 and 1",
        ),
        (
            "to = \"users\"",
            "to = \"users\"\nmirror = {to = \"users\", rule = [{path = \"a\"}]}",
            "a rule has one of ignore, unordered, tolerance, regex, rename",
        ),
        (
            "to = \"users\"",
            "to = \"users\"\nmirror = {to = \"users\", rule = [{path = \"a\", regex = \"(\"}]}",
            "`(` is not a regular expression",
        ),
        (
            "to = \"users\"",
            "to = {users = 1}\nrollback = {to = \"users\", failures = 0.1}",
            "line 9: `rollback` needs another upstream in `to`",
        ),
        ("address =", "proxy_protocol = true\naddress =", "line 2: `proxy_protocol` needs"),
        ("url =", "health = {check = \"ping\"}\nurl =", "`ping` is no check"),
        ("[[listen]]", "[limits]\nmemory = \"0MiB\"\n[[listen]]", "line 3: [limits]: `memory` is 0"),
        (
            "[[listen]]",
            "[limits]\nwrite_timeout = \"0s\"\n[[listen]]",
            "line 3: [limits]: `write_timeout` is 0",
        ),
        (
            "[[listen]]",
            "[limits]\nmemory = \"1MiB\"\n[[listen]]",
            "line 3: [limits]: `memory` is at least 4MiB",
        ),
        (
            "[[listen]]",
            "[limits]\nmemory = \"8MiB\"\nmessage = \"16MiB\"\n[[listen]]",
            "line 3: [limits]: `memory` is less than `message`",
        ),
        ("to = \"users\"", "to = \"users\"\ntimeout = \"0s\"", "line 11: `timeout` is 0"),
        ("to = \"users\"", "to = \"users\"\ncalls = 0", "line 11: `calls` is 0"),
        ("url =", "timeout = \"0ms\"\nurl =", "line 7: upstream `users`: `timeout` is 0"),
        ("url =", "connect_timeout = \"0ms\"\nurl =", "line 7: upstream `users`: `connect_timeout` is 0"),
        ("url =", "calls = 0\nurl =", "line 7: upstream `users`: `calls` is 0"),
        (
            "url =",
            "breaker = {consecutive = 0}\nurl =",
            "line 7: upstream `users`: `consecutive` of `breaker` is 0",
        ),
        (
            "to = \"users\"",
            "to = \"users\"\nmirror = {to = \"users\", timeout = \"0s\"}",
            "line 11: `timeout` of `mirror` is 0",
        ),
        (
            "to = \"users\"",
            "to = [\"users\"]",
            "line 10: invalid type: sequence, expected the name of an upstream, or a table of whole numbers",
        ),
        (
            "to = \"users\"",
            "to = {users = 0.5}",
            "line 10: invalid type: floating point `0.5`, expected a whole number",
        ),
        (
            "to = \"users\"",
            "to = {users = -5}",
            "line 10: invalid value: integer `-5`, expected a whole number",
        ),
        ("to = \"users\"", "to = \"users\"\ntimeout = 5", "expected a time such as \"500ms\", \"5s\""),
        (
            "[[listen]]",
            "[limits]\nmemory = 5\n[[listen]]",
            "line 3: invalid type: integer `5`, expected a size",
        ),
        ("[[listen]]", "threads = 0\n[[listen]]", "line 2: `threads` is a number"),
        ("[[listen]]", "name = \"A\"\n[[listen]]", "line 2: `name` is `A`"),
        (
            "[[listen]]",
            "[schema]\nproto = []\nreflect = [\"user\"]\n[[listen]]",
            "line 4: [schema]: `reflect`: there is no upstream `user`\n  hint: did you mean `users`?",
        ),
        ("to = \"users\"", "to = \"users\"\nrecord = true", "line 9: `record` needs a [record]"),
        ("[[listen]]", "[record]\nfiel = \"a\"\n[[listen]]", "line 3: unknown field `fiel`"),
        ("[[listen]]", "[record]\nshare = 0.5\n[[listen]]", "line 2: missing field `file`"),
        (
            "[[listen]]",
            "[record]\nfile = \"a\"\nby_default = false\n[[listen]]",
            "line 2: [record]: nothing is recorded: no route has `record = true`",
        ),
        (
            "[[listen]]",
            "[record]\nfile = \"a\"\nshare = 0.0\n[[listen]]",
            "line 2: [record]: nothing is recorded: `share` is 0",
        ),
        (
            "[[listen]]",
            "[record]\nfile = \"a\"\nhash = [\"user.email\"]\n[[listen]]",
            "line 2: [record]: `hash` needs a `hash_key`",
        ),
        ("[[listen]]", "[record]\nfile = \"a\"\ndrop = [\"a..b\"]\n[[listen]]", "`a..b` is not a path"),
        (
            "[[listen]]",
            "[record]\nfile = \"a\"\ntotal = \"1MiB\"\n[[listen]]",
            "line 2: [record]: `total` is less than one file",
        ),
    ] {
        let shown = problem(&GOOD.replace(from, to));
        assert!(shown.contains(error), "{to}: {shown}");
    }
}

#[test]
fn every_wrong_name_is_reported() {
    let text = format!("{GOOD}\n[[route]]\nto = {{ one = 5, two = 95 }}\n");
    assert_eq!(problem(&text), "line 12: there is no upstream `one`\nline 12: there is no upstream `two`");
}
