//! SETTINGS parameters (RFC 9113, §6.5.2).

use super::status::{ErrorCode, Fault, connection_error};

pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// Initial window of streams and of the connection if no setting was received.
pub(super) const DEFAULT_WINDOW: u32 = 65_535;

/// Maximum window size.
pub(super) const MAX_WINDOW: u32 = 0x7fff_ffff;

/// Frame size that every peer must accept.
pub(super) const DEFAULT_FRAME: usize = 16_384;

/// Maximum length of a frame.
pub(super) const LONGEST_FRAME: usize = (1 << 24) - 1;

/// Size of the dynamic table if no setting was received.
pub(super) const DEFAULT_TABLE: usize = 4096;

/// The client's settings in the field `HTTP2-Settings` of an upgrade request (RFC 7540, §3.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings(pub(super) PeerSettings);

impl Settings {
    /// Parses the payload of a SETTINGS frame; `None` if it is malformed.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let mut peer = PeerSettings::default();
        peer.read(payload).ok()?;
        Some(Self(peer))
    }
}

/// The peer's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PeerSettings {
    pub(super) table: usize,
    /// The peer accepts server push, or as a server announces it.
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
    /// Parses the payload of a SETTINGS frame and updates the settings. Unknown parameters are ignored.
    pub(super) fn read(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let (settings, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(connection_error(ErrorCode::FRAME_SIZE_ERROR, "SETTINGS of the wrong length"));
        }
        for &[i0, i1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            match u16::from_be_bytes([i0, i1]) {
                HEADER_TABLE_SIZE => self.table = value as usize,
                ENABLE_PUSH if value > 1 => {
                    return Err(connection_error(
                        ErrorCode::PROTOCOL_ERROR,
                        "ENABLE_PUSH other than 0 and 1",
                    ));
                }
                ENABLE_PUSH => self.push = value == 1,
                MAX_CONCURRENT_STREAMS => self.streams = value as usize,
                INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                    return Err(connection_error(
                        ErrorCode::FLOW_CONTROL_ERROR,
                        "INITIAL_WINDOW_SIZE too large",
                    ));
                }
                INITIAL_WINDOW_SIZE => self.window = value,
                MAX_FRAME_SIZE if !(16_384..1 << 24).contains(&value) => {
                    return Err(connection_error(ErrorCode::PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range"));
                }
                MAX_FRAME_SIZE => self.frame = value as usize,
                MAX_HEADER_LIST_SIZE => self.header_list = value as usize,
                _ => {}
            }
        }
        Ok(())
    }
}
