//! Target of a client, as named in telemetry.

/// One server, or several by one name: OpenTelemetry's `server.address` and `server.port`. It is the configured target,
/// not the server that a call went to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) port: Option<u16>,
}
