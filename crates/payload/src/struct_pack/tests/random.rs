//! Random types and values.

use serde_json::Value;

use super::*;

#[test]
fn random_values_of_random_types_round_trip() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2000 {
        let ty = random.ty(3);
        let plan = Plan::new(ty.clone()).unwrap_or_else(|error| panic!("{ty}: {error}"));
        assert_eq!(ty.to_string().parse(), Ok(ty.clone()));
        let literal = Type::from_literal(plan.literal()).unwrap_or_else(|error| panic!("{ty}: {error}"));
        assert_bytes(literal.literal(), plan.literal());
        let value = random.value(&ty);
        for form in [Form::Bare, Form::Literal] {
            let bytes =
                plan.encode_json(&value, form).unwrap_or_else(|error| panic!("{ty} {value}: {error}"));
            assert_eq!(plan.decode_json(&bytes).as_ref(), Ok(&value), "{ty}");
            assert!(plan.decode_json(&bytes[..bytes.len() - 1]).is_err(), "{ty} {value}");
        }
    }
}

/// Reproducible pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn ty(&mut self, depth: usize) -> Type {
        let kinds = if depth == 0 { 3 } else { 12 };
        let inner = depth.saturating_sub(1);
        match self.below(kinds) {
            0 | 1 => Type::Scalar(self.scalar()),
            2 => Type::String([Character::Char, Character::Char16, Character::Char32][self.below(3)]),
            3 => Type::Array(self.ty(inner).into(), 1 + self.below(3)),
            4 => Type::List(self.ty(inner).into()),
            5 => Type::Set(self.ty(inner).into()),
            6 => Type::Map(self.key().into(), self.ty(inner).into()),
            7 => Type::Optional(self.ty(inner).into()),
            8 => Type::Variant(self.types(inner)),
            9 => Type::Expected(self.ty(inner).into(), Type::Unit.into()),
            10 => Type::tuple(self.types(inner)),
            _ => Type::structure(self.types(inner)),
        }
    }

    /// A type that JSON can express only as a key, or one that it cannot express as a key.
    fn key(&mut self) -> Type {
        if self.below(2) == 0 { Type::String(Character::Char) } else { Type::Scalar(Scalar::I16) }
    }

    fn types(&mut self, depth: usize) -> Vec<Type> {
        (0..=self.below(4)).map(|_| self.ty(depth)).collect()
    }

    /// A scalar that is not restricted to structs.
    fn scalar(&mut self) -> Scalar {
        loop {
            match Scalar::ALL[self.below(Scalar::ALL.len())] {
                scalar if scalar.is_fast() => {}
                scalar => return scalar,
            }
        }
    }

    fn value(&mut self, ty: &Type) -> Value {
        match ty {
            Type::Unit => Value::Null,
            Type::Scalar(scalar) => self.number(*scalar),
            Type::String(_) => self.text().into(),
            Type::Array(item, count) => self.values(item, *count).into(),
            Type::List(item) | Type::Set(item) => {
                // Occasionally more than a length of one byte can express.
                let count = if self.below(60) == 0 { 256 } else { self.below(4) };
                self.values(item, count).into()
            }
            Type::Map(key, value) => match **key {
                Type::String(_) => json!({ self.text(): self.value(value) }),
                _ => (0..=self.below(3)).map(|_| json!([self.value(key), self.value(value)])).collect(),
            },
            Type::Optional(value) => {
                if self.below(2) == 0 {
                    Value::Null
                } else {
                    self.value(value)
                }
            }
            Type::Variant(alternatives) => {
                let index = self.below(alternatives.len());
                json!({ "index": index, "value": self.value(&alternatives[index]) })
            }
            Type::Expected(value, error) => {
                let index = self.below(2);
                json!({ "index": index, "value": self.value([value, error][index]) })
            }
            Type::Struct(this) => this.members.iter().map(|member| self.value(member)).collect(),
            Type::Recursive(_) => unreachable!("none is made"),
        }
    }

    fn values(&mut self, item: &Type, count: usize) -> Vec<Value> {
        (0..count).map(|_| self.value(item)).collect()
    }

    fn number(&mut self, scalar: Scalar) -> Value {
        let number = self.next();
        match scalar {
            Scalar::Bool => (number & 1 == 1).into(),
            Scalar::F32 | Scalar::F64 => f64::from(number as u16).into(),
            Scalar::Char32 => char::from(number as u8 & 0x7f).to_string().into(),
            Scalar::I8 => (number as i8).into(),
            Scalar::I16 => (number as i16).into(),
            Scalar::I32 | Scalar::VarI32 => (number as i32).into(),
            Scalar::I64 | Scalar::VarI64 | Scalar::I128 => (number as i64).wrapping_neg().into(),
            Scalar::U8 | Scalar::Char => (number as u8).into(),
            Scalar::U16 | Scalar::Char16 => (number as u16).into(),
            Scalar::U32 | Scalar::VarU32 => (number as u32).into(),
            _ => number.into(),
        }
    }

    fn text(&mut self) -> String {
        let count = self.below(5);
        (0..count).map(|_| ['a', 'ß', '𝄞', '\0', '"'][self.below(5)]).collect()
    }
}
