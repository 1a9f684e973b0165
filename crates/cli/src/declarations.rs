//! Prints the declarations of `.proto` files in a similar syntax.
//!
//! The text is generated from the unresolved descriptors, so that only the file that declares a name is needed.

use protox::prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use protox::prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, MethodDescriptorProto,
    ServiceDescriptorProto,
};
use serde_json::{Value, json};

/// The full names of all services, sorted.
pub(crate) fn services(files: &[FileDescriptorProto]) -> Vec<String> {
    let full_names = |file: &FileDescriptorProto| {
        let package = file.package().to_owned();
        file.service.iter().map(move |service| join(&package, service.name())).collect::<Vec<_>>()
    };
    let mut names: Vec<_> = files.iter().flat_map(full_names).collect();
    names.sort_unstable();
    names
}

/// The names of a service's methods; none if no file declares it.
pub(crate) fn methods(files: &[FileDescriptorProto], service: &str) -> Vec<String> {
    match find(files, service) {
        Some(Declaration { item: DeclaredItem::Service(service), .. }) => {
            service.method.iter().map(|method| method.name().to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

/// The same as [`list`] for programs.
pub(crate) fn list_json(services: &[String], files: &[FileDescriptorProto]) -> Value {
    let service = |name: &String| match find(files, name) {
        Some(Declaration { item: DeclaredItem::Service(service), .. }) => {
            let methods: Vec<_> = service.method.iter().map(method_json).collect();
            json!({ "name": name, "methods": methods })
        }
        _ => json!({ "name": name }),
    };
    json!({ "services": services.iter().map(service).collect::<Vec<_>>() })
}

fn method_json(method: &MethodDescriptorProto) -> Value {
    json!({
        "name": method.name(),
        "request": method.input_type().trim_start_matches('.'),
        "response": method.output_type().trim_start_matches('.'),
        "client_streaming": method.client_streaming(),
        "server_streaming": method.server_streaming(),
    })
}

/// The same as [`describe`] for programs.
pub(crate) fn describe_json(files: &[FileDescriptorProto], full_name: &str) -> Option<Value> {
    let declaration = describe(files, full_name)?;
    // The first line is a comment with name and file.
    let text = declaration.split_once('\n').map_or("", |(_, text)| text);
    let found = find_declaring(files, full_name)?;
    let kind = match found.item {
        DeclaredItem::Service(_) => "service",
        DeclaredItem::Method(_) => "method",
        DeclaredItem::Message(_) => "message",
        DeclaredItem::Enum(_) => "enum",
        DeclaredItem::Extension(..) => "extension",
    };
    let mut description =
        json!({ "name": found.full_name, "kind": kind, "file": found.file.name(), "declaration": text });
    let more = match found.item {
        DeclaredItem::Service(service) => {
            Some(("methods", service.method.iter().map(method_json).collect::<Vec<_>>().into()))
        }
        DeclaredItem::Method(method) => Some(("method", method_json(method))),
        _ => None,
    };
    if let (Value::Object(description), Some((key, value))) = (&mut description, more) {
        description.insert(key.to_owned(), value);
    }
    Some(description)
}

/// The declaration of a name, which may be that of a member such as a field. Methods are declarations of their own.
fn find_declaring<'a>(files: &'a [FileDescriptorProto], name: &str) -> Option<Declaration<'a>> {
    std::iter::successors(Some(name), |name| Some(name.rsplit_once('.')?.0))
        .find_map(|part| find(files, part).filter(|found| part == name || !found.is_service()))
}

/// Services with their methods; only the name of a service that no file declares.
pub(crate) fn list(services: &[String], files: &[FileDescriptorProto]) -> String {
    let mut text = Text::default();
    for name in services {
        text.line(name);
        if let Some(Declaration { item: DeclaredItem::Service(service), .. }) = find(files, name) {
            text.indent(|text| service.method.iter().for_each(|method| text.line(&signature(method))));
        }
    }
    text.0.trim_end().to_owned()
}

/// The meaning of a name. The name of a member, such as a field, shows its parent.
pub(crate) fn describe(files: &[FileDescriptorProto], name: &str) -> Option<String> {
    let found = find_declaring(files, name)?;
    let mut text = Text::default();
    text.line(&format!("// {} in {}", found.full_name, found.file.name()));
    let file = found.file;
    match found.item {
        DeclaredItem::Service(service) => text.service(service),
        DeclaredItem::Message(message) => text.message(file, message),
        DeclaredItem::Enum(declared) => text.enumeration(declared),
        DeclaredItem::Extension(field, messages) => text.extension(file, messages, field),
        DeclaredItem::Method(method) => {
            text.line(&format!("rpc {};", signature(method)));
            let mut types = vec![method.input_type(), method.output_type()];
            types.dedup();
            for found in types.into_iter().filter_map(|ty| find(files, ty.trim_start_matches('.'))) {
                if let DeclaredItem::Message(message) = found.item {
                    text.line("");
                    text.line(&format!("// {} in {}", found.full_name, found.file.name()));
                    text.message(found.file, message);
                }
            }
        }
    }
    Some(text.0.trim_end().to_owned())
}

/// A declaration and its file.
struct Declaration<'a> {
    file: &'a FileDescriptorProto,
    full_name: String,
    item: DeclaredItem<'a>,
}

impl Declaration<'_> {
    fn is_service(&self) -> bool {
        matches!(self.item, DeclaredItem::Service(_))
    }
}

