/// What a client was made to call, as telemetry names it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) port: Option<u16>,
}
