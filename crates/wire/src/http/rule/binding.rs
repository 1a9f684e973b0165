use super::error::Error;
use super::http_rule::{Body, Rule};
use super::variable::Variable;

/// An HTTP binding of a method, for programs that describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Binding {
    /// HTTP method such as `GET`, or `*` for any.
    pub verb: String,
    /// Path, in which `{}` stands for each wildcard of a variable, in their order: `/v1/shelves/{}:list`. A wildcard
    /// that belongs to no variable is `*` or `**`.
    pub path: String,
    /// Variables, in the order of their wildcards.
    pub variables: Vec<Variable>,
    /// What the body contains.
    pub body: BindingBody,
    /// Field of the reply that is the response; `None`: the whole reply.
    pub response: Option<String>,
}

/// What the body of a request contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BindingBody {
    /// Nothing: fields that are not in the path come from the query.
    None,
    /// All fields that are not in the path.
    Whole,
    /// This field; the others come from the query.
    Field(String),
}

impl Binding {
    /// Parses the option `google.api.http` of a method, a serialized `google.api.HttpRule`, with its additional bindings.
    ///
    /// # Errors
    ///
    /// If the rule is invalid.
    pub fn read_all(rule: &[u8]) -> Result<Vec<Self>, Error> {
        Ok(Rule::read_all(rule)?.iter().map(Self::from_rule).collect())
    }

    fn from_rule(rule: &Rule) -> Self {
        let (path, variables) = rule.path.describe();
        Self {
            verb: rule.verb.to_string(),
            path,
            variables,
            body: match &rule.body {
                Body::None => BindingBody::None,
                Body::Whole => BindingBody::Whole,
                Body::Field(name) => BindingBody::Field(name.to_string()),
            },
            response: rule.response.as_deref().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::template::Template;

    #[test]
    fn path_shows_wildcards_of_variables() {
        for (template, path, variables) in [
            ("/v1/{name}", "/v1/{}", &[("name", 1, false)][..]),
            ("/v1/{a.b=shelves/*/books/*}:list", "/v1/shelves/{}/books/{}:list", &[("a.b", 2, false)]),
            ("/v1/{name=x/**}", "/v1/x/{}", &[("name", 1, true)]),
            ("/v1/{kind=fixed}/*", "/v1/fixed/*", &[("kind", 0, false)]),
            ("/", "/", &[]),
        ] {
            let (shown, found) = Template::parse(template).unwrap().describe();
            assert_eq!(shown, path, "{template}");
            let found: Vec<_> =
                found.iter().map(|found| (found.field.join("."), found.wildcards, found.rest)).collect();
            let wanted: Vec<_> =
                variables.iter().map(|(field, count, rest)| ((*field).to_owned(), *count, *rest)).collect();
            assert_eq!(found, wanted, "{template}");
        }
    }
}
