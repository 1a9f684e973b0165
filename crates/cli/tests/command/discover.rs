//! `polyrpc discover`, as users run it.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::running::{InteractiveRun, Server, TempDir, polyrpc};
use serde_json::json;

#[test]
fn list_is_printed_as_a_table_or_as_json() {
    let url = "baidu-std+list://10.0.0.1:8000 3,10.0.0.2:8000 weight=5&group=a&state=inactive";
    let ran = polyrpc(["discover", url]);
    let expected = "\
INSTANCE           WEIGHT  STATE     GROUP  MORE
tcp@10.0.0.1:8000  3       active           tag=3
tcp@10.0.0.2:8000  5       inactive  a
";
    assert_eq!((&*ran.stdout, ran.code), (expected, 0), "{ran:?}");
    let ran = polyrpc(["discover", url, "--json"]).json();
    assert_eq!(ran[1]["address"], "10.0.0.2:8000");
    assert_eq!((&ran[0]["active"], &ran[1]["active"]), (&json!(true), &json!(false)));
}

#[test]
fn changes_of_a_file_are_watched() {
    let directory = TempDir::new();
    let path = directory.path().join("servers");
    let put = |text: &str| {
        let beside = path.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, &path).unwrap();
    };
    put("a:1\n");
    let mut watch =
        InteractiveRun::start(["discover", &format!("file://{}", path.display()), "--watch", "--json"]);
    assert_eq!(watch.read_json()[0]["instance"], "tcp@a:1");
    put("b:1\nnonsense\n");
    assert_eq!(watch.read_json()[0]["instance"], "tcp@b:1");
    watch.stop();
}

#[test]
fn failed_discovery_prints_the_cause() {
    for (url, why, code) in [
        ("nothing://x", "the registry `nothing` is unknown", 1),
        ("10.0.0.1:80", "expected the URL of a registry", 1),
        ("list://a", "expected network@host:port", 1),
        ("rpcx://127.0.0.1:1", "this URL names one server", 1),
        ("file:///nowhere/at/all", "No such file", 78),
    ] {
        let ran = polyrpc(["discover", url]);
        assert!(ran.code == code && ran.stderr.contains(why), "{ran:?}");
    }
    let json = polyrpc(["discover", "file:///nowhere/at/all", "--json"]);
    assert!(json.stderr.contains(r#""status":"unavailable""#), "{json:?}");
}

#[test]
fn registry_that_does_not_answer_is_given_up_at_the_timeout() {
    // It accepts connections, and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("remotefile://{}/servers", silent.local_addr().unwrap());
    for more in [&[][..], &["--watch"]] {
        let ran = polyrpc(["discover", &url, "--timeout", "200ms"].iter().chain(more));
        assert!(ran.code == 68 && ran.stderr.contains("did not answer in time"), "{more:?}: {ran:?}");
    }
}

#[test]
fn serve_fails_if_its_server_cannot_be_registered() {
    let ran = polyrpc(["serve", "--listen", "127.0.0.1:0", "--register", "list://a:1"]);
    assert!(ran.code == 1 && ran.stderr.contains("it only lists servers"), "{ran:?}");
    let server =
        Server::serve(["--register", "mdns://", "--advertise", "example.org", "--attributes", "weight=5"]);
    assert!(server.stop().success());
}

#[test]
fn call_does_not_wait_for_a_registry_that_has_failed() {
    let start = Instant::now();
    let ran = polyrpc(["call", "rpcx+file:///nowhere/at/all", "add", "[1,2]", "--timeout", "5m"]);
    assert!(ran.code == 78 && ran.stderr.contains("No such file"), "{ran:?}");
    assert!(start.elapsed() < Duration::from_secs(60), "{ran:?}");
}

#[test]
fn call_finds_the_responding_server_among_several() {
    let server = Server::serve([]);
    let url = format!("rpcx+list://127.0.0.1:1,{}", server.address());
    for several in [&["--balance", "rr"][..], &["--balance", "p2c:choices=2"], &["--fail-mode", "failbackup"]]
    {
        let ran = polyrpc([&["call", &url, "add", "[1,2]"][..], several].concat());
        assert_eq!(ran.json(), json!(3));
    }
    let ran = polyrpc(["call", &url, "add", "[1,2]", "--balance", "alphabetical"]);
    assert!(ran.code != 0 && ran.stderr.contains("alphabetical"), "{ran:?}");
}
