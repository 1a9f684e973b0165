//! etcd: users, several servers, large responses. All against the real one, if it is installed.

use crate::fake::{entry, free_port, next, until};
use crate::real::{Kind, Registry};
use futures_util::future::join_all;
use polyrpc::discovery::{Discover, Registrar};
use polyrpc_discovery::etcd::Etcd;
use tokio::net::{TcpSocket, TcpStream};

fn address(registry: &Registry) -> String {
    format!("127.0.0.1:{}", registry.port)
}

#[tokio::test]
async fn client_authenticates_and_renews_an_expired_token() {
    let Some(registry) = Registry::start(Kind::Etcd).await else { return };
    let etcd = Etcd::new([address(&registry)]);
    // A user before authentication is enabled.
    let error = next(&mut etcd.clone().user("root", "secret").service("rpcx_test", "Arith").watch()).await;
    assert!(error.unwrap_err().message().contains("authentication is not enabled"));

    registry.etcd_call("", "Auth/UserAdd", &[b"root", b"secret"]).await;
    registry.etcd_call("", "Auth/RoleAdd", &[b"root"]).await;
    registry.etcd_call("", "Auth/UserGrantRole", &[b"root", b"root"]).await;
    registry.etcd_call("", "Auth/AuthEnable", &[]).await;
    for (unauthorized, why) in [
        (etcd.clone(), "user name is empty"),
        (etcd.clone().user("root", "wrong"), "invalid user ID or password"),
        (etcd.clone().user("nobody", "secret"), "invalid user ID or password"),
    ] {
        let error = next(&mut unauthorized.service("rpcx_test", "Arith").watch()).await.unwrap_err();
        assert!(error.message().starts_with("etcd: ") && error.message().contains(why), "{error}");
        let error =
            unauthorized.registrar("/rpcx_test").publish(&entry("Arith", "tcp@h:1", "")).await.unwrap_err();
        assert!(error.message().contains(why), "{error}");
    }

    let etcd = etcd.user("root", "secret");
    let (server, mut sets) = (etcd.registrar("/rpcx_test"), etcd.service("rpcx_test", "Arith").watch());
    server.publish(&entry("Arith", "tcp@h:1", "weight=1")).await.unwrap();
    until(&mut sets, &["tcp@h:1 weight=1".to_owned()]).await;

    for weight in 2..5 {
        // Setting a password again, even the same one, invalidates all tokens.
        let answer = registry.etcd_call("", "Auth/Authenticate", &[b"root", b"secret"]).await;
        let behind_tag_and_length = answer.iter().rposition(|&byte| byte == 0x12).unwrap() + 2;
        let token = str::from_utf8(&answer[behind_tag_and_length..]).unwrap();
        registry.etcd_call(token, "Auth/UserChangePassword", &[b"root", b"secret"]).await;

        server.publish(&entry("Arith", "tcp@h:1", &format!("weight={weight}"))).await.unwrap();
        let set = next(&mut sets).await.unwrap();
        assert_eq!(set[0].attributes.weight(), weight);
    }
    server.withdraw(&entry("Arith", "tcp@h:1", "")).await.unwrap();
    assert!(next(&mut sets).await.unwrap().is_empty());
}

#[tokio::test]
async fn unreachable_servers_are_skipped() {
    let Some(registry) = Registry::start(Kind::Etcd).await else { return };
    // Nothing listens on the first; the second has a full backlog, so that connections stay pending.
    let gone = format!("127.0.0.1:{}", free_port());
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent = socket.local_addr().unwrap();
    let _listener = socket.listen(0).unwrap();
    let _waits = TcpStream::connect(silent).await.unwrap();

    let etcd = Etcd::new([gone, silent.to_string(), format!("http://{}", address(&registry))]);
    // A single client might pick the right one by chance.
    let found = join_all((1..=8).map(async |port| {
        let entry = entry("Arith", &format!("tcp@h:{port}"), "");
        etcd.registrar("/rpcx_test").publish(&entry).await.unwrap();
        next(&mut etcd.service("rpcx_test", "Arith").watch()).await.unwrap()
    }));
    assert!(found.await.iter().all(|set| !set.is_empty()));
}

#[tokio::test]
async fn set_larger_than_4_mib_is_listed() {
    let Some(registry) = Registry::start(Kind::Etcd).await else { return };
    let value = format!("note={}", "x".repeat(100 << 10));
    // More than the 4 MiB that gRPC's own clients take.
    for port in 1..=100 {
        registry.write(format!("tcp@h:{port}").as_bytes(), value.as_bytes()).await;
    }
    let mut sets = registry.discover("Arith").watch();
    let set = next(&mut sets).await.unwrap();
    assert_eq!(set.len(), 100);
    assert!(set.iter().all(|one| one.attributes.to_string() == value));
}
