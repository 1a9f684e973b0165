//! Finds the healthy instances of a service: lists them, and waits for changes by a blocking query.

use std::time::Duration;

use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Attributes, Discover, Instance, InstanceStream};

use super::format::Healthy;
use crate::consul::Consul;
use crate::consul::api::Index;
use crate::lenient_list::{self, LenientList};
use crate::url_parts::segment;
use crate::watch::{self, WatchSource};

/// Healthy instances of one service in Consul's catalogue.
#[derive(Debug, Clone)]
pub struct ServiceDiscovery {
    consul: Consul,
    name: String,
    tag: Option<String>,
}

impl ServiceDiscovery {
    pub(super) fn new(consul: Consul, name: String) -> Self {
        Self { consul, name, tag: None }
    }

    /// Keeps only the instances with this tag.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }
}

impl Discover for ServiceDiscovery {
    fn watch(&self) -> InstanceStream {
        watch::sets(ServicesWatch { of: self.clone(), index: Index::default(), warning: None })
    }
}

struct ServicesWatch {
    of: ServiceDiscovery,
    index: Index,
    warning: Option<Status>,
}

impl WatchSource for ServicesWatch {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        let found = self.query().await;
        if found.is_err() {
            self.index = Index::default();
        }
        found
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}

impl ServicesWatch {
    async fn query(&mut self) -> Result<Vec<Instance>, Status> {
        let ServiceDiscovery { consul, name, tag } = &self.of;
        // Query parameters of brpc (`consul_naming_service.cpp`).
        let mut query = Attributes::new().with("passing", "").with("stale", "");
        if let Some(tag) = tag {
            query.set("tag", tag);
        }
        let path = format!("/health/service/{}", segment(name));
        let answer = consul.watch(&path, query, &mut self.index, BLOCKING_QUERY_WAIT).await?;
        let healthy: LenientList<Healthy> =
            answer.json(&format!("cannot list the healthy instances of {name} in Consul"))?;
        self.index.advance(&answer)?;
        let (all, healthy) = (healthy.all, healthy.items.into_iter());
        let found: Vec<_> = healthy.filter_map(Healthy::instance).collect();
        if all > 0 && found.is_empty() {
            return Err(Status::data_loss(format!("no instance of {name} in Consul has an address")));
        }
        self.warning = lenient_list::warning(all, found.len(), format_args!("instances of {name} in Consul"));
        Ok(found)
    }
}

/// Wait of brpc.
const BLOCKING_QUERY_WAIT: Duration = Duration::from_secs(60);
