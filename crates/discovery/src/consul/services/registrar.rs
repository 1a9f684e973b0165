//! Registers servers with the local agent, and passes their checks.

use std::sync::PoisonError;

use ::http::StatusCode;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Registrar};

use super::format::{Registration, Service, legacy_rpcx_format, plain_registration};
use super::{InstanceFormat, Services};
use crate::http::RESPONSE_TIMEOUT;
use crate::metadata::apply_changes;
use crate::url_parts::segment;

impl Registrar for Services {
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

impl Services {
    async fn register(&self, entry: &Advertisement) -> Result<(), Status> {
        let id = id(entry);
        if self.is_registered(&id, entry) && self.pass(&id).await? {
            return Ok(());
        }
        let wanted = serde_json::to_vec(&self.registration(entry, &id)?)
            .map_err(|error| Status::internal(error.to_string()))?;
        let query = Attributes::new().with("replace-existing-checks", "true");
        let answer = self.consul.put("/agent/service/register", query, wanted).await?;
        answer.check_success(&format!("cannot register {entry} in Consul"))?;
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).insert(id, entry.clone());
        Ok(())
    }

    /// Renews the server's check; `false` if the agent does not know it.
    async fn pass(&self, id: &str) -> Result<bool, Status> {
        let check = format!("/agent/check/pass/{}", segment(&format!("service:{id}")));
        let answer = self.consul.put(&check, Attributes::new(), "").await?;
        // Agents before 1.11 return 500.
        if matches!(answer.status, StatusCode::NOT_FOUND | StatusCode::INTERNAL_SERVER_ERROR) {
            self.registered.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
            return Ok(false);
        }
        answer.check_success("cannot pass a Consul check").map(|()| true)
    }

    async fn deregister(&self, entry: &Advertisement) -> Result<(), Status> {
        let id = id(entry);
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let path = format!("/agent/service/deregister/{}", segment(&id));
        let answer = self.consul.put(&path, Attributes::new(), "").await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(()),
            _ => answer.check_success(&format!("cannot deregister {entry} from Consul")),
        }
    }

    /// Returns the agent's current attributes of the entry.
    async fn look_up(&self, entry: &Advertisement) -> Result<Option<Attributes>, Status> {
        let id = id(entry);
        let path = format!("/agent/service/{}", segment(&id));
        let answer = self.consul.get(&path, Attributes::new(), RESPONSE_TIMEOUT).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let found: Service = answer.json(&format!("cannot read {entry} from Consul"))?;
        let written = self.registration(entry, &id)?.service();
        let (Some(written), Some(found)) = (written.instance(None), found.instance(None)) else {
            return Ok(None);
        };
        Ok(Some(apply_changes(&entry.instance.attributes, &written.attributes, &found.attributes)))
    }

    fn registration<'a>(&self, entry: &'a Advertisement, id: &'a str) -> Result<Registration<'a>, Status> {
        match self.written {
            InstanceFormat::Plainly => plain_registration(entry, id),
            InstanceFormat::LegacyRpcx => Ok(legacy_rpcx_format(entry, id)),
        }
    }

    fn is_registered(&self, id: &str, entry: &Advertisement) -> bool {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner).get(id) == Some(entry)
    }
}

/// Id, as in rpcx.
fn id(entry: &Advertisement) -> String {
    format!("{}-{}", entry.service, entry.instance)
}
