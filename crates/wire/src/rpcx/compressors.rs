use polyrpc_core::{Compression, Status};

/// What the numbers of rpcx's `CompressType` stand for: 0 is none, 1 gzip, and 2 to 7 are what both sides agree on, as
/// Go's map `protocol.Compressors`.
///
/// rpcx brings a compressor for snappy and registers it nowhere; it writes [frames](Compression::SnappyFrames), so this is
/// what `protocol.Compressors[2] = &protocol.SnappyCompressor{}` is here:
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
    /// None and gzip.
    fn default() -> Self {
        let mut known = [Compression::None; 8];
        known[1] = Compression::Gzip;
        Self(known)
    }
}

impl Compressors {
    /// These and one more, from 2 to 7. A number that is taken gets the new meaning.
    ///
    /// # Errors
    ///
    /// [`InvalidArgument`](polyrpc_core::Code::InvalidArgument) for another number, for no compression at all, for one that is not
    /// known, and for one that has a number already.
    pub fn with(mut self, number: u8, compression: Compression) -> Result<Self, Status> {
        let wrong = |why: &str| {
            let text = format!("rpcx's compressor {number} cannot be {}: {why}", compression.as_str());
            Err(Status::invalid_argument(text))
        };
        if !(2..8).contains(&number) {
            return wrong("users have the numbers 2 to 7");
        }
        if matches!(compression, Compression::None | Compression::Other(_)) {
            return wrong("nobody could read it");
        }
        if self.number(compression).is_some_and(|other| other != number) {
            return wrong("it has a number already");
        }
        if let Some(place) = self.0.get_mut(usize::from(number)) {
            *place = compression;
        }
        Ok(self)
    }

    /// The number of a compression, if it has one.
    pub fn number(&self, compression: Compression) -> Option<u8> {
        match compression {
            Compression::None => Some(0),
            _ => (1..8).find(|number| self.get(*number) == Some(compression)),
        }
    }

    /// What a number stands for, if anything.
    pub(super) fn get(&self, number: u8) -> Option<Compression> {
        let compression = self.0.get(usize::from(number)).copied()?;
        (number == 0 || compression != Compression::None).then_some(compression)
    }
}
