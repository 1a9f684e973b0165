//! Plain functions as methods: any number of serde arguments, a value or a `Result` as return value.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use polyrpc_core::{Format, Head, Reply, Status};

use super::method::Method;
use crate::Failure;
use crate::call::{CallSite, Context, Outcome, OutcomeKind, ResponseFuture};
use crate::codec::{
    Body, Codec, Serde, TypeSchema, check_plain, decode_argument, decode_arguments, decode_no_arguments,
    encode_value, plain_decodes_slowly, type_schema_of,
};
use crate::propagation::{Phase, phase_ended};

/// An async function or closure that can be registered by name.
///
/// Implemented for functions of up to eight arguments that implement serde's `Deserialize`. The return type, or the
/// value of a returned [`Result`](crate::Result), must implement serde's `Serialize` and `Deserialize`: the latter
/// gives its type to formats whose values do not describe themselves (struct_pack).
///
/// ```
/// # use polyrpc::{Result, Server, Status};
/// let server = Server::new()
///     .function("echo", |text: String| async move { text })
///     .function("add", |a: i32, b: i32| async move { a + b })
///     .function("div", |a: i32, b: i32| async move {
///         a.checked_div(b).ok_or_else(|| Status::invalid_argument("division by zero"))
///     });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be registered as a function",
    label = "this function cannot be called by a peer",
    note = "it must be async: `|a: i32| async move {{ a }}`, or an `async fn`",
    note = "it takes at most eight arguments that own what they hold and that serde can read: `String`, not `&str`; a \
            `Context` may stand before them"
)]
pub trait Function<Args>: Send + Sync + 'static {
    /// Return type: an [`IntoOutcome`].
    type Output;

    /// Decodes the arguments and starts the function.
    ///
    /// # Errors
    ///
    /// If the arguments cannot be decoded.
    #[doc(hidden)]
    fn start<Kind: 'static>(&self, cx: Context, body: &Body) -> Result<ResponseFuture, Status>
    where
        Self::Output: IntoOutcome<Kind>;

    /// Checks that its arguments can be carried in a format.
    ///
    /// # Errors
    ///
    /// If they cannot be carried in it.
    #[doc(hidden)]
    fn check(_format: Format) -> Result<(), Status> {
        Ok(())
    }

    /// Returns the structure of its arguments.
    #[doc(hidden)]
    fn arguments() -> Vec<TypeSchema>;
}

/// An argument that serde can deserialize and that owns its data: `String`, not `&str`.
///
/// It is serde's `DeserializeOwned` under a name of its own, so that the compiler's error for a borrowed type is
/// explained.
#[diagnostic::on_unimplemented(
    message = "serde cannot read `{Self}`",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it"
)]
pub(crate) trait OwnedArgument<'any>: Deserialize<'any> {}

impl<'any, T: Deserialize<'any>> OwnedArgument<'any> for T {}

/// A value that a function returns, alone or in a `Result`.
#[diagnostic::on_unimplemented(
    message = "a registered function cannot return `{Self}`",
    note = "it returns what serde can write and read, which owns what it holds: `String`, not `&'static str`; or a \
            `Result` of that whose error is a `Status`, any `std::error::Error`, a boxed one, or a text"
)]
pub(crate) trait IntoReply<Kind>: Send {
    /// Encodes the value, or returns the failure.
    ///
    /// # Errors
    ///
    /// If the function has failed, or if its value cannot be encoded.
    fn encode(self, format: Format) -> Result<Bytes, Status>;

    /// Checks that values can be carried in a format.
    ///
    /// # Errors
    ///
    /// If they cannot be carried in it.
    fn check(_format: Format) -> Result<(), Status> {
        Ok(())
    }

    /// Returns the structure of the value.
    fn type_schema() -> TypeSchema;
}

/// Marker of a function that returns a plain value.
#[derive(Debug)]
pub struct Plain;

/// Marker of a function that returns a `Result`.
///
/// A `Result` whose error serde can serialize and deserialize too (`Result<T, String>`) may be either: a value that the
/// peer receives ([`Plain`]), or a failure of the call. The compiler then requires a choice ("type annotations needed …
/// `PlainOrFallible`"): `function::<_, Fallible>("name", function)` fails the call.
#[derive(Debug)]
pub struct Fallible;

/// Return type of a function: a value, or a `Result` of one ([`Fallible`]). A function that takes the [`Context`] may
/// return it with either, as a pair.
#[diagnostic::on_unimplemented(
    message = "a registered function cannot return `{Self}`",
    label = "this is what it returns",
    note = "it returns what serde can write and read, which owns what it holds: `String`, not `&'static str`; or a \
            `Result` of that whose error is a `Status`, any `std::error::Error`, a boxed one, or a text",
    note = "a function that takes the `Context` may return a pair `(Context, _)` of it and one of these"
)]
pub trait IntoOutcome<Kind>: Send {
    /// Ends the call of a function that took the context.
    #[doc(hidden)]
    fn end(self, kept: ReplyContext) -> Outcome;

