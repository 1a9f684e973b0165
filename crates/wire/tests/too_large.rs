//! Statuses for exceeded limits: a code by kind, with the figures in the text.

use std::sync::Arc;

use bytes::BytesMut;
use polyrpc_core::Outbox;
use polyrpc_core::session::{Server, ViolationKind};
use polyrpc_wire::{baidu_std, net_rpc, rpcx};

/// Why a connection ends that begins so.
fn violation(mut server: impl Server, bytes: &[u8]) -> (ViolationKind, String) {
    let mut inbox = BytesMut::from(bytes);
    match server.next_event(&mut inbox, &mut Outbox::new()) {
        Err(violation) => (violation.kind(), violation.to_string()),
        Ok(_) => panic!("it is taken"),
    }
}

#[test]
fn message_above_the_limit_is_too_large_and_not_malformed() {
    let config = baidu_std::ServerConfig::default();
    let limit = config.limits.message;
    let header = [&b"PRPC"[..], &u32::MAX.to_be_bytes(), &[0; 4]].concat();
    let told = violation(baidu_std::Server::new(Arc::new(config)), &header);
    assert_eq!(
        told,
        (ViolationKind::TooLarge, format!("a body of 4294967295 bytes exceeds the limit of {limit}"))
    );

    let config = rpcx::ServerConfig::default();
    let limit = config.limits.message;
    let header = [&[8, 0, 0, 0x10][..], &[0; 8], &u32::MAX.to_be_bytes()].concat();
    let told = violation(rpcx::Server::new(Arc::new(config)), &header);
    let text = format!("message is too long: 4294967311 bytes where {limit} are allowed");
    assert_eq!(told, (ViolationKind::TooLarge, text));

    let codec = Some(net_rpc::Codec::Bson);
    let config = net_rpc::ServerConfig { codec, ..net_rpc::ServerConfig::default() };
    let limit = config.limits.header;
    let told = violation(net_rpc::Server::new(Arc::new(config)), &0x7fff_ffff_u32.to_le_bytes());
    let text = format!("message is too long: 2147483647 bytes where {limit} are allowed");
    assert_eq!(told, (ViolationKind::TooLarge, text));
}
