use polyrpc_core::{Format, Json};
use polyrpc_payload::schema::testing::pool;
use polyrpc_payload::transcode;

use super::*;

const LIBRARY: &str = r#"
    syntax = "proto3";
    package library;
    import "google/protobuf/descriptor.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";

    message HttpRule {
      string selector = 1;
      oneof pattern { string get = 2; string put = 3; string post = 4; string delete = 5; string patch = 6; Custom custom = 8; }
      string body = 7;
      string response_body = 12;
      repeated HttpRule additional_bindings = 11;
    }
    message Custom { string kind = 1; string path = 2; }
    extend google.protobuf.MethodOptions { HttpRule http = 72295728; }

    message Book { string name = 1; string title = 2; int64 page_count = 3; Author author = 4; repeated string tags = 5; }
    message Author { string name = 1; bool alive = 2; }
    enum Order { BY_NAME = 0; BY_TITLE = 1; }
    message Asked {
      string name = 1; int32 page_size = 2; Order order_by = 3; bool deep = 4; repeated int32 ids = 5;
      google.protobuf.Timestamp since = 6; google.protobuf.BoolValue sure = 7; Book book = 8; map<string, string> labels = 9;
      bytes token = 10; double score = 11;
    }
    service Library {
      rpc Get(Asked) returns (Book) { option (http) = { get: "/v1/{name=shelves/*/books/*}" }; }
      rpc List(Asked) returns (Book) { option (http) = { get: "/v1/books" response_body: "tags" additional_bindings { get: "/v1/all/{book.author.name}" } }; }
      rpc Create(Asked) returns (Book) { option (http) = { post: "/v1/books" body: "book" }; }
      rpc Update(Book) returns (Book) { option (http) = { patch: "/v1/{name=books/*}" body: "*" }; }
      rpc Move(Asked) returns (Book) { option (http) = { post: "/v1/{name=books/**}:move" body: "*" }; }
      rpc Head(Asked) returns (Book) { option (http) = { custom { kind: "HEAD" path: "/v1/books" } }; }
      rpc Latest(Asked) returns (Book) { option (http) = { get: "/v1/books/latest" }; }
      rpc One(Asked) returns (Book) { option (http) = { get: "/v1/books/{name}" }; }
      rpc Plain(Asked) returns (Book);
      rpc Watch(Asked) returns (stream Book) { option (http) = { get: "/v1/watch" }; }
    }
"#;

fn library() -> Routes {
    let pool = pool(LIBRARY);
    let mut routes = Routes::default();
    for method in pool.service("library.Library").unwrap().methods() {
        routes.add("library.Library", method).unwrap();
    }
    routes
}

/// Returns the method that a request matches and its message, after parsing the message with the method's schema.
fn route_request(verb: &str, path: &str, query: &str, body: &str) -> Result<(String, String), String> {
    let routes = library();
    let found = match routes.find(verb, path) {
        Lookup::Found(found) => found,
        Lookup::OtherVerbs(verbs) => return Err(verbs.join(",")),
        Lookup::Nothing => return Err("nothing".into()),
    };
    let method = found.route().method().to_owned();
    let json = found.message(query, body.as_bytes()).map_err(|unfit| unfit.to_string())?;
    let pool = pool(LIBRARY);
    let input =
        pool.service("library.Library").unwrap().methods().find(|m| m.name() == method).unwrap().input();
    transcode::to_protobuf(&input, Format::Json(Json::Proto3), &json).expect("the message is of its type");
    Ok((method, String::from_utf8(json.to_vec()).unwrap()))
}

#[track_caller]
fn leads(verb: &str, path: &str, query: &str, body: &str, method: &str, json: &str) {
    assert_eq!(route_request(verb, path, query, body), Ok((method.to_owned(), json.to_owned())));
}

