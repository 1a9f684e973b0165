use ::serde::Serialize;
use ::serde::de::value::{Error as ValueError, UnitDeserializer};
use ::serde::de::{DeserializeOwned, IgnoredAny, IntoDeserializer};
use bytes::Bytes;
use polyrpc_core::{Format, Status};
use polyrpc_payload::{gob, schema, struct_pack};

use super::bulk::is_bulk_message_pack;
use super::lenient_message_pack::{self, Lengths};
use super::message_pack;
use super::value::{encode, encode_typed, unreadable, unwritable};
use super::{Body, Codec, TypeSchema, rest_rpc, type_schema, unsupported};

/// Plain types with serde's derives: JSON, MessagePack with structs as in Go's rpcx (a map keyed by field names, byte
/// strings as `bin`) or as in C++ (an array), struct_pack, rest_rpc's encodings, and gob as in Go's net/rpc.
#[derive(Debug, Clone, Copy)]
pub struct Serde;

impl<T: Serialize + DeserializeOwned + 'static> Codec<T> for Serde {
    const PREFERRED: Format = Format::MessagePack;

    fn carries(format: Format) -> bool {
        matches!(
            format,
            Format::Json(_)
                | Format::MessagePack
                | Format::MessagePackArray
                | Format::StructPack
                | Format::RestRpc
                | Format::Gob
        )
    }

    fn type_schema(_: Option<&schema::Message>) -> TypeSchema {
        type_schema::from_type::<T>()
    }

    fn check(format: Format) -> Result<(), Status> {
        check::<T>(format)
    }

    fn decodes_slowly(body: &Body, _: Option<&schema::Message>) -> bool {
        plain_decodes_slowly(body)
    }

    fn decode(body: Body, _: Option<&schema::Message>) -> Result<T, Status> {
        match body.format {
            _ if !body.positional => decode(&body),
            // A method of one argument gets a list of one argument. Here the list may be the argument itself, as sent
            // by peers with one request type.
            Format::Json(_) | Format::StructPack => {
                decode(&body).or_else(|status| single_argument(&body).ok_or(status))
            }
            _ => single_argument(&body).map_or_else(|| decode_all(body), Ok),
        }
    }

    fn encode(value: &T, format: Format, _: Option<&schema::Message>) -> Result<Bytes, Status> {
        encode_value(value, format)
    }

    fn encode_request(value: T, format: Format, _: Option<&schema::Message>) -> Result<Body, Status> {
        match format {
            Format::MessagePackArray | Format::RestRpc => rest_rpc::encode_request(&value, format),
            _ => Ok(Body::new(format, encode_value(&value, format)?)),
        }
    }
}

/// Whether decoding a long value takes much longer than copying it.
pub(crate) fn plain_decodes_slowly(body: &Body) -> bool {
    match body.format {
        Format::MessagePack | Format::MessagePackArray => !is_bulk_message_pack(&body.bytes),
        _ => true,
    }
}

/// Checks whether values of a plain type can be encoded in a format, as far as the type shows that.
pub(crate) fn check<T: DeserializeOwned + 'static>(format: Format) -> Result<(), Status> {
    match format {
        Format::Gob => gob::check::<T>().map_err(|error| unwritable(&error)),
        _ => Ok(()),
    }
}

/// Decodes the only member of a list of arguments.
fn single_argument<T: DeserializeOwned + 'static>(body: &Body) -> Option<T> {
    decode(body).map(|(sole,)| sole).ok()
}

/// Decodes a list of arguments that are the members of the value; there may be none, or fewer or more than one.
fn decode_all<T: DeserializeOwned + 'static>(body: Body) -> Result<T, Status> {
    let loose = || rest_rpc::read_list(&body).map(|(sole,)| sole).or_else(|| rest_rpc::read_list(&body));
    decode(&body.clone().empty_if_no_arguments()).or_else(|status| loose().ok_or(status))
}

impl Body {
    /// Replaces an empty list of arguments by an empty body.
    fn empty_if_no_arguments(mut self) -> Self {
        if self.bytes == rest_rpc::EMPTY_LIST {
            self.bytes = Bytes::from_static(NIL);
        }
        self
    }
}

/// Decodes a value of a plain type, or the arguments of a call as a tuple.
pub(crate) fn decode<T: DeserializeOwned + 'static>(body: &Body) -> Result<T, Status> {
    // A call with an empty body has no parameters; it is not malformed.
    let or_none = |none: &'static [u8]| if body.bytes.is_empty() { none } else { &body.bytes[..] };
    match body.format {
        Format::Json(_) => serde_json::from_slice(or_none(b"null")).map_err(|error| unreadable(&error)),
        Format::MessagePack | Format::MessagePackArray => {
            let bytes = or_none(NIL);
            message_pack::from_slice(bytes).or_else(|error| {
                lenient_message_pack::from_slice(bytes, Lengths::Exact).map_err(|_| unreadable(&error))
            })
        }
        Format::StructPack => struct_pack::from_slice(&body.bytes).map_err(|error| unreadable(&error)),
        Format::RestRpc if body.positional => rest_rpc::read_arguments(&body.bytes),
        Format::RestRpc => rest_rpc::read_value(&body.bytes),
        Format::Gob if body.bytes.is_empty() => decode_empty_gob(),
        Format::Gob => gob::from_slice(&body.bytes).map_err(|error| unreadable(&error)),
        format => Err(unsupported("a serde type", format)),
    }
}

