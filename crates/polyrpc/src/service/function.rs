//! Plain functions as methods: any number of serde arguments, a value or a `Result` back.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use polyrpc_core::{Format, Head, Reply, Status};

use super::method::Method;
use crate::Failure;
use crate::call::{CallSite, Context, Outcome, ResponseFuture};
use crate::codec::{
    Body, Codec, Serde, check_plain, decode_argument, decode_arguments, decode_no_arguments, encode_value,
};

/// An async function or closure that can be registered by name.
///
/// Implemented for functions of up to eight arguments that serde can read, which return what serde can
/// write and read, or a [`Result`](crate::Result) of it. That a result can be read too is what tells its type to
/// formats in which a value does not say it by itself (struct_pack).
///
/// ```
/// # use polyrpc::{Result, Server, Status};
/// let server = Server::new()
///     .register("echo", |text: String| async move { text })
///     .register("add", |a: i32, b: i32| async move { a + b })
///     .register("div", |a: i32, b: i32| async move {
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
    /// What it returns: an [`IntoOutcome`].
    type Output;

    /// Reads the arguments and begins to run.
    ///
    /// # Errors
    ///
    /// When the arguments cannot be read.
    fn start<Kind: 'static>(&self, cx: Context, body: &Body) -> Result<ResponseFuture, Status>
    where
        Self::Output: IntoOutcome<Kind>;

    /// Whether its arguments can be carried in a format.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check(_format: Format) -> Result<(), Status> {
        Ok(())
    }
}

/// What serde can read, and what owns all that it holds: `String`, and not `&str`.
///
/// It is serde's `DeserializeOwned` under a name that the compiler's error for a borrowed type tells.
#[diagnostic::on_unimplemented(
    message = "serde cannot read `{Self}`",
    note = "derive `serde::Serialize` and `serde::Deserialize` for it"
)]
pub trait Owned<'any>: Deserialize<'any> {}

impl<'any, T: Deserialize<'any>> Owned<'any> for T {}

/// What a function may return: `Kind` tells a plain value from a `Result`.
///
/// A `Result` whose error serde can read and write too (`Result<T, String>`) may be either: a value to a peer that wants
/// to see it, or what fails the call. The compiler asks which ("type annotations needed … `PlainOrFallible`"):
/// `register::<_, Fallible>("name", function)` fails the call.
#[diagnostic::on_unimplemented(
    message = "a registered function cannot return `{Self}`",
    note = "it returns what serde can write and read, which owns what it holds: `String`, not `&'static str`; or a \
            `Result` of that whose error is a `Status`, any `std::error::Error`, a boxed one, or a text"
)]
pub trait IntoReply<Kind>: Send {
    /// Writes the value, or gives the failure.
    ///
    /// # Errors
    ///
    /// The function's own failure, or that its value cannot be written.
    fn encode(self, format: Format) -> Result<Bytes, Status>;

    /// Whether values can be carried in a format.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check(_format: Format) -> Result<(), Status> {
        Ok(())
    }
}

/// Marks a function that returns a plain value.
#[derive(Debug)]
pub struct Plain;

/// Marks a function that returns a `Result`.
#[derive(Debug)]
pub struct Fallible;

/// Marks the arguments of a function that takes the [`Context`] before them.
#[derive(Debug)]
pub struct WithContext<Args>(PhantomData<Args>);

/// Marks a function that gives the [`Context`] back with what it returns.
#[derive(Debug)]
pub struct WithReturnedContext<Kind>(PhantomData<Kind>);

/// What a function may return that was given the [`Context`]: an [`Outcome`], alone or behind the context.
#[diagnostic::on_unimplemented(
    message = "a registered function cannot return `{Self}`",
    label = "this is what it returns",
    note = "it returns what serde can write and read, which owns what it holds: `String`, not `&'static str`; or a \
            `Result` of that whose error is a `Status`, any `std::error::Error`, a boxed one, or a text",
    note = "a function that takes the `Context` may return a pair `(Context, _)` of it and one of these"
)]
pub trait IntoOutcome<Kind>: Send {
    /// Ends the call, whose context the function was given.
    #[doc(hidden)]
    fn end(self, kept: ReplyContext) -> Outcome;

