//! Loads of a server by several protocols, made by the engine of `polyrpc bench`.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use polyrpc::client::{CallOptions, ConnectionMode};
use polyrpc::codec::Body;
use polyrpc::{Client, Format, Json, Server};
use polyrpc_load::{
    Arrivals, CallKind, Method, Order, Outcome, Pacing, Plan, Profile, Rate, RunLength, Stop,
};

/// Each protocol, the parameters of its URL, and the format of its messages.
pub(crate) const PROTOCOLS: [(&str, &str, Format); 6] = [
    ("grpc", "", Format::MessagePack),
    ("http", "", Format::Json(Json::Brpc)),
    ("baidu-std", "", Format::Json(Json::Brpc)),
    ("rest-rpc", "?version=0.20", Format::MessagePack),
    ("rpcx", "", Format::MessagePack),
    ("net-rpc", "?codec=msgpack", Format::MessagePack),
];

/// Returns the protocol's name on pages.
pub(crate) fn name(scheme: &str) -> String {
    scheme.replace('-', "_")
}

/// Returns a server with a method for each protocol, so that the load of each has a row of its own.
pub(crate) fn server() -> Server {
    PROTOCOLS.iter().fold(Server::new(), |server, (scheme, ..)| {
        server.function(&method(scheme), |one: i64, other: i64| async move { one + other })
    })
}

fn method(scheme: &str) -> String {
    format!("over_{}", name(scheme))
}

/// Loads a server over each protocol until it is stopped, for two minutes at most.
pub(crate) fn start(address: &str, stop: &Stop) -> Vec<JoinHandle<Outcome>> {
    let load = |(scheme, parameters, format)| {
        let plan = plan(format!("{scheme}://{address}{parameters}"), method(scheme), format);
        let stop = stop.clone();
        std::thread::spawn(move || polyrpc_load::run(&plan, &stop, |_| {}).unwrap())
    };
    PROTOCOLS.map(load).into()
}

fn plan(url: String, target: String, format: Format) -> Plan {
    let message: &[u8] = if format == Format::MessagePack { b"\x92\x01\x02" } else { b"[1,2]" };
    // The members of the list are the arguments of a function of rest_rpc; other protocols have one message.
    let message = Body { positional: url.starts_with("rest-rpc"), ..Body::new(format, message) };
    let method = Method {
        name: target.clone(),
        target,
        weight: 1,
        kind: CallKind::Unary,
        messages: [message].into(),
        expected: None,
        order: Order::Sequence,
        options: CallOptions::default(),
    };
    Plan {
        client: Arc::new(move || Ok(Client::builder(&url))),
        methods: vec![method],
        pacing: Pacing::Open {
            profile: Profile::Constant(Rate::per_second(40).unwrap()),
            arrivals: Arrivals::Poisson,
        },
        warmup: Duration::ZERO,
        length: RunLength::Time(Duration::from_secs(120)),
        connection_mode: ConnectionMode::Shared,
        connections: 1,
        threads: 1,
        max_in_flight: 100,
        drain_timeout: Duration::from_secs(5),
        seed: 1,
        server: None,
    }
}