    /// Ends the call of a function that did not take the context.
    #[doc(hidden)]
    fn end_in(self, cx: Context) -> Outcome;

    /// Checks that values can be carried in a format.
    ///
    /// # Errors
    ///
    /// If they cannot be carried in it.
    #[doc(hidden)]
    fn check(_format: Format) -> Result<(), Status> {
        Ok(())
    }

    /// Returns the structure of the value.
    #[doc(hidden)]
    fn type_schema() -> TypeSchema;
}

/// Part of the context that is kept while a function owns it.
#[doc(hidden)]
#[derive(Debug)]
pub struct ReplyContext {
    site: CallSite,
    format: Format,
}

impl<O: IntoReply<Plain>> IntoOutcome<Plain> for O {
    fn end(self, kept: ReplyContext) -> Outcome {
        kept.end(self)
    }

    fn end_in(self, cx: Context) -> Outcome {
        end(cx, self)
    }

    fn check(format: Format) -> Result<(), Status> {
        <O as IntoReply<Plain>>::check(format)
    }

    fn type_schema() -> TypeSchema {
        <O as IntoReply<Plain>>::type_schema()
    }
}

impl<O: IntoReply<Fallible>> IntoOutcome<Fallible> for O {
    fn end(self, kept: ReplyContext) -> Outcome {
        kept.end(self)
    }

    fn end_in(self, cx: Context) -> Outcome {
        end(cx, self)
    }

    fn check(format: Format) -> Result<(), Status> {
        <O as IntoReply<Fallible>>::check(format)
    }

    fn type_schema() -> TypeSchema {
        <O as IntoReply<Fallible>>::type_schema()
    }
}

impl<O: IntoReply<Kind>, Kind> IntoOutcome<(Context, Kind)> for (Context, O) {
    fn end(self, _: ReplyContext) -> Outcome {
        let (cx, outcome) = self;
        end(cx, outcome)
    }

    fn end_in(self, _: Context) -> Outcome {
        let (cx, outcome) = self;
        end(cx, outcome)
    }

    fn check(format: Format) -> Result<(), Status> {
        O::check(format)
    }

    fn type_schema() -> TypeSchema {
        O::type_schema()
    }
}

fn end<Kind>(cx: Context, outcome: impl IntoReply<Kind>) -> Outcome {
    let format = cx.reply_format(<Serde as Codec<()>>::carries);
    cx.end(format, outcome.encode(format))
}

impl ReplyContext {
    fn new(cx: &Context) -> Self {
        Self { site: cx.site(), format: cx.reply_format(<Serde as Codec<()>>::carries) }
    }

    /// Ends a call whose context was not returned.
    fn end<Kind>(self, outcome: impl IntoReply<Kind>) -> Outcome {
        let result = outcome.encode(self.format).map_err(|status| self.site.status_for_caller(status));
        OutcomeKind::Reply(Reply::new(result, Head { format: self.format, ..Head::default() })).into()
    }
}

impl<T: Serialize + for<'any> OwnedArgument<'any> + Send + 'static> IntoReply<Plain> for T {
    fn encode(self, format: Format) -> Result<Bytes, Status> {
        encode_value(&self, format)
    }

    fn check(format: Format) -> Result<(), Status> {
        check_plain::<T>(format)
    }

    fn type_schema() -> TypeSchema {
        type_schema_of::<T>()
    }
}

impl<T, E> IntoReply<Fallible> for Result<T, E>
where
    T: Serialize + for<'any> OwnedArgument<'any> + Send + 'static,
    E: Into<Failure> + Send,
{
    fn encode(self, format: Format) -> Result<Bytes, Status> {
        let value = self.map_err(|error| error.into().into_status())?;
        encode_value(&value, format)
    }

    fn check(format: Format) -> Result<(), Status> {
        check_plain::<T>(format)
    }

    fn type_schema() -> TypeSchema {
        type_schema_of::<T>()
    }
}

/// Decodes a list of arguments.
trait Arguments: Sized {
    fn read(body: &Body) -> Result<Self, Status>;
}

impl Arguments for () {
    fn read(body: &Body) -> Result<Self, Status> {
        decode_no_arguments(body)
    }
}