enum DeclaredItem<'a> {
    Service(&'a ServiceDescriptorProto),
    Method(&'a MethodDescriptorProto),
    Message(&'a DescriptorProto),
    Enum(&'a EnumDescriptorProto),
    /// With the messages of its scope, one of which may be its group.
    Extension(&'a FieldDescriptorProto, &'a [DescriptorProto]),
}

fn find<'a>(files: &'a [FileDescriptorProto], full_name: &str) -> Option<Declaration<'a>> {
    files.iter().find_map(|file| {
        let within = strip_scope(full_name, file.package())?;
        let item = find_in_file(file, within)?;
        Some(Declaration { file, full_name: full_name.to_owned(), item })
    })
}

fn find_in_file<'a>(file: &'a FileDescriptorProto, name: &str) -> Option<DeclaredItem<'a>> {
    let service = || {
        file.service.iter().find_map(|service| match strip_scope(name, service.name()) {
            _ if service.name() == name => Some(DeclaredItem::Service(service)),
            None => None,
            Some(rest) => {
                service.method.iter().find(|method| method.name() == rest).map(DeclaredItem::Method)
            }
        })
    };
    find_in_scope(&file.message_type, &file.enum_type, &file.extension, name).or_else(service)
}

fn find_in_scope<'a>(
    messages: &'a [DescriptorProto],
    enums: &'a [EnumDescriptorProto],
    extensions: &'a [FieldDescriptorProto],
    name: &str,
) -> Option<DeclaredItem<'a>> {
    let message = || {
        messages.iter().find_map(|message| match strip_scope(name, message.name()) {
            _ if message.name() == name => Some(DeclaredItem::Message(message)),
            None => None,
            Some(rest) => find_in_scope(&message.nested_type, &message.enum_type, &message.extension, rest),
        })
    };
    let holds = |declared: &&EnumDescriptorProto| {
        declared.name() == name || declared.value.iter().any(|value| value.name() == name)
    };
    let enumeration = || enums.iter().find(holds).map(DeclaredItem::Enum);
    let extension = || {
        let found = extensions.iter().find(|field| field.name() == name);
        found.map(|field| DeclaredItem::Extension(field, messages))
    };
    message().or_else(enumeration).or_else(extension)
}

/// The part of a name after its scope.
fn strip_scope<'n>(name: &'n str, scope: &str) -> Option<&'n str> {
    match scope {
        "" => Some(name),
        scope => name.strip_prefix(scope)?.strip_prefix('.'),
    }
}

/// Lines of text, indented by nesting.
#[derive(Default)]
struct Text(String, usize);

impl Text {
    fn line(&mut self, line: &str) {
        if !line.is_empty() {
            self.0.extend(std::iter::repeat_n("  ", self.1));
            self.0.push_str(line);
        }
        self.0.push('\n');
    }

    fn indent(&mut self, inside: impl FnOnce(&mut Self)) {
        self.1 += 1;
        inside(self);
        self.1 -= 1;
    }

    fn block(&mut self, head: &str, inside: impl FnOnce(&mut Self)) {
        let before = self.0.len();
        self.line(&format!("{head} {{"));
        let begun = self.0.len();
        self.indent(inside);
        if self.0.len() == begun {
            self.0.truncate(before);
            self.line(&format!("{head} {{}}"));
        } else {
            self.line("}");
        }
    }

    fn service(&mut self, service: &ServiceDescriptorProto) {
        self.block(&format!("service {}", service.name()), |text| {
            service.method.iter().for_each(|method| text.line(&format!("rpc {};", signature(method))));
        });
    }

