//! Formats a value as Go's `fmt` does by `%v`, for Rust values that have a counterpart in Go.

use std::fmt::{self, Display, Write};

use serde::{Serialize, ser};

/// Prints a value; writes `&` before a composite value that the Go program passes by pointer.
pub(super) fn print<T: Serialize + ?Sized>(
    value: &T,
    by_pointer: bool,
    out: &mut impl Write,
) -> Result<(), Refusal> {
    value.serialize(Printer { out, by_pointer }).map(|_| ())
}

struct Printer<'a, W> {
    out: &'a mut W,
    /// Whether the outermost value is passed by pointer.
    by_pointer: bool,
}

/// Kind of the last printed value; decides the order of keys in a map.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integer,
    Other,
}

impl<'a, W: Write> Printer<'a, W> {
    fn new(out: &'a mut W) -> Self {
        Self { out, by_pointer: false }
    }

    fn write(self, value: impl Display) -> Result<Kind, Refusal> {
        write!(self.out, "{value}")?;
        Ok(Kind::Other)
    }

    fn write_integer(self, value: impl Display) -> Result<Kind, Refusal> {
        self.write(value)?;
        Ok(Kind::Integer)
    }

    fn open(self, bracket: &str, close: char) -> Result<Series<'a, W>, Refusal> {
        if self.by_pointer {
            self.out.write_char('&')?;
        }
        self.out.write_str(bracket)?;
        Ok(Series { out: self.out, is_empty: true, close })
    }

    fn open_list(self) -> Result<Series<'a, W>, Refusal> {
        self.open("[", ']')
    }

    fn open_struct(self) -> Result<Series<'a, W>, Refusal> {
        self.open("{", '}')
    }
}

/// `[1 2 3]` or `{1 2 3}`.
struct Series<'a, W> {
    out: &'a mut W,
    is_empty: bool,
    close: char,
}

impl<W: Write> Series<'_, W> {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refusal> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.write_char(' ')?;
        }
        print(value, false, self.out)
    }

    fn close(self) -> Result<Kind, Refusal> {
        self.out.write_char(self.close)?;
        Ok(Kind::Other)
    }
}

/// `map[a:1 b:2]`, in the order of the keys.
struct Entries<'a, W> {
    out: &'a mut W,
    entries: Vec<(String, String)>,
    keys: Kind,
}

impl<W: Write> Entries<'_, W> {
    /// Sorts integers by value and anything else by text.
    fn sort(&mut self) {
        match self.keys {
            Kind::Integer => self.entries.sort_by_key(|(key, _)| key.parse::<i128>().unwrap_or(i128::MAX)),
            Kind::Other => self.entries.sort(),
        }
    }
}

impl<'a, W: Write> ser::Serializer for Printer<'a, W> {
    type Ok = Kind;
    type Error = Refusal;
    type SerializeSeq = Series<'a, W>;
    type SerializeTuple = Series<'a, W>;
    type SerializeTupleStruct = Series<'a, W>;
    type SerializeTupleVariant = Series<'a, W>;
    type SerializeMap = Entries<'a, W>;
    type SerializeStruct = Series<'a, W>;
    type SerializeStructVariant = Series<'a, W>;

    fn serialize_bool(self, value: bool) -> Result<Kind, Refusal> {
        self.write(value)
    }

    fn serialize_i8(self, value: i8) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_i16(self, value: i16) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_i32(self, value: i32) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_i64(self, value: i64) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_i128(self, value: i128) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_u8(self, value: u8) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_u16(self, value: u16) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_u32(self, value: u32) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_u64(self, value: u64) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_u128(self, value: u128) -> Result<Kind, Refusal> {
        self.write_integer(value)
    }

    fn serialize_f32(self, value: f32) -> Result<Kind, Refusal> {
        self.write(float(f64::from(value), &format!("{value:e}"), value))
    }

    fn serialize_f64(self, value: f64) -> Result<Kind, Refusal> {
        self.write(float(value, &format!("{value:e}"), value))
    }

    fn serialize_char(self, value: char) -> Result<Kind, Refusal> {
        self.write(value)
    }

