use polyrpc_core::{Compression, Status};

/// Mapping of rpcx's `CompressType` numbers to compressions: 0 is none, 1 is gzip, and 2 to 7 are agreed on by both
/// sides, like Go's map `protocol.Compressors`.
///
/// rpcx ships a compressor for snappy but registers it nowhere; it writes [frames](Compression::SnappyFrames), so that
/// the counterpart of `protocol.Compressors[2] = &protocol.SnappyCompressor{}` is:
///
/// ```
/// # fn main() -> Result<(), polyrpc_core::Status> {
/// use polyrpc_core::Compression;
/// use polyrpc_wire::rpcx::Compressors;
///
/// let compressors = Compressors::default().with(2, Compression::SnappyFrames)?;
/// # assert_eq!(compressors.number(Compression::SnappyFrames), Some(2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compressors([Compression; 8]);

impl Default for Compressors {
    /// Only none and gzip.
    fn default() -> Self {
        let mut known = [Compression::None; 8];
        known[1] = Compression::Gzip;
        Self(known)
    }
}

impl Compressors {
    /// Adds a compression under a number from 2 to 7. A number in use is overwritten.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](polyrpc_core::Code::InvalidArgument) if the number is out of range, if the compression is
    /// none or not supported, or if it already has a number.
    pub fn with(mut self, number: u8, compression: Compression) -> Result<Self, Status> {
        let wrong = |why: &str| {
            let text = format!("rpcx's compressor {number} cannot be {}: {why}", compression.as_str());
            Err(Status::invalid_argument(text))
        };
        if !(2..8).contains(&number) {
            return wrong("the numbers for users are 2 to 7");
        }
        if matches!(compression, Compression::None | Compression::Other(_)) {
            return wrong("no peer could read it");
        }
        if self.number(compression).is_some_and(|other| other != number) {
            return wrong("it already has a number");
        }
        if let Some(slot) = self.0.get_mut(usize::from(number)) {
            *slot = compression;
        }
        Ok(self)
    }

    /// Returns the number of a compression, if it has one.
    pub fn number(&self, compression: Compression) -> Option<u8> {
        match compression {
            Compression::None => Some(0),
            _ => (1..8).find(|number| self.get(*number) == Some(compression)),
        }
    }

    /// Returns the compression with a number, if there is one.
    pub(super) fn get(&self, number: u8) -> Option<Compression> {
        let compression = self.0.get(usize::from(number)).copied()?;
        (number == 0 || compression != Compression::None).then_some(compression)
    }
}
