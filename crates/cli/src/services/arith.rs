use polyrpc::{Context, Result, Status};

use crate::proto::{Arith, ArithArgs, ArithReply};

/// rpcx's example, with two ways to fail. Integers wrap as Go's do.
pub(crate) struct Calculator;

impl Arith for Calculator {
    async fn mul(&self, _: &mut Context, args: ArithArgs) -> Result<ArithReply> {
        Ok(reply(args.A.wrapping_mul(args.B)))
    }

    async fn add(&self, _: &mut Context, args: ArithArgs) -> Result<ArithReply> {
        Ok(reply(args.A.wrapping_add(args.B)))
    }

    async fn div(&self, _: &mut Context, args: ArithArgs) -> Result<ArithReply> {
        match args.B {
            0 => Err(Status::invalid_argument("divide by zero"))?,
            divisor => Ok(reply(args.A.wrapping_div(divisor))),
        }
    }

    async fn error(&self, _: &mut Context, _: ArithArgs) -> Result<ArithReply> {
        Err(Status::unknown("boom"))?
    }

    async fn panic(&self, _: &mut Context, _: ArithArgs) -> Result<ArithReply> {
        panic!("panic as asked")
    }
}

fn reply(c: i32) -> ArithReply {
    ArithReply { C: c, ..ArithReply::default() }
}
