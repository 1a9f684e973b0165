//! `.proto` files from their descriptors: what `protoc` would compile to the same messages and services.

use std::collections::BTreeSet;

use polyrpc_core::protobuf::{Reader, WireType};
use polyrpc_describe::{Comments, ProtoFiles};
use protox::prost::Message;
use protox::prost_reflect::prost_types::field_descriptor_proto::Type;
use protox::prost_reflect::prost_types::field_options::{CType, JsType};
use protox::prost_reflect::prost_types::file_options::OptimizeMode;
use protox::prost_reflect::prost_types::method_options::IdempotencyLevel;
use protox::prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, MethodDescriptorProto,
    ServiceDescriptorProto,
};

use crate::declarations::{
    self, MAX_FIELD, entry, format_range, group, is_group, is_part, kind, label, last_before, oneof,
};
use crate::failure::Failure;
use crate::message::{SchemaSource, service_hint};

/// Prints the file that declares a name, or all files, each after its name and before those that import it. Files of
/// protobuf itself are left out: every compiler has them.
pub(super) fn format_files(source: &SchemaSource, name: Option<&str>) -> Result<String, Failure> {
    let files = parse_files(source.encoded())
        .ok_or_else(|| Failure::new(format!("{} is not a set of files", source.source())))?;
    let wanted = match name {
        None => files.iter().map(|file| file.declared.name()).collect(),
        Some(name) => collect_with_imports(&files, find_declaring(&files, name, source)?),
    };
    let comments = Comments::from_set(source.encoded());
    let methods = ProtoFiles::new(source.pool().clone());
    let mut texts = Vec::new();
    for file in sort_by_imports(&files).filter(|file| wanted.contains(file.declared.name())) {
        if is_protobufs_own(file.declared.name()) {
            continue;
        }
        let mut writer = Writer { out: String::new(), depth: 0, file: &file.declared, comments: &comments };
        writer.file(&methods, file.has_unknown_options)?;
        texts.push(format!("// {}\n{}", to_one_line(file.declared.name()), writer.out.trim_end()));
    }
    Ok(texts.join("\n\n"))
}

/// A file of a set.
struct File {
    declared: FileDescriptorProto,
    /// It has options that only the program that declares them knows.
    has_unknown_options: bool,
}

/// The files of a serialized `FileDescriptorSet`.
fn parse_files(set: &[u8]) -> Option<Vec<File>> {
    let (mut reader, mut files) = (Reader::new(set), Vec::new());
    while !reader.is_empty() {
        match reader.tag()? {
            (1, WireType::Bytes) => {
                let bytes = reader.bytes()?;
                let declared = FileDescriptorProto::decode(bytes).ok()?;
                // What is not declared is dropped when it is read.
                let has_unknown_options = declared.encoded_len() < bytes.len();
                files.push(File { declared, has_unknown_options });
            }
            (number, wire) => reader.skip(number, wire)?,
        }
    }
    Some(files)
}

fn find_declaring<'f>(files: &'f [File], name: &str, source: &SchemaSource) -> Result<&'f str, Failure> {
    let dotted = name.trim_start_matches(['.', '/']).replace('/', ".");
    let declares =
        |file: &&File| declarations::describe(std::slice::from_ref(&file.declared), &dotted).is_some();
    files.iter().find(declares).map(|file| file.declared.name()).ok_or_else(|| {
        let declared: Vec<_> = files.iter().map(|file| file.declared.clone()).collect();
        let services = declarations::services(&declared);
        let names: Vec<_> = services.iter().map(String::as_str).collect();
        let hint = service_hint(&dotted, &names).replace("it has ", "its services are ");
        Failure::new(format!("{} describes no `{name}`", source.source())).with_hint(hint)
    })
}

