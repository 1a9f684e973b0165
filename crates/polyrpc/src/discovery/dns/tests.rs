use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use domain::base::iana::{Rcode, Rtype};
use domain::base::message::Message;
use domain::base::message_builder::MessageBuilder;
use domain::base::name::Name;
use domain::rdata::{A, Aaaa, Cname, Srv};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::discovery::testing::next_text;

/// DNS server on the loopback interface.
struct Server {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Zone {
    records: HashMap<String, Vec<(u32, Record)>>,
    /// Response code for all queries.
    refusal: Option<Rcode>,
    /// Response code for queries with this suffix.
    refused: Option<(&'static str, Rcode)>,
    /// Bytes to answer after the query's id.
    garbage: Option<Vec<u8>>,
}

#[derive(Clone)]
enum Record {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Srv(u16, u16, u16, &'static str),
    Cname(&'static str),
}

use Record as R;

impl Server {
    async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, zone) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(Zone::default())));
        let mut task = JoinSet::new();
        let answering = zone.clone();
        task.spawn(async move {
            let mut buffer = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
                let answer = answering.lock().unwrap().answer(&buffer[..length]);
                socket.send_to(&answer, peer).await.unwrap();
            }
        });
        Self { address, zone, _task: task }
    }

    fn set(&self, name: &str, records: &[(u32, Record)]) {
        self.zone.lock().unwrap().records.insert(name.to_owned(), records.to_vec());
    }

    fn client(&self, name: &str) -> Dns {
        format!("{}/{name}", self.address).parse().unwrap()
    }
}

impl Zone {
    fn answer(&self, query: &[u8]) -> Vec<u8> {
        if let Some(garbage) = &self.garbage {
            return [&query[..2], garbage].concat();
        }
        let query = Message::from_slice(query).unwrap();
        let question = query.first_question().unwrap();
        let mut name = question.qname().to_string();
        let refused = self.refused.filter(|(end, _)| name.ends_with(end)).map(|(_, refusal)| refusal);
        let rcode = match self.refusal.or(refused) {
            Some(refusal) => refusal,
            None if self.records.contains_key(&name) => Rcode::NOERROR,
            None => Rcode::NXDOMAIN,
        };
        let mut answer = MessageBuilder::new_vec().start_answer(query, rcode).unwrap();
        if rcode != Rcode::NOERROR {
            return answer.finish();
        }
        loop {
            let mut alias = None;
            for (ttl, record) in self.records.get(&name).into_iter().flatten() {
                let owner = Name::vec_from_str(&name).unwrap();
                let target = |target: &str| Name::vec_from_str(target).unwrap();
                let pushed = match (question.qtype(), record.clone()) {
                    (Rtype::A, R::A(ip)) => answer.push((owner, *ttl, A::new(ip))),
                    (Rtype::AAAA, R::Aaaa(ip)) => answer.push((owner, *ttl, Aaaa::new(ip))),
                    (Rtype::SRV, R::Srv(priority, weight, port, host)) => {
                        answer.push((owner, *ttl, Srv::new(priority, weight, port, target(host))))
                    }
                    (_, R::Cname(other)) => {
                        alias = Some(other.to_owned());
                        answer.push((owner, *ttl, Cname::new(target(other))))
                    }
                    _ => Ok(()),
                };
                pushed.unwrap();
            }
            match alias {
                Some(alias) => name = alias,
                None => return answer.finish(),
            }
        }
    }
}

fn v4(last: u8) -> Record {
    R::A(Ipv4Addr::new(10, 0, 0, last))
}

