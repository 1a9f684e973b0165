//! Messages of recorded methods.

use std::collections::HashMap;

use polyrpc_payload::schema::{Message, Pool};

use crate::call::{Call, Schema};
use crate::value::{Undecodable, Value};

/// The schemas of a recording, to decode its messages.
#[derive(Debug, Default)]
pub struct DeclaredMessages {
    pools: HashMap<[u8; 32], Pool>,
}

impl DeclaredMessages {
    /// Creates an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a schema. An invalid one is ignored: its messages are not decoded.
    pub fn add(&mut self, schema: &Schema) {
        if let Ok(pool) = Pool::decode(&schema.descriptor_set) {
            self.pools.insert(schema.hash, pool);
        }
    }

    /// Iterates over the schemas as serialized `FileDescriptorSet`s.
    pub fn sets(&self) -> impl Iterator<Item = &[u8]> {
        self.pools.values().map(Pool::encoded)
    }

    /// Returns request and response of the call's method, if they are declared.
    pub fn messages(&self, call: &Call) -> Option<(Message, Message)> {
        let pool = self.pools.get(call.schema.as_ref()?)?;
        let method = pool.service(&call.service)?.methods().find(|method| method.name() == call.method)?;
        Some((method.input(), method.output()))
    }

    /// Returns the request as a tree. `None` if the call has none.
    ///
    /// # Errors
    ///
    /// If it cannot be decoded.
    pub fn request(&self, call: &Call) -> Option<Result<Value, Undecodable>> {
        let declared = self.messages(call);
        let request = call.request.as_ref()?;
        Some(decode(request, declared.as_ref().map(|(input, _)| input)))
    }

    /// Returns the response as a tree. `None` if the call has none.
    ///
    /// # Errors
    ///
    /// If it cannot be decoded.
    pub fn response(&self, call: &Call) -> Option<Result<Value, Undecodable>> {
        let declared = self.messages(call);
        let response = call.outcome.as_ref()?.response.as_ref()?;
        Some(decode(response, declared.as_ref().map(|(_, output)| output)))
    }
}

fn decode(message: &crate::call::Message, declared: Option<&Message>) -> Result<Value, Undecodable> {
    if !message.omitted.is_empty() {
        return Err(Undecodable::new(format!("its body was not kept: {}", message.omitted)));
    }
    let format = message.format.ok_or_else(|| Undecodable::new("its format is not known"))?;
    Value::decode(format, &message.body, declared)
}