fn collect_with_imports<'f>(files: &'f [File], name: &'f str) -> BTreeSet<&'f str> {
    let (mut found, mut waiting) = (BTreeSet::new(), vec![name]);
    while let Some(name) = waiting.pop() {
        if found.insert(name) {
            let file = files.iter().find(|file| file.declared.name() == name);
            waiting.extend(file.into_iter().flat_map(|file| &file.declared.dependency).map(String::as_str));
        }
    }
    found
}

/// Each file after those that it imports.
fn sort_by_imports(files: &[File]) -> impl Iterator<Item = &File> {
    let mut order: Vec<&File> = Vec::with_capacity(files.len());
    let mut done = BTreeSet::new();
    // Each round takes what only needs what was taken before; a round without progress takes the rest.
    let mut left: Vec<_> = files.iter().collect();
    while !left.is_empty() {
        let is_ready = |file: &&File| {
            let needs = |name: &String| left.iter().any(|other| other.declared.name() == name);
            !file.declared.dependency.iter().any(|name| !done.contains(name) && needs(name))
        };
        let (ready, later): (Vec<_>, Vec<_>) = left.iter().copied().partition(is_ready);
        left = match ready.is_empty() {
            true => {
                order.extend(later);
                Vec::new()
            }
            false => {
                done.extend(ready.iter().map(|file| file.declared.name().to_owned()));
                order.extend(ready);
                later
            }
        };
    }
    order.into_iter()
}

fn is_protobufs_own(name: &str) -> bool {
    name.starts_with("google/protobuf/")
}

fn to_one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

struct Writer<'f> {
    out: String,
    depth: usize,
    file: &'f FileDescriptorProto,
    comments: &'f Comments,
}

