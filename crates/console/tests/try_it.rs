//! Methods that are called by hand.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::counting::counting_service;
use common::{Answer, get, observe, send, services, wait_until};
use polyrpc::{Context, Server};
use polyrpc_console::{Admin, AdminHandle, Role};

const CALL: &str = "Authorization: Bearer a-token-for-calling\r\n";

fn admin(console: &polyrpc_console::Console) -> AdminHandle {
    let admin = Admin::on("127.0.0.1:0").token(Role::Call, "a-token-for-calling");
    admin.token(Role::Read, "a-token-for-reading").start(console).unwrap()
}

fn call(admin: &AdminHandle, method: &str, form: &str) -> Answer {
    send(admin.address(), "POST", &format!("/try/{method}?format=json"), CALL, form)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn methods_are_called_by_every_protocol_that_carries_json() {
    let told = |cx: Context, text: String| async move {
        let tenant = cx.metadata().get("tenant").unwrap_or("nobody").to_owned();
        let reply = format!("{text} from {tenant} by {}", cx.protocol().as_str());
        (cx, reply)
    };
    let (console, _server) = observe(services().function("told", told)).await;
    let admin = admin(&console);
    let form = get_form(&admin, "example.EchoService/Echo");
    assert_eq!(form.json()["data"]["message"], "{\n  \"message\": \"\"\n}");
    for (protocol, name) in [
        ("http", "http"),
        ("grpc", "grpc"),
        ("connect", "http"),
        ("baidu-std", "baidu_std"),
        ("rpcx", "rpcx"),
        ("http%3Fdialect%3Djson-rpc", "http"),
        ("net-rpc%3Fcodec%3Djson", "net_rpc"),
    ] {
        let sum = call(&admin, "add", &format!("protocol={protocol}&message=[1,2]"));
        let tried = sum.json()["data"]["result"].clone();
        assert_eq!(
            (&tried["failure"], tried["reply"].as_str().map(str::trim)),
            (&serde_json::Value::Null, Some("3")),
            "{sum:?}"
        );
        // Go's net/rpc has no metadata.
        let metadata = if name == "net_rpc" { "" } else { "&metadata=tenant%3A+ann%0D%0A" };
        let told = call(&admin, "told", &format!("protocol={protocol}&message=%22hi%22{metadata}"));
        let tenant = if metadata.is_empty() { "nobody" } else { "ann" };
        let reply = told.json()["data"]["result"]["reply"].as_str().unwrap().to_owned();
        assert_eq!(reply.trim(), format!("\"hi from {tenant} by {name}\""), "{told:?}");
    }
    let failed = call(&admin, "fail", "protocol=rpcx&message=%22x%22").json()["data"]["result"].clone();
    assert!(failed["failure"].as_str().unwrap().contains("nothing"), "{failed}");
    // The server's side of it is recorded.
    let trace = failed["trace"].as_str().unwrap();
    let target = format!("/rpcz?trace={trace}");
    wait_until(|| send(admin.address(), "GET", &target, CALL, "").body.contains(" server rpcx fail ")).await;
    // Text for curl is the reply alone.
    assert_eq!(send(admin.address(), "POST", "/try/add", CALL, "message=[1,2]").body.trim(), "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn names_of_metadata_keep_their_case_where_it_has_a_meaning() {
    let keyed = |mut cx: Context, _: String| async move {
        let tenant = cx.metadata().get("Tenant").unwrap_or("nobody").to_owned();
        cx.reply_options().metadata.insert("Api-Key", "a-secret");
        (cx, tenant)
    };
    let (console, _server) = observe(Server::new().function("keyed", keyed)).await;
    let admin = admin(&console);
    for protocol in ["baidu-std", "rpcx"] {
        let form = format!("protocol={protocol}&message=%22x%22&metadata=Tenant%3A+ann");
        let answer = call(&admin, "keyed", &form);
        let result = answer.json()["data"]["result"].clone();
        assert_eq!(result["reply"].as_str().map(str::trim), Some("\"ann\""), "{protocol}: {answer:?}");
        // A credential is one in any case.
        assert!(
            answer.body.contains("Api-Key") && !answer.body.contains("a-secret"),
            "{protocol}: {answer:?}"
        );
    }
}

fn get_form(admin: &AdminHandle, method: &str) -> Answer {
    send(admin.address(), "GET", &format!("/try/{method}?format=json"), CALL, "")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn callers_need_the_role_and_an_intention() {
    let (console, server) = observe(services()).await;
    let guarded = admin(&console);
    let read = "Authorization: Bearer a-token-for-reading\r\n";
    for target in ["/try", "/try/add"] {
        assert_eq!(get(guarded.address(), target).status, 401);
        assert_eq!(send(guarded.address(), "GET", target, read, "").status, 403);
        assert_eq!(send(guarded.address(), "GET", target, CALL, "").status, 200);
        // On the port of the services everybody only reads.
        assert_eq!(send(server.address(), "GET", target, CALL, "").status, 403);
    }
    let form = "message=[1,2]";
    assert_eq!(send(guarded.address(), "POST", "/try/add", read, form).status, 403);
    assert_eq!(send(server.address(), "POST", "/try/add", CALL, form).status, 403);
    // A browser's requests need the token of the form.
    let open = Admin::on("127.0.0.1:0").anonymous(Role::Call).start(&console).unwrap();
    let browser = "User-Agent: Mozilla/5.0\r\n";
    assert_eq!(send(open.address(), "POST", "/try/add", browser, form).status, 403);
    let page = send(open.address(), "GET", "/try/add", browser, "").body;
    let token = page.split("name=token value=\"").nth(1).unwrap().split('"').next().unwrap();
    let answer = send(open.address(), "POST", "/try/add", browser, &format!("{form}&token={token}"));
    assert!(answer.status == 200 && answer.body.contains("role=status>3\n</pre>"), "{answer:?}");
    // Listeners are local readers' unless they are told otherwise.
    let plain = Admin::on("127.0.0.1:0").start(&console).unwrap();
    assert_eq!(get(plain.address(), "/try").status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_but_methods_of_the_servers_is_called() {
    let nasty = |_: String| async { "<script>alert(1)</script>\u{202e}".to_owned() };
    let (console, _server) = observe(Server::new().function("nasty", nasty)).await;
    let admin = admin(&console);
    for (method, form, status) in [
        ("nobody", "message=1", 404),
        ("grpc.health.v1.Health/Check", "message={}", 404),
        ("nasty", "protocol=file&message=1", 400),
        ("nasty", "protocol=http://evil.example&message=1", 400),
        ("nasty", "metadata=nothing&message=1", 400),
    ] {
        let answer = call(&admin, method, form);
        assert_eq!(answer.status, status, "{method} {form}: {answer:?}");
    }
    let wrong = call(&admin, "nasty", "message={").json()["data"]["result"]["failure"].clone();
    assert!(wrong.is_string(), "{wrong}");
    let browser = format!("{CALL}User-Agent: Mozilla/5.0\r\n");
    let form = "message=%22%3C/textarea%3E%3Cscript%3E%22&metadata=a%3A+%27%3Cb%3E%0A";
    let html = send(admin.address(), "POST", "/try/nasty", &browser, form).body;
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}"), "{html}");
    assert_eq!(html.matches("</textarea>").count(), 2, "{html}");
    assert_eq!(html.matches("<script").count(), html.matches(common::OWN_SCRIPT).count(), "{html}");
    assert!(
        html.contains("curl http://127.0.0.1:") && html.contains("a: &#39;\\&#39;&#39;&lt;b&gt;"),
        "{html}"
    );
}

async fn observe_counting() -> (polyrpc_console::Console, polyrpc::server::ServerHandle) {
    observe(Server::new().service(counting_service())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn streams_of_every_shape_are_called() {
    let (console, _server) = observe_counting().await;
    let admin = admin(&console);
    for (form, method, reply, failure) in [
        ("message=3", "Count", "1\n2\n3\n", None),
        ("protocol=connect&message=3", "Count", "1\n2\n3\n", None),
        ("protocol=http&message=3", "Count", "", Some("no streams")),
        ("protocol=baidu-std&message=3", "Count", "1\n2\n3\n", None),
        ("message=1+2%0A39", "Sum", "42\n", None),
        ("message=1+2", "Double", "2\n4\n", Some("that is all")),
        ("message=1+2", "Count", "", Some("one message")),
        ("message=[", "Sum", "", Some("not JSON values")),
        ("protocol=rpcx&message=3", "Count", "", Some("no streams")),
        ("message=%22a%22&timeout_ms=3000", "Stall", "\"a\"\n", Some("deadline exceeded")),
        ("message=5000", "Count", "", None),
    ] {
        let answer = call(&admin, &format!("Counting/{method}"), form).json()["data"]["result"].clone();
        let text = answer["failure"].as_str();
        assert_eq!(text.is_some(), failure.is_some(), "{method} {form}: {answer}");
        assert!(text.unwrap_or_default().contains(failure.unwrap_or_default()), "{method} {form}: {answer}");
        match form {
            // The number of messages has a bound.
            "message=5000" => {
                assert_eq!(answer["reply"].as_str().unwrap().lines().count(), 1_000, "{answer}");
                assert!(answer["note"].as_str().unwrap().contains("more messages"), "{answer}");
            }
            _ => assert_eq!(answer["reply"], reply, "{method} {form}: {answer}"),
        }
    }
    let text = send(admin.address(), "POST", "/try/Counting/Double", CALL, "message=7");
    assert!(text.body.contains("14\n") && text.body.contains("failed: "), "{text:?}");
}

/// Reads until this text has arrived.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut read, mut piece) = (String::new(), [0; 4096]);
    while !read.contains(text) {
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{text}: {read}");
        read += &String::from_utf8_lossy(&piece[..length]);
    }
    read
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn messages_are_shown_while_the_stream_continues() {
    let (console, _server) = observe_counting().await;
    let admin = admin(&console);
    for (agent, message) in [("curl/8", "\"<b>\"\n"), ("Mozilla/5.0", "role=log>")] {
        let form = "message=%22%3Cb%3E%22&timeout_ms=20000";
        let mut stream = TcpStream::connect(admin.address().to_string()).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let head = format!(
            "POST /try/Counting/Stall HTTP/1.1\r\nHost: {}\r\nUser-Agent: {agent}\r\n{CALL}Content-Length: {}\r\n\r\n{form}",
            admin.address(),
            form.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut page = read_until(&mut stream, message);
        if agent != "curl/8" {
            if !page.contains("&lt;b&gt;&quot;") {
                page += &read_until(&mut stream, "&lt;b&gt;");
            }
            assert!(!page.contains("<b>") && !page.contains("</main>"), "{page}");
        }
        // The call is cancelled once nobody reads: four at a time would soon be too many.
    }
    wait_until(|| {
        let page = send(admin.address(), "POST", "/try/Counting/Count?format=json", CALL, "message=1");
        page.status == 200
    })
    .await;
}