#[tokio::test(start_paused = true)]
async fn expired_records_are_resolved_again() {
    let server = Server::start().await;
    server.set("greeter.test", &[(20, v4(2)), (10, v4(1)), (5, R::Aaaa(Ipv6Addr::LOCALHOST))]);
    let mut sets = server.client("greeter.test:80").watch();
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.1:80 tcp@10.0.0.2:80");
    server.set("greeter.test", &[(1000, R::Aaaa(Ipv6Addr::LOCALHOST))]);
    let before = Instant::now();
    assert_eq!(next_text(&mut sets).await, "tcp@[::1]:80");
    let waited = before.elapsed().as_secs_f64();
    assert!((8.9..11.2).contains(&waited), "{waited}");

    // Whatever the time to live, the longest interval is five minutes.
    server.set("greeter.test", &[(0, v4(7))]);
    let before = Instant::now();
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.7:80");
    let waited = before.elapsed().as_secs_f64();
    assert!((269.0..331.0).contains(&waited), "{waited}");

    // Whatever the time to live, the shortest interval is a second.
    server.set("greeter.test", &[(60, v4(8))]);
    let before = Instant::now();
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.8:80");
    let waited = before.elapsed().as_secs_f64();
    assert!((0.89..1.2).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn cname_is_followed_and_its_ttl_counts() {
    let server = Server::start().await;
    server.set("www.test", &[(2, R::Cname("greeter.test"))]);
    server.set("greeter.test", &[(100, v4(1))]);
    let mut sets = server.client("www.test:80").watch();
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.1:80");
    server.set("www.test", &[(100, v4(2))]);
    let before = Instant::now();
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.2:80");
    assert!(before.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn srv_records_yield_addresses_and_weights() {
    let server = Server::start().await;
    server.set(
        "_grpc._tcp.test",
        &[
            (30, R::Srv(1, 5, 80, "a.test")),
            (30, R::Srv(1, 0, 81, "b.test")),
            (30, R::Srv(2, 9, 82, "a.test")),
            (30, R::Srv(1, 5, 83, ".")),
            (30, R::Srv(1, 5, 84, "gone.test")),
        ],
    );
    server.set("a.test", &[(30, v4(1)), (30, v4(2))]);
    server.set("b.test", &[(30, v4(3))]);
    let mut sets = server.client("_grpc._tcp.test").watch();
    assert_eq!(
        next_text(&mut sets).await,
        "tcp@10.0.0.1:80?weight=5 tcp@10.0.0.2:80?weight=5 tcp@10.0.0.3:81?weight=1"
    );
    assert_eq!(next_text(&mut sets).await, "DNS has no address of `gone.test.`");
    server.set("_grpc._tcp.test", &[(30, R::Srv(2, 9, 82, "b.test"))]);
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.3:82?weight=9");
}

#[tokio::test(start_paused = true)]
async fn failed_query_is_an_error_and_retried() {
    let server = Server::start().await;
    let mut sets = server.client("greeter.test:80").watch();
    assert_eq!(next_text(&mut sets).await, "DNS has no address of `greeter.test`");
    server.set("greeter.test", &[(10, v4(1))]);
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.1:80");
    for refusal in [Rcode::SERVFAIL, Rcode::REFUSED] {
        server.zone.lock().unwrap().refusal = Some(refusal);
        let answer = next_text(&mut sets).await;
        assert!(answer.starts_with("DNS query for greeter.test: the server responded with"), "{answer}");
    }
    server.zone.lock().unwrap().refusal = None;
    server.set("greeter.test", &[(10, v4(2))]);
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.2:80");
    // A service without targets.
    assert!(next_text(&mut server.client("_x._tcp.test").watch()).await.contains("has no SRV record"));
}

#[tokio::test(start_paused = true)]
async fn malformed_responses_are_errors() {
    let server = Server::start().await;
    for garbage in [vec![], vec![0x81, 0x80], vec![0xff; 400], {
        // An answer whose alias refers to itself.
        let mut looped = vec![0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
        looped.extend(b"\x07greeter\x04test\0\0\x01\0\x01\xc0\x0c\0\x05\0\x01\0\0\0\x0a\0\x02\xc0\x0c");
        looped
    }] {
        server.zone.lock().unwrap().garbage = Some(garbage.clone());
        let answer = next_text(&mut server.client("greeter.test:80").watch()).await;
        assert!(answer.contains("DNS"), "{garbage:?}: {answer}");
    }
}

#[tokio::test]
async fn hosts_file_is_consulted() {
    assert_eq!(next_text(&mut Dns::host("localhost", 80).watch()).await, "tcp@127.0.0.1:80");
    assert_eq!(next_text(&mut Dns::host("10.0.0.1", 80).watch()).await, "tcp@10.0.0.1:80");
    let quic = Dns::host("[::1]", 80).network(Network::Quic);
    assert_eq!(next_text(&mut quic.watch()).await, "quic@[::1]:80");
}

#[test]
fn question_is_parsed_from_a_url() {
    let host = |name: &str| Question::Host(name.into(), 80);
    for (text, question, server) in [
        ("h:80", host("h"), None),
        ("/h:80", host("h"), None),
        ("1.1.1.1/h.example.:80", host("h.example."), Some("1.1.1.1:53")),
        ("[::1]:5353/h:80", host("h"), Some("[::1]:5353")),
        ("_grpc._tcp.h", Question::Service("_grpc._tcp.h".into()), None),
        ("127.0.0.1:53/_x._tcp.h", Question::Service("_x._tcp.h".into()), Some("127.0.0.1:53")),
    ] {
        let dns: Dns = text.parse().unwrap();
        assert_eq!(
            (dns.question, dns.server),
            (question, server.map(|text| text.parse().unwrap())),
            "{text}"
        );
    }
    let long = format!("{}:80", "a".repeat(64));
    for wrong in ["", "h", "h:", "h:0", "h:+80", ":80", "dns.example/h:80", "a..b:80", &long] {
        assert!(wrong.parse::<Dns>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn failing_search_domain_does_not_end_the_search() {
    let server = Server::start().await;
    let resolver = Resolver::with_search_domains(server.address, &["broken.test", "good.test"]);
    server.set("_s._tcp.good.test", &[(20, R::Srv(1, 1, 80, "a.good.test"))]);
    server.set("a.good.test", &[(20, v4(1))]);
    for refusal in [Rcode::SERVFAIL, Rcode::REFUSED] {
        server.zone.lock().unwrap().refused = Some(("broken.test", refusal));
        let found = resolver.service_records("_s._tcp").await.unwrap();
        assert_eq!(found.records[0].host, "a.good.test.", "{refusal}");
        let addresses = resolver.addresses("a").await.unwrap();
        assert_eq!(addresses.records, [Ipv4Addr::new(10, 0, 0, 1)], "{refusal}");
        // It may exist: a failed lookup does not prove that it has no targets.
        let unknown = resolver.service_records("_other._tcp").await.err().unwrap();
        assert_eq!(unknown.code(), Code::Unavailable, "{refusal}");
    }
}
