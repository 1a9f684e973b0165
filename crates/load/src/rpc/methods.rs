use std::sync::Arc;

use polyrpc::codec::Body;

use crate::feed::Order;
use crate::mix::Mix;
use crate::plan::{Method, Plan};
use crate::schedule::random::{Stream, random_below};

/// Methods and messages of all threads, and the choice among them.
pub(crate) struct Methods {
    methods: Vec<Method>,
    mix: Mix,
    seed: u64,
}

impl Methods {
    pub(crate) fn new(plan: &Plan) -> Arc<Self> {
        let mix = Mix::new(plan.methods.iter().map(|method| method.weight), plan.seed);
        Arc::new(Self { methods: plan.methods.clone(), mix, seed: plan.seed })
    }

    pub(crate) fn len(&self) -> usize {
        self.methods.len()
    }

    pub(crate) fn mix(&self) -> &Mix {
        &self.mix
    }

    /// The method of call number `index`, and its message.
    pub(crate) fn call(&self, index: u64) -> (&Method, &Body) {
        let method = &self.methods[self.mix.method(index)];
        let count = method.messages.len() as u64;
        let at = match method.order {
            _ if count == 1 => 0,
            Order::Sequence => index % count,
            Order::Random => random_below(self.seed, Stream::Messages, index, count),
        };
        (method, &method.messages[at as usize])
    }
}
