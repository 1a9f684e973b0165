//! The format `polyrpc.bench/1`: what is written is read again, and `schema.json` describes it.

mod common;

use common::{documents, run, versus};
use polyrpc_bench_report::model::{Document, JSON_SCHEMA, Latency, Outcome, Run, Threshold};
use serde_json::{Value, json};

#[test]
fn written_document_is_read_again() {
    for document in documents() {
        let text = document.to_json();
        // Suites are not indented.
        let head: String = text.split_whitespace().collect::<String>().chars().take(36).collect();
        assert_eq!(head, "{\"schema\":\"polyrpc.bench/1\",\"kind\":\"", "{text:.100}");
        let read = Document::read(&text).unwrap();
        is_equal(&as_value(&read), &as_value(&document), "$");
    }
}

#[test]
fn other_versions_and_other_files_are_rejected_with_a_message() {
    let error = |text: &str| Document::read(text).unwrap_err().to_string();
    let version_2 = r#"{"schema": "polyrpc.bench/2", "kind": "run", "anything": 1}"#;
    assert_eq!(error(version_2), "it is of version 2 of the format; this program reads version 1");
    let other = r#"{"schema": "k6/1"}"#;
    assert_eq!(error(other), "its schema is \"k6/1\"; this program reads \"polyrpc.bench/1\"");
    assert_eq!(error("{}"), "it has no \"schema\"; this program reads \"polyrpc.bench/1\"");
    assert_eq!(error(r#"{"schema": "polyrpc.bench/1"}"#), "it has no \"kind\"");
    assert_eq!(
        error(r#"{"schema": "polyrpc.bench/1", "kind": "sonnet"}"#),
        "it is of the unknown kind \"sonnet\"; known are run, versus and suite"
    );
    assert!(error("not JSON").contains("line 1 column"));
    assert!(error(r#"{"schema": "polyrpc.bench/1", "kind": "run"}"#).contains("missing field `metadata`"));
}

#[test]
fn histogram_that_contradicts_its_summary_is_rejected() {
    let mut value = as_value(&documents()[0]);
    value["latency"]["response"]["count"] = json!(5);
    let error = Document::read(&value.to_string()).unwrap_err().to_string();
    assert!(error.contains("the HDR histogram has 120000 samples, not 5"), "{error}");
    value["latency"]["response"]["hdr"] = json!("AAAA");
    let error = Document::read(&value.to_string()).unwrap_err().to_string();
    assert!(error.contains("the HDR histogram is cut off"), "{error}");
}

#[test]
fn number_of_histograms_is_bounded() {
    let mut value = as_value(&documents()[0]);
    let method = value["latency"]["methods"][0].clone();
    value["latency"]["methods"] = json!(vec![method; 101]);
    let error = Document::read(&value.to_string()).unwrap_err().to_string();
    assert!(error.contains("there are more than 100 histograms"), "{error}");
}

#[test]
fn number_of_cells_is_bounded() {
    let mut value = as_value(&documents()[2]);
    let cell = value["cells"][0].clone();
    value["cells"] = json!(vec![cell; 501]);
    let error = Document::read(&value.to_string()).unwrap_err().to_string();
    assert!(error.contains("there are more than 500 cells"), "{error}");
}

#[test]
fn unknown_fields_are_ignored() {
    let mut value = as_value(&documents()[0]);
    value["a field of a later release"] = json!({});
    value["load"]["another"] = json!(1);
    let read = Document::read(&value.to_string()).unwrap();
    is_equal(&as_value(&read), &as_value(&documents()[0]), "$");
}

#[test]
fn schema_has_every_field_and_no_other_is_written() {
    let schema: Value = serde_json::from_str(JSON_SCHEMA).unwrap();
    for document in documents() {
        let faults = validate(&schema, &schema, &as_value(&document), "$", true);
        assert_eq!(faults, Vec::<String>::new());
    }
}

#[test]
fn schema_and_reader_require_the_same_fields() {
    let schema: Value = serde_json::from_str(JSON_SCHEMA).unwrap();
    for document in documents() {
        let whole = as_value(&document);
        let mut removed = 0;
        for path in paths(&whole, String::new()) {
            let mut cut = whole.clone();
            let (parent, key) = path.rsplit_once('/').unwrap();
            cut.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(&unescape(key));
            let is_read = Document::read(&cut.to_string()).is_ok();
            let faults = validate(&schema, &schema, &cut, "$", false);
            assert_eq!(faults.is_empty(), is_read, "without {path}: {faults:?}");
            removed += 1;
        }
        assert!(removed > 50, "{removed}");
    }
}

#[test]
fn schema_and_reader_reject_values_of_other_types() {
    let schema: Value = serde_json::from_str(JSON_SCHEMA).unwrap();
    for document in documents() {
        let whole = as_value(&document);
        for path in paths(&whole, String::new()) {
            let mut changed = whole.clone();
            // An object stands for neither a text nor a number nor a list nor an enum, and has no required field.
            *changed.pointer_mut(&path).unwrap() = json!({"x": true});
            let is_read = Document::read(&changed.to_string()).is_ok();
            let faults = validate(&schema, &schema, &changed, "$", false);
            assert_eq!(faults.is_empty(), is_read, "another {path}: {faults:?}");
        }
    }
}

#[test]
fn exit_codes_are_those_of_the_documentation() {
    let passing = Run { thresholds: vec![], ..run() };
    assert_eq!(passing.exit_code(), 0);
    assert_eq!(run().exit_code(), 1);
    let mut invalid = passing.clone();
    invalid.verdict.outcome = Outcome::GeneratorSaturated;
    assert_eq!(invalid.exit_code(), 3);
    let mut empty = passing;
    empty.counts.succeeded = 0;
    assert_eq!(empty.exit_code(), 1);
    assert_eq!(versus().exit_code(), 1);
}

#[test]
fn thresholds_are_judged_by_value_and_by_a_baseline() {
    let baseline = run();
    let mut slower = run();
    let mut histogram = hdrhistogram::Histogram::new(3).unwrap();
    histogram.record_n(300_000, 100_000).unwrap();
    slower.latency.response = Latency::new(histogram);
    let judge = |text: &str, against: Option<&Run>| {
        let result = text.parse::<Threshold>().unwrap().judge(&slower, against);
        (result.is_met, result.value.or(result.reason).unwrap())
    };
    assert_eq!(judge("p99<5ms", None), (true, "300 µs".to_owned()));
    assert!(!judge("p99 <= 299us", None).0);
    assert_eq!(judge("errors<0.1%", None), (true, "0.009999 %".to_owned()));
    assert_eq!(judge("errors<=12", None), (true, "12".to_owned()));
    assert!(!judge("errors<12", None).0);
    assert_eq!(judge("rate>=1.9k", None), (true, "2,000/s".to_owned()));
    assert!(judge("lag.max<1s", None).0);
    assert_eq!(judge("p99.9999<1s", None), (false, "fewer than 10 calls lie beyond it".to_owned()));
    assert_eq!(judge("server-cpu<1ms", None), (false, "the CPU time is unknown".to_owned()));
    assert_eq!(judge("p50<1.1x", None), (false, "there is no baseline".to_owned()));
    let (is_met, value) = judge("p50<1.1x", Some(&baseline));
    assert!(!is_met && value.starts_with("300 µs, limit 2"), "{value}");
    assert!(judge("p50<2x", Some(&baseline)).0);
    let all = Threshold::parse_list("p50<2x, rate>0.9x,").unwrap();
    assert!(all.len() == 2 && all.iter().all(|threshold| threshold.needs_baseline()));
    assert_eq!(all[0].to_string(), "p50 < 2 × baseline");
}

#[test]
fn malformed_thresholds_name_what_is_wanted() {
    for (text, wanted) in [
        ("p99=5ms", "expected a figure, < or >"),
        ("q99<5ms", "the figures are"),
        ("p100<5ms", "the figures are"),
        ("p99<5", "expected a time"),
        ("p99<5%", "expected a time"),
        ("errors<1ms", "expected a number, a share"),
        ("rate>1ms", "expected a rate"),
        ("p99<0x", "expected a time"),
        ("p99<ms", "expected a time"),
    ] {
        let error = text.parse::<Threshold>().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("invalid threshold {text:?}: ")) && error.contains(wanted),
            "{error}"
        );
    }
}

/// Compares documents. `serde_json` reads floating point numbers to within one unit in the last place.
fn is_equal(left: &Value, right: &Value, at: &str) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            assert!(left.keys().eq(right.keys()), "{at}");
            left.iter().for_each(|(key, value)| is_equal(value, &right[key], &format!("{at}.{key}")));
        }
        (Value::Array(left), Value::Array(right)) => {
            assert_eq!(left.len(), right.len(), "{at}");
            left.iter().zip(right).for_each(|(left, right)| is_equal(left, right, at));
        }
        (Value::Number(left), Value::Number(right)) if left.is_f64() => {
            let (left, right) = (left.as_f64().unwrap(), right.as_f64().unwrap());
            assert!((left - right).abs() <= left.abs() * 1e-15, "{at}: {left} and {right}");
        }
        _ => assert_eq!(left, right, "{at}"),
    }
}