impl<A: DeserializeOwned + 'static> Arguments for (A,) {
    fn read(body: &Body) -> Result<Self, Status> {
        decode_argument(body).map(|sole| (sole,))
    }
}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: DeserializeOwned + 'static),*> Arguments for ($($name,)*) {
            fn read(body: &Body) -> Result<Self, Status> {
                const COUNT: usize = [$(stringify!($name)),*].len();
                decode_arguments(body, COUNT)
            }
        }
    };
}

macro_rules! function {
    ($($name:ident)*) => {
        impl<Run, Fut, $($name),*> Function<($($name,)*)> for Run
        where
            Run: Fn($($name),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            $($name: for<'any> OwnedArgument<'any> + 'static,)*
        {
            type Output = Fut::Output;

            #[allow(non_snake_case, reason = "a type's name serves its value too")]
            fn start<Kind: 'static>(&self, cx: Context, body: &Body) -> Result<ResponseFuture, Status>
            where
                Fut::Output: IntoOutcome<Kind>,
            {
                let ($($name,)*) = <($($name,)*)>::read(body)?;
                phase_ended(Phase::Decode);
                let running = self($($name),*);
                Ok(Box::pin(async move {
                    let outcome = running.await;
                    phase_ended(Phase::Handle);
                    let outcome = outcome.end_in(cx);
                    phase_ended(Phase::Encode);
                    outcome
                }))
            }

            fn check(_format: Format) -> Result<(), Status> {
                $(check_plain::<$name>(_format)?;)*
                Ok(())
            }

            fn arguments() -> Vec<TypeSchema> {
                vec![$(type_schema_of::<$name>()),*]
            }
        }
    };
}

macro_rules! function_with_context {
    ($($name:ident)*) => {
        impl<Run, Fut, $($name),*> Function<(Context, $($name,)*)> for Run
        where
            Run: Fn(Context, $($name),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            $($name: for<'any> OwnedArgument<'any> + 'static,)*
        {
            type Output = Fut::Output;

            #[allow(non_snake_case, reason = "a type's name serves its value too")]
            fn start<Kind: 'static>(&self, cx: Context, body: &Body) -> Result<ResponseFuture, Status>
            where
                Fut::Output: IntoOutcome<Kind>,
            {
                let ($($name,)*) = <($($name,)*)>::read(body)?;
                phase_ended(Phase::Decode);
                let kept = ReplyContext::new(&cx);
                let running = self(cx, $($name),*);
                Ok(Box::pin(async move {
                    let outcome = running.await;
                    phase_ended(Phase::Handle);
                    let outcome = outcome.end(kept);
                    phase_ended(Phase::Encode);
                    outcome
                }))
            }

            fn check(_format: Format) -> Result<(), Status> {
                $(check_plain::<$name>(_format)?;)*
                Ok(())
            }

            fn arguments() -> Vec<TypeSchema> {
                vec![$(type_schema_of::<$name>()),*]
            }
        }
    };
}

arguments!(A B);
arguments!(A B C);
arguments!(A B C D);
arguments!(A B C D E);
arguments!(A B C D E F);
arguments!(A B C D E F G);
arguments!(A B C D E F G H);

function!();
function!(A);
function!(A B);
function!(A B C);
function!(A B C D);
function!(A B C D E);
function!(A B C D E F);
function!(A B C D E F G);
function!(A B C D E F G H);

function_with_context!();
function_with_context!(A);
function_with_context!(A B);
function_with_context!(A B C);
function_with_context!(A B C D);
function_with_context!(A B C D E);
function_with_context!(A B C D E F);
function_with_context!(A B C D E F G);
function_with_context!(A B C D E F G H);

/// A registered function.
pub(super) struct FunctionMethod<F, Args, Kind> {
    function: F,
    types: PhantomData<fn(Args, Kind)>,
}

impl<F, Args, Kind> FunctionMethod<F, Args, Kind> {
    pub(super) fn new(function: F) -> Self {
        Self { function, types: PhantomData }
    }
}

impl<F, Args: 'static, Kind: 'static> Method for FunctionMethod<F, Args, Kind>
where
    F: Function<Args, Output: IntoOutcome<Kind>>,
{
    fn start(&self, cx: Context, body: Body) -> Result<ResponseFuture, Status> {
        self.function.start::<Kind>(cx, &body)
    }

    fn decodes_slowly(&self, body: &Body) -> bool {
        plain_decodes_slowly(body)
    }

    fn check(&self, format: Format) -> Result<(), Status> {
        F::check(format)?;
        <F::Output as IntoOutcome<Kind>>::check(format)
    }

    fn type_schemas(&self) -> (TypeSchema, TypeSchema) {
        (TypeSchema::Tuple(F::arguments()), <F::Output as IntoOutcome<Kind>>::type_schema())
    }
}

impl<F, Args, Kind> fmt::Debug for FunctionMethod<F, Args, Kind> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}
