use std::str::FromStr;

use futures_util::{StreamExt, stream};
use polyrpc_wire::Status;

use super::{Attributes, Discover, Instance, Sets};

/// Servers that the program itself knows: brpc's `list://`.
#[derive(Debug, Clone)]
pub struct List(Vec<Instance>);

impl List {
    /// These servers.
    pub fn new(instances: impl IntoIterator<Item = Instance>) -> Self {
        Self(instances.into_iter().collect())
    }
}

impl FromStr for List {
    type Err = Status;

    /// Reads `host:port tag,host:port tag`.
    fn from_str(text: &str) -> Result<Self, Status> {
        let servers = text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(|text| {
            let (address, tag) = text.split_once(' ').unwrap_or((text, ""));
            let instance: Instance = address.parse()?;
            Ok(match tag.trim() {
                "" => instance,
                tag => instance.with(Attributes::new().with("tag", tag)),
            })
        });
        let servers = servers.collect::<Result<Vec<_>, Status>>()?;
        match servers.is_empty() {
            true => Err(Status::invalid_argument("want host:port,host:port")),
            false => Ok(Self(servers)),
        }
    }
}

impl Discover for List {
    fn watch(&self) -> Sets {
        let set = self.0.clone();
        stream::once(async { Ok(set) }).boxed()
    }
}