/// Decodes the arguments of a call as a tuple of this length.
pub(crate) fn decode_arguments<T: DeserializeOwned + 'static>(
    body: &Body,
    count: usize,
) -> Result<T, Status> {
    match body.format {
        Format::Gob if !body.bytes.is_empty() => {
            gob::arguments_from_slice(&body.bytes, count).map_err(|error| unreadable(&error))
        }
        _ => decode(body).or_else(|status| {
            rest_rpc::read_function_list(body, count)
                .unwrap_or_else(|| Err(argument_count_error(body, count, status)))
        }),
    }
}

/// Returns the failure of a list of arguments: their number if it is wrong, which decoders describe as trailing bytes,
/// else `status`.
#[cold]
fn argument_count_error(body: &Body, count: usize, status: Status) -> Status {
    match number_of_arguments(body) {
        Some(found) if found != count => {
            unreadable(&format_args!("wrong number of arguments: expected {count}, found {found}"))
        }
        _ => status,
    }
}

/// Returns the length of a list of arguments; `None` if the body is no list.
fn number_of_arguments(body: &Body) -> Option<usize> {
    match body.format {
        Format::Json(_) => serde_json::from_slice::<Vec<IgnoredAny>>(&body.bytes).ok().map(|list| list.len()),
        Format::MessagePack | Format::MessagePackArray => message_pack::list_length(&body.bytes),
        _ => None,
    }
}

/// Decodes the only argument of a call. It is tried without a list first, since peers with one request type send it
/// that way, unless the protocol requires a list of arguments.
pub(crate) fn decode_argument<T: DeserializeOwned + 'static>(body: &Body) -> Result<T, Status> {
    if body.positional {
        return decode_arguments(body, 1).map(|(sole,)| sole);
    }
    decode(body).or_else(|alone| decode_as_list(body, alone))
}

/// Decodes the only argument of a call as the member of a list; `alone` is the error of decoding it without one.
#[cold]
fn decode_as_list<T: DeserializeOwned + 'static>(body: &Body, alone: Status) -> Result<T, Status> {
    if body.format != Format::Gob {
        return decode(body).map(|(sole,)| sole).map_err(|_| alone);
    }
    gob::arguments_from_slice(&body.bytes, 1).map(|(sole,)| sole).map_err(|error| match error.is_of_count() {
        true => Status::invalid_argument(format!("{}; {error}", alone.message())),
        false => alone,
    })
}

/// Decodes the arguments of a function that has none. Peers without parameters send nothing, null, or an empty object:
/// the body is checked only if it must be a list.
pub(crate) fn decode_no_arguments(body: &Body) -> Result<(), Status> {
    match rest_rpc::is_list(body) {
        true => decode_arguments::<[(); 0]>(body, 0).map(|[]| ()),
        false => Ok(()),
    }
}

/// MessagePack's `nil`.
const NIL: &[u8] = &[0xc0];

/// Encodes a value whose type is known statically: a result, or a single argument.
pub(crate) fn encode_value<T>(value: &T, format: Format) -> Result<Bytes, Status>
where
    T: Serialize + DeserializeOwned + 'static,
{
    match format {
        Format::RestRpc => rest_rpc::write_value(value),
        // Decodable types have a schema, so the value need not describe everything.
        Format::StructPack => encode_typed(value),
        // The type gives the element type of an empty list, and is the same for all values; for a type that cannot be
        // decoded only the value is available.
        Format::Gob => match gob::to_vec(value) {
            Ok(bytes) => Ok(bytes.into()),
            Err(error) if error.is_of_type() => Err(unwritable(&error)),
            Err(_) => encode(value, format),
        },
        Format::MessagePackArray => rest_rpc::write_packed(value),
        format => encode(value, format),
    }
}