fn as_value(document: &Document) -> Value {
    serde_json::from_str(&document.to_json()).unwrap()
}

/// JSON pointers to every member of every object; of each array only the first element.
fn paths(value: &Value, at: String) -> Vec<String> {
    match value {
        Value::Object(members) => members
            .iter()
            .flat_map(|(key, value)| {
                let path = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                let below = paths(value, path.clone());
                [path].into_iter().chain(below)
            })
            .collect(),
        Value::Array(elements) => {
            elements.first().map_or_else(Vec::new, |first| paths(first, format!("{at}/0")))
        }
        _ => Vec::new(),
    }
}

fn unescape(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

/// Faults of `value` by the part of JSON Schema that `schema.json` uses. `is_strict` reports members that it does not list.
fn validate(root: &Value, schema: &Value, value: &Value, at: &str, is_strict: bool) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.strip_prefix('#').unwrap()).expect(reference);
        return validate(root, target, value, at, is_strict);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let faults: Vec<_> =
            choices.iter().map(|choice| validate(root, choice, value, at, is_strict)).collect();
        let matching = faults.iter().filter(|faults| faults.is_empty()).count();
        return if matching == 1 { Vec::new() } else { faults.concat() };
    }
    let known = [
        "$schema",
        "$id",
        "$defs",
        "title",
        "description",
        "type",
        "const",
        "enum",
        "required",
        "properties",
        "items",
        "additionalProperties",
        "minimum",
        "maximum",
        "minItems",
        "maxItems",
    ];
    if let Some(unknown) = schema.as_object().unwrap().keys().find(|key| !known.contains(&key.as_str())) {
        panic!("the test does not know {unknown:?}");
    }
    let mut faults = Vec::new();
    let mut fault = |text: String| faults.push(format!("{at}: {text}"));
    if schema.get("const").is_some_and(|wanted| wanted != value) {
        fault(format!("is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|choices| !choices.contains(value)) {
        fault("is none of the choices".to_owned());
    }
    let is_type = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("the test does not know the type {other}"),
    };
    if !is_type {
        fault(format!("is no {}", schema["type"]));
    }
    let is_out_of_range = |number: f64| {
        schema["minimum"].as_f64().is_some_and(|minimum| number < minimum)
            || schema["maximum"].as_f64().is_some_and(|maximum| number > maximum)
    };
    if value.as_f64().is_some_and(is_out_of_range) {
        fault("is out of range".to_owned());
    }
    if let Some(elements) = value.as_array() {
        let count = elements.len() as u64;
        if schema["minItems"].as_u64().is_some_and(|least| count < least)
            || schema["maxItems"].as_u64().is_some_and(|most| count > most)
        {
            fault("has too few or too many items".to_owned());
        }
        if schema.get("items").is_some() {
            for (number, element) in elements.iter().enumerate() {
                faults.extend(validate(
                    root,
                    &schema["items"],
                    element,
                    &format!("{at}[{number}]"),
                    is_strict,
                ));
            }
        }
    }
    if let Some(members) = value.as_object() {
        for required in schema["required"].as_array().into_iter().flatten() {
            if !members.contains_key(required.as_str().unwrap()) {
                faults.push(format!("{at}: lacks {required}"));
            }
        }
        for (key, member) in members {
            let path = format!("{at}.{key}");
            match (schema["properties"].get(key), schema.get("additionalProperties")) {
                (Some(property), _) => faults.extend(validate(root, property, member, &path, is_strict)),
                (None, Some(others)) => faults.extend(validate(root, others, member, &path, is_strict)),
                (None, None) if is_strict => faults.push(format!("{path}: is not in the schema")),
                (None, None) => {}
            }
        }
    }
    faults
}
