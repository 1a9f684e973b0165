//! What each side tells the other about itself (RFC 9113, §6.5.2).

use super::status::{ErrorCode, Fault, connection};

pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The window a stream and the connection begin with when nothing was said.
pub(super) const DEFAULT_WINDOW: u32 = 65_535;

/// No window may be larger.
pub(super) const MOST_WINDOW: u32 = 0x7fff_ffff;

/// The size of frame that everybody takes.
pub(super) const DEFAULT_FRAME: usize = 16_384;

/// No frame may be longer.
pub(super) const LONGEST_FRAME: usize = (1 << 24) - 1;

/// The size of the dynamic table when nothing was said.
pub(super) const DEFAULT_TABLE: usize = 4096;

/// What a client tells of itself before it speaks HTTP/2, in the field `HTTP2-Settings` (RFC 7540, §3.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings(pub(super) PeerSettings);

impl Settings {
    /// Reads the payload of a SETTINGS frame; `None` if it is none.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut peer = PeerSettings::default();
        peer.read(payload).ok()?;
        Some(Self(peer))
    }
}

/// What the peer has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerSettings {
    pub(super) table: usize,
    /// It takes pushed streams, or as a server would push some.
    pub(super) push: bool,
    pub(super) streams: usize,
    pub(super) window: u32,
    pub(super) frame: usize,
    pub(super) header_list: usize,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            table: DEFAULT_TABLE,
            push: false,
            streams: usize::MAX,
            window: DEFAULT_WINDOW,
            frame: DEFAULT_FRAME,
            header_list: usize::MAX,
        }
    }
}

impl PeerSettings {
    /// Reads the payload of a SETTINGS frame over what was known. What is not known is ignored.
    pub(super) fn read(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(connection(ErrorCode::FRAME_SIZE_ERROR, "SETTINGS of an odd length"));
        }
        for &[i0, i1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            match u16::from_be_bytes([i0, i1]) {
                HEADER_TABLE_SIZE => self.table = value as usize,
                ENABLE_PUSH if value > 1 => {
                    return Err(connection(ErrorCode::PROTOCOL_ERROR, "ENABLE_PUSH other than 0 and 1"));
                }
                ENABLE_PUSH => self.push = value == 1,
                MAX_CONCURRENT_STREAMS => self.streams = value as usize,
                INITIAL_WINDOW_SIZE if value > MOST_WINDOW => {
                    return Err(connection(ErrorCode::FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE too large"));
                }
                INITIAL_WINDOW_SIZE => self.window = value,
                MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                    return Err(connection(ErrorCode::PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range"));
                }
                MAX_FRAME_SIZE => self.frame = value as usize,
                MAX_HEADER_LIST_SIZE => self.header_list = value as usize,
                _ => {}
            }
        }
        Ok(())
    }
}
