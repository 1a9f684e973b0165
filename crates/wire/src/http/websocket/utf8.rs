/// Incremental UTF-8 validation that detects errors as early as possible.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    /// An incomplete character.
    begun: [u8; 4],
    length: usize,
}

impl Utf8 {
    /// Validates a piece; `false` if the text is malformed.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> bool {
        while self.length > 0 {
            let Some((byte, rest)) = bytes.split_first() else { return true };
            let Some(slot) = self.begun.get_mut(self.length) else { return false };
            *slot = *byte;
            self.length += 1;
            bytes = rest;
            match std::str::from_utf8(self.begun.get(..self.length).unwrap_or_default()) {
                Ok(_) => self.length = 0,
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return false,
            }
        }
        match std::str::from_utf8(bytes) {
            Ok(_) => true,
            Err(error) if error.error_len().is_none() => {
                let rest = bytes.get(error.valid_up_to()..).unwrap_or_default();
                self.begun.iter_mut().zip(rest).for_each(|(slot, byte)| *slot = *byte);
                self.length = rest.len();
                true
            }
            Err(_) => false,
        }
    }

    /// Whether the text may end here.
    pub(super) fn is_complete(&self) -> bool {
        self.length == 0
    }
}
