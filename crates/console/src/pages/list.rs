//! `/list`: the signatures of all methods, for programs (`builtin/list_service.cpp`): brpc's `ListResponse`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use polyrpc::service::MethodInfo;
use serde_json::{Value, json};

use super::signature::short_name;
use crate::console::State;
use crate::reply::{JSON, Reply};
use crate::request::PageRequest;

pub(super) fn answer(state: &State, _: &PageRequest) -> Reply {
    let method = |info: &Arc<MethodInfo>| match &info.messages {
        Some((input, output)) => json!({
            "name": info.name,
            "input_type": format!(".{input}"),
            "output_type": format!(".{output}"),
        }),
        None => json!({ "name": info.name }),
    };
    let service = |(name, methods): (String, Vec<Arc<MethodInfo>>)| {
        let methods: Vec<Value> = methods.iter().map(method).collect();
        json!({ "name": short_name(&name), "method": methods })
    };
    let services: Vec<Value> = services(state).into_iter().map(service).collect();
    Reply::new(200, JSON, json!({ "service": services }).to_string())
}

/// Returns the methods of all servers, by service. Functions are under the empty name.
fn services(state: &State) -> BTreeMap<String, Vec<Arc<MethodInfo>>> {
    let mut services = BTreeMap::<String, Vec<Arc<MethodInfo>>>::new();
    let servers = state.servers();
    let mut known = HashSet::new();
    for info in servers.iter().flat_map(|server| server.methods.iter()).filter(|info| !info.is_standard) {
        if known.insert((&info.service, &info.name)) {
            services.entry(info.service.clone()).or_default().push(info.clone());
        }
    }
    services
}

/// Encodes the same in protobuf: `ListResponse { repeated google.protobuf.ServiceDescriptorProto service = 1; }`.
pub(crate) fn encode_list(state: &State) -> Vec<u8> {
    let mut page = Vec::new();
    for (name, methods) in services(state) {
        let mut service = Vec::new();
        put(&mut service, 1, short_name(&name).as_bytes());
        for info in methods {
            let mut method = Vec::new();
            put(&mut method, 1, info.name.as_bytes());
            if let Some((input, output)) = &info.messages {
                put(&mut method, 2, format!(".{input}").as_bytes());
                put(&mut method, 3, format!(".{output}").as_bytes());
            }
            put(&mut service, 2, &method);
        }
        put(&mut page, 1, &service);
    }
    page
}

/// Adds a field of bytes, with a number below 16.
fn put(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_varints() {
        let mut out = Vec::new();
        put(&mut out, 2, &[7; 300]);
        assert_eq!(out[..4], [0x12, 0xac, 0x02, 7]);
        assert_eq!(out.len(), 303);
    }
}
