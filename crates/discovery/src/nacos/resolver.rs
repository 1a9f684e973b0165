//! Finds the instances of a service: lists them, again and again.

use std::sync::Arc;
use std::time::Duration;

use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Discover, Instance, InstanceStream};

use super::Scope;
use super::api::{Api, list};
use super::host::instances;
use crate::lenient_list;
use crate::watch::{self, WatchSource};

/// Instances of one service in a Nacos.
///
/// Nacos sends no notifications over HTTP: it is polled as often as its answers may be cached, and at least every three
/// seconds.
#[derive(Debug, Clone)]
pub struct ServiceDiscovery {
    api: Arc<Api>,
    scope: Scope,
    name: String,
}

impl ServiceDiscovery {
    pub(super) fn new(api: Arc<Api>, scope: Scope, name: String) -> Self {
        Self { api, scope, name }
    }
}

impl Discover for ServiceDiscovery {
    fn watch(&self) -> InstanceStream {
        watch::sets(NacosWatch { of: self.clone(), pause: None, warning: None })
    }
}

struct NacosWatch {
    of: ServiceDiscovery,
    /// Validity of the last answer.
    pause: Option<Duration>,
    warning: Option<Status>,
}

impl WatchSource for NacosWatch {
    async fn next(&mut self) -> Result<Vec<Instance>, Status> {
        if let Some(pause) = self.pause.take() {
            tokio::time::sleep(pause).await;
        }
        let ServiceDiscovery { api, scope, name } = &self.of;
        let list =
            list(api, scope, name).await?.list(&format!("cannot list the instances of {name} in Nacos"))?;
        if list.hosts.is_unusable() {
            return Err(Status::data_loss(format!("no instance of {name} in Nacos can be read")));
        }
        self.pause = Some(list.pause());
        let (all, read) = (list.hosts.all, list.hosts.items.len());
        let found = instances(list.hosts.items);
        let nowhere = found.iter().filter(|found| found.is_none()).count();
        let what = format_args!("instances of {name} in Nacos");
        self.warning = lenient_list::warning(all, read - nowhere, what);
        Ok(found.into_iter().flatten().collect())
    }

    fn warning(&mut self) -> Option<Status> {
        self.warning.take()
    }
}
