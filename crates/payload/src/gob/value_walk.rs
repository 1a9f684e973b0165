//! Copies one value incrementally, driven by its type.
//!
//! If a value contains interfaces, only its types determine its end: Go ends the message after the first type that an
//! interface introduces, defines further types in separate messages, and continues the value in another one
//! (`encoding/gob/encoder.go`, `sendActualType` under `encodeInterface`). The output has no definitions inside and is
//! one piece again. There is no recursion: between two messages the whole state is on an explicit stack of frames.

use super::dictionary::Dictionary;
use super::number::{Cursor, begin, put_bytes, put_int, put_uint, recount};
use super::types::Kind;
use super::{Error, Limits};

/// A value that may continue in further messages.
#[derive(Debug)]
pub(super) struct ValueWalk {
    frames: Vec<Frame>,
    /// The name of an interface's type was read, but not its number.
    expects_type: bool,
    out: Vec<u8>,
    /// Types introduced by interfaces.
    new_types: Vec<i32>,
}

#[derive(Debug)]
enum Frame {
    Struct {
        of: i32,
        last: i64,
    },
    Elements {
        of: i32,
        left: u64,
    },
    Pairs {
        key: i32,
        elem: i32,
        left: u64,
        at_elem: bool,
    },
    /// Content of an interface. Its length is at `mark`; `left` bytes preceded it.
    Interface {
        mark: usize,
        announced: u64,
        left: usize,
        types: usize,
    },
}

/// Renaming of types in the output.
pub(super) trait Names {
    fn name(&self, id: i32) -> Result<i32, Error>;
}

/// Keeps all names.
#[derive(Debug)]
pub(super) struct UnchangedNames;

impl Names for UnchangedNames {
    fn name(&self, id: i32) -> Result<i32, Error> {
        Ok(id)
    }
}

impl ValueWalk {
    /// Returns the approximate number of bytes held.
    pub(super) fn held(&self) -> usize {
        self.out.capacity() + self.frames.len() * size_of::<Frame>() + self.new_types.len() * size_of::<i32>()
    }

    /// Starts a value of a type; the cursor of the first message is after the type's number.
    pub(super) fn new() -> Self {
        Self { frames: Vec::new(), expects_type: false, out: Vec::new(), new_types: Vec::new() }
    }

    /// Returns the value without its type, and the types it introduced.
    pub(super) fn finish(self) -> (Vec<u8>, Vec<i32>) {
        (self.out, self.new_types)
    }

    /// Reads the first message's part of the value; `true` once it is complete.
    pub(super) fn begin(
        &mut self,
        of: i32,
        cursor: &mut Cursor<'_>,
        dictionary: &mut Dictionary,
        names: &impl Names,
        limits: &Limits,
    ) -> Result<bool, Error> {
        self.top(of, cursor, dictionary, limits)?;
        self.resume(cursor, dictionary, names, limits)
    }

    /// Reads a further message's part of the value; `true` once it is complete.
    pub(super) fn resume(
        &mut self,
        cursor: &mut Cursor<'_>,
        dictionary: &mut Dictionary,
        names: &impl Names,
        limits: &Limits,
    ) -> Result<bool, Error> {
        loop {
            if self.expects_type && !self.read_concrete_type(cursor, dictionary, names, limits)? {
                return Ok(false);
            }
            match self.step(cursor, dictionary)? {
                Step::Value(of) => self.value(of, cursor, dictionary, limits)?,
                Step::Ended => {}
                Step::Done => return Ok(true),
            }
        }
    }

    /// Returns the next step of the innermost frame.
    fn step(&mut self, cursor: &mut Cursor<'_>, dictionary: &Dictionary) -> Result<Step, Error> {
        let Some(frame) = self.frames.last_mut() else { return Ok(Step::Done) };
        match frame {
            Frame::Struct { of, last } => {
                // Like in Go, the end of the bytes also ends a struct (`decodeStruct`).
                let delta = if cursor.is_empty() { 0 } else { cursor.uint()? };
                put_uint(&mut self.out, delta);
                if delta > 0 {
                    let Kind::Struct(fields) = dictionary.table().kind(*of)? else {
                        return Err(Error::unknown_type());
                    };
                    *last = fields.after(*last, delta)?;
                    return dictionary.table().field(fields, *last).map(Step::Value);
                }
            }
            Frame::Elements { of, left } if *left > 0 => {
                *left -= 1;
                return check_not_empty(cursor).map(|()| Step::Value(*of));
            }
            Frame::Pairs { key, elem, left, at_elem } if *left > 0 => {
                let of = if *at_elem { *elem } else { *key };
                *left -= u64::from(*at_elem);
                *at_elem = !*at_elem;
                return check_not_empty(cursor).map(|()| Step::Value(of));
            }
            Frame::Interface { mark, announced, left, types } => {
                // Definitions inside count as well, but only up to the first one.
                let whole = *types == dictionary.table().len();
                if whole && left.checked_sub(cursor.len()).is_none_or(|read| read as u64 != *announced) {
                    return Err(Error::new("the length of an interface value does not match its prefix"));
                }
                let length = (self.out.len() - *mark - 1) as u64;
                recount(&mut self.out, *mark, 1, length);
            }
            Frame::Elements { .. } | Frame::Pairs { .. } => {}
        }
        self.frames.pop();
        Ok(Step::Ended)
    }

