//! Tests of `polyrpc gateway`.

use std::fs;
use std::time::{Duration, Instant};

use crate::running::{Server, TempDir, free_address, polyrpc, url_of};

fn configuration(to: &str) -> String {
    format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n\n[[upstream]]\nname = \"demo\"\nurl = \"{to}\"\n\n[[route]]\nto = \"demo\"\n"
    )
}

#[test]
fn check_names_wrong_keys_and_impossible_routes() {
    let folder = TempDir::new();
    let file = folder.path().join("gateway.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        polyrpc(["gateway", "--check", file.to_str().unwrap()])
    };
    let right = configuration("rpcx://127.0.0.1:1");
    let ran = check(&right);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = check(&right.replace("url", "ulr"));
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("line 6: unknown field `ulr`"), "{ran:?}");
    assert!(ran.stderr.contains("did you mean `url`?"), "{ran:?}");
    let restricted =
        configuration("grpc://127.0.0.1:1").replace("\n\n[[up", "\nprotocols = [\"http\"]\n\n[[up");
    let ran = check(&restricted);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("line 9: `demo` refuses http callers"), "{ran:?}");
}

#[test]
fn changed_file_is_loaded_and_a_broken_one_is_not() {
    let folder = TempDir::new();
    let file = folder.path().join("gateway.toml");
    let demo = Server::serve([]);
    fs::write(&file, configuration(&demo.url("rpcx"))).unwrap();
    let gateway = Server::start(["gateway", file.to_str().unwrap()], "ready");
    let url = format!("http://{}", gateway.listener("gateway"));
    let call = || polyrpc(["call", &url, "Arith/Mul", r#"{"A":7,"B":8}"#]);
    let ran = call();
    assert!(ran.stdout.contains("56"), "{ran:?}");
    fs::write(&file, "nonsense").unwrap();
    hang_up(&gateway);
    assert!(call().stdout.contains("56"));
    fs::write(
        &file,
        configuration(&demo.url("rpcx")).replace("to =", "match = { service = \"Other\" }\nto ="),
    )
    .unwrap();
    hang_up(&gateway);
    let started = Instant::now();
    while call().code == 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "the file is not loaded");
    }
    assert!(call().stderr.contains("no-route"));
    assert!(gateway.stop().success());
}

#[test]
fn calls_through_the_gateway_are_recorded_and_replayed() {
    let folder = TempDir::new();
    let (file, recording) = (folder.path().join("gateway.toml"), folder.path().join("calls.rec"));
    let recording = recording.to_str().unwrap();
    let demo = Server::serve([]);
    let text = format!(
        r#"
[record]
file = "{recording}"
min_free = "0KiB"

[[listen]]
address = "127.0.0.1:0"

[[upstream]]
name = "rpcx"
url = "{}"

[[upstream]]
name = "grpc"
url = "{}"

[[route]]
match = {{ service = "Arith", method = "Add" }}
to = "rpcx"
record = false

[[route]]
match = {{ service = "Arith" }}
to = "rpcx"

[[route]]
to = "grpc"
"#,
        demo.url("rpcx"),
        demo.url("grpc")
    );
    fs::write(&file, text).unwrap();
    let checked = polyrpc(["gateway", "--check", file.to_str().unwrap()]);
    assert!(checked.code == 0 && !std::path::Path::new(recording).exists(), "{checked:?}");
    let gateway = Server::start(["gateway", file.to_str().unwrap()], "ready");
    let proto = format!("{}/proto/helloworld.proto", env!("CARGO_MANIFEST_DIR"));
    let arith = r#"{"A":7,"B":8}"#;
    for (scheme, method, argument, more) in [
        ("rpcx", "Arith/Mul", arith, &["--auth", "hunter2"][..]),
        ("http", "Arith/Mul", arith, &[]),
        ("rpcx", "Arith/Add", arith, &[]),
        ("grpc", "helloworld.Greeter/SayHello", r#"{"name":"Ann"}"#, &["--proto", &proto]),
    ] {
        let url = url_of(scheme, gateway.listener("gateway"));
        let ran = polyrpc(["call", &url, method, argument].iter().chain(more));
        assert_eq!(ran.code, 0, "{scheme} {method}: {ran:?}");
    }
    assert!(gateway.stop().success());
    let list = polyrpc(["recording", "list", recording]);
    assert!(list.stdout.contains("Arith/Mul") && list.stdout.contains("SayHello"), "{list:?}");
    assert!(!list.stdout.contains("Arith/Add"), "{list:?}");
    let bytes = fs::read(recording).unwrap();
    assert!(!bytes.windows(7).any(|part| part == b"hunter2"));
    // Another server answers alike, whatever its protocol.
    let other = Server::serve([]);
    for (scheme, method, calls, more) in [
        ("rpcx", "Arith/*", 2, &[][..]),
        ("http", "Arith/*", 2, &[]),
        ("grpc", "*Greeter/SayHello", 1, &["--proto", &proto]),
    ] {
        let url = other.url(scheme);
        let arguments =
            ["replay", recording, "--to", &url, "--method", method, "--unsafe", "--max", "--json"];
        let ran = polyrpc(arguments.iter().chain(more));
        assert_eq!(ran.code, 0, "{scheme} {method}: {ran:?}");
        let result: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(result["sent"] == calls && result["compared"] == calls, "{scheme} {method}: {result}");
    }
}

fn hang_up(gateway: &Server) {
    let sent = std::process::Command::new("kill").args(["-HUP", &gateway.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn online_check_names_upstreams_without_a_server() {
    let folder = TempDir::new();
    let file = folder.path().join("gateway.toml");
    let server = Server::serve([]);
    let checked = |addresses: &str, reflect: &str| {
        let text = format!(
            "[schema]\nreflect = [{reflect}]\n[[listen]]\naddress = \"127.0.0.1:0\"\nprotocols = [\"grpc\", \"http\"]\n[[upstream]]\n\
             name = \"a\"\nurl = \"grpc+list://{addresses}\"\n[[route]]\nmatch = {{ service = \"helloworld.Greeter\" }}\nto = \"a\"\n"
        );
        fs::write(&file, text).unwrap();
        polyrpc(["gateway", "--check", "--online", file.to_str().unwrap()])
    };
    let right = checked(server.address(), "\"a\"");
    assert!(right.code == 0 && right.stdout.contains("is valid"), "{right:?}");
    let gone = free_address();
    let half = checked(&format!("{},{gone}", server.address()), "");
    assert!(half.stderr.contains(&format!("line 6: `a`: {gone}: Connection refused")), "{half:?}");
    let none = checked(&gone, "");
    assert!(
        none.code == 1 && none.stderr.contains("line 6: `a` has no server that can be reached"),
        "{none:?}"
    );
}