    fn serialize_str(self, value: &str) -> Result<Kind, Refusal> {
        self.write(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Kind, Refusal> {
        let mut list = self.open_list()?;
        value.iter().try_for_each(|byte| list.push(byte))?;
        list.close()
    }

    fn serialize_none(self) -> Result<Kind, Refusal> {
        self.write("<nil>")
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Kind, Refusal> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Kind, Refusal> {
        self.write("<nil>")
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Kind, Refusal> {
        self.open_struct()?.close()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Kind, Refusal> {
        self.write(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Kind, Refusal> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<Kind, Refusal> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Series<'a, W>, Refusal> {
        self.open_list()
    }

    fn serialize_tuple(self, _: usize) -> Result<Series<'a, W>, Refusal> {
        self.open_list()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Series<'a, W>, Refusal> {
        self.open_struct()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Series<'a, W>, Refusal> {
        self.open_struct()
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'a, W>, Refusal> {
        if self.by_pointer {
            self.out.write_char('&')?;
        }
        Ok(Entries { out: self.out, entries: Vec::new(), keys: Kind::Integer })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Series<'a, W>, Refusal> {
        self.open_struct()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Series<'a, W>, Refusal> {
        self.open_struct()
    }
}

/// Formats with the shortest digits that identify the number, with an exponent where Go writes one (`fmt/format.go`:
/// `%e` for exponents below -4 and from 21 on).
fn float(value: f64, scientific: &str, plain: impl Display) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let Some((digits, exponent)) = scientific.split_once('e') else { return plain.to_string() };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..21).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => plain.to_string(),
    }
}

/// Implements serde's traits for values that are printed as a series.
macro_rules! series {
    ($($compound:ident $push:ident $(($name:ident: $key:ty))?;)*) => {
        $(impl<W: Write> ser::$compound for Series<'_, W> {
            type Ok = Kind;
            type Error = Refusal;

            fn $push<T: Serialize + ?Sized>(&mut self, $($name: $key,)? value: &T) -> Result<(), Refusal> {
                self.push(value)
            }

            fn end(self) -> Result<Kind, Refusal> {
                self.close()
            }
        })*
    };
}

series! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
    SerializeStruct serialize_field (_name: &'static str);
    SerializeStructVariant serialize_field (_name: &'static str);
}

impl<W: Write> ser::SerializeMap for Entries<'_, W> {
    type Ok = Kind;
    type Error = Refusal;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refusal> {
        let mut text = String::new();
        if key.serialize(Printer::new(&mut text))? == Kind::Other {
            self.keys = Kind::Other;
        }
        self.entries.push((text, String::new()));
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refusal> {
        match self.entries.last_mut() {
            Some((_, text)) => print(value, false, text),
            None => Err(ser::Error::custom("a value without a key")),
        }
    }

    fn end(mut self) -> Result<Kind, Refusal> {
        self.sort();
        self.out.write_str("map[")?;
        for (index, (key, value)) in self.entries.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(self.out, "{gap}{key}:{value}")?;
        }
        self.out.write_char(']')?;
        Ok(Kind::Other)
    }
}

/// Error of a value that cannot be printed.
#[derive(Debug)]
pub(super) struct Refusal(String);

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl ser::Error for Refusal {
    fn custom<T: Display>(reason: T) -> Self {
        Self(reason.to_string())
    }
}

impl From<fmt::Error> for Refusal {
    fn from(error: fmt::Error) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn print_to_string(value: impl Serialize) -> String {
        let mut text = String::new();
        print(&value, false, &mut text).unwrap();
        text
    }

    fn by_pointer(value: &impl Serialize) -> String {
        let mut text = String::new();
        print(value, true, &mut text).unwrap();
        text
    }

    #[derive(Serialize)]
    struct Args {
        a: i32,
        b: Option<Box<Self>>,
        names: Vec<&'static str>,
    }

    #[derive(Serialize)]
    struct Metres(f64);

    #[derive(Serialize)]
    struct Pair(u8, bool);

    #[test]
    fn values_are_printed_as_in_go() {
        assert_eq!(print_to_string(-7_i8), "-7");
        assert_eq!(print_to_string(u64::MAX), "18446744073709551615");
        assert_eq!(print_to_string((true, 'x', "a b", ())), "[true x a b <nil>]");
        assert_eq!(print_to_string(Args { a: 1, b: None, names: vec!["x", ""] }), "{1 <nil> [x ]}");
        assert_eq!(print_to_string(Metres(1.5)), "1.5");
        assert_eq!(print_to_string(Pair(200, false)), "{200 false}");
        assert_eq!(print_to_string(Vec::<i32>::new()), "[]");
    }

    #[test]
    fn floats_use_an_exponent_as_in_go() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (-1.5e300, "-1.5e+300"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(print_to_string(value), text);
        }
        assert_eq!(print_to_string(0.1_f32), "0.1");
        assert_eq!(print_to_string(1e-7_f32), "1e-07");
    }

    #[test]
    fn maps_are_printed_in_key_order() {
        assert_eq!(print_to_string(HashMap::from([(10, "x"), (9, "y"), (-1, "z")])), "map[-1:z 9:y 10:x]");
        assert_eq!(print_to_string(HashMap::from([("10", 1), ("9", 2)])), "map[10:1 9:2]");
        assert_eq!(print_to_string(HashMap::<u8, u8>::new()), "map[]");
    }

    #[test]
    fn only_composite_values_are_printed_as_pointers() {
        assert_eq!(by_pointer(&Pair(7, true)), "&{7 true}");
        assert_eq!(by_pointer(&vec![Pair(1, true)]), "&[{1 true}]");
        assert_eq!(by_pointer(&HashMap::from([(1, Pair(1, true))])), "&map[1:{1 true}]");
        assert_eq!(by_pointer(&7), "7");
        assert_eq!(by_pointer(&"seven"), "seven");
    }
}
