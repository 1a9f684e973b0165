//! Integers of a struct that peers declare `USE_FAST_VARINT`: they precede its other members, zeros are omitted, and
//! all are as wide as the largest requires (struct_pack/packer.hpp, `serialize_fast_varint`).

use super::Error;
use super::input::Input;
use super::types::{Scalar, Type};

/// Returns these integers among the members of a struct.
pub(super) fn scalars(members: &[Type]) -> Box<[Scalar]> {
    let scalars = members.iter().filter_map(|member| match member {
        Type::Scalar(scalar) if scalar.is_fast() => Some(*scalar),
        _ => None,
    });
    scalars.collect()
}

/// Reads them: a bit for each that is not zero, two bits for the width, then the values.
pub(super) fn read(scalars: &[Scalar], input: &mut Input<'_>) -> Result<Vec<i128>, Error> {
    let bits = input.take(map_size(scalars))?;
    let bit = |at: usize| bits.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
    let form = usize::from(bit(scalars.len())) | usize::from(bit(scalars.len() + 1)) << 1;
    let width = 1 << form;
    if width > max_size(scalars) {
        return Err(Error::Invalid("integers are wider than their types"));
    }
    let value = |(at, scalar): (usize, &Scalar)| match bit(at) {
        false => Ok(0),
        true => input.take(width.min(size(*scalar))).map(|bytes| extend(bytes, is_signed(*scalar))),
    };
    scalars.iter().enumerate().map(value).collect()
}

/// Writes them.
pub(super) fn write(scalars: &[Scalar], values: &[i128]) -> Vec<u8> {
    let form = scalars.iter().zip(values).map(|(scalar, value)| form(*scalar, *value)).max().unwrap_or(0);
    let mut out = vec![0; map_size(scalars)];
    let mut set = |at: usize| {
        if let Some(byte) = out.get_mut(at / 8) {
            *byte |= 1 << (at % 8);
        }
    };
    values.iter().enumerate().filter(|(_, value)| **value != 0).for_each(|(at, _)| set(at));
    (0..2).filter(|bit| form >> bit & 1 == 1).for_each(|bit| set(scalars.len() + bit));
    for (scalar, value) in scalars.iter().zip(values).filter(|(_, value)| **value != 0) {
        out.extend(value.to_le_bytes().iter().take((1 << form).min(size(*scalar))));
    }
    out
}

fn map_size(scalars: &[Scalar]) -> usize {
    (scalars.len() + 2).div_ceil(8)
}

fn max_size(scalars: &[Scalar]) -> usize {
    scalars.iter().map(|scalar| size(*scalar)).max().unwrap_or(0)
}

fn size(scalar: Scalar) -> usize {
    match scalar {
        Scalar::FastI64 | Scalar::FastU64 => 8,
        _ => 4,
    }
}

fn is_signed(scalar: Scalar) -> bool {
    matches!(scalar, Scalar::FastI32 | Scalar::FastI64)
}

/// Returns how often a byte must be doubled to hold the value.
fn form(scalar: Scalar, value: i128) -> usize {
    let bits = match is_signed(scalar) {
        true => 1 + (value ^ value >> 127).checked_ilog2().map_or(0, |top| top + 1),
        false => value.checked_ilog2().map_or(0, |top| top + 1),
    };
    match bits {
        0..=8 => 0,
        9..=16 => 1,
        17..=32 => 2,
        _ => 3,
    }
}

fn extend(bytes: &[u8], signed: bool) -> i128 {
    let negative = signed && bytes.last().is_some_and(|byte| byte >> 7 == 1);
    let start = if negative { -1 } else { 0 };
    bytes.iter().rev().fold(start, |value, byte| value << 8 | i128::from(*byte))
}
