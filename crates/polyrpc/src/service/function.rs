//! Plain functions as methods: any number of serde arguments, a value or a `Result` back.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use polyrpc_wire::Status;

use super::Context;
use super::method::{Handling, Method};
use crate::Error;
use crate::codec::{
    Body, Codec, Serde, check_plain, decode_arguments, decode_no_arguments, decode_plain, encode_value,
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
    note = "it must be an async function of at most eight arguments that serde can read, \
            returning what serde can write and read or a `Result` of it"
)]
pub trait Function<Args, Kind>: Send + Sync + 'static {
    /// Reads the arguments and begins to run.
    ///
    /// # Errors
    ///
    /// When the arguments cannot be read.
    fn start(&self, cx: Context, body: &Body) -> Result<Handling, Status>;

    /// Whether its arguments and its value can be carried in a format.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check(_format: polyrpc_wire::Format) -> Result<(), Status> {
        Ok(())
    }
}

/// What a function may return: `Kind` tells a plain value from a `Result`.
pub trait Outcome<Kind>: Send {
    /// Writes the value, or gives the failure.
    ///
    /// # Errors
    ///
    /// The function's own failure, or that its value cannot be written.
    fn encode(self, format: polyrpc_wire::Format) -> Result<Bytes, Status>;

    /// Whether values can be carried in a format.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check(_format: polyrpc_wire::Format) -> Result<(), Status> {
        Ok(())
    }
}

/// Marks a function that returns a plain value.
#[derive(Debug)]
pub struct Plain;

/// Marks a function that returns a `Result`.
#[derive(Debug)]
pub struct Fallible;

impl<T: Serialize + DeserializeOwned + Send + 'static> Outcome<Plain> for T {
    fn encode(self, format: polyrpc_wire::Format) -> Result<Bytes, Status> {
        encode_value(&self, format)
    }

    fn check(format: polyrpc_wire::Format) -> Result<(), Status> {
        check_plain::<T>(format)
    }
}

impl<T, E> Outcome<Fallible> for Result<T, E>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    E: Into<Error> + Send,
{
    fn encode(self, format: polyrpc_wire::Format) -> Result<Bytes, Status> {
        let value = self.map_err(|error| error.into().into_status())?;
        encode_value(&value, format)
    }

    fn check(format: polyrpc_wire::Format) -> Result<(), Status> {
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
    /// One argument is tried alone first, since that is what peers with one request type send, unless the
    /// protocol says that the arguments are a list.
    fn read(body: &Body) -> Result<Self, Status> {
        if body.positional {
            return decode_arguments(body);
        }
        match decode_plain(body) {
            Ok(sole) => Ok((sole,)),
            Err(alone) => decode_plain(body).map_err(|_| alone),
        }
    }
}

macro_rules! arguments {
    ($($name:ident)*) => {
        impl<$($name: DeserializeOwned + 'static),*> Arguments for ($($name,)*) {
            fn read(body: &Body) -> Result<Self, Status> {
                decode_arguments(body)
            }
        }
    };
}

macro_rules! function {
    ($($name:ident)*) => {
        impl<Run, Fut, Kind, $($name),*> Function<($($name,)*), Kind> for Run
        where
            Run: Fn($($name),*) -> Fut + Send + Sync + 'static,
            Fut: Future + Send + 'static,
            Fut::Output: Outcome<Kind>,
            $($name: DeserializeOwned + 'static,)*
        {
            #[allow(non_snake_case, reason = "a type's name serves its value too")]
            fn start(&self, cx: Context, body: &Body) -> Result<Handling, Status> {
                let ($($name,)*) = <($($name,)*)>::read(body)?;
                let running = self($($name),*);
                Ok(Box::pin(async move {
                    let outcome = running.await;
                    let format = cx.reply_format(<Serde as Codec<()>>::carries);
                    cx.end(format, outcome.encode(format))
                }))
            }

            fn check(format: polyrpc_wire::Format) -> Result<(), Status> {
                $(check_plain::<$name>(format)?;)*
                Fut::Output::check(format)
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

/// A registered function.
pub(super) struct Registered<F, Args, Kind> {
    function: F,
    types: PhantomData<fn(Args, Kind)>,
}

impl<F, Args, Kind> Registered<F, Args, Kind> {
    pub(super) fn new(function: F) -> Self {
        Self { function, types: PhantomData }
    }
}

impl<F: Function<Args, Kind>, Args, Kind> Method for Registered<F, Args, Kind> {
    fn start(&self, cx: Context, body: Body) -> Result<Handling, Status> {
        self.function.start(cx, &body)
    }

    fn check(&self, format: polyrpc_wire::Format) -> Result<(), Status> {
        F::check(format)
    }
}

impl<F, Args, Kind> fmt::Debug for Registered<F, Args, Kind> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}
