use polyrpc::{Context, Result, Status};

use crate::proto::{Arith, ArithArgs, ArithReply, PBArgs, PBArith, PBReply};

/// rpcx's example, with two ways to fail. Integers wrap as Go's do.
#[derive(Debug, Clone, Copy)]
pub struct Calculator;

/// The two services differ in how wide their integers are, and in nothing else.
macro_rules! calculates {
    ($service:ident, $args:ident, $reply:ident) => {
        impl $service for Calculator {
            async fn mul(&self, _: &mut Context, args: $args) -> Result<$reply> {
                Ok($reply { C: args.A.wrapping_mul(args.B), ..$reply::default() })
            }

            async fn add(&self, _: &mut Context, args: $args) -> Result<$reply> {
                Ok($reply { C: args.A.wrapping_add(args.B), ..$reply::default() })
            }

            async fn div(&self, _: &mut Context, args: $args) -> Result<$reply> {
                match args.B {
                    0 => Err(Status::invalid_argument("divide by zero"))?,
                    divisor => Ok($reply { C: args.A.wrapping_div(divisor), ..$reply::default() }),
                }
            }

            async fn error(&self, _: &mut Context, _: $args) -> Result<$reply> {
                Err(Status::unknown("boom"))?
            }

            async fn panic(&self, _: &mut Context, _: $args) -> Result<$reply> {
                panic!("panic as asked")
            }
        }
    };
}

calculates!(Arith, ArithArgs, ArithReply);
calculates!(PBArith, PBArgs, PBReply);
