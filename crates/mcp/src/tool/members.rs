//! Names of members: those that the schema of the arguments does not declare are errors. The server checks the
//! values when it decodes them.

use serde_json::{Map, Value};

/// Prefix of references to the definitions of a schema.
pub(super) const REFERENCE_PREFIX: &str = "#/$defs/";

/// Checks the names of all members in `text`, which is JSON, at any depth.
///
/// # Errors
///
/// The name of the first one that the schema excludes.
pub(super) fn check(schema: &Value, text: &str) -> Result<(), String> {
    let Ok(value) = serde_json::from_str::<Value>(text) else {
        return Err("the arguments are nested too deeply".to_owned());
    };
    let budget = text.len().saturating_mul(STEPS_PER_BYTE);
    Check { definitions: &schema["$defs"], budget }.check_value(schema, &value, "")
}

struct Check<'s> {
    definitions: &'s Value,
    /// Maximum number of values to check: nested alternatives would take unbounded time.
    budget: usize,
}

impl<'s> Check<'s> {
    fn check_value(&mut self, schema: &'s Value, value: &Value, path: &str) -> Result<(), String> {
        let Some(left) = self.budget.checked_sub(1) else { return Ok(()) };
        self.budget = left;
        let schema = self.resolve(schema);
        self.check_alternatives(schema, value, path)?;
        match value {
            Value::Object(members) => self.check_object(schema, members, path),
            Value::Array(items) => items.iter().enumerate().try_for_each(|(n, item)| {
                let declared = schema["prefixItems"].get(n).unwrap_or_else(|| &schema["items"]);
                self.check_value(declared, item, &join_path(path, &n.to_string()))
            }),
            _ => Ok(()),
        }
    }

    fn check_object(
        &mut self,
        schema: &'s Value,
        members: &Map<String, Value>,
        path: &str,
    ) -> Result<(), String> {
        let others = &schema["additionalProperties"];
        for (name, member) in members {
            match schema["properties"].get(name) {
                Some(declared) => self.check_value(declared, member, &join_path(path, name))?,
                None if *others == false && path.is_empty() => {
                    return Err(format!("there is no argument `{name}`"));
                }
                None if *others == false => return Err(format!("there is no member `{name}` in `{path}`")),
                None => self.check_value(others, member, &join_path(path, name))?,
            }
        }
        Ok(())
    }

    /// One of several schemas must declare the names, unless none applies to values of this type.
    fn check_alternatives(&mut self, schema: &'s Value, value: &Value, path: &str) -> Result<(), String> {
        let alternatives = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array());
        let mut first = Ok(());
        for alternative in alternatives.into_iter().flatten() {
            if !is_for(self.resolve(alternative), value) {
                continue;
            }
            match self.check_value(alternative, value, path) {
                Ok(()) => return Ok(()),
                wrong => first = first.and(wrong),
            }
        }
        first
    }

    fn resolve(&self, schema: &'s Value) -> &'s Value {
        let name = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix(REFERENCE_PREFIX));
        name.and_then(|name| self.definitions.get(name)).unwrap_or(schema)
    }
}

/// Whether a schema may be that of a value of this type.
fn is_for(schema: &Value, value: &Value) -> bool {
    match (schema["type"].as_str(), value) {
        (Some(name), Value::Object(_)) => name == "object",
        (Some(name), Value::Array(_)) => name == "array",
        (Some(name), _) => name != "object" && name != "array",
        (None, _) => true,
    }
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Bounds the work for arguments by their length.
const STEPS_PER_BYTE: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        let node = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "next": { "anyOf": [{ "$ref": "#/$defs/Node" }, { "type": "null" }] },
                "all": { "type": "array", "items": { "$ref": "#/$defs/Node" } },
                "byKey": { "type": "object", "additionalProperties": { "$ref": "#/$defs/Node" } },
                "free": { "type": "object" },
            },
            "additionalProperties": false,
        });
        let mut schema = node.clone();
        schema["$defs"] = json!({ "Node": node });
        schema
    }

    #[test]
    fn undeclared_member_is_found_at_any_depth() {
        let checked = |value: Value| check(&schema(), &value.to_string());
        for declared in [
            json!({}),
            json!({ "name": "a", "next": { "next": null, "all": [{ "name": "b" }] } }),
            json!({ "byKey": { "any key": { "name": "c" } }, "free": { "any": { "thing": 1 } } }),
            // The server checks types.
            json!({ "name": { "x": 1 }, "next": 7 }),
        ] {
            assert_eq!(checked(declared.clone()), Ok(()), "{declared}");
        }
        for (value, error) in [
            (json!({ "nmae": "a" }), "there is no argument `nmae`"),
            (json!({ "next": { "x": 1 } }), "there is no member `x` in `next`"),
            (json!({ "all": [{}, { "x": 1 }] }), "there is no member `x` in `all.1`"),
            (json!({ "byKey": { "k": { "x": 1 } } }), "there is no member `x` in `byKey.k`"),
        ] {
            assert_eq!(checked(value), Err(error.to_owned()));
        }
    }

    #[test]
    fn nested_alternatives_end() {
        let node = json!({ "anyOf": [{ "$ref": "#/$defs/One" }, { "$ref": "#/$defs/Two" }] });
        let one = json!({ "type": "object", "properties": { "n": node }, "additionalProperties": false });
        let schema =
            json!({ "type": "object", "properties": { "n": node }, "$defs": { "One": one, "Two": one } });
        let text = format!("{}{{\"x\":1}}{}", r#"{"n":"#.repeat(100), "}".repeat(100));
        // Values beyond the limit are left to the server to check.
        assert_eq!(check(&schema, &text), Ok(()));
    }
}
