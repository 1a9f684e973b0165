//! Common tests of all registries, against the real programs if they are installed.

use std::time::{Duration, Instant};

use crate::fake::{entry, next, next_set, until};
use crate::real::{Kind, Registry, kinds, trees};
use futures_util::{StreamExt, stream};
use polyrpc::discovery::Advertisement;
use polyrpc_discovery::{discover, registrar};

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

fn arith(address: &str, attributes: &str) -> Advertisement {
    entry("Arith", address, attributes)
}

#[tokio::test]
async fn registered_instance_is_found_and_updated_until_withdrawn() {
    for kind in kinds() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let (server, mut sets) = (registry.registrar(), registry.discover("Arith").watch());
        assert_eq!(next_set(&mut sets).await, lines(&[]), "{kind:?}");

        server.publish(&arith("tcp@h:1", "weight=3&group=a&group=b")).await.unwrap();
        until(&mut sets, &lines(&["tcp@h:1 group=a&group=b&weight=3"])).await;
        server.publish(&arith("tcp@h:1", "weight=5")).await.unwrap();
        until(&mut sets, &lines(&["tcp@h:1 weight=5"])).await;

        // The name of another service starts with this one's.
        server.publish(&entry("ArithToo", "tcp@h:2", "")).await.unwrap();
        server.publish(&arith("quic@h:3", "")).await.unwrap();
        until(&mut sets, &lines(&["tcp@h:1 weight=5", "quic@h:3"])).await;

        server.withdraw(&arith("tcp@h:1", "")).await.unwrap();
        until(&mut sets, &lines(&["quic@h:3"])).await;
        server.withdraw(&arith("quic@h:3", "")).await.unwrap();
        until(&mut sets, &lines(&[])).await;
        server.withdraw(&arith("quic@h:3", "")).await.unwrap();
    }
}

#[tokio::test]
async fn invalid_entries_hide_no_instance_and_are_reported_once() {
    for kind in trees() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let server = registry.registrar();
        // Another service's path is below this one's, like an instance's.
        server.publish(&entry("Arith/nonsense", "tcp@h:9", "")).await.unwrap();
        server.publish(&arith("tcp@h:1", "weight=x&state=%zz")).await.unwrap();
        let mut sets = registry.discover("Arith").watch();
        until(&mut sets, &lines(&["tcp@h:1 weight=x"])).await;
        let complaint = next(&mut sets).await.unwrap_err();
        assert!(complaint.message().contains("`nonsense`"), "{kind:?}: {complaint}");
        server.publish(&arith("tcp@h:2", "")).await.unwrap();
        assert_eq!(next(&mut sets).await.unwrap().len(), 2, "{kind:?}");
        server.publish(&arith("tcp@h:3", "")).await.unwrap();
        assert_eq!(next(&mut sets).await.unwrap().len(), 3, "{kind:?}");
    }
}

#[tokio::test]
async fn foreign_keys_hide_no_instance() {
    let long = vec![b'x'; 100 << 10];
    for kind in trees() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let server = registry.registrar();
        let strange = "colour=red&latitude=north&weight=many";
        server.publish(&arith("tcp@h:1", strange)).await.unwrap();
        for (name, value) in [
            (&b"nonsense"[..], &b"weight=1"[..]),
            (b"tcp@", b""),
            (b"@", b"x"),
            (b"pigeon@h:1", b"weight=1"),
            (b"tcp@h:99999", &long),
            (b"tcp@h:9", b"\xff\xfe"),
            (b"tcp@h\xff:9", b"weight=1"),
            ("tcp@h:１".as_bytes(), b"weight=1"),
        ] {
            registry.write(name, value).await;
        }
        if kind == Kind::Redis {
            for json in [&b"weight=1"[..], b"{}", b"[[[[[[", br#"{"Key":"k","Value":"%%%","LastIndex":-1}"#] {
                registry.write(b"tcp@h:5", json).await;
            }
        }
        let mut sets = registry.discover("Arith").watch();
        until(&mut sets, &[format!("tcp@h:1 {strange}")]).await;
        next(&mut sets).await.unwrap_err();
        // New instances are found, and nothing is reported twice.
        server.publish(&arith("tcp@h:2", "weight=2")).await.unwrap();
        assert_eq!(next(&mut sets).await.unwrap().len(), 2, "{kind:?}");
    }
}

