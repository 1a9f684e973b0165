//! Path template of a rule: `/v1/{name=shelves/*}/books:list`.

use polyrpc_core::protocol::percent_decode;

use super::error::Error;

/// A path template with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    segments: Vec<Segment>,
    /// Custom verb after the last colon.
    verb: Option<Box<str>>,
    variables: Vec<Variable>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    /// `*`: one segment, not empty.
    One,
    /// `**`: any number of segments, at the end of a template.
    Rest,
}

/// A variable: a field of the request, and the segments that form its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Variable {
    /// Path of the field, split at its dots.
    pub(super) field: Vec<String>,
    from: usize,
    /// One after its last segment.
    to: usize,
}

impl Template {
    /// Parses a template.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let path =
            text.strip_prefix('/').ok_or_else(|| Error::new(text, "it does not begin with a slash"))?;
        let (path, verb) = match path.rsplit_once(':') {
            // A colon within a variable does not start a verb.
            Some((path, verb)) if !verb.contains(['/', '}']) => (path, Some(verb)),
            _ => (path, None),
        };
        let mut template = Self { segments: Vec::new(), verb: None, variables: Vec::new() };
        let mut rest = path;
        while !rest.is_empty() {
            rest = template.part(text, rest)?;
        }
        if template.segments.is_empty() && !path.is_empty() || path.ends_with('/') {
            return Err(Error::new(text, "a segment is empty"));
        }
        if verb == Some("") {
            return Err(Error::new(text, "there is no verb behind the colon"));
        }
        template.verb = verb.map(Into::into);
        Ok(template)
    }

    /// Parses a variable or a segment, and the slash after it; returns the rest.
    fn part<'t>(&mut self, text: &str, part: &'t str) -> Result<&'t str, Error> {
        let behind = match part.strip_prefix('{') {
            Some(inside) => {
                let (inside, behind) =
                    inside.split_once('}').ok_or_else(|| Error::new(text, "a brace is not closed"))?;
                self.variable(text, inside)?;
                behind
            }
            None => {
                let end = part.find('/').unwrap_or(part.len());
                self.segment(text, &part[..end])?;
                &part[end..]
            }
        };
        match behind.strip_prefix('/') {
            Some(behind) => Ok(behind),
            None if behind.is_empty() => Ok(behind),
            None => Err(Error::new(text, "a variable must be a whole segment")),
        }
    }

    fn variable(&mut self, text: &str, inside: &str) -> Result<(), Error> {
        let (field, pattern) = inside.split_once('=').unwrap_or((inside, "*"));
        let field: Vec<_> = field.split('.').map(str::to_owned).collect();
        if field.iter().any(String::is_empty) {
            return Err(Error::new(text, "a variable has no field"));
        }
        if self.variables.iter().any(|known| known.field == field) {
            return Err(Error::new(text, "a field is bound twice"));
        }
        let from = self.segments.len();
        for segment in pattern.split('/') {
            self.segment(text, segment)?;
        }
        self.variables.push(Variable { field, from, to: self.segments.len() });
        Ok(())
    }

    fn segment(&mut self, text: &str, segment: &str) -> Result<(), Error> {
        if self.segments.last() == Some(&Segment::Rest) {
            return Err(Error::new(text, "something follows `**`"));
        }
        self.segments.push(match segment {
            "" => return Err(Error::new(text, "a segment is empty")),
            "*" => Segment::One,
            "**" => Segment::Rest,
            literal if literal.contains(['*', '{', '}', '=']) => {
                return Err(Error::new(text, "a segment is neither a word nor a wildcard"));
            }
            literal => Segment::Literal(literal.into()),
        });
        Ok(())
    }

    /// Returns the variables.
    pub(super) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Returns the path with `{}` for each wildcard of a variable, and the variables in their order.
    pub(super) fn describe(&self) -> (String, Vec<super::variable::Variable>) {
        let mut path = String::new();
        for (at, segment) in self.segments.iter().enumerate() {
            let belongs = self.variables.iter().any(|variable| (variable.from..variable.to).contains(&at));
            path.push('/');
            path.push_str(match segment {
                Segment::Literal(word) => word,
                _ if belongs => "{}",
                Segment::One => "*",
                Segment::Rest => "**",
            });
        }
        if path.is_empty() {
            path.push('/');
        }
        if let Some(verb) = &self.verb {
            path.push(':');
            path.push_str(verb);
        }
        let described = |variable: &Variable| {
            let own = self.segments.get(variable.from..variable.to).unwrap_or_default();
            super::variable::Variable {
                field: variable.field.clone(),
                wildcards: own.iter().filter(|segment| !matches!(segment, Segment::Literal(_))).count(),
                rest: own.last() == Some(&Segment::Rest),
            }
        };
        (path, self.variables.iter().map(described).collect())
    }

    /// Returns how specific the template is: of two that match, the one with more literal segments wins.
    pub(super) fn weight(&self) -> (usize, usize, bool) {
        let literals = self.segments.iter().filter(|segment| matches!(segment, Segment::Literal(_))).count();
        (literals, self.segments.len(), self.verb.is_some())
    }

    /// Returns the values of the variables, in order, if the path matches.
    pub(super) fn matches(&self, path: &str) -> Option<Vec<String>> {
        let path = path.strip_prefix('/')?;
        let path = match &self.verb {
            Some(verb) => path.strip_suffix(&**verb)?.strip_suffix(':')?,
            None => path,
        };
        let parts: Vec<_> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
        let rest = self.segments.last() == Some(&Segment::Rest);
        let fixed = self.segments.len() - usize::from(rest);
        let fits = if rest { parts.len() >= fixed } else { parts.len() == fixed };
        let pairs = || self.segments.iter().zip(&parts);
        if !fits || !pairs().all(|(segment, part)| segment.fits(part)) {
            return None;
        }
        self.variables.iter().map(|variable| variable.value(&self.segments, &parts)).collect()
    }
}

impl Segment {
    fn fits(&self, part: &str) -> bool {
        match self {
            Self::Literal(word) => percent_decode(part).is_some_and(|part| part == **word),
            Self::One => !part.is_empty(),
            Self::Rest => true,
        }
    }
}

impl Variable {
    fn value(&self, segments: &[Segment], parts: &[&str]) -> Option<String> {
        let rest = segments.get(self.to - 1) == Some(&Segment::Rest);
        let end = if rest { parts.len() } else { self.to };
        // A value of several segments distinguishes its slashes from escaped ones (http.proto).
        let several = self.to - self.from > 1 || rest;
        let decode: fn(&str) -> Option<String> = if several { decode_except_slashes } else { percent_decode };
        let parts: Option<Vec<_>> = parts.get(self.from..end)?.iter().map(|part| decode(part)).collect();
        Some(parts?.join("/"))
    }
}

/// Decodes percent-encoded text, except its escaped slashes; `None` if it is malformed.
fn decode_except_slashes(text: &str) -> Option<String> {
    // Escaped twice, they are decoded to what they were.
    percent_decode(&text.replace("%2F", "%252F").replace("%2f", "%252f"))
}