    fn message(&mut self, file: &FileDescriptorProto, message: &DescriptorProto) {
        self.block(&format!("message {}", message.name()), |text| text.members(file, message));
    }

    fn members(&mut self, file: &FileDescriptorProto, message: &DescriptorProto) {
        let mut shown = Vec::new();
        for field in &message.field {
            match oneof(message, field) {
                None => self.field(file, message, field),
                Some((index, _)) if shown.contains(&index) => {}
                Some((index, name)) => {
                    shown.push(index);
                    self.block(&format!("oneof {name}"), |text| {
                        let members = message.field.iter().filter(|other| other.oneof_index == Some(index));
                        members.for_each(|member| text.field(file, message, member));
                    });
                }
            }
        }
        for range in &message.extension_range {
            let numbers = format_range(range.start(), last_before(range.end()), MAX_FIELD);
            self.line(&format!("extensions {numbers};"));
        }
        let ranges = message.reserved_range.iter().map(|range| (range.start(), last_before(range.end())));
        self.reserved(ranges, &message.reserved_name, MAX_FIELD);
        for declared in &message.enum_type {
            self.line("");
            self.enumeration(declared);
        }
        for nested in message.nested_type.iter().filter(|nested| !is_part(message, nested)) {
            self.line("");
            self.message(file, nested);
        }
        for field in &message.extension {
            self.line("");
            self.extension(file, &message.nested_type, field);
        }
    }

    fn field(&mut self, file: &FileDescriptorProto, message: &DescriptorProto, field: &FieldDescriptorProto) {
        if let Some(entry) = entry(message, field) {
            let kind = |index: usize| entry.field.get(index).map(kind).unwrap_or_default();
            let line = format!("map<{}, {}> {} = {}", kind(0), kind(1), field.name(), field.number());
            return self.line(&format!("{line}{};", options(field)));
        }
        self.unmapped_field(file, group(&message.nested_type, field), field);
    }

    /// A field that is no map.
    fn unmapped_field(
        &mut self,
        file: &FileDescriptorProto,
        group: Option<&DescriptorProto>,
        field: &FieldDescriptorProto,
    ) {
        let label = label(file, field);
        match group {
            Some(group) => {
                let head = format!("{label}group {} = {}", group.name(), field.number());
                self.block(&head, |text| text.members(file, group));
            }
            None => {
                let line = format!("{label}{} {} = {}", kind(field), field.name(), field.number());
                self.line(&format!("{line}{};", options(field)));
            }
        }
    }

    fn extension(
        &mut self,
        file: &FileDescriptorProto,
        messages: &[DescriptorProto],
        field: &FieldDescriptorProto,
    ) {
        self.block(&format!("extend {}", field.extendee().trim_start_matches('.')), |text| {
            text.unmapped_field(file, group(messages, field), field);
        });
    }

    fn enumeration(&mut self, declared: &EnumDescriptorProto) {
        self.block(&format!("enum {}", declared.name()), |text| {
            if declared.options.as_ref().is_some_and(|options| options.allow_alias()) {
                text.line("option allow_alias = true;");
            }
            for value in &declared.value {
                let deprecated = value.options.as_ref().is_some_and(|options| options.deprecated());
                let options = if deprecated { " [deprecated = true]" } else { "" };
                text.line(&format!("{} = {}{options};", value.name(), value.number()));
            }
            let ranges = declared.reserved_range.iter().map(|range| (range.start(), range.end()));
            text.reserved(ranges, &declared.reserved_name, i32::MAX);
        });
    }

    fn reserved(&mut self, ranges: impl Iterator<Item = (i32, i32)>, names: &[String], max: i32) {
        let ranges: Vec<_> = ranges.map(|(first, last)| format_range(first, last, max)).collect();
        let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        for reserved in [ranges, names].iter().filter(|reserved| !reserved.is_empty()) {
            self.line(&format!("reserved {};", reserved.join(", ")));
        }
    }
}

/// `Echo (example.EchoRequest) returns (stream example.EchoResponse)`
fn signature(method: &MethodDescriptorProto) -> String {
    let stream = |streams: bool| if streams { "stream " } else { "" };
    format!(
        "{} ({}{}) returns ({}{})",
        method.name(),
        stream(method.client_streaming()),
        method.input_type().trim_start_matches('.'),
        stream(method.server_streaming()),
        method.output_type().trim_start_matches('.'),
    )
}