    fn value(
        &mut self,
        of: i32,
        cursor: &mut Cursor<'_>,
        dictionary: &Dictionary,
        limits: &Limits,
    ) -> Result<(), Error> {
        match dictionary.table().kind(of)? {
            Kind::Bool | Kind::Int | Kind::Uint | Kind::Float => put_uint(&mut self.out, cursor.uint()?),
            Kind::Complex => {
                put_uint(&mut self.out, cursor.uint()?);
                put_uint(&mut self.out, cursor.uint()?);
            }
            Kind::Bytes | Kind::String | Kind::Opaque(_) => put_bytes(&mut self.out, cursor.bytes()?),
            Kind::Interface => self.interface(cursor)?,
            Kind::Struct(_) => self.enter(Frame::Struct { of, last: -1 }, limits)?,
            Kind::Slice { elem } => {
                let left = self.count(cursor)?;
                self.enter(Frame::Elements { of: elem, left }, limits)?;
            }
            Kind::Array { elem, len } => {
                let left = self.count(cursor)?;
                if left != len {
                    return Err(Error::new("length mismatch in decodeArray"));
                }
                self.enter(Frame::Elements { of: elem, left }, limits)?;
            }
            Kind::Map { key, elem } => {
                let left = self.count(cursor)?;
                self.enter(Frame::Pairs { key, elem, left, at_elem: false }, limits)?;
            }
        }
        Ok(())
    }

    /// Starts a top-level value: one that is not a struct has a leading zero.
    fn top(
        &mut self,
        of: i32,
        cursor: &mut Cursor<'_>,
        dictionary: &Dictionary,
        limits: &Limits,
    ) -> Result<(), Error> {
        if !matches!(dictionary.table().kind(of)?, Kind::Struct(_)) {
            singleton(cursor)?;
            put_uint(&mut self.out, 0);
        }
        self.value(of, cursor, dictionary, limits)
    }

    /// Reads a count of elements in further messages: nothing is allocated for it, and each takes a byte.
    fn count(&mut self, cursor: &mut Cursor<'_>) -> Result<u64, Error> {
        let count = cursor.uint()?;
        put_uint(&mut self.out, count);
        Ok(count)
    }

    fn interface(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Error> {
        let name = cursor.bytes()?;
        if name.len() > LONGEST_NAME {
            return Err(Error::new(format!("name too long ({} bytes)", name.len())));
        }
        put_bytes(&mut self.out, name);
        self.expects_type = !name.is_empty();
        Ok(())
    }

    /// Reads the number of an interface's type after any definitions; `false` if the message ends before it.
    fn read_concrete_type(
        &mut self,
        cursor: &mut Cursor<'_>,
        dictionary: &mut Dictionary,
        names: &impl Names,
        limits: &Limits,
    ) -> Result<bool, Error> {
        let of = loop {
            if cursor.is_empty() {
                return Ok(false);
            }
            let id = cursor.ahead().id()?;
            if id >= 0 {
                break cursor.id()?;
            }
            dictionary.define(cursor, limits)?;
            if !cursor.is_empty() {
                // Length of the value's next part, which is available already.
                cursor.uint()?;
            }
        };
        self.expects_type = false;
        if !self.new_types.contains(&of) {
            self.new_types.push(of);
        }
        put_int(&mut self.out, names.name(of)?.into());
        let announced = cursor.uint()?;
        let (mark, types) = (begin(&mut self.out), dictionary.table().len());
        self.enter(Frame::Interface { mark, announced, left: cursor.len(), types }, limits)?;
        self.top(of, cursor, dictionary, limits)?;
        Ok(true)
    }

    fn enter(&mut self, frame: Frame, limits: &Limits) -> Result<(), Error> {
        if self.frames.len() >= limits.depth {
            return Err(Error::too_deep());
        }
        self.frames.push(frame);
        Ok(())
    }
}

/// Maximum length of a type's name in Go (`decodeInterface`).
pub(super) const LONGEST_NAME: usize = 1024;

enum Step {
    Value(i32),
    Ended,
    Done,
}

fn check_not_empty(cursor: &Cursor<'_>) -> Result<(), Error> {
    if cursor.is_empty() { Err(Error::new("length exceeds input size")) } else { Ok(()) }
}

/// Reads the leading zero of a top-level value that is not a struct.
pub(super) fn singleton(cursor: &mut Cursor<'_>) -> Result<(), Error> {
    match cursor.uint()? {
        0 => Ok(()),
        _ => Err(Error::new("corrupted data: non-zero delta for singleton")),
    }
}