#[test]
fn path_variables_become_fields() {
    leads("GET", "/v1/shelves/1/books/a%20b", "", "", "Get", r#"{"name":"shelves/1/books/a b"}"#);
    leads("GET", "/v1/all/J%C3%BCnger", "", "", "List", r#"{"book":{"author":{"name":"Jünger"}}}"#);
    leads("POST", "/v1/books/a/b%2Fc/d:move", "", "", "Move", r#"{"name":"books/a/b%2Fc/d"}"#);
    leads("POST", "/v1/books/a%2fb/%252F:move", "", "", "Move", r#"{"name":"books/a%2fb/%2F"}"#);
    leads("GET", "/v1/books/b%2Fc", "", "", "One", r#"{"name":"b/c"}"#);
}

#[test]
fn literal_segments_precede_wildcards() {
    leads("GET", "/v1/books/latest", "", "", "Latest", "{}");
    leads("GET", "/v1/books/later", "", "", "One", r#"{"name":"later"}"#);
}

#[test]
fn query_parameters_fill_other_fields_by_type() {
    let query = "pageSize=7&order_by=BY_TITLE&deep=true&ids=1&ids=2&since=2026-11-21T00:00:00Z&sure=true\
        &book.author.alive=false&token=AQID&score=1.5&utm_source=x&name=a+b%26";
    let json = r#"{"book":{"author":{"alive":false}},"deep":true,"ids":["1","2"],"name":"a b&","orderBy":"BY_TITLE",
        "pageSize":"7","score":"1.5","since":"2026-11-21T00:00:00Z","sure":true,"token":"AQID"}"#;
    leads("GET", "/v1/books", query, "", "List", &json.replace("\n        ", ""));
    leads("GET", "/v1/books", "order_by=1", "", "List", r#"{"orderBy":1}"#);
}

#[test]
fn body_is_the_message_or_one_field() {
    leads(
        "POST",
        "/v1/books",
        "deep=true",
        r#"{"title":"T"}"#,
        "Create",
        r#"{"book":{"title":"T"},"deep":true}"#,
    );
    leads(
        "POST",
        "/v1/books",
        "book.name=n",
        r#" {"title":"T"} "#,
        "Create",
        r#"{"book":{"name":"n","title":"T"}}"#,
    );
    leads("POST", "/v1/books", "book.name=n", " null ", "Create", r#"{"book":{"name":"n"}}"#);
    let body = r#"{"page_count": 9007199254740993, "name": "other"}"#;
    leads(
        "PATCH",
        "/v1/books/5",
        "deep=true",
        body,
        "Update",
        r#"{"name":"books/5","pageCount":9007199254740993}"#,
    );
    leads("PATCH", "/v1/books/5", "", "", "Update", r#"{"name":"books/5"}"#);
}

#[test]
fn other_verbs_list_the_allowed_ones_and_other_paths_are_not_found() {
    leads("HEAD", "/v1/books", "", "", "Head", "{}");
    let verbs = route_request("DELETE", "/v1/books", "", "").unwrap_err();
    assert_eq!(verbs, "GET,POST,HEAD");
    for path in
        ["/", "", "/v1", "/v1/books/", "/v1/books/a/b", "/v1/shelves//books/1", "/v1/watch", "/v2/books"]
    {
        assert_eq!(route_request("GET", path, "", "").unwrap_err(), "nothing", "{path}");
    }
    assert_eq!(route_request("POST", "/v1/books/a:mov", "", "").unwrap_err(), "PATCH,GET");
}

#[test]
fn invalid_request_is_rejected_with_a_reason() {
    for (query, reason) in [
        ("deep=yes", "`deep` is true or false, not `yes`"),
        ("page_size=1&page_size=2", "`page_size` occurs more than once"),
        ("book=x", "`book` is a message, which a string cannot express"),
        ("labels=x", "`labels` is a map, which a string cannot express"),
        ("name.x=1", "`name` is not a message and has no field `x`"),
        (&["author"; 40].join(".")[..], "a name has more than 32 parts"),
        ("book.nope=1", "library.Book has no field `nope`"),
        ("a=%", "the query is malformed"),
    ] {
        assert_eq!(route_request("GET", "/v1/books", query, "").unwrap_err(), reason, "{query}");
    }
    assert!(route_request("POST", "/v1/books", "", "{").unwrap_err().starts_with("the body is not JSON: "));
    assert!(
        route_request("PATCH", "/v1/books/1", "", "[]")
            .unwrap_err()
            .starts_with("the body is not a JSON object: ")
    );
    for escape in ["%ff", "%+f", "%4", "%%2f", "%2%2f"] {
        let (one, several) = (format!("/v1/books/{escape}"), format!("/v1/books/a/{escape}:move"));
        assert_eq!(route_request("GET", &one, "", "").unwrap_err(), "nothing", "{one}");
        assert_eq!(route_request("POST", &several, "", "").unwrap_err(), "nothing", "{several}");
    }
}

#[test]
fn response_is_the_message_or_one_field() {
    let routes = library();
    let answered = |path: &str, reply: &'static str| match routes.find("GET", path) {
        Lookup::Found(found) => found.route().response(bytes::Bytes::from_static(reply.as_bytes())),
        other => panic!("{other:?}"),
    };
    assert_eq!(&answered("/v1/books", r#"{"name":"n","tags":["a", "b"]}"#)[..], br#"["a", "b"]"#);
    assert_eq!(&answered("/v1/books", r#"{"name":"n"}"#)[..], b"[]");
    assert_eq!(&answered("/v1/books/1", r#"{"name":"n"}"#)[..], br#"{"name":"n"}"#);
}

#[test]
fn unset_field_in_a_response_is_written_as_in_the_dialect_of_the_reply() {
    let source = LIBRARY.split("service Library").next().unwrap();
    let source = format!(
        r#"{source}
        message Shown {{ int64 count = 1; Order order = 2; int32 size = 3; }}
        service S {{
          rpc First(Book) returns (Shown) {{ option (http) = {{ get: "/count" response_body: "count" }}; }}
          rpc Second(Book) returns (Shown) {{ option (http) = {{ get: "/order" response_body: "order" }}; }}
          rpc Third(Book) returns (Shown) {{ option (http) = {{ get: "/size" response_body: "size" }}; }}
        }}"#
    );
    let pool = pool(&source);
    let mut routes = Routes::default();
    for method in pool.service("library.S").unwrap().methods() {
        routes.add("library.S", method).unwrap();
    }
    for (path, dialect, want) in [
        ("/count", Json::Proto3, r#""0""#),
        ("/count", Json::Brpc, "0"),
        ("/order", Json::Proto3, r#""BY_NAME""#),
        ("/order", Json::Brpc, r#""BY_NAME""#),
        ("/order", Json::Go, "0"),
        ("/size", Json::Proto3, "0"),
    ] {
        let Lookup::Found(found) = routes.find("GET", path) else { panic!("{path} has a rule") };
        let body = found.route().response_in(dialect, bytes::Bytes::from_static(b"{}"));
        assert_eq!(body, want.as_bytes(), "{path}, {dialect:?}");
    }
}

#[test]
fn invalid_rules_are_rejected_with_a_reason() {
    for (rule, reason) in [
        (r#"get: "books""#, "`books`: it does not begin with a slash"),
        (r#"get: "/a//b""#, "`/a//b`: a segment is empty"),
        (r#"get: "/a/""#, "`/a/`: a segment is empty"),
        (r#"get: "/{name""#, "`/{name`: a brace is not closed"),
        (r#"get: "/{name}x""#, "`/{name}x`: a variable must be a whole segment"),
        (r#"get: "/{name=**}/x""#, "`/{name=**}/x`: something follows `**`"),
        (r#"get: "/a*""#, "`/a*`: a segment is neither a word nor a wildcard"),
        (r#"get: "/{name}/{name}""#, "`/{name}/{name}`: a field is bound twice"),
        (r#"get: "/{nope}""#, "`GET s.S/M`: a variable does not name a field that a string can fill"),
        (r#"get: "/{author}""#, "`GET s.S/M`: a variable does not name a field that a string can fill"),
        (r#"get: "/{tags}""#, "`GET s.S/M`: a variable does not name a field that a string can fill"),
        (r#"post: "/" body: "nope""#, "`POST s.S/M`: the body names an unknown field of the request"),
        (
            r#"post: "/" response_body: "nope""#,
            "`POST s.S/M`: the response names an unknown field of the reply",
        ),
        (r#"body: "*""#, "the rule has no pattern"),
    ] {
        let source = LIBRARY.split("service Library").next().unwrap();
        let source = format!(
            "{source} service S {{ rpc M(Book) returns (Book) {{ option (http) = {{ {rule} }}; }} }}"
        );
        let pool = pool(&source);
        let method = pool.service("library.S").unwrap().methods().next().unwrap();
        let error = Routes::default().add("s.S", method).unwrap_err();
        assert_eq!(error.to_string(), reason, "{rule}");
    }
}

#[test]
fn all_fields_but_not_all_unknown_members_of_a_body_are_kept() {
    let unknown: String = (0..100_000).map(|n| format!(r#""u{n}":0,"#)).collect();
    let body = format!(r#"{{"title":"first",{unknown}"\u0074itle":"last","page_count":7}}"#);
    let routes = library();
    let Lookup::Found(found) = routes.find("PATCH", "/v1/books/1") else { panic!("it has a rule") };
    let message = found.message("", body.as_bytes()).unwrap();
    let message: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&message).unwrap();
    assert_eq!(
        (&message["title"], &message["pageCount"], &message["name"]),
        (&"last".into(), &7.into(), &"books/1".into())
    );
    assert!((4..=1003).contains(&message.len()), "{}", message.len());
}