/// The `oneof` of a field; the synthetic one of a proto3 `optional` is skipped.
pub(crate) fn oneof<'a>(
    message: &'a DescriptorProto,
    field: &FieldDescriptorProto,
) -> Option<(i32, &'a str)> {
    let index = field.oneof_index.filter(|_| !field.proto3_optional())?;
    let oneof = message.oneof_decl.get(usize::try_from(index).ok()?)?;
    Some((index, oneof.name()))
}

/// The message that is printed in place of its field, a map entry or a group, among the messages of the field's scope.
fn part<'a>(messages: &'a [DescriptorProto], field: &FieldDescriptorProto) -> Option<&'a DescriptorProto> {
    let name = field.type_name().rsplit('.').next()?;
    messages.iter().find(|message| message.name() == name)
}

pub(crate) fn entry<'a>(
    message: &'a DescriptorProto,
    field: &FieldDescriptorProto,
) -> Option<&'a DescriptorProto> {
    let is_entry =
        |nested: &&DescriptorProto| nested.options.as_ref().is_some_and(|options| options.map_entry());
    part(&message.nested_type, field).filter(is_entry)
}

/// The group of a field or an extension, among the messages of its scope.
pub(crate) fn group<'a>(
    messages: &'a [DescriptorProto],
    field: &FieldDescriptorProto,
) -> Option<&'a DescriptorProto> {
    if field.r#type() == Type::Group { part(messages, field) } else { None }
}

pub(crate) fn is_part(message: &DescriptorProto, nested: &DescriptorProto) -> bool {
    let is_entry = |field| entry(message, field).is_some_and(|entry| entry.name() == nested.name());
    message.field.iter().any(is_entry)
        || is_group(&message.nested_type, &message.field, nested)
        || is_group(&message.nested_type, &message.extension, nested)
}

/// Whether a message is the group of one of these fields or extensions.
pub(crate) fn is_group(
    messages: &[DescriptorProto],
    fields: &[FieldDescriptorProto],
    message: &DescriptorProto,
) -> bool {
    fields.iter().filter_map(|field| group(messages, field)).any(|group| group.name() == message.name())
}

pub(crate) fn label(file: &FileDescriptorProto, field: &FieldDescriptorProto) -> &'static str {
    let proto2 = matches!(file.syntax(), "" | "proto2");
    match field.label() {
        Label::Repeated => "repeated ",
        Label::Required => "required ",
        Label::Optional if field.proto3_optional() || proto2 && field.oneof_index.is_none() => "optional ",
        Label::Optional => "",
    }
}

pub(crate) fn kind(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum | Type::Group => field.type_name().trim_start_matches('.').to_owned(),
        scalar => scalar.as_str_name().trim_start_matches("TYPE_").to_ascii_lowercase(),
    }
}

fn options(field: &FieldDescriptorProto) -> String {
    let mut options = Vec::new();
    if let Some(default) = &field.default_value {
        options.push(match field.r#type() {
            Type::String | Type::Bytes => format!("default = \"{}\"", default.escape_default()),
            _ => format!("default = {default}"),
        });
    }
    if field.options.as_ref().is_some_and(|options| options.deprecated()) {
        options.push("deprecated = true".to_owned());
    }
    if options.is_empty() { String::new() } else { format!(" [{}]", options.join(", ")) }
}

/// The last number of a range with an exclusive end.
pub(crate) fn last_before(end: i32) -> i32 {
    end.saturating_sub(1)
}

pub(crate) fn format_range(first: i32, last: i32, max: i32) -> String {
    match last {
        _ if first == last => first.to_string(),
        last if last >= max => format!("{first} to max"),
        last => format!("{first} to {last}"),
    }
}

fn join(package: &str, name: &str) -> String {
    if package.is_empty() { name.to_owned() } else { format!("{package}.{name}") }
}

/// The highest field number.
pub(crate) const MAX_FIELD: i32 = (1 << 29) - 1;

#[cfg(test)]
mod tests {
    use protox::Compiler;
    use protox::file::{File, FileResolver};

    use super::*;

    struct Sources;

