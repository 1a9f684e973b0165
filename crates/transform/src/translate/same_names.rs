//! Whether a table of a `.fbs` and a message of a `.proto` describe the same values by the same names.

use std::collections::BTreeSet;

use polyrpc::payload::schema::{Field, Kind, Message, Pool};
use polyrpc_build::fbs::{self, Default, Scalar, Schema, Type};

/// Compares them, and all tables and messages within.
///
/// # Errors
///
/// The first irreconcilable difference. A field that only one of them has is not one.
pub(super) fn check(schema: &Schema, table: usize, message: &Message) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let mut pending = vec![(table, message.clone())];
    while let Some((table, message)) = pending.pop() {
        if !seen.insert((table, message.full_name().to_owned())) {
            continue;
        }
        let declared = &schema.tables[table];
        for field in &declared.fields {
            let Some(other) = message.field_named(&field.name) else { continue };
            let both =
                format!("{}.{} and {}.{}", declared.full_name(), field.name, message.full_name(), field.name);
            let inner = pair(schema, &field.ty, message.pool(), other)
                .ok_or_else(|| format!("{both} have different types"))?;
            if !has_same_default(schema, field, message.pool(), other) {
                return Err(format!("{both} have different defaults"));
            }
            pending.extend(inner);
        }
    }
    Ok(())
}

/// The tables and messages to compare next; `None` if the types differ.
fn pair(schema: &Schema, ty: &Type, pool: &Pool, field: &Field) -> Option<Option<(usize, Message)>> {
    if field.is_map() {
        return None;
    }
    let (ty, repeated) = match ty {
        Type::Vector(element) if is_byte(element) && field.kind() == Kind::Bytes => {
            return (!field.is_repeated()).then_some(None);
        }
        Type::Vector(element) => (&**element, true),
        ty => (ty, false),
    };
    if repeated != field.is_repeated() {
        return None;
    }
    match (ty, field.kind()) {
        (Type::Table(table), Kind::Message(id)) => Some(Some((*table, pool.message_at(id)))),
        (Type::Text, Kind::String) => Some(None),
        (Type::Enum(at), Kind::Enum(id)) => {
            let of = pool.enum_type(id);
            let values = &schema.enums[*at].values;
            let same = values.iter().all(|value| of.number(&value.name).is_some());
            (same && !schema.enums[*at].bit_flags).then_some(None)
        }
        (Type::Scalar(Scalar::Bool), Kind::Bool) => Some(None),
        (Type::Scalar(scalar), Kind::Float | Kind::Double) => scalar.is_float().then_some(None),
        (Type::Scalar(scalar), kind) => {
            (!scalar.is_float() && *scalar != Scalar::Bool && is_integer(kind)).then_some(None)
        }
        _ => None,
    }
}

/// Whether a field that is not set has the same value on both sides: such fields are not translated. A field without a
/// default is the same, since its receiver can see that it is not set.
fn has_same_default(schema: &Schema, field: &fbs::Field, pool: &Pool, other: &Field) -> bool {
    let text = other.default_value();
    match (&field.default, &field.ty, other.kind()) {
        (Default::Integer(number), Type::Enum(at), Kind::Enum(id)) => {
            let of = pool.enum_type(id);
            // Values are translated by their names.
            let name = schema.enums[*at].values.iter().find(|value| value.value == *number);
            let own = name.map_or_else(|| i32::try_from(*number).ok(), |value| of.number(&value.name));
            own == text.map_or_else(|| Some(of.first()), |name| of.number(name))
        }
        (Default::Integer(number), ..) => {
            let default = match text {
                None | Some("false") => Some(0),
                Some("true") => Some(1),
                Some(text) => text.parse::<i128>().ok(),
            };
            default == Some(*number)
        }
        (Default::Float(number), _, kind) => {
            let default = text.map_or(0.0, |text| text.parse::<f64>().unwrap_or(f64::NAN));
            let is_equal = match kind {
                Kind::Float => default as f32 == *number as f32,
                _ => default == *number,
            };
            is_equal || default.is_nan() && number.is_nan()
        }
        (Default::Text(default), ..) => text.unwrap_or_default() == default,
        (Default::None | Default::Empty, ..) => true,
    }
}

fn is_byte(ty: &Type) -> bool {
    matches!(ty, Type::Scalar(Scalar::U8 | Scalar::I8))
}

fn is_integer(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Fixed32
            | Kind::Fixed64
            | Kind::Sfixed32
            | Kind::Sfixed64
    )
}
