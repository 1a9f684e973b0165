//! Registers servers: writes them once, then sends heartbeats for them.

use std::sync::PoisonError;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Registrar};

use super::Nacos;
use super::api::{Verb, list};
use super::host::{current_attributes, host_registration};

impl Registrar for Nacos {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async { Ok(self.register(entry).await?) }.boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async { Ok(self.deregister(entry).await?) }.boxed()
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        async { Ok(self.look_up(entry).await?) }.boxed()
    }
}

impl Nacos {
    async fn register(&self, entry: &Advertisement) -> Result<(), Status> {
        let known =
            self.registered.lock().unwrap_or_else(PoisonError::into_inner).get(&entry.to_string()).cloned();
        if known.as_ref() == Some(entry) && self.beat(entry).await? {
            return Ok(());
        }
        let host = host_registration(entry)?;
        let fields = host.fields(self.fields(&entry.service))?;
        let reply = self.api.call(Verb::Register, &fields).await?;
        reply.check_success(&format!("cannot register {entry} in Nacos"))?;
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(entry.to_string(), entry.clone());
        Ok(())
    }

    /// Sends a heartbeat of the server; `false` if Nacos does not know it.
    async fn beat(&self, entry: &Advertisement) -> Result<bool, Status> {
        let host = host_registration(entry)?;
        let grouped = format!("{}@@{}", self.scope.group, entry.service);
        let cluster = self.scope.cluster.as_deref().unwrap_or("DEFAULT");
        let fields =
            host.with_address(self.fields(&entry.service)).with("beat", host.beat(&grouped, cluster)?);
        let known = self.api.call(Verb::Beat, &fields).await?.knows("cannot send a heartbeat to Nacos")?;
        if !known {
            self.forget(entry);
        }
        Ok(known)
    }

    /// Returns Nacos' current attributes of the entry. A disabled instance is missing from the lists of Nacos 1 and 2,
    /// in which case they are unknown.
    async fn look_up(&self, entry: &Advertisement) -> Result<Option<Attributes>, Status> {
        let action = format!("cannot read {entry} from Nacos");
        let list = list(&self.api, &self.scope, &entry.service).await?.list(&action)?;
        current_attributes(list.hosts.items, entry)
    }

    async fn deregister(&self, entry: &Advertisement) -> Result<(), Status> {
        self.forget(entry);
        let fields = host_registration(entry)?.with_address(self.fields(&entry.service));
        let reply = self.api.call(Verb::Deregister, &fields).await?;
        reply.check_success(&format!("cannot deregister {entry} from Nacos"))
    }

    fn forget(&self, entry: &Advertisement) {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry.to_string());
    }

    fn fields(&self, service: &str) -> Attributes {
        let mut fields = self.scope.fields(service).with("ephemeral", "true");
        if let Some(cluster) = &self.scope.cluster {
            fields.set("clusterName", cluster);
        }
        fields
    }
}