    impl FileResolver for Sources {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            match name {
                "shop.proto" => File::from_source(name, SHOP),
                "newer.proto" => File::from_source(name, NEWER),
                _ => Err(protox::Error::file_not_found(name)),
            }
        }
    }

    fn files() -> Vec<FileDescriptorProto> {
        let mut compiler = Compiler::with_file_resolver(Sources);
        compiler.open_files(["shop.proto", "newer.proto"]).unwrap().file_descriptor_set().file
    }

    const SHOP: &str = r#"
        syntax = "proto2";
        package shop;
        message Order {
          required string id = 1;
          optional int32 count = 2 [default = 7];
          optional string note = 3 [default = "a \"b\"", deprecated = true];
          repeated group Line = 4 { optional Item item = 1; }
          map<string, Item> by_name = 5;
          oneof payment { string card = 6; bytes coin = 7; }
          message Item {}
          extensions 100 to 199, 1000 to max;
          reserved 8, 10 to 12;
          reserved "old";
        }
        enum Colour { option allow_alias = true; RED = 0; ROUGE = 0 [deprecated = true]; }
        extend Order { optional Colour colour = 100; optional group Extra = 101 { optional bool is_new = 1; } }
        service Shop {
          rpc Buy(Order) returns (stream Order.Item);
          rpc Talk(stream Order) returns (stream Order);
        }
    "#;

    const NEWER: &str = r#"
        syntax = "proto3";
        message Point { int32 x = 1; optional int32 y = 2; oneof z { bool deep = 3; } repeated uint64 ids = 4; }
        message Empty {}
        service Points {}
    "#;

    #[test]
    fn services_are_listed_with_their_method_signatures() {
        let files = files();
        let mut names = services(&files);
        assert_eq!(names, ["Points", "shop.Shop"]);
        names.push("undescribed.Service".into());
        let lines = [
            "Points",
            "shop.Shop",
            "  Buy (shop.Order) returns (stream shop.Order.Item)",
            "  Talk (stream shop.Order) returns (stream shop.Order)",
            "undescribed.Service",
        ];
        assert_eq!(list(&names, &files), lines.join("\n"));
    }

    #[test]
    fn message_is_printed_as_its_declaration() {
        let lines = [
            "// shop.Order in shop.proto",
            "message Order {",
            "  required string id = 1;",
            "  optional int32 count = 2 [default = 7];",
            "  optional string note = 3 [default = \"a \\\"b\\\"\", deprecated = true];",
            "  repeated group Line = 4 {",
            "    optional shop.Order.Item item = 1;",
            "  }",
            "  map<string, shop.Order.Item> by_name = 5;",
            "  oneof payment {",
            "    string card = 6;",
            "    bytes coin = 7;",
            "  }",
            "  extensions 100 to 199;",
            "  extensions 1000 to max;",
            "  reserved 8, 10 to 12;",
            "  reserved \"old\";",
            "",
            "  message Item {}",
            "}",
        ];
        assert_eq!(describe(&files(), "shop.Order").unwrap(), lines.join("\n"));
        let lines = [
            "// Point in newer.proto",
            "message Point {",
            "  int32 x = 1;",
            "  optional int32 y = 2;",
            "  oneof z {",
            "    bool deep = 3;",
            "  }",
            "  repeated uint64 ids = 4;",
            "}",
        ];
        assert_eq!(describe(&files(), "Point").unwrap(), lines.join("\n"));
        assert_eq!(describe(&files(), "Empty").unwrap(), "// Empty in newer.proto\nmessage Empty {}");
    }

    #[test]
    fn member_name_shows_its_parent_and_unknown_name_is_none() {
        let files = files();
        for part in ["shop.Order.id", "shop.Order.payment", "shop.Order"] {
            assert!(describe(&files, part).unwrap().starts_with("// shop.Order in"), "{part}");
        }
        for part in ["shop.Colour", "shop.RED"] {
            assert!(
                describe(&files, part)
                    .unwrap()
                    .contains("\nenum Colour {\n  option allow_alias = true;\n  RED = 0;")
            );
        }
        let extension = describe(&files, "shop.colour").unwrap();
        assert!(
            extension.contains("\nextend shop.Order {\n  optional shop.Colour colour = 100;\n}"),
            "{extension}"
        );
        let group =
            "extend shop.Order {\n  optional group Extra = 101 {\n    optional bool is_new = 1;\n  }\n}";
        assert!(describe(&files, "shop.extra").unwrap().ends_with(group));
        let method = describe(&files, "shop.Shop.Buy").unwrap();
        assert!(method.contains("\nrpc Buy (shop.Order) returns (stream shop.Order.Item);"), "{method}");
        for unknown in ["", "shop", "shop.Nope", "shops.Order", "Order"] {
            assert_eq!(describe(&files, unknown), None, "{unknown}");
        }
    }
}