impl Writer<'_> {
    fn line(&mut self, line: &str) {
        if !line.is_empty() {
            self.out.extend(std::iter::repeat_n("  ", self.depth));
            self.out.push_str(line);
        }
        self.out.push('\n');
    }

    fn block(&mut self, head: &str, inside: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.line("}");
    }

    /// The comment of a declaration, on lines of its own.
    fn comment(&mut self, full_name: &str) {
        let comments = self.comments;
        for line in comments.comment(full_name).into_iter().flat_map(str::lines) {
            let text = format!("// {}", to_one_line(line));
            self.line(text.trim_end());
        }
    }

    fn file(&mut self, methods: &ProtoFiles, has_unknown_options: bool) -> Result<(), Failure> {
        let file = self.file;
        let syntax = match file.syntax() {
            "" | "proto2" => "proto2",
            "proto3" => "proto3",
            other => {
                let text = format!("{}: the syntax `{}` cannot be written", file.name(), to_one_line(other));
                return Err(Failure::new(text).with_hint("print --json-schema"));
            }
        };
        if has_unknown_options {
            self.line("// Options that extensions declare are left out, except google.api.http.");
        }
        self.line(&format!("syntax = \"{syntax}\";"));
        if !file.package().is_empty() {
            self.line("");
            self.line(&format!("package {};", file.package()));
        }
        self.imports();
        self.options();
        for service in &file.service {
            self.line("");
            self.service(service, methods);
        }
        let is_group = |message: &&DescriptorProto| is_group(&file.message_type, &file.extension, message);
        for message in file.message_type.iter().filter(|message| !is_group(message)) {
            self.line("");
            self.message(file.package(), message);
        }
        for declared in &file.enum_type {
            self.line("");
            self.enumeration(file.package(), declared);
        }
        for field in &file.extension {
            self.line("");
            self.extension(file.package(), &file.message_type, field);
        }
        Ok(())
    }

    fn imports(&mut self) {
        let file = self.file;
        if !file.dependency.is_empty() {
            self.line("");
        }
        for (n, name) in (0..).zip(&file.dependency) {
            let kind = match () {
                () if file.public_dependency.contains(&n) => "public ",
                () if file.weak_dependency.contains(&n) => "weak ",
                () => "",
            };
            self.line(&format!("import {kind}{};", quote(name)));
        }
    }

    fn options(&mut self) {
        let Some(options) = &self.file.options else { return };
        let text = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("option {name} = {};", quote(value)))
        };
        let flag = |name: &str, value: Option<bool>| value.map(|value| format!("option {name} = {value};"));
        let mode = options.optimize_for.and_then(|mode| OptimizeMode::try_from(mode).ok());
        let lines: Vec<_> = [
            text("java_package", &options.java_package),
            text("java_outer_classname", &options.java_outer_classname),
            flag("java_multiple_files", options.java_multiple_files),
            flag("java_string_check_utf8", options.java_string_check_utf8),
            mode.map(|mode| format!("option optimize_for = {};", mode.as_str_name())),
            text("go_package", &options.go_package),
            flag("cc_generic_services", options.cc_generic_services),
            flag("java_generic_services", options.java_generic_services),
            flag("py_generic_services", options.py_generic_services),
            flag("cc_enable_arenas", options.cc_enable_arenas),
            text("objc_class_prefix", &options.objc_class_prefix),
            text("csharp_namespace", &options.csharp_namespace),
            text("swift_prefix", &options.swift_prefix),
            text("php_class_prefix", &options.php_class_prefix),
            text("php_namespace", &options.php_namespace),
            text("php_metadata_namespace", &options.php_metadata_namespace),
            text("ruby_package", &options.ruby_package),
            flag("deprecated", options.deprecated),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !lines.is_empty() {
            self.line("");
        }
        lines.iter().for_each(|line| self.line(line));
    }

    fn service(&mut self, service: &ServiceDescriptorProto, methods: &ProtoFiles) {
        let full_name = join(self.file.package(), service.name());
        self.comment(&full_name);
        self.block(&format!("service {}", service.name()), |writer| {
            if service.options.as_ref().is_some_and(|options| options.deprecated()) {
                writer.line("option deprecated = true;");
            }
            for method in &service.method {
                writer.method(&full_name, method, methods);
            }
        });
    }

    fn method(&mut self, service: &str, method: &MethodDescriptorProto, methods: &ProtoFiles) {
        self.comment(&format!("{service}.{}", method.name()));
        let stream = |streams: bool| if streams { "stream " } else { "" };
        let head = format!(
            "rpc {}({}{}) returns ({}{})",
            method.name(),
            stream(method.client_streaming()),
            method.input_type(),
            stream(method.server_streaming()),
            method.output_type(),
        );
        let mut options = Vec::new();
        if let Some(declared) = &method.options {
            if declared.deprecated() {
                options.push("option deprecated = true;".to_owned());
            }
            if declared.idempotency_level() != IdempotencyLevel::IdempotencyUnknown {
                options.push(format!(
                    "option idempotency_level = {};",
                    declared.idempotency_level().as_str_name()
                ));
            }
        }
        let rule = methods.method(service, method.name()).and_then(|method| method.http_rule);
        if let Some(rule) = rule.as_deref().and_then(|rule| rule_text(rule, MAX_BINDING_DEPTH)) {
            options.push(format!("option (google.api.http) = {{ {rule} }};"));
        }
        match options.is_empty() {
            true => self.line(&format!("{head};")),
            false => self.block(&head, |writer| options.iter().for_each(|line| writer.line(line))),
        }
    }

    fn message(&mut self, scope: &str, message: &DescriptorProto) {
        let full_name = join(scope, message.name());
        self.comment(&full_name);
        self.block(&format!("message {}", message.name()), |writer| writer.members(&full_name, message));
    }

    fn members(&mut self, full_name: &str, message: &DescriptorProto) {
        if let Some(options) = &message.options {
            for (name, is_set) in [
                ("deprecated", options.deprecated()),
                ("message_set_wire_format", options.message_set_wire_format()),
                ("no_standard_descriptor_accessor", options.no_standard_descriptor_accessor()),
            ] {
                if is_set {
                    self.line(&format!("option {name} = true;"));
                }
            }
        }
        let mut shown = Vec::new();
        for field in &message.field {
            match oneof(message, field) {
                None => self.field(full_name, message, field),
                Some((index, _)) if shown.contains(&index) => {}
                Some((index, name)) => {
                    shown.push(index);
                    self.comment(&format!("{full_name}.{name}"));
                    self.block(&format!("oneof {name}"), |writer| {
                        let members = message.field.iter().filter(|other| other.oneof_index == Some(index));
                        members.for_each(|member| writer.field(full_name, message, member));
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
            self.enumeration(full_name, declared);
        }
        for nested in message.nested_type.iter().filter(|nested| !is_part(message, nested)) {
            self.line("");
            self.message(full_name, nested);
        }
        for field in &message.extension {
            self.line("");
            self.extension(full_name, &message.nested_type, field);
        }
    }

    fn field(&mut self, scope: &str, message: &DescriptorProto, field: &FieldDescriptorProto) {
        self.comment(&join(scope, field.name()));
        if let Some(entry) = entry(message, field) {
            let kind = |index: usize| entry.field.get(index).map(absolute_type).unwrap_or_default();
            let head = format!("map<{}, {}> {} = {}", kind(0), kind(1), field.name(), field.number());
            return self.line(&format!("{head}{};", options(field)));
        }
        self.unmapped_field(scope, group(&message.nested_type, field), field);
    }

    /// A field that is no map, below its comment.
    fn unmapped_field(&mut self, scope: &str, group: Option<&DescriptorProto>, field: &FieldDescriptorProto) {
        let (label, options) = (label(self.file, field), options(field));
        match group {
            Some(group) => {
                let head = format!("{label}group {} = {}{options}", group.name(), field.number());
                let full_name = join(scope, group.name());
                self.block(&head, |writer| writer.members(&full_name, group));
            }
            None => self.line(&format!(
                "{label}{} {} = {}{options};",
                absolute_type(field),
                field.name(),
                field.number()
            )),
        }
    }

    /// An extension, with the messages of its scope, one of which may be its group.
    fn extension(&mut self, scope: &str, messages: &[DescriptorProto], field: &FieldDescriptorProto) {
        self.block(&format!("extend {}", field.extendee()), |writer| {
            writer.comment(&join(scope, field.name()));
            writer.unmapped_field(scope, group(messages, field), field);
        });
    }

    fn enumeration(&mut self, scope: &str, declared: &EnumDescriptorProto) {
        self.comment(&join(scope, declared.name()));
        self.block(&format!("enum {}", declared.name()), |writer| {
            if let Some(options) = &declared.options {
                if options.allow_alias() {
                    writer.line("option allow_alias = true;");
                }
                if options.deprecated() {
                    writer.line("option deprecated = true;");
                }
            }
            for value in &declared.value {
                let deprecated = value.options.as_ref().is_some_and(|options| options.deprecated());
                let options = if deprecated { " [deprecated = true]" } else { "" };
                writer.comment(&join(scope, value.name()));
                writer.line(&format!("{} = {}{options};", value.name(), value.number()));
            }
            let ranges = declared.reserved_range.iter().map(|range| (range.start(), range.end()));
            writer.reserved(ranges, &declared.reserved_name, i32::MAX);
        });
    }

    fn reserved(&mut self, ranges: impl Iterator<Item = (i32, i32)>, names: &[String], max: i32) {
        let ranges: Vec<_> = ranges.map(|(first, last)| format_range(first, last, max)).collect();
        let names: Vec<_> = names.iter().map(|name| quote(name)).collect();
        for reserved in [ranges, names].iter().filter(|reserved| !reserved.is_empty()) {
            self.line(&format!("reserved {};", reserved.join(", ")));
        }
    }
}

/// A type; that of a message or an enum by its full name with a leading dot, which no scope can hide.
fn absolute_type(field: &FieldDescriptorProto) -> String {
    match field.r#type() {
        Type::Message | Type::Enum | Type::Group => field.type_name().to_owned(),
        _ => kind(field),
    }
}

fn options(field: &FieldDescriptorProto) -> String {
    let mut options = Vec::new();
    if let Some(default) = &field.default_value {
        options.push(match field.r#type() {
            Type::String => format!("default = {}", quote(default)),
            // The descriptor has them escaped already.
            Type::Bytes => format!("default = \"{default}\""),
            _ => format!("default = {default}"),
        });
    }
    if let Some(name) = field.json_name.as_ref().filter(|name| **name != to_lower_camel_case(field.name())) {
        // Extensions have none of their own.
        if field.extendee.is_none() {
            options.push(format!("json_name = {}", quote(name)));
        }
    }
    if let Some(declared) = &field.options {
        let flag = |name: &str, value: Option<bool>| value.map(|value| format!("{name} = {value}"));
        let ctype = declared.ctype.and_then(|kind| CType::try_from(kind).ok());
        let jstype = declared.jstype.and_then(|kind| JsType::try_from(kind).ok());
        let lines = [
            ctype.map(|kind| format!("ctype = {}", kind.as_str_name())),
            flag("packed", declared.packed),
            jstype.map(|kind| format!("jstype = {}", kind.as_str_name())),
            flag("lazy", declared.lazy),
            flag("deprecated", declared.deprecated),
            flag("weak", declared.weak),
        ];
        options.extend(lines.into_iter().flatten());
    }
    if options.is_empty() { String::new() } else { format!(" [{}]", options.join(", ")) }
}

/// The name that protoc gives a field in JSON.
fn to_lower_camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        out.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        out.push_str(letters.as_str());
    }
    out
}

