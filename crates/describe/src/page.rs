use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use polyrpc::Server;
use polyrpc::fallback::{HttpRequest, HttpResponse};
use polyrpc::server::ServerHandle;

use crate::{Method, OpenApi, Pattern};

/// The OpenAPI document of a server at `/openapi.json` on its port. Clones are the same page.
///
/// Callers of the listener can read the list of methods: the patterns select explicitly which of them are disclosed.
///
/// ```no_run
/// use polyrpc::Server;
/// use polyrpc_describe::{OpenApi, OpenApiPage};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let page = OpenApiPage::new(OpenApi::new("Arithmetic"), vec!["add".parse()?]);
/// let server = Server::new().function("add", |a: i64, b: i64| async move { a + b });
/// let running = page.serve(server).bind("127.0.0.1:8000").await?.start();
/// page.start(&running)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OpenApiPage(Arc<Inner>);

struct Inner {
    settings: OpenApi,
    patterns: Vec<Pattern>,
    /// `None` before the page is started.
    document: ArcSwapOption<Bytes>,
}

impl OpenApiPage {
    /// Creates a page of the methods that the patterns select.
    pub fn new(settings: OpenApi, patterns: Vec<Pattern>) -> Self {
        Self(Arc::new(Inner { settings, patterns, document: ArcSwapOption::empty() }))
    }

    /// Adds the page to a server. Until it is [started](Self::start), requests are answered with 503.
    #[must_use]
    pub fn serve(&self, server: Server) -> Server {
        let page = self.clone();
        server.pages([NAME], move |request: HttpRequest| {
            let response = page.answer(&request);
            std::future::ready(Ok(response))
        })
    }

    /// Describes the methods of a running server.
    ///
    /// # Errors
    ///
    /// If a pattern selects nothing, or the methods cannot be described together.
    pub fn start(&self, server: &ServerHandle) -> Result<(), String> {
        let monitor = server.monitor();
        self.offer(&Method::from_server(&monitor.methods(), &monitor.descriptors()))
    }

    /// Describes these methods from now on, for servers that forward calls instead of having the methods, such as
    /// gateways.
    ///
    /// # Errors
    ///
    /// If a pattern selects nothing, or the methods cannot be described together. Then nothing changes.
    pub fn offer(&self, methods: &[Method]) -> Result<(), String> {
        for pattern in &self.0.patterns {
            if !methods.iter().any(|method| pattern.matches(&method.service, &method.name)) {
                return Err(format!("no method matches `{pattern}`"));
            }
        }
        let selected: Vec<_> = methods
            .iter()
            .filter(|method| {
                self.0.patterns.iter().any(|pattern| pattern.matches(&method.service, &method.name))
            })
            .cloned()
            .collect();
        let document = self.0.settings.document(&selected)?;
        self.0.document.store(Some(Arc::new(document.to_string().into())));
        Ok(())
    }

    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let path = request.target.split('?').next().unwrap_or_default();
        let document = self.0.document.load_full();
        let (status, content_type, body) =
            match (path.trim_matches('/') == NAME, request.method.as_str(), document) {
                (false, ..) => (404, TEXT, Bytes::from_static(b"there is nothing at this path\n")),
                (_, "GET" | "HEAD", Some(document)) => (200, "application/json", Bytes::clone(&document)),
                (_, "GET" | "HEAD", None) => (503, TEXT, Bytes::from_static(b"the server is starting\n")),
                _ => (405, TEXT, Bytes::from_static(b"the document is read by GET\n")),
            };
        let length = body.len().to_string();
        let body = if request.method == "HEAD" { Bytes::new() } else { body };
        let mut response = HttpResponse::new(status, body);
        response.headers.append("content-type", content_type);
        response.headers.append("content-length", length);
        if status == 405 {
            response.headers.append("allow", "GET, HEAD");
        }
        response
    }
}

impl fmt::Debug for OpenApiPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenApiPage").field("patterns", &self.0.patterns).finish_non_exhaustive()
    }
}

const NAME: &str = "openapi.json";
const TEXT: &str = "text/plain; charset=utf-8";

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use serde_json::Value;

    use super::*;

    fn get(server: &ServerHandle, verb: &str, path: &str) -> (String, String) {
        let address = server.address().to_string();
        let mut stream = TcpStream::connect(&address).unwrap();
        let request = format!("{verb} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn document_has_the_selected_methods() {
        let server = Server::new()
            .function("add", |a: i64, b: i64| async move { a + b })
            .function("hidden", || async {});
        let page = OpenApiPage::new(OpenApi::new("Arithmetic"), vec!["add".parse().unwrap()]);
        let server = page.serve(server).bind("127.0.0.1:0").await.unwrap().start();
        assert_eq!(get(&server, "GET", "/openapi.json").0, "503");
        page.start(&server).unwrap();
        let (status, body) = get(&server, "GET", "/openapi.json");
        let document: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status.as_str(), document["info"]["title"].as_str()), ("200", Some("Arithmetic")));
        assert_eq!(document["paths"].as_object().unwrap().keys().collect::<Vec<_>>(), ["/add"]);
        assert_eq!(get(&server, "HEAD", "/openapi.json"), ("200".to_owned(), String::new()));
        assert_eq!(get(&server, "POST", "/openapi.json").0, "405");
        let other = OpenApiPage::new(OpenApi::new("Arithmetic"), vec!["sub".parse().unwrap()]);
        assert_eq!(other.start(&server).unwrap_err(), "no method matches `sub`");
    }
}
