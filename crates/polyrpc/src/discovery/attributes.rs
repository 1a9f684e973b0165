use std::fmt;
use std::str::FromStr;

/// Attributes of an instance in a registry: names with values, some of which may occur more than once.
///
/// Registries store them as the query string of a URL with sorted names, as written by Go's `url.Values.Encode`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes(Vec<(String, String)>);

impl Attributes {
    /// Creates an empty set of attributes.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the first value of a name.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// Returns all values of a name.
    pub fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Iterates over all names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether there are no attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a value; replaces all values of this name.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        self.remove(&name);
        self.append(name, value);
    }

    /// Adds a value to those of this name.
    pub fn append(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        let behind = self.0.partition_point(|(known, _)| *known <= name);
        self.0.insert(behind, (name, value.into()));
    }

    /// Removes all values of this name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Returns the attributes with this value added.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    /// Relative share of the calls: the attribute `weight`, else brpc's tag, if it is an integer. Default: 1.
    pub fn weight(&self) -> u32 {
        let text = self.value("weight").or_else(|| self.tag());
        text.and_then(|text| text.parse().ok()).unwrap_or(1)
    }

    /// Whether calls may be sent to the instance: false if its state is `inactive`.
    pub fn is_active(&self) -> bool {
        self.value("state") != Some("inactive")
    }

    /// Groups of the instance: all values of `group`.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.values("group")
    }

    /// Latitude and longitude in degrees, north and east, if both are set and valid.
    pub fn location(&self) -> Option<(f64, f64)> {
        let degrees = |name, most: f64| {
            let degrees: f64 = self.value(name)?.parse().ok()?;
            (degrees.abs() <= most).then_some(degrees)
        };
        Some((degrees("latitude", 90.0)?, degrees("longitude", 180.0)?))
    }

    /// brpc's tag, the attribute `tag`, if it is set.
    pub fn tag(&self) -> Option<&str> {
        self.value("tag")
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        // The values of one name keep their order.
        pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self(pairs)
    }
}

impl FromStr for Attributes {
    type Err = std::convert::Infallible;

    /// Parses a query string; malformed parts are skipped, since the rest is still useful.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Ok(pairs
            .filter_map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((unescape(name)?, unescape(value)?))
            })
            .collect())
    }
}

/// Go's `url.QueryUnescape`; `None` if it returns an error.
pub(super) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high << 4 | low).ok()?
            }
            // Go rejects it since it is no longer a separator.
            b';' => return None,
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Display for Attributes {
    /// Writes Go's `url.Values.Encode`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            if index > 0 {
                f.write_str("&")?;
            }
            escape(name, f)?;
            f.write_str("=")?;
            escape(value, f)?;
        }
        Ok(())
    }
}

/// Go's `url.QueryEscape`.
pub(super) fn escape(text: &str, f: &mut impl fmt::Write) -> fmt::Result {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                write!(f, "{}", char::from(byte))?;
            }
            b' ' => f.write_str("+")?,
            byte => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Attributes {
        text.parse().unwrap()
    }

    #[test]
    fn attributes_are_written_as_a_go_query() {
        let attributes: Attributes =
            [("weight", "7"), ("group", "b"), ("group", "a"), ("a b", "ü&=+%/"), ("é", "")]
                .into_iter()
                .collect();
        assert_eq!(attributes.to_string(), "a+b=%C3%BC%26%3D%2B%25%2F&group=b&group=a&weight=7&%C3%A9=");
        assert_eq!(read(&attributes.to_string()), attributes);
    }

    #[test]
    fn malformed_attributes_are_skipped() {
        let attributes = read("weight=3&x=%zz&=y&&state=inactive&bad=%e&a;b=1&c=%ff&flag");
        assert_eq!(attributes.to_string(), "=y&flag=&state=inactive&weight=3");
        assert_eq!((attributes.weight(), attributes.is_active()), (3, false));
    }

    #[test]
    fn invalid_weight_counts_as_one() {
        for (text, weight) in [("", 1), ("weight=x", 1), ("weight=-1", 1), ("weight=0", 0), ("tag=5", 5)] {
            assert_eq!(read(text).weight(), weight, "{text}");
        }
    }

    #[test]
    fn location_needs_both_coordinates() {
        assert_eq!(read("latitude=1.5&longitude=-2").location(), Some((1.5, -2.0)));
        for wrong in
            ["latitude=1", "latitude=x&longitude=1", "latitude=91&longitude=1", "latitude=NaN&longitude=1"]
        {
            assert_eq!(read(wrong).location(), None, "{wrong}");
        }
    }

    #[test]
    fn set_replaces_and_append_adds() {
        let mut attributes = read("group=a&group=b&weight=1");
        attributes.append("group", "c");
        attributes.set("weight", "2");
        assert_eq!(attributes.to_string(), "group=a&group=b&group=c&weight=2");
        assert_eq!(attributes.groups().collect::<Vec<_>>(), ["a", "b", "c"]);
        attributes.set("group", "d");
        assert_eq!(attributes.to_string(), "group=d&weight=2");
    }
}
