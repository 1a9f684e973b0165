//! Descriptions of this program's own services. Another server may have other services of the same names.

use polyrpc::Protocol;
use polyrpc_build::fbs;
use polyrpc_transform::Types;
use polyrpc_transform::flatbuffers::Method;

use crate::failure::Failure;
use crate::{proto, services};

/// The messages of a method of this program's own services.
pub(super) fn types(target: &str) -> Option<Types> {
    let own = [
        proto::FILE_DESCRIPTOR_SET,
        proto::example::FILE_DESCRIPTOR_SET,
        proto::helloworld::FILE_DESCRIPTOR_SET,
        proto::pb::FILE_DESCRIPTOR_SET,
        services::fields::FIELDS,
    ];
    own.into_iter().find_map(|set| Types::from_set(set, target)).or_else(|| Types::standard(target))
}

/// The method of this program's own service of FlatBuffers.
pub(super) fn flatbuffers(protocol: Protocol, target: &str) -> Result<Option<Method>, Failure> {
    let own = fbs::read_text("benchmark.fbs", OWN).map_err(|error| Failure::new(error.to_string()))?;
    Ok(Method::find(own, protocol == Protocol::FbRpc, target).ok())
}

/// The schema of this program's own service.
const OWN: &str = include_str!("../../fbs/benchmark.fbs");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_methods_are_found_by_full_and_short_name() {
        for (target, input) in [
            ("example.EchoService/Echo", "example.EchoRequest"),
            ("EchoService/Echo", "example.EchoRequest"),
            ("helloworld.Greeter/SayHello", "helloworld.HelloRequest"),
            ("pb.Hello/Say", "pb.BenchmarkMessage"),
            ("Arith/Mul", "ArithArgs"),
            ("PBArith/Mul", "PBArgs"),
            ("grpc.health.v1.Health/Watch", "grpc.health.v1.HealthCheckRequest"),
        ] {
            assert_eq!(types(target).expect(target).input.full_name(), input);
        }
        for unknown in ["Arith/Nope", "Nope/Mul", "add", ""] {
            assert!(types(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn built_in_method_of_flatbuffers_is_found() {
        let method = flatbuffers(Protocol::FbRpc, "test.BenchmarkService/Test").unwrap().unwrap();
        assert_eq!(method.wire_name(), "test.BenchmarkService/Test#0,0");
        assert!(flatbuffers(Protocol::FbRpc, "Other/Test").unwrap().is_none());
    }
}
