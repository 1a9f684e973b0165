//! Shutdown: accepted calls finish, later ones are rejected, and nothing delays it forever.

use std::time::{Duration, Instant};

use polyrpc::server::ServerHandle;
use polyrpc::{Client, Protocol, Retry};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::common::{
    PATIENCE, PROTOCOLS, ProbeClient, Prober, Socket, again, client, json_call, serve, soon, url,
};

const ROUNDS: usize = 20;
const CALLS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn baidu_std_loses_no_call() {
    for _ in 0..ROUNDS {
        shut_down_under_load(Protocol::BaiduStd).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rpcx_loses_no_call() {
    for _ in 0..ROUNDS {
        shut_down_under_load(Protocol::Rpcx).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_loses_no_call() {
    for _ in 0..ROUNDS {
        shut_down_under_load(Protocol::Http).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_loses_no_call() {
    for _ in 0..ROUNDS {
        shut_down_under_load(Protocol::Grpc).await;
    }
}

async fn shut_down_under_load(protocol: Protocol) {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let url = url(protocol, &server);
    // Several connections, each with several calls.
    let clients: Vec<_> = (0..4).map(|_| ProbeClient::new(Client::new(&url).unwrap())).collect();
    let accepted: Vec<_> = (0..CALLS)
        .map(|n| {
            let probe = clients[n % clients.len()].clone();
            tokio::spawn(async move { probe.wait(n.to_string()).await })
        })
        .collect();
    prober.gate.came(CALLS).await;

    let shutting_down = tokio::spawn(server.shutdown(PATIENCE));
    // Others keep calling, on these connections and on new ones, until they are rejected.
    let new_clients = (0..4).map(|_| ProbeClient::new(Client::new(&url).unwrap()));
    let late: Vec<_> = clients
        .iter()
        .cloned()
        .chain(new_clients)
        .map(|probe| {
            tokio::spawn(async move {
                loop {
                    if let Err(error) = probe.echo("late".into()).await {
                        return error;
                    }
                }
            })
        })
        .collect();
    for late in late {
        let error = soon(late).await.unwrap();
        assert_ne!(error.status().retry(), Retry::Never, "{protocol:?}: {error}");
    }
    assert!(!shutting_down.is_finished(), "{protocol:?}: it waits for what it accepted");

    prober.gate.open();
    for (n, call) in accepted.into_iter().enumerate() {
        let reply = soon(call).await.unwrap();
        assert_eq!(reply.unwrap_or_else(|error| panic!("{protocol:?}: lost {n}: {error}")), n.to_string());
    }
    soon(shutting_down).await.unwrap();
}

/// Shuts a server down on this thread, and returns once its connections were notified.
async fn shutting_down(server: ServerHandle) -> JoinHandle<()> {
    let address = server.address().to_string();
    let shutting_down = tokio::spawn(server.shutdown(PATIENCE));
    soon(async { while TcpStream::connect(&address).await.is_ok() {} }).await;
    // The listener is closed; the rest needs a few polls of the tasks.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    shutting_down
}

#[tokio::test]
async fn late_call_is_rejected_with_the_text_of_its_protocol() {
    for (protocol, words) in
        [(Protocol::BaiduStd, "Server is stopping"), (Protocol::Rpcx, "server is shutting down")]
    {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        let mut wire = crate::common::Wire::connect(protocol, &server).await;
        wire.send(1, &json_call("Probe", "Wait", "\"accepted\"")).await;
        prober.gate.came(1).await;
        let shutting_down = tokio::spawn(server.shutdown(PATIENCE));
        let mut id = 2;
        let status = loop {
            wire.send(id, &json_call("Probe", "Echo", "\"late\"")).await;
            match wire.reply().await.expect("an answer").1.result {
                Ok(_) => id += 1,
                Err(status) => break status,
            }
        };
        assert!(status.message().contains(words), "{protocol:?}: {status}");
        assert_eq!(status.retry(), Retry::Elsewhere, "{protocol:?}: {status}");
        prober.gate.open();
        let (id, reply) = wire.reply().await.expect("what was accepted is answered");
        assert_eq!((id, &reply.result.unwrap()[..]), (1, &b"\"accepted\""[..]));
        assert!(wire.reply().await.is_none(), "then the connection ends");
        drop(wire);
        soon(shutting_down).await.unwrap();
    }
}

#[tokio::test]
async fn last_http_response_announces_close() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let mut socket = Socket::connect(&server).await;
    socket.send(b"POST /Probe/Wait HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\"a\"").await;
    prober.gate.came(1).await;
    let shutting_down = shutting_down(server).await;
    prober.gate.open();
    let answer = String::from_utf8(socket.rest().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\"a\""), "{answer}");
    assert!(answer.contains("Connection: close"), "{answer}");
    drop(socket);
    soon(shutting_down).await.unwrap();
}

#[tokio::test]
async fn hanging_handler_is_aborted_after_the_grace() {
    for protocol in PROTOCOLS {
        let prober = Prober::default();
        let server = serve(prober.server()).await;
        let probe = ProbeClient::new(client(protocol, &server));
        let hanging = tokio::spawn(async move { probe.wait("for ever".into()).await });
        prober.gate.came(1).await;
        let begun = Instant::now();
        soon(server.shutdown(Duration::from_millis(100))).await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(100), "{protocol:?}: {took:?}");
        assert!(took < Duration::from_secs(5), "{protocol:?}: {took:?}");
        let error = soon(hanging).await.unwrap().unwrap_err();
        assert_ne!(error.status().retry(), Retry::Never, "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn idle_clients_do_not_delay_shutdown() {
    let mut took = Vec::new();
    // One shutdown that is quick is enough: this machine may be busy.
    for _ in 0..10 {
        let server = serve(Prober::default().server()).await;
        let probes = PROTOCOLS.map(|protocol| ProbeClient::new(client(protocol, &server)));
        for probe in &probes {
            probe.echo("a".into()).await.unwrap();
        }
        assert_eq!(server.connection_count(), PROTOCOLS.len());
        let begun = Instant::now();
        soon(server.shutdown(PATIENCE)).await;
        let elapsed = begun.elapsed();
        took.push(elapsed);
        // Well before the two seconds after which a connection is closed if its client does not close it.
        if elapsed < Duration::from_millis(1500) {
            return;
        }
    }
    panic!("{took:?}");
}

#[tokio::test]
async fn message_started_before_shutdown_is_rejected() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let mut wire = crate::common::Wire::connect(Protocol::BaiduStd, &server).await;
    let bytes = wire.encode(1, &json_call("Probe", "Echo", "\"late\""));
    wire.socket.send(&bytes[..20]).await;
    // The server has these bytes once it has answered a later call of another connection.
    for _ in 0..100 {
        client(Protocol::Rpcx, &server).call::<String>("Probe/Echo", "other").await.unwrap();
    }
    let ran = prober.ran();
    let shutting_down = shutting_down(server).await;
    wire.socket.send(&bytes[20..]).await;
    let status = wire.reply().await.expect("an answer").1.result.unwrap_err();
    assert!(status.message().contains("Server is stopping"), "{status}");
    assert_eq!(prober.ran(), ran);
    drop(wire);
    soon(shutting_down).await.unwrap();
}

#[tokio::test]
async fn dropped_server_closes_at_once() {
    let prober = Prober::default();
    let server = serve(prober.server()).await;
    let address = server.address().to_string();
    let probe = ProbeClient::new(client(Protocol::Rpcx, &server));
    let waiting = tokio::spawn(async move { probe.wait("a".into()).await });
    prober.gate.came(1).await;
    drop(server);
    soon(waiting).await.unwrap().unwrap_err();
    // The port is free again.
    let server = soon(async {
        loop {
            match prober.server().bind(address.as_str()).await {
                Ok(bound) => return bound.start(),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    let probe = ProbeClient::new(client(Protocol::Rpcx, &server));
    assert_eq!(again(|| probe.echo("b".into())).await, "b");
}

#[tokio::test]
async fn server_runs_until_the_signal() {
    let prober = Prober::default();
    let bound = prober.server().bind("127.0.0.1:0").await.unwrap();
    let probe = ProbeClient::new(Client::new(&format!("rpcx://{}", bound.address())).unwrap());
    let (signal, signalled) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(bound.run_until(async { drop(signalled.await) }, PATIENCE));
    assert_eq!(again(|| probe.echo("a".into())).await, "a");
    signal.send(()).unwrap();
    soon(running).await.unwrap();
    probe.echo("b".into()).await.unwrap_err();
}