/// Decodes Go's empty struct, or no value at all.
fn decode_empty_gob<T: DeserializeOwned>() -> Result<T, Status> {
    let unit: UnitDeserializer<ValueError> = ().into_deserializer();
    T::deserialize(unit).or_else(|_| gob::from_slice(gob::EMPTY_STRUCT).map_err(|error| unreadable(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRUCT_PACK: Format = Format::StructPack;

    #[test]
    fn value_round_trips_through_struct_pack() {
        let value = (5, "hi".to_owned());
        let bytes = Serde::encode(&value, STRUCT_PACK, None).expect("a value");
        assert_eq!(&bytes[..], b"\xe6\xfd\xa8\x85\x05\0\0\0\x02hi");
        assert_eq!(
            encode(&(5, "hi"), STRUCT_PACK).expect("the same"),
            bytes,
            "the type follows from the value"
        );
        let back: (i32, String) = Serde::decode(Body::new(STRUCT_PACK, bytes), None).expect("the same");
        assert_eq!(back, value);
    }

    #[test]
    fn sole_argument_is_taken_from_a_list() {
        let bytes = Serde::encode(&(vec![1, 2],), STRUCT_PACK, None).expect("a list of arguments");
        let body = Body { positional: true, ..Body::new(STRUCT_PACK, bytes) };
        let sole: Vec<i32> = Serde::decode(body, None).expect("the argument");
        assert_eq!(sole, [1, 2]);
    }

    #[test]
    fn unit_is_empty_in_struct_pack() {
        for bytes in [Serde::encode(&(), STRUCT_PACK, None), encode(&(), STRUCT_PACK)] {
            let body = Body::new(STRUCT_PACK, bytes.expect("nothing"));
            assert!(body.bytes.is_empty());
            <Serde as Codec<()>>::decode(body, None).expect("nothing");
        }
    }

    #[test]
    fn empty_list_of_a_known_type_is_encoded() {
        let none = Vec::<i32>::new();
        assert!(Serde::encode(&none, STRUCT_PACK, None).is_ok());
        let status = encode(&none, STRUCT_PACK).expect_err("the list's element type is known");
        assert!(
            status.message().contains("cannot be inferred: a collection is empty"),
            "{}",
            status.message()
        );
    }

    #[test]
    fn all_values_of_a_type_share_one_gob_type() {
        #[derive(::serde::Serialize, ::serde::Deserialize, Default)]
        struct Reply {
            names: Vec<String>,
            grid: Vec<Vec<i64>>,
        }

        let full = Reply { names: vec!["a".to_owned()], grid: vec![vec![1]] };
        let empty = encode_value(&Reply::default(), Format::Gob).expect("its type is known");
        let full = encode_value(&full, Format::Gob).expect("its type is known");
        // An empty one has only the value: its length, its type, and the end of its fields.
        let definitions = empty.len() - b"\x03\xff\x80\x00".len();
        assert_eq!(full[..definitions], empty[..definitions]);
        assert!(encode_value(&vec![Vec::<i64>::new()], Format::Gob).is_ok());
        let status = encode(&vec![Vec::<i64>::new()], Format::Gob)
            .expect_err("the inner list's element type is known");
        assert!(
            status.message().ends_with("the element type of an empty list is unknown"),
            "{}",
            status.message()
        );
    }

    #[test]
    fn schema_of_an_opaque_type_is_taken_from_its_value() {
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        struct Picky;
        impl TryFrom<String> for Picky {
            type Error = &'static str;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                if text == "the only one" { Ok(Self) } else { Err("another text") }
            }
        }
        impl From<Picky> for String {
            fn from(_: Picky) -> Self {
                "the only one".to_owned()
            }
        }

        assert!(gob::to_vec(&Picky).is_err(), "the type rejects the sample values");
        for _ in 0..2 {
            let bytes = encode_value(&Picky, Format::Gob).expect("a text");
            assert_eq!(<Serde as Codec<Picky>>::decode(Body::new(Format::Gob, bytes), None), Ok(Picky));
        }
    }

    #[test]
    fn bytes_are_accepted_as_strings_in_message_pack() {
        #[derive(Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        struct Blob {
            #[serde(rename = "Y")]
            bytes: Vec<u8>,
        }

        for written in [
            &b"\x81\xa1Y\xa3\x01\x02\xff"[..],
            b"\x81\xa1Y\xc4\x03\x01\x02\xff",
            b"\x81\xa1Y\x93\x01\x02\xcc\xff",
        ] {
            let body = Body::new(Format::MessagePack, Bytes::copy_from_slice(written));
            assert_eq!(Serde::decode(body, None), Ok(Blob { bytes: vec![1, 2, 255] }));
        }
        // Decoding errors are reported as usual.
        let body = Body::new(Format::MessagePack, Bytes::from_static(b"\xa1x"));
        let status = <Serde as Codec<Blob>>::decode(body, None).expect_err("no struct");
        assert!(
            status.message().contains("invalid type: string \"x\", expected struct Blob"),
            "{}",
            status.message()
        );
    }

    #[test]
    fn type_mismatch_is_reported_to_the_caller() {
        let bytes = Serde::encode(&(7, 8), STRUCT_PACK, None).expect("a value");
        let status =
            <Serde as Codec<String>>::decode(Body::new(STRUCT_PACK, bytes), None).expect_err("no text");
        assert_eq!(
            status.message(),
            "cannot read the value: a value of a type with code 4045908c is no string (800c) with code 9dcffa76"
        );
    }
}
