//! Names of methods that callers identify by numbers.

use std::collections::HashMap;

use polyrpc_build::fbs;
use polyrpc_core::digits::parse_canonical_decimal;
use polyrpc_wire::fb_rpc::{ServiceHash, service_id};
use polyrpc_wire::rest_rpc::{function_name, number};

/// Service and method; a function has no service.
pub(super) type Name = (String, String);

/// Declared methods by the numbers and names that rest_rpc and fb_rpc send.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Methods by their number in rest_rpc; `None` if several have it.
    functions: HashMap<u32, Option<Name>>,
    /// Methods by their name in C++.
    qualified: HashMap<String, Name>,
    /// Services of `.fbs` files by their number; `None` if several have it.
    services: HashMap<u32, Option<NumberedService>>,
}

#[derive(Debug, Clone, PartialEq)]
struct NumberedService {
    name: String,
    /// Names of the methods with their ids, in the order of the service.
    methods: Vec<(u32, String)>,
    numbering: Numbering,
}

/// Meaning of a method's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbering {
    Id,
    Index,
    /// Either one: the service's number does not determine it.
    Unknown,
}

impl Numbers {
    /// Adds a method that callers of rest_rpc identify by its C++ name, or by `Service/Method`.
    pub(super) fn add_function(&mut self, service: &str, method: &str) {
        let name = (service.to_owned(), method.to_owned());
        let in_cpp = function_name(service, method);
        self.add_number(number(&in_cpp), &name);
        if !service.is_empty() {
            self.add_number(number(format!("{service}/{method}")), &name);
            self.qualified.insert(in_cpp, name);
        }
    }

    fn add_number(&mut self, number: u32, name: &Name) {
        let known = self.functions.entry(number).or_insert_with(|| Some(name.clone()));
        if known.as_ref() != Some(name) {
            *known = None;
        }
    }

    /// Adds a service that callers of fb_rpc identify by numbers.
    pub(super) fn add_service(&mut self, service: &fbs::Service) {
        let name = service.full_name();
        let methods: Vec<_> = (0..)
            .zip(&service.methods)
            .map(|(index, method)| (method.id.unwrap_or(index), method.name.clone()))
            .collect();
        let [one_dot, two_dots] =
            [ServiceHash::OneDot, ServiceHash::TwoDots].map(|hash| service_id(&name, hash));
        // #3559 identifies methods by their ids, #3197 by their indices; without a namespace their hashes are the same.
        let numbered = match one_dot == two_dots {
            true => vec![(one_dot, Numbering::Unknown)],
            false => vec![(one_dot, Numbering::Id), (two_dots, Numbering::Index)],
        };
        for (number, numbering) in numbered {
            let service = NumberedService { name: name.clone(), methods: methods.clone(), numbering };
            let known = self.services.entry(number).or_insert_with(|| Some(service.clone()));
            if known.as_ref() != Some(&service) {
                *known = None;
            }
        }
    }

    /// Returns the names of a function as rest_rpc sends it: `#` and its number, or its name in C++.
    pub(super) fn function(&self, sent: &str) -> Option<(&str, &str)> {
        let name = match sent.strip_prefix('#') {
            Some(number) => self.functions.get(&parse_canonical_decimal::<u32>(number)?)?.as_ref(),
            None => self.qualified.get(sent),
        };
        name.map(|(service, method)| (service.as_str(), method.as_str()))
    }

    /// Returns the names of a method as fb_rpc sends it: `#` and a number each.
    pub(super) fn method(&self, service: &str, method: &str) -> Option<(&str, &str)> {
        let number = |text: &str| parse_canonical_decimal::<u32>(text.strip_prefix('#')?);
        let service = self.services.get(&number(service)?)?.as_ref()?;
        Some((&service.name, service.method(number(method)?)?))
    }
}

impl NumberedService {
    fn method(&self, number: u32) -> Option<&str> {
        let by_id = || self.methods.iter().find(|(id, _)| *id == number);
        let by_index = || self.methods.get(number as usize);
        let found = match self.numbering {
            Numbering::Id => by_id(),
            Numbering::Index => by_index(),
            Numbering::Unknown => by_id().filter(|found| by_index() == Some(*found)),
        };
        found.map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_the_numbers_of_both_names() {
        let mut numbers = Numbers::default();
        numbers.add_function("", "add");
        numbers.add_function("example.Echo", "Get");
        let sent = |name: &str| format!("#{}", number(name));
        assert_eq!(numbers.function(&sent("add")), Some(("", "add")));
        for name in ["example::Echo::Get", "example.Echo/Get"] {
            assert_eq!(numbers.function(&sent(name)), Some(("example.Echo", "Get")));
        }
        assert_eq!(numbers.function("example::Echo::Get"), Some(("example.Echo", "Get")));
        for unknown in ["#1", "#x", "add", ""] {
            assert_eq!(numbers.function(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn number_of_two_functions_has_no_name() {
        let mut numbers = Numbers::default();
        numbers.add_number(7, &("a".to_owned(), "b".to_owned()));
        assert_eq!(numbers.function("#7"), Some(("a", "b")));
        assert_eq!(["#007", "#+7"].map(|other| numbers.function(other)), [None, None]);
        numbers.add_number(7, &("c".to_owned(), "d".to_owned()));
        assert_eq!(numbers.function("#7"), None);
    }

    #[test]
    fn methods_of_a_fbs_are_found_by_id_or_index_as_the_hash_tells() {
        let text = |namespace: &str| {
            format!(
                "{namespace} table T {{ x: int; }} rpc_service S {{ A(T): T (id: 5); B(T): T (id: 0); C(T): T (id: 2); }}"
            )
        };
        let numbers = |text: &str| {
            let mut numbers = Numbers::default();
            let schema = fbs::read_text("s.fbs", text).unwrap();
            schema.services.iter().for_each(|service| numbers.add_service(service));
            numbers
        };
        let sent = |name: &str, hash| format!("#{}", service_id(name, hash));
        let with = numbers(&text("namespace n;"));
        let (ids, indices) = (sent("n.S", ServiceHash::OneDot), sent("n.S", ServiceHash::TwoDots));
        assert_eq!(with.method(&ids, "#5"), Some(("n.S", "A")));
        assert_eq!(with.method(&ids, "#0"), Some(("n.S", "B")));
        assert_eq!(with.method(&indices, "#0"), Some(("n.S", "A")));
        assert_eq!(["#1", "#05", "#+5"].map(|unknown| with.method(&ids, unknown)), [None; 3]);
        // Both hashes are equal: only the methods that both identify are certain.
        let without = numbers(&text(""));
        let sent = sent("S", ServiceHash::OneDot);
        assert_eq!(without.method(&sent, "#2"), Some(("S", "C")));
        assert_eq!(without.method(&sent, "#0"), None);
    }
}
