use crate::Error;

/// Error of the last attempt to read files. A certificate may have been replaced before its key: it is read again and
/// again, but the same error is reported once.
#[derive(Debug, Default)]
pub(super) struct LastError(Option<String>);

impl LastError {
    /// Records a result. Returns whether to report it: unless it is the same error again.
    pub(super) fn is_new(&mut self, result: &Result<(), Error>) -> bool {
        let error = result.as_ref().err().map(|error| error.message().to_owned());
        let is_new = error.is_none() || error != self.0;
        self.0 = error;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use polyrpc_core::Status;

    use super::*;

    #[test]
    fn error_is_new_until_it_is_the_same_again() {
        let failed = |text: &str| Err(Error::from(Status::internal(text.to_owned())));
        let mut last = LastError::default();
        let results = [failed("a"), failed("a"), failed("b"), Ok(()), failed("b")];
        assert_eq!(results.map(|result| last.is_new(&result)), [true, false, true, true, true]);
    }
}