    /// Ends the call, whose context the function was not given.
    #[doc(hidden)]
    fn end_in(self, cx: Context) -> Outcome;

    /// Whether values can be carried in a format.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check(_format: Format) -> Result<(), Status> {
        Ok(())
    }
}

/// What is kept of the context that a function was given.
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
}

impl<O: IntoReply<Kind>, Kind> IntoOutcome<WithReturnedContext<Kind>> for (Context, O) {
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
}

fn end<Kind>(cx: Context, outcome: impl IntoReply<Kind>) -> Outcome {
    let format = cx.reply_format(<Serde as Codec<()>>::carries);
    cx.end(format, outcome.encode(format))
}

impl ReplyContext {
    fn of(cx: &Context) -> Self {
        Self { site: cx.site(), format: cx.reply_format(<Serde as Codec<()>>::carries) }
    }

    /// Ends a call whose context was not given back.
    fn end<Kind>(self, outcome: impl IntoReply<Kind>) -> Outcome {
        let result = outcome.encode(self.format).map_err(|status| self.site.status_for_caller(status));
        Outcome::Reply(Reply::new(result, Head { format: self.format, ..Head::default() }))
    }
}

impl<T: Serialize + for<'any> Owned<'any> + Send + 'static> IntoReply<Plain> for T {
    fn encode(self, format: Format) -> Result<Bytes, Status> {
        encode_value(&self, format)
    }

    fn check(format: Format) -> Result<(), Status> {
        check_plain::<T>(format)
    }
}

impl<T, E> IntoReply<Fallible> for Result<T, E>
where
    T: Serialize + for<'any> Owned<'any> + Send + 'static,
    E: Into<Failure> + Send,
{
    fn encode(self, format: Format) -> Result<Bytes, Status> {
        let value = self.map_err(|error| error.into().into_status())?;
        encode_value(&value, format)
    }

    fn check(format: Format) -> Result<(), Status> {
        check_plain::<T>(format)
    }
}

/// Reads a list of arguments.
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
            $($name: for<'any> Owned<'any> + 'static,)*
        {
            type Output = Fut::Output;

            #[allow(non_snake_case, reason = "a type's name serves its value too")]
            fn start<Kind: 'static>(&self, cx: Context, body: &Body) -> Result<Handling, Status>
            where
                Fut::Output: IntoOutcome<Kind>,
            {
                let ($($name,)*) = <($($name,)*)>::read(body)?;
                let running = self($($name),*);
                Ok(Box::pin(async move { running.await.end_in(cx) }))
            }

            fn check(_format: Format) -> Result<(), Status> {
                $(check_plain::<$name>(_format)?;)*
                Ok(())
            }
        }
    };
}

macro_rules! function_with_context {
    ($($name:ident)*) => {
        impl<Run, Fut, $($name),*> Function<WithContext<($($name,)*)>> for Run
        where
            Run: Fn(Context, $($name),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            $($name: for<'any> Owned<'any> + 'static,)*
        {
            type Output = Fut::Output;

            #[allow(non_snake_case, reason = "a type's name serves its value too")]
            fn start<Kind: 'static>(&self, cx: Context, body: &Body) -> Result<Handling, Status>
            where
                Fut::Output: IntoOutcome<Kind>,
            {
                let ($($name,)*) = <($($name,)*)>::read(body)?;
                let kept = ReplyContext::of(&cx);
                let running = self(cx, $($name),*);
                Ok(Box::pin(async move { running.await.end(kept) }))
            }

            fn check(_format: Format) -> Result<(), Status> {
                $(check_plain::<$name>(_format)?;)*
                Ok(())
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

    fn check(&self, format: Format) -> Result<(), Status> {
        F::check(format)?;
        <F::Output as IntoOutcome<Kind>>::check(format)
    }
}

impl<F, Args, Kind> fmt::Debug for FunctionMethod<F, Args, Kind> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}
