//! The debug page of Go's servers (Go `net/rpc/debug.go`).

use std::fmt::Write;

/// Default path of the debug page in Go's servers.
pub(crate) const PAGE_PATH: &str = "/debug/rpc";

/// Returns the page of a server with these services, each with its methods.
///
/// Go's page also contains the Go types of each method and how often it was called.
pub fn page(services: &[(String, Vec<String>)]) -> String {
    let mut page = "<html>\n<body>\n<title>Services</title>\n".to_owned();
    for (service, methods) in services {
        let _ = write!(
            page,
            "<hr>\nService {}\n<hr>\n<table>\n<th align=center>Method</th>\n",
            EscapedName(service)
        );
        for method in methods {
            let _ = writeln!(page, "<tr><td align=left font=fixed>{}</td></tr>", EscapedName(method));
        }
        page.push_str("</table>\n");
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// A name escaped for HTML.
struct EscapedName<'n>(&'n str);

impl std::fmt::Display for EscapedName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&#34;"),
            '\'' => f.write_str("&#39;"),
            char => f.write_char(char),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_lists_services_and_methods_with_escaped_names() {
        let page = page(&[("Arith".into(), vec!["Div".into(), "Mul".into()]), ("<a&b>".into(), vec![])]);
        assert!(page.contains("Service Arith\n"), "{page}");
        assert!(page.find(">Div<") < page.find(">Mul<"), "{page}");
        assert!(page.contains("Service &lt;a&amp;b&gt;\n"), "{page}");
    }
}
