use polyrpc::{Context, Result};

use crate::proto::pb::{BenchmarkMessage, Hello};

/// The service of rpcx's benchmark: the same message goes back with two fields set.
pub(super) struct Benchmark;

impl Hello for Benchmark {
    async fn say(&self, _: &mut Context, mut message: BenchmarkMessage) -> Result<BenchmarkMessage> {
        message.field1 = "OK".into();
        message.field2 = 100;
        Ok(message)
    }
}
