use super::*;
use crate::discovery::Attributes;
use crate::discovery::testing::next_text;

/// Uses the loopback interface, and a port that no other test can take while the socket is open.
fn apart() -> (Mdns, UdpSocket) {
    let held = socket::answering(&[Ipv4Addr::LOCALHOST], 0).unwrap();
    let port = held.local_addr().unwrap().port();
    let mdns = Mdns::new("Arith").interfaces([Ipv4Addr::LOCALHOST]).interval(Duration::from_secs(1));
    (Mdns { port, ..mdns }, held)
}

fn entry(service: &str, instance: &str, attributes: &str) -> Advertisement {
    let instance: Instance = instance.parse().unwrap();
    Advertisement {
        service: service.into(),
        instance: instance.with(attributes.parse().unwrap()),
        ttl: Duration::from_secs(10),
    }
}

#[tokio::test]
async fn servers_of_the_requested_service_are_found() {
    let (mdns, _held) = apart();
    let server = Mdns { announcer: Arc::default(), ..mdns.clone() };
    server.publish(&entry("Arith", "tcp@10.0.0.1:80", "weight=3&group=a")).await.unwrap();
    server.publish(&entry("Arith", "quic@[::1]:81", "")).await.unwrap();
    server.publish(&entry("Echo", "tcp@10.0.0.1:80", "")).await.unwrap();
    let mut sets = mdns.watch();
    assert_eq!(next_text(&mut sets).await, "quic@[::1]:81 tcp@10.0.0.1:80?group=a&weight=3");
    server.withdraw(&entry("Arith", "quic@[::1]:81", "")).await.unwrap();
    server.publish(&entry("Arith", "tcp@10.0.0.1:80", "weight=4")).await.unwrap();
    assert_eq!(next_text(&mut sets).await, "quic@[::1]:81 tcp@10.0.0.1:80?weight=4");
    assert_eq!(next_text(&mut sets).await, "tcp@10.0.0.1:80?weight=4");
}

#[test]
fn announcement_round_trips() {
    let names = Names::default();
    let long = format!("x={}", "y".repeat(1000));
    for (instance, attributes) in [("tcp@10.0.0.1:80", ""), ("unix@/run/x", "weight=1"), ("ws@h:1", &*long)] {
        let entry = entry("a.b/c ü", instance, attributes);
        let packet = packet::announcement(&names, &entry, 7, true).unwrap();
        let announced = packet::announcements(&packet, &names);
        assert_eq!(
            announced,
            [Announcement { service: entry.service.clone(), instance: entry.instance.clone() }]
        );
        assert!(packet::announcements(&packet, &Names::new("other.").unwrap()).is_empty());
        let leaving = packet::announcement(&names, &entry, 0, false).unwrap();
        assert!(packet::announcements(&leaving, &names).is_empty());
        // Truncated or corrupted packets must not panic.
        for at in 0..packet.len() {
            packet::announcements(&packet[..at], &names);
            for bit in 0..8 {
                let mut damaged = packet.clone();
                damaged[at] ^= 1 << bit;
                packet::announcements(&damaged, &names);
                Query::read(&damaged, &names);
            }
        }
    }
}

#[test]
fn announcement_of_rpcx_is_read() {
    // As packed by Go's zeroconf for a server of rpcx v1.9.4, with `Arith` and `Echo` of one server in one text.
    let text = "%5B%7B%22service%22%3A%22Arith%22%2C%22meta%22%3A%22group%3Da%5Cu0026weight%3D3%22%2C%22service_address%22%3A%22tcp%40127.0.0.1%3A8972%22%7D%2C%7B%22service%22%3A%22Echo%22%2C%22service_address%22%3A%22tcp%40127.0.0.1%3A8972%22%7D%5D";
    let mut packet = b"\0\x2a\x84\0\0\0\0\x01\0\0\0\x01".to_vec();
    packet.extend(b"\x0d_rpcxservices\x05local\0\0\x0c\0\x01\0\0\x0c\x80\0\x07\x04host\xc0\x0c");
    packet.extend(b"\xc0\x2b\0\x10\0\x01\0\0\x0c\x80");
    packet.extend(u16::try_from(text.len() + 1).unwrap().to_be_bytes());
    packet.push(u8::try_from(text.len()).unwrap());
    packet.extend(text.bytes());
    let announced = packet::announcements(&packet, &Names::default());
    let arith =
        Instance::tcp("127.0.0.1:8972").with(Attributes::from_iter([("group", "a"), ("weight", "3")]));
    assert_eq!(
        announced,
        [
            Announcement { service: "Arith".into(), instance: arith },
            Announcement { service: "Echo".into(), instance: Instance::tcp("127.0.0.1:8972") },
        ]
    );
}

#[test]
fn only_queries_for_rpcx_services_are_answered() {
    let names = Names::default();
    let packet = Query::query(&names).unwrap();
    assert_eq!(Query::read(&packet, &names), Some(Query { id: 0, wants_unicast: true }));
    assert_eq!(Query::read(&packet, &Names::new("other").unwrap()), None);
    let answer = packet::announcement(&names, &entry("S", "tcp@h:1", ""), 0, true).unwrap();
    assert_eq!(Query::read(&answer, &names), None);
}

#[test]
fn url_names_a_service_and_an_optional_domain() {
    let mdns: Mdns = "Arith".parse().unwrap();
    assert_eq!((&*mdns.service, mdns.names), ("Arith", Names::default()));
    let mdns: Mdns = "example./a.Arith".parse().unwrap();
    assert_eq!((&*mdns.service, mdns.names), ("a.Arith", Names::new("example").unwrap()));
    for wrong in ["", "local./", "a..b/Arith"] {
        assert!(wrong.parse::<Mdns>().is_err(), "{wrong}");
    }
}
