/// The target of a client, as telemetry names it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) port: Option<u16>,
}
