//! Attributes in registries with a map, which holds one value per name.

use std::collections::BTreeMap;

use polyrpc::discovery::Attributes;

/// Converts to a map with the first value of each name. If that would lose values, the full query string is added under
/// a reserved name.
pub(crate) fn to_map(attributes: &Attributes, may_be_a_name: fn(&str) -> bool) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    let mut lost = false;
    for (name, value) in attributes.iter() {
        if !may_be_a_name(name) || map.contains_key(name) {
            lost = true;
        } else {
            map.insert(name.to_owned(), value.to_owned());
        }
    }
    if lost {
        map.insert(QUERY.to_owned(), attributes.to_string());
    }
    map
}

/// Converts from such a map, written by any program.
pub(crate) fn from_map(map: BTreeMap<String, String>) -> Attributes {
    match map.get(QUERY) {
        // Changes by others since then are applied too.
        Some(query) => {
            let mut attributes: Attributes = query.parse().unwrap_or_default();
            for (name, value) in &map {
                if name != QUERY && attributes.value(name) != Some(value) {
                    attributes.set(name, value);
                }
            }
            attributes
        }
        None => map.into_iter().collect(),
    }
}

/// Applies the changes by others to the attributes in `registered`: `written` is the registry's representation without any
/// change, and `found` the current one.
pub(crate) fn apply_changes(registered: &Attributes, written: &Attributes, found: &Attributes) -> Attributes {
    let mut changed = registered.clone();
    for (name, _) in written.iter().chain(found.iter()) {
        if !written.values(name).eq(found.values(name)) {
            changed.remove(name);
            found.values(name).for_each(|value| changed.append(name, value));
        }
    }
    changed
}

const QUERY: &str = "query";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_fit_a_map_need_no_extra_key() {
        let registered: Attributes = "weight=3&group=a".parse().unwrap();
        let map = to_map(&registered, |_| true);
        assert_eq!(map.len(), 2);
        assert_eq!(from_map(map), registered);
    }

    #[test]
    fn normalization_by_the_registry_is_not_an_external_change() {
        let read = |text: &str| text.parse::<Attributes>().unwrap();
        for (registered, written, found, changed_to) in [
            ("weight=0", "weight=1", "weight=1", "weight=0"),
            ("weight=0", "weight=1", "state=inactive&weight=1", "state=inactive&weight=0"),
            ("group=a&group=b", "group=a&group=b", "group=c", "group=c"),
            ("group=a&x=1", "group=a&x=1", "x=1", "x=1"),
            ("", "", "tag=1&tag=2", "tag=1&tag=2"),
        ] {
            let current = apply_changes(&read(registered), &read(written), &read(found));
            assert_eq!(current, read(changed_to), "{found}");
        }
    }

    #[test]
    fn attributes_that_do_not_fit_a_map_round_trip() {
        let registered: Attributes = "group=a&group=b&odd+name=1&weight=3".parse().unwrap();
        let map = to_map(&registered, |name| !name.contains(' '));
        assert_eq!(map.get("group").map(String::as_str), Some("a"));
        assert!(!map.contains_key("odd name"));
        assert_eq!(from_map(map), registered);
    }

    #[test]
    fn external_changes_win_over_published_attributes() {
        let mut map = to_map(&"group=a&group=b&weight=3".parse().unwrap(), |_| true);
        map.insert("weight".to_owned(), "5".to_owned());
        assert_eq!(from_map(map).to_string(), "group=a&group=b&weight=5");
    }
}