#[tokio::test]
async fn crashed_instance_expires_after_its_ttl() {
    for kind in kinds() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let services = ["Arith", "Echo"];
        let [mut sets, mut others] = services.map(|service| registry.discover(service).watch());
        let server = registry.registrar();
        for service in services {
            let mut short_lived = entry(service, "tcp@h:1", "");
            short_lived.ttl = Duration::from_secs(2);
            server.publish(&short_lived).await.unwrap();
        }
        until(&mut sets, &lines(&["tcp@h:1"])).await;
        until(&mut others, &lines(&["tcp@h:1"])).await;
        drop(server);
        let start = Instant::now();
        until(&mut sets, &lines(&[])).await;
        until(&mut others, &lines(&[])).await;
        assert!(start.elapsed() < kind.memory(), "{kind:?}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn instances_reappear_soon_after_the_registry_lost_its_data() {
    for kind in kinds() {
        let Some(mut registry) = Registry::start(kind).await else { continue };
        let server = registry.registrar();
        let entry = arith("tcp@h:1", "weight=3");
        server.publish(&entry).await.unwrap();
        let publishing = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
                let _ = server.publish(&entry).await;
            }
        });
        let mut sets = registry.discover("Arith").watch();
        until(&mut sets, &lines(&["tcp@h:1 weight=3"])).await;

        registry.kill();
        // While the registry is down there are failures, and no sets.
        for _ in 0..3 {
            next(&mut sets).await.unwrap_err();
        }
        registry.begin().await;
        let back = Instant::now();
        until(&mut sets, &lines(&["tcp@h:1 weight=3"])).await;
        // Twice the time that it may take on an idle machine.
        assert!(back.elapsed() < Duration::from_secs(10), "{kind:?}: {:?}", back.elapsed());
        publishing.abort();
    }
}

#[tokio::test]
async fn thousand_instances_reach_old_and_new_watches_soon() {
    for kind in kinds() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let server = registry.registrar();
        let mut sets = registry.discover("Arith").watch();
        assert_eq!(next_set(&mut sets).await, lines(&[]), "{kind:?}");
        let all = (1..=1000).map(|port| arith(&format!("tcp@h:{port}"), "weight=1"));
        stream::iter(all).for_each_concurrent(8, async |entry| server.publish(&entry).await.unwrap()).await;
        let start = Instant::now();
        while next_set(&mut sets).await.len() != 1000 {}
        // With one change per set this would take 50 s.
        assert!(start.elapsed() < Duration::from_secs(20), "{kind:?}: {:?}", start.elapsed());
        assert_eq!(next_set(&mut registry.discover("Arith").watch()).await.len(), 1000, "{kind:?}");
    }
}

#[tokio::test]
async fn unwritable_entry_does_not_affect_others() {
    for kind in trees() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let (server, mut sets) = (registry.registrar(), registry.discover("Arith").watch());
        server.publish(&arith("tcp@h:1", "")).await.unwrap();
        until(&mut sets, &lines(&["tcp@h:1"])).await;
        // ZooKeeper does not allow it in a path; the others do.
        let refused = server.publish(&entry("\0", "tcp@h:1", "")).await;
        assert_eq!(refused.is_err(), kind == Kind::ZooKeeper, "{kind:?}");
        server.publish(&arith("tcp@h:2", "")).await.unwrap();
        // Changes are reported at once, so that a removed server would be missing.
        assert_eq!(next_set(&mut sets).await, lines(&["tcp@h:1", "tcp@h:2"]), "{kind:?}");
    }
}

#[tokio::test]
async fn services_can_be_registered_at_the_root() {
    for kind in trees() {
        let Some(registry) = Registry::start(kind).await else { continue };
        let url = format!("{}://127.0.0.1:{}", kind.word(), registry.port);
        let server = registrar(&url).unwrap();
        server.publish(&arith("tcp@h:1", "weight=2")).await.unwrap();
        let mut sets = discover(&format!("{url}/Arith")).unwrap().watch();
        until(&mut sets, &lines(&["tcp@h:1 weight=2"])).await;
        server.withdraw(&arith("tcp@h:1", "")).await.unwrap();
        until(&mut sets, &lines(&[])).await;
    }
}

#[test]
fn url_requires_a_service_and_rejects_unknown_parameters() {
    for kind in trees() {
        let word = kind.word();
        for (rest, why) in [("h:1", "which service"), ("h:1/base/S?color=red", "`color`")] {
            let error = discover(&format!("{word}://{rest}")).err().unwrap();
            assert!(error.message().contains(why), "{error}");
        }
    }
}
