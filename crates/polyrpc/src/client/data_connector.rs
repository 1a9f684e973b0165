use std::time::Duration;

use crate::transport::Address;

/// Connects to the address of a data connection.
#[derive(Debug, Clone)]
pub(crate) struct DataConnector {
    /// The host of the client's own URL.
    pub(crate) host: String,
    pub(crate) connect_timeout: Duration,
}

impl DataConnector {
    pub(crate) fn new(address: &Address, connect_timeout: Duration) -> Self {
        let host = address.host_and_port().unwrap_or("127.0.0.1");
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        Self { host: host.to_owned(), connect_timeout }
    }
}
