use std::collections::BTreeMap;

use polyrpc::discovery::{Attributes, Instance};
use serde_json::{Value, json};

use crate::terminal::Painter;

/// All instances, one per row.
pub(super) fn table(instances: &[Instance], paint: Painter) -> String {
    if instances.is_empty() {
        return "no instances".to_owned();
    }
    let rows: Vec<_> = instances.iter().map(row).collect();
    let width = |column: usize| {
        let texts = rows.iter().map(|row| row[column].chars().count());
        texts.chain([HEAD[column].chars().count()]).max().unwrap_or_default()
    };
    let widths = [0, 1, 2, 3].map(width);
    let line = |row: &[String; 5]| {
        let padded = row.iter().zip(widths).map(|(text, width)| format!("{text:width$}  "));
        let line = padded.collect::<String>() + &row[4];
        line.trim_end().to_owned()
    };
    let head = paint.bold(line(&HEAD.map(str::to_owned)));
    let lines: Vec<_> = [head].into_iter().chain(rows.iter().map(line)).collect();
    lines.join("\n")
}

const HEAD: [&str; 5] = ["INSTANCE", "WEIGHT", "STATE", "GROUP", "MORE"];

fn row(instance: &Instance) -> [String; 5] {
    let attributes = &instance.attributes;
    let mut more = attributes.clone();
    ["weight", "state", "group"].iter().for_each(|name| more.remove(name));
    let groups: Vec<_> = attributes.groups().map(replace_controls).collect();
    [
        replace_controls(&instance.to_string()),
        attributes.weight().to_string(),
        state(attributes),
        groups.join(","),
        more.to_string(),
    ]
}

fn state(attributes: &Attributes) -> String {
    replace_controls(attributes.value("state").unwrap_or("active"))
}

/// Replaces control characters: the content of a registry is not trusted.
fn replace_controls(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// All instances as JSON.
pub(super) fn json(instances: &[Instance]) -> Value {
    instances.iter().map(object).collect()
}

fn object(instance: &Instance) -> Value {
    let mut attributes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in instance.attributes.iter() {
        attributes.entry(name).or_default().push(value);
    }
    json!({
        "instance": instance.to_string(),
        "network": instance.network.as_str(),
        "address": instance.address,
        "weight": instance.attributes.weight(),
        "active": instance.attributes.is_active(),
        "attributes": attributes,
    })
}

/// Attributes of each instance.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KnownInstance(BTreeMap<String, String>);

impl KnownInstance {
    pub(super) fn new(instances: &[Instance]) -> Self {
        let attributes =
            instances.iter().map(|one| (replace_controls(&one.to_string()), one.attributes.to_string()));
        Self(attributes.collect())
    }
}

/// Added, removed and changed instances, one per line.
pub(super) fn changes(before: &KnownInstance, now: &KnownInstance, paint: Painter) -> String {
    let mut lines = Vec::new();
    for (instance, attributes) in &now.0 {
        match before.0.get(instance) {
            Some(known) if known == attributes => {}
            Some(known) => lines.push(paint.cyan(format_args!("~ {instance}  {known} -> {attributes}"))),
            None => lines.push(paint.green(format!("+ {instance}  {attributes}").trim_end())),
        }
    }
    for instance in before.0.keys().filter(|instance| !now.0.contains_key(*instance)) {
        lines.push(paint.red(format_args!("- {instance}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instances(all: &[(&str, &str)]) -> Vec<Instance> {
        let read = |(address, attributes): &(&str, &str)| {
            address.parse::<Instance>().unwrap().with(attributes.parse().unwrap())
        };
        all.iter().map(read).collect()
    }

    #[test]
    fn instances_are_shown_with_their_attributes() {
        let all = instances(&[
            ("10.0.0.1:8000", "weight=3&group=a&group=b&calls=1.50"),
            ("quic@[::1]:1", "state=inactive"),
        ]);
        let expected = "\
INSTANCE           WEIGHT  STATE     GROUP  MORE
tcp@10.0.0.1:8000  3       active    a,b    calls=1.50
quic@[::1]:1       1       inactive";
        assert_eq!(table(&all, Painter::for_stdout()), expected);
        assert_eq!(table(&[], Painter::for_stdout()), "no instances");
        let first = &json(&all)[0];
        assert_eq!(first["attributes"], json!({"weight": ["3"], "group": ["a", "b"], "calls": ["1.50"]}));
    }

    #[test]
    fn control_characters_from_a_registry_are_escaped() {
        let all = instances(&[("a:1", "group=%1b[2J&state=%07")]);
        let text = table(&all, Painter::for_stdout())
            + &changes(&KnownInstance::new(&[]), &KnownInstance::new(&all), Painter::for_stdout());
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }

    #[test]
    fn added_removed_and_changed_instances_are_distinguished() {
        let before = KnownInstance::new(&instances(&[("a:1", ""), ("b:1", "weight=1"), ("c:1", "")]));
        let now = KnownInstance::new(&instances(&[("b:1", "weight=2"), ("c:1", ""), ("d:1", "x=y")]));
        let expected = "~ tcp@b:1  weight=1 -> weight=2\n+ tcp@d:1  x=y\n- tcp@a:1";
        assert_eq!(changes(&before, &now, Painter::for_stdout()), expected);
    }
}
