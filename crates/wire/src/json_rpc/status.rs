//! Error codes of JSON-RPC 2.0 §5.1.
//!
//! rpcx reports an unknown method, mismatched parameters and every failure of a handler as "internal error", and only a
//! name without a dot as "method not found" (`server/jsonrpc2.go`); its clients expect that. It does not answer a
//! request without parameters, so that the standard's "invalid params" is used there.

use polyrpc_core::{Code, Status};

use crate::rpcx;

/// The text is not JSON.
pub(super) const PARSE_ERROR: i32 = -32700;
/// The JSON is not a valid request.
pub(super) const INVALID_REQUEST: i32 = -32600;
/// The method does not exist.
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
/// The parameters that the method requires are missing.
const INVALID_PARAMS: i32 = -32602;
/// Any other failure.
const INTERNAL_ERROR: i32 = -32603;

/// Returns the code of `status` for a peer that called a name with or without a dot, possibly without parameters.
pub(super) fn write(status: &Status, dotted: bool, bare: bool) -> i32 {
    match status.code() {
        Code::InvalidArgument if bare => INVALID_PARAMS,
        Code::Unimplemented if !dotted => METHOD_NOT_FOUND,
        _ => INTERNAL_ERROR,
    }
}

/// Returns the failure reported by `code`. An application's number may be in `data`, where this framework puts it, or
/// be the code itself.
#[cold]
pub(super) fn read(code: i32, number: Option<i32>, text: String) -> Status {
    let status = match code {
        INVALID_REQUEST | INVALID_PARAMS => Status::invalid_argument(text),
        METHOD_NOT_FOUND => Status::unimplemented(text),
        PARSE_ERROR => Status::internal(text),
        // Only the text describes the failure.
        INTERNAL_ERROR => rpcx::failure(&text),
        _ => Status::unknown(text),
    };
    match number {
        Some(number) => status.with_number(number),
        None if (-32768..=-32000).contains(&code) => status,
        None => status.with_number(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_round_trip_and_others_are_unknown() {
        for code in Code::ALL {
            let want = match code {
                Code::InvalidArgument | Code::Unimplemented => code,
                _ => Code::Unknown,
            };
            assert_eq!(
                read(write(&Status::new(code, ""), false, true), None, String::new()).code(),
                want,
                "{code}"
            );
        }
    }

    #[test]
    fn every_error_number_has_its_meaning() {
        for (code, want) in [
            (PARSE_ERROR, Code::Internal),
            (INVALID_REQUEST, Code::InvalidArgument),
            (METHOD_NOT_FOUND, Code::Unimplemented),
            (INVALID_PARAMS, Code::InvalidArgument),
            (INTERNAL_ERROR, Code::Unknown),
        ] {
            assert_eq!(
                (read(code, None, String::new()).code(), read(code, None, String::new()).number()),
                (want, None)
            );
        }
    }

    #[test]
    fn texts_known_to_rpcx_clients_are_recognized() {
        for (text, want) in [
            ("the method did not answer in time", Code::DeadlineExceeded),
            ("rpcx: can't find service Nope", Code::Unimplemented),
            ("rpcx: can't find method Nope", Code::Unimplemented),
            ("[service internal error]: the handler panicked", Code::Internal),
            ("unauthenticated", Code::Unauthenticated),
            ("boom", Code::Unknown),
        ] {
            let status = read(INTERNAL_ERROR, None, text.to_owned());
            assert_eq!((status.code(), status.message()), (want, text));
        }
        // An application's number complements the text; any other code is sufficient by itself.
        let counted = read(INTERNAL_ERROR, Some(7), "the method did not answer in time".to_owned());
        assert_eq!((counted.code(), counted.number()), (Code::DeadlineExceeded, Some(7)));
        assert_eq!(read(METHOD_NOT_FOUND, None, "unauthenticated".to_owned()).code(), Code::Unimplemented);
    }

    #[test]
    fn missing_method_of_a_service_is_an_internal_error_as_in_rpcx() {
        assert_eq!(write(&Status::unimplemented(""), true, false), INTERNAL_ERROR);
        assert_eq!(write(&Status::unimplemented(""), false, false), METHOD_NOT_FOUND);
    }

    #[test]
    fn missing_params_error_is_sent_only_without_params() {
        assert_eq!(write(&Status::invalid_argument("divide by zero"), true, false), INTERNAL_ERROR);
        assert_eq!(write(&Status::invalid_argument("nothing to read"), true, true), INVALID_PARAMS);
    }

    #[test]
    fn application_number_is_read_from_data_or_the_code() {
        assert_eq!(read(INTERNAL_ERROR, Some(54321), String::new()).number(), Some(54321));
        assert_eq!(read(7, None, String::new()).number(), Some(7));
    }
}
