//! Messages on standard input and output: each behind its length in four bytes.

use std::io::{self, Read, Write};

/// The next message; `None` if there is no other.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

pub(crate) fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&(bytes.len() as u32).to_be_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}
