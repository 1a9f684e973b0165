//! Answers calls as recorded.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polyrpc::codec::Body;
use polyrpc::fallback::{RawRequest, RawResponse};
use polyrpc::payload::schema::Message;
use polyrpc::server::Listen;
use polyrpc::{Format, Server, Status, signal};
use polyrpc_core::digits::parse_canonical_decimal;
use polyrpc_record::call::{Field, Outcome};
use polyrpc_record::compare::Rules;
use polyrpc_record::value::Value;
use polyrpc_transform::{Direction, Options as TranslatorOptions, Schemas, Translator};
use polyrpc_wire::rest_rpc;

use super::options::Options;
use super::plan::Plan;
use super::target::schemas;
use crate::failure::Failure;
use crate::terminal;

/// Recorded answers.
struct Mock {
    methods: HashMap<String, Vec<Answer>>,
    /// Names by their numbers, which rest_rpc sends instead.
    numbers: HashMap<u32, String>,
    inputs: HashMap<String, Message>,
    schemas: Schemas,
    rules: Rules,
}

struct Answer {
    request: Value,
    /// Answers to the same request, in the order of the recording; the last one is repeated.
    outcomes: Vec<Outcome>,
    given: AtomicUsize,
}

pub(super) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let mock = Arc::new(Mock::new(options)?);
    terminal::block_on(async {
        let stop = signal::shutdown();
        let server = Server::new().fallback(move |call: RawRequest| {
            let mock = mock.clone();
            async move { mock.answer(call).await }
        });
        let bound = server.bind(Listen::on(&options.listen)).await;
        let running =
            bound.map_err(|error| Failure::system(format!("listen on {}", options.listen), &error))?.start();
        terminal::print(&format!("listening main {}\nready", running.address()))?;
        stop.await;
        running.shutdown(Duration::from_secs(1)).await;
        Ok(ExitCode::SUCCESS)
    })?
}

impl Mock {
    fn new(options: &Options) -> Result<Self, Failure> {
        let plan = Plan::read(options)?;
        let (schemas, rules) = (schemas(options, &plan)?, options.rules.rules()?);
        let (mut methods, mut inputs) = (HashMap::<String, Vec<Answer>>::new(), HashMap::new());
        let (mut seen, mut numbers) = (HashSet::new(), HashMap::new());
        for call in plan.calls {
            let name = call.full_name();
            if seen.insert(name.clone()) {
                for called in [rest_rpc::function_name(&call.service, &call.method), name.clone()] {
                    numbers.entry(rest_rpc::number(called)).or_insert_with(|| name.clone());
                }
                if let Some(types) = schemas.method(&name, false).proto {
                    inputs.insert(name.clone(), types.input);
                }
            }
            let (Some(request), Some(outcome)) = (call.request, call.outcome) else { continue };
            let format = request.format.unwrap_or_default();
            let request = Value::decode_or_bytes(format, &request.body, inputs.get(&name));
            let answers = methods.entry(name).or_default();
            match answers.iter_mut().find(|answer| rules.compare(&answer.request, &request).is_empty()) {
                Some(answer) => answer.outcomes.push(outcome),
                None => answers.push(Answer { request, outcomes: vec![outcome], given: AtomicUsize::new(0) }),
            }
        }
        Ok(Self { methods, numbers, inputs, schemas, rules })
    }

    /// The recorded name of a called method: HTTP has a path for a function, and rest_rpc may have a number.
    fn name_of(&self, call: &RawRequest) -> String {
        let target = call.target();
        match number_of(&target).and_then(|number| self.numbers.get(&number)) {
            Some(name) => name.clone(),
            None => target.strip_suffix('/').unwrap_or(&target).to_owned(),
        }
    }

    async fn answer(&self, mut call: RawRequest) -> polyrpc::Result<RawResponse> {
        let name = self.name_of(&call);
        let Some(answers) = self.methods.get(&name) else {
            return Err(Status::unimplemented(format!("no call of {name} was recorded")).into());
        };
        let wanted = call.format();
        let body = call.body().await?;
        let request = Value::decode_or_bytes(body.format, &body.bytes, self.inputs.get(&name));
        let answer = answers.iter().find(|answer| self.rules.compare(&answer.request, &request).is_empty());
        let Some(answer) = answer else {
            return Err(Status::not_found(format!("no recorded call of {name} has this request")).into());
        };
        let given = answer.given.fetch_add(1, Ordering::Relaxed);
        let outcome = answer.outcomes.get(given).or_else(|| answer.outcomes.last());
        let outcome = outcome.ok_or_else(|| Status::internal("there is no recorded answer"))?;
        self.response(&name, outcome, wanted)
    }

    fn response(&self, name: &str, outcome: &Outcome, wanted: Format) -> polyrpc::Result<RawResponse> {
        if let Some(failure) = &outcome.failure {
            return Err(failure.status().into());
        }
        let Some(message) = &outcome.response else {
            return Err(Status::unavailable("the answer was not recorded").into());
        };
        if !message.omitted.is_empty() {
            return Err(Status::unavailable(format!("the answer was not kept: {}", message.omitted)).into());
        }
        let from = message.format.unwrap_or_default();
        let schema = self.schemas.method(name, false);
        let translator =
            Translator::new(Direction::Response, from, wanted, &schema, TranslatorOptions::default())
                .map_err(|why| Status::unimplemented(why.to_string()))?;
        let body = Body { positional: message.positional, ..Body::new(from, message.body.clone()) };
        let translated = translator.translate(body).map_err(|error| Status::internal(error.to_string()))?;
        let mut response = RawResponse::message(translated.body.bytes);
        response.format = Some(translated.body.format);
        response.metadata = Field::metadata(&outcome.metadata);
        response.trailers = Field::metadata(&outcome.trailers);
        response.attachment = outcome.attachment.clone();
        Ok(response)
    }
}

/// The number of a function that rest_rpc calls by it, such as `#887912700`.
fn number_of(target: &str) -> Option<u32> {
    target.strip_prefix('#').and_then(parse_canonical_decimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_that_rest_rpc_sends_is_one() {
        assert_eq!(["#0", "#887912700"].map(number_of), [Some(0), Some(887_912_700)]);
        for name in ["887912700", "#", "#007", "#+7", "#4294967296", "#x"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
