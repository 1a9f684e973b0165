//! The codes of JSON-RPC 2.0 §5.1.
//!
//! rpcx tells a failed lookup, parameters that do not fit and every failure of a handler as "internal error", and only
//! a name without a dot as "method not found" (`server/jsonrpc2.go`); its clients expect that. It has no answer to a
//! request without parameters, so that there the standard's "invalid params" stands.

use polyrpc_core::{Code, Status};

use crate::rpcx;

/// The text is not JSON.
pub(super) const PARSE_ERROR: i32 = -32700;
/// The JSON is not a request.
pub(super) const INVALID_REQUEST: i32 = -32600;
/// There is no such method.
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
/// There are no parameters where the method wants some.
const INVALID_PARAMS: i32 = -32602;
/// Everything else.
const INTERNAL_ERROR: i32 = -32603;

/// The code that tells `status` to a peer that called a name with or without a dot, perhaps bare of parameters.
pub(super) fn write(status: &Status, dotted: bool, bare: bool) -> i32 {
    match status.code() {
        Code::InvalidArgument if bare => INVALID_PARAMS,
        Code::Unimplemented if !dotted => METHOD_NOT_FOUND,
        _ => INTERNAL_ERROR,
    }
}

/// The failure that a peer tells by `code`. A number of the application may stand in `data`, where this
/// framework puts it, or be the code itself.
#[cold]
pub(super) fn read(code: i32, number: Option<i32>, text: String) -> Status {
    let status = match code {
        INVALID_REQUEST | INVALID_PARAMS => Status::invalid_argument(text),
        METHOD_NOT_FOUND => Status::unimplemented(text),
        PARSE_ERROR => Status::internal(text),
        // What went wrong is told by the text alone.
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
    fn what_a_code_says_comes_back_and_the_rest_is_unknown() {
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
    fn every_code_has_its_meaning() {
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
    fn the_texts_that_rpcx_clients_know_are_known_here_too() {
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
        // A number of the application stands beside what the text says; another code says enough by itself.
        let counted = read(INTERNAL_ERROR, Some(7), "the method did not answer in time".to_owned());
        assert_eq!((counted.code(), counted.number()), (Code::DeadlineExceeded, Some(7)));
        assert_eq!(read(METHOD_NOT_FOUND, None, "unauthenticated".to_owned()).code(), Code::Unimplemented);
    }

    #[test]
    fn rpcx_calls_a_missing_method_of_a_service_an_internal_error() {
        assert_eq!(write(&Status::unimplemented(""), true, false), INTERNAL_ERROR);
        assert_eq!(write(&Status::unimplemented(""), false, false), METHOD_NOT_FOUND);
    }

    #[test]
    fn only_who_sends_no_parameters_hears_that_they_are_wanted() {
        assert_eq!(write(&Status::invalid_argument("divide by zero"), true, false), INTERNAL_ERROR);
        assert_eq!(write(&Status::invalid_argument("nothing to read"), true, true), INVALID_PARAMS);
    }

    #[test]
    fn the_applications_number_is_found_in_data_or_as_the_code() {
        assert_eq!(read(INTERNAL_ERROR, Some(54321), String::new()).number(), Some(54321));
        assert_eq!(read(7, None, String::new()).number(), Some(7));
    }
}