/// Depth of additional bindings. They must not have further ones themselves (`google/api/http.proto`), but a server may
/// describe itself with any bytes.
const MAX_BINDING_DEPTH: usize = 8;

/// A serialized `google.api.HttpRule` in the text format; `None` if it is malformed or nested too deeply.
fn rule_text(rule: &[u8], depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    let (mut reader, mut parts) = (Reader::new(rule), Vec::new());
    while !reader.is_empty() {
        let (number, wire) = reader.tag()?;
        if wire != WireType::Bytes {
            reader.skip(number, wire)?;
            continue;
        }
        let bytes = reader.bytes()?;
        let text = || std::str::from_utf8(bytes).ok().map(quote);
        parts.push(match number {
            2 => format!("get: {}", text()?),
            3 => format!("put: {}", text()?),
            4 => format!("post: {}", text()?),
            5 => format!("delete: {}", text()?),
            6 => format!("patch: {}", text()?),
            7 => format!("body: {}", text()?),
            8 => format!("custom {{ {} }}", pattern_text(bytes)?),
            11 => format!("additional_bindings {{ {} }}", rule_text(bytes, depth)?),
            12 => format!("response_body: {}", text()?),
            _ => continue,
        });
    }
    Some(parts.join(" "))
}

/// A serialized `google.api.CustomHttpPattern` in the text format.
fn pattern_text(pattern: &[u8]) -> Option<String> {
    let (mut reader, mut parts) = (Reader::new(pattern), Vec::new());
    while !reader.is_empty() {
        match reader.tag()? {
            (1, WireType::Bytes) => {
                parts.push(format!("kind: {}", quote(std::str::from_utf8(reader.bytes()?).ok()?)))
            }
            (2, WireType::Bytes) => {
                parts.push(format!("path: {}", quote(std::str::from_utf8(reader.bytes()?).ok()?)))
            }
            (number, wire) => reader.skip(number, wire)?,
        }
    }
    Some(parts.join(" "))
}

/// A string in the syntax of a `.proto`.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\n' => out.push_str("\\n"),
            control if control.is_ascii_control() => out.push_str(&format!("\\{:03o}", control as u32)),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

#[cfg(test)]
mod tests;
