//! From declarations to a [`Schema`]: names become what they name, fields get ids and places, values are checked.

use std::collections::{HashMap, HashSet};

use super::ast::{
    Attribute, EnumDecl, FieldDecl, Literal, MethodDecl, Object, ServiceDecl, Spot, TypeDecl, TypeKind,
    Value, ValueDecl,
};
use super::load::Loaded;
use super::schema::{
    Default, Enum, EnumValue, Field, File, Hash, Member, Method, Scalar, Schema, Service, Struct,
    StructField, Table, Type, Union, full,
};
use crate::Error;
use crate::error::{Kind, Place, Position};

/// Links everything that the files declare.
pub(super) fn resolve(files: Vec<Loaded>) -> Result<Schema, Error> {
    let names = Names::collect(&files)?;
    let mut resolver = Resolver::new(&files, &names);
    resolver.enums()?;
    resolver.structs()?;
    resolver.unions()?;
    resolver.tables()?;
    resolver.services()?;
    resolver.roots()?;
    Ok(resolver.schema)
}

/// What a full name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Table(usize),
    Struct(usize),
    Enum(usize),
    Union(usize),
}

impl Named {
    fn ty(self) -> Type {
        match self {
            Self::Table(at) => Type::Table(at),
            Self::Struct(at) => Type::Struct(at),
            Self::Enum(at) => Type::Enum(at),
            Self::Union(at) => Type::Union(at),
        }
    }
}

/// Every declared name, and the attributes that may be used.
struct Names<'f> {
    types: HashMap<String, Named>,
    attributes: HashSet<&'f str>,
}

impl<'f> Names<'f> {
    fn collect(files: &'f [Loaded]) -> Result<Self, Error> {
        let mut names = Self { types: HashMap::new(), attributes: ATTRIBUTES.into_iter().collect() };
        let (mut tables, mut structs, mut enums, mut unions) = (0.., 0.., 0.., 0..);
        for file in files {
            names.attributes.extend(file.declared.attributes.iter().map(String::as_str));
            for object in &file.declared.objects {
                let named = match object.fixed {
                    true => structs.next().map(Named::Struct),
                    false => tables.next().map(Named::Table),
                };
                names.enter(file, &object.head.namespace, &object.head.name, named)?;
            }
            for decl in &file.declared.enums {
                let named = match decl.union {
                    true => unions.next().map(Named::Union),
                    false => enums.next().map(Named::Enum),
                };
                names.enter(file, &decl.head.namespace, &decl.head.name, named)?;
            }
        }
        Ok(names)
    }

    fn enter(
        &mut self,
        file: &Loaded,
        namespace: &str,
        name: &Spot<String>,
        named: Option<Named>,
    ) -> Result<(), Error> {
        let full = full(namespace, &name.value);
        match named.and_then(|named| self.types.insert(full.clone(), named)) {
            None => Ok(()),
            Some(_) => Err(fail(file, name.at, format!("`{full}` is declared twice"))),
        }
    }

    /// What a name means in a namespace: there, or in one around it.
    fn find(&self, name: &str, namespace: &str) -> Option<Named> {
        let mut namespace = namespace;
        loop {
            if let Some(named) = self.types.get(&full(namespace, name)) {
                return Some(*named);
            }
            if namespace.is_empty() {
                return None;
            }
            namespace = namespace.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }
}

struct Resolver<'f> {
    files: &'f [Loaded],
    names: &'f Names<'f>,
    schema: Schema,
}

impl<'f> Resolver<'f> {
    fn new(files: &'f [Loaded], names: &'f Names<'f>) -> Self {
        let described = files.iter().map(|file| File {
            name: file.name.clone(),
            path: file.path.clone(),
            named: file.named,
            root: None,
            extension: file.declared.extension.clone(),
        });
        let schema = Schema {
            files: described.collect(),
            tables: Vec::new(),
            structs: Vec::new(),
            enums: Vec::new(),
            unions: Vec::new(),
            services: Vec::new(),
        };
        Self { files, names, schema }
    }

    fn objects(&self, fixed: bool) -> Vec<(&'f Loaded, &'f Object)> {
        let all =
            self.files.iter().flat_map(|file| file.declared.objects.iter().map(move |object| (file, object)));
        all.filter(|(_, object)| object.fixed == fixed).collect()
    }

    fn enumerations(&self, union: bool) -> Vec<(&'f Loaded, &'f EnumDecl)> {
        let all = self.files.iter().flat_map(|file| file.declared.enums.iter().map(move |decl| (file, decl)));
        all.filter(|(_, decl)| decl.union == union).collect()
    }

    // ------------------------------------------------------------------ enums and unions

    fn enums(&mut self) -> Result<(), Error> {
        for (file, decl) in self.enumerations(false) {
            let resolved = self.enumeration(file, decl)?;
            self.schema.enums.push(resolved);
        }
        Ok(())
    }

    fn enumeration(&self, file: &Loaded, decl: &EnumDecl) -> Result<Enum, Error> {
        self.check_attributes(file, &decl.head.attributes)?;
        let name = &decl.head.name;
        let Some(base) = &decl.base else {
            return Err(fail(file, name.at, format!("want the type of `{}`: `enum {0} : byte`", name.value)));
        };
        let scalar = match &base.kind {
            TypeKind::Named(named) => {
                scalar(named).filter(|scalar| !scalar.is_float() && *scalar != Scalar::Bool)
            }
            _ => None,
        };
        let scalar = scalar.ok_or_else(|| fail(file, base.at, "an enum is written as an integer".into()))?;
        let bit_flags = has(&decl.head.attributes, "bit_flags");
        let mut values: Vec<EnumValue> = Vec::new();
        let mut next = 0;
        for value in &decl.values {
            let number = match &value.value {
                Some(literal) => integer(file, literal)?,
                None => next,
            };
            next = number + 1;
            values.push(enum_value(file, value, number, scalar, bit_flags)?);
            self.check_unique(file, value, &values)?;
        }
        if values.is_empty() {
            return Err(fail(file, name.at, format!("`{}` has no values", name.value)));
        }
        Ok(Enum {
            docs: decl.head.docs.clone(),
            namespace: decl.head.namespace.clone(),
            name: name.value.clone(),
            base: scalar,
            bit_flags,
            values,
        })
    }

    fn check_unique(&self, file: &Loaded, decl: &ValueDecl, values: &[EnumValue]) -> Result<(), Error> {
        let Some((last, earlier)) = values.split_last() else { return Ok(()) };
        for other in earlier {
            if other.name == last.name {
                return Err(fail(file, decl.name.at, format!("there are two values `{}`", last.name)));
            }
            if other.value == last.value {
                let reason = format!("`{}` and `{}` are the same number", other.name, last.name);
                return Err(fail(file, decl.name.at, reason));
            }
        }
        Ok(())
    }

    fn unions(&mut self) -> Result<(), Error> {
        for (file, decl) in self.enumerations(true) {
            let resolved = self.union(file, decl)?;
            self.schema.unions.push(resolved);
        }
        Ok(())
    }

    fn union(&self, file: &Loaded, decl: &EnumDecl) -> Result<Union, Error> {
        self.check_attributes(file, &decl.head.attributes)?;
        if let Some(base) = &decl.base
            && !matches!(&base.kind, TypeKind::Named(named) if scalar(named) == Some(Scalar::U8))
        {
            return Err(fail(file, base.at, "the type of what a union holds is written as a ubyte".into()));
        }
        let mut members: Vec<Member> = Vec::new();
        let mut next = 1;
        for value in &decl.values {
            let at = value.name.at;
            let number = match &value.value {
                Some(literal) => integer(file, literal)?,
                None => next,
            };
            next = number + 1;
            if value.name.value == "NONE" && number == 0 {
                continue;
            }
            let number = u8::try_from(number).ok().filter(|number| *number > 0);
            let number =
                number.ok_or_else(|| fail(file, at, "a union's types are numbers from 1 to 255".into()))?;
            let ty = match &value.ty {
                Some(ty) => self.ty(file, ty, &decl.head.namespace)?,
                None => self.named(file, &value.name.value, at, &decl.head.namespace)?,
            };
            if !matches!(ty, Type::Table(_) | Type::Struct(_) | Type::Text) {
                return Err(fail(file, at, "a union holds tables, structs and strings".into()));
            }
            let name = value.name.value.replace('.', "_");
            if members.iter().any(|other| other.name == name || other.number == number) {
                return Err(fail(file, at, format!("`{name}` is in the union twice, or its number is")));
            }
            members.push(Member { docs: value.docs.clone(), name, number, ty });
        }
        let head = &decl.head;
        Ok(Union {
            docs: head.docs.clone(),
            namespace: head.namespace.clone(),
            name: head.name.value.clone(),
            members,
        })
    }

    // ------------------------------------------------------------------ structs

    fn structs(&mut self) -> Result<(), Error> {
        let decls = self.objects(true);
        let blank = |(_, decl): &(&Loaded, &Object)| Struct {
            docs: decl.head.docs.clone(),
            namespace: decl.head.namespace.clone(),
            name: decl.head.name.value.clone(),
            fields: Vec::new(),
            size: 0,
            align: 1,
        };
        self.schema.structs = decls.iter().map(blank).collect();
        let mut states = vec![State::Declared; decls.len()];
        (0..decls.len()).try_for_each(|at| self.lay_out(at, &decls, &mut states))
    }

    /// Lays a struct out, after those that it holds.
    fn lay_out(
        &mut self,
        at: usize,
        decls: &[(&'f Loaded, &'f Object)],
        states: &mut [State],
    ) -> Result<(), Error> {
        let (file, decl) = decls[at];
        match states[at] {
            State::Done => return Ok(()),
            State::Begun => {
                let reason = format!("`{}` would hold itself", decl.head.name.value);
                return Err(fail(file, decl.head.name.at, reason));
            }
            State::Declared => states[at] = State::Begun,
        }
        self.check_attributes(file, &decl.head.attributes)?;
        let (mut fields, mut end, mut widest) = (Vec::new(), 0_usize, 1);
        for field in &decl.fields {
            let ty = self.ty(file, &field.ty, &decl.head.namespace)?;
            if let Some(inner) = held_struct(&ty) {
                self.lay_out(inner, decls, states)?;
            }
            let field = self.struct_field(file, field, ty, &fields)?;
            let (size, align) = self.schema.inline(&field.ty);
            let offset = end.next_multiple_of(align);
            (end, widest) = (offset + size, widest.max(align));
            fields.push(StructField { offset, ..field });
        }
        if fields.is_empty() {
            return Err(fail(file, decl.head.name.at, "a struct has at least one field".into()));
        }
        let align = match find(&decl.head.attributes, "force_align") {
            None => widest,
            Some(attribute) => force_align(file, attribute, widest)?,
        };
        let size = end.next_multiple_of(align);
        if size > usize::from(u16::MAX) {
            return Err(fail(file, decl.head.name.at, "a struct is no longer than 65535 bytes".into()));
        }
        self.schema.structs[at] = Struct { fields, size, align, ..self.schema.structs[at].clone() };
        states[at] = State::Done;
        Ok(())
    }

    fn struct_field(
        &self,
        file: &Loaded,
        decl: &FieldDecl,
        ty: Type,
        earlier: &[StructField],
    ) -> Result<StructField, Error> {
        self.check_attributes(file, &decl.attributes)?;
        let at = decl.name.at;
        if earlier.iter().any(|other| other.name == decl.name.value) {
            return Err(fail(file, at, format!("there are two fields `{}`", decl.name.value)));
        }
        let element = match &ty {
            Type::Array(element, _) => element,
            ty => ty,
        };
        if !matches!(element, Type::Scalar(_) | Type::Enum(_) | Type::Struct(_)) {
            return Err(fail(
                file,
                decl.ty.at,
                "a struct holds scalars, enums, structs and arrays of those".into(),
            ));
        }
        if let Some(default) = &decl.default {
            return Err(fail(file, default.at, "a struct's field is always there: it has no default".into()));
        }
        for banned in ["deprecated", "required", "id"] {
            if let Some(attribute) = find(&decl.attributes, banned) {
                return Err(fail(file, attribute.name.at, format!("a struct's field cannot be `{banned}`")));
            }
        }
        Ok(StructField {
            docs: decl.docs.clone(),
            name: decl.name.value.clone(),
            ty,
            offset: 0,
            key: has(&decl.attributes, "key"),
            deprecated: false,
        })
    }

    // ------------------------------------------------------------------ tables

    fn tables(&mut self) -> Result<(), Error> {
        for (file, decl) in self.objects(false) {
            let resolved = self.table(file, decl)?;
            self.schema.tables.push(resolved);
        }
        Ok(())
    }

    fn table(&self, file: &Loaded, decl: &Object) -> Result<Table, Error> {
        self.check_attributes(file, &decl.head.attributes)?;
        let mut fields = Vec::new();
        for field in &decl.fields {
            fields.push(self.field(file, field, &decl.head.namespace)?);
        }
        assign_ids(file, decl, &mut fields)?;
        check_names(file, decl, &fields)?;
        let inline: usize =
            fields.iter().map(|field| self.schema.inline(&field.ty)).map(|(size, align)| size + align).sum();
        if inline > usize::from(u16::MAX) {
            return Err(fail(
                file,
                decl.head.name.at,
                "the fields of a table have no more than 65535 bytes".into(),
            ));
        }
        Ok(Table {
            docs: decl.head.docs.clone(),
            namespace: decl.head.namespace.clone(),
            name: decl.head.name.value.clone(),
            fields,
            original_order: has(&decl.head.attributes, "original_order"),
            identifier: None,
        })
    }

    fn field(&self, file: &Loaded, decl: &FieldDecl, namespace: &str) -> Result<Field, Error> {
        self.check_attributes(file, &decl.attributes)?;
        let ty = self.ty(file, &decl.ty, namespace)?;
        if matches!(ty, Type::Array(..)) {
            return Err(fail(file, decl.ty.at, "only structs have arrays; a table has vectors".into()));
        }
        let key = has(&decl.attributes, "key");
        if key && !matches!(ty, Type::Scalar(_) | Type::Enum(_) | Type::Text) {
            return Err(fail(file, decl.name.at, "a key is a scalar, an enum or a string".into()));
        }
        let scalar = matches!(ty, Type::Scalar(_) | Type::Enum(_));
        let required = find(&decl.attributes, "required");
        if let Some(attribute) = required.filter(|_| scalar || decl.default.is_some()) {
            let reason = "what is required is neither a scalar nor has a default".to_owned();
            return Err(fail(file, attribute.name.at, reason));
        }
        if let Some(attribute) = find(&decl.attributes, "force_align") {
            return Err(fail(file, attribute.name.at, "`force_align` is for structs".into()));
        }
        let default = self.default(file, decl, &ty)?;
        Ok(Field {
            docs: decl.docs.clone(),
            name: decl.name.value.clone(),
            id: 0,
            nested: self.nested(file, decl, &ty, namespace)?,
            hash: hash(file, decl, &ty)?,
            default,
            // flatc: a string that is a key is required.
            required: required.is_some() || key && ty == Type::Text,
            deprecated: has(&decl.attributes, "deprecated"),
            key,
            ty,
        })
    }

    fn nested(
        &self,
        file: &Loaded,
        decl: &FieldDecl,
        ty: &Type,
        namespace: &str,
    ) -> Result<Option<usize>, Error> {
        let Some(attribute) = find(&decl.attributes, "nested_flatbuffer") else { return Ok(None) };
        let at = attribute.name.at;
        if *ty != Type::Vector(Box::new(Type::Scalar(Scalar::U8))) {
            return Err(fail(file, at, "`nested_flatbuffer` is for `[ubyte]`".into()));
        }
        let Some(Spot { value: Value::Text(name), at }) = &attribute.value else {
            return Err(fail(file, at, "want a table: `nested_flatbuffer: \"Monster\"`".into()));
        };
        match self.names.find(name, namespace) {
            Some(Named::Table(table)) => Ok(Some(table)),
            _ => Err(fail(file, *at, format!("there is no table `{name}`"))),
        }
    }

    fn default(&self, file: &Loaded, decl: &FieldDecl, ty: &Type) -> Result<Default, Error> {
        let Some(literal) = &decl.default else { return self.usual_default(file, decl, ty) };
        let wrong = || fail(file, literal.at, "that is no default for the field's type".to_owned());
        match (&literal.value, ty) {
            (Value::Word(word), _) if word == "null" => Ok(Default::None),
            (_, Type::Scalar(scalar)) => scalar_default(file, literal, *scalar),
            (_, Type::Enum(at)) => enum_default(file, literal, &self.schema.enums[*at]),
            (Value::Text(text), Type::Text) => Ok(Default::Text(text.clone())),
            (Value::Empty, Type::Vector(_)) => Ok(Default::Empty),
            _ => Err(wrong()),
        }
    }

    /// What a field is that does not say what it is when it is absent.
    fn usual_default(&self, file: &Loaded, decl: &FieldDecl, ty: &Type) -> Result<Default, Error> {
        match ty {
            Type::Scalar(scalar) if scalar.is_float() => Ok(Default::Float(0.0)),
            Type::Scalar(_) => Ok(Default::Integer(0)),
            Type::Enum(at) => {
                let known = &self.schema.enums[*at];
                if known.bit_flags || known.values.iter().any(|value| value.value == 0) {
                    return Ok(Default::Integer(0));
                }
                let reason = format!("`{}` has no value 0: say which is the default", known.name);
                Err(fail(file, decl.name.at, reason))
            }
            _ => Ok(Default::None),
        }
    }

    // ------------------------------------------------------------------ services, roots

    fn services(&mut self) -> Result<(), Error> {
        let mut known = HashSet::new();
        for (at, file) in self.files.iter().enumerate() {
            for decl in &file.declared.services {
                let service = self.service(file, at, decl)?;
                if !known.insert(service.full_name()) {
                    let reason = format!("`{}` is declared twice", service.full_name());
                    return Err(fail(file, decl.head.name.at, reason));
                }
                self.schema.services.push(service);
            }
        }
        Ok(())
    }

    fn service(&self, file: &Loaded, at: usize, decl: &ServiceDecl) -> Result<Service, Error> {
        self.check_attributes(file, &decl.head.attributes)?;
        let mut methods: Vec<Method> = Vec::new();
        for method in &decl.methods {
            let resolved = self.method(file, method, &decl.head.namespace)?;
            if methods.iter().any(|other| other.name == resolved.name) {
                return Err(fail(file, method.name.at, format!("there are two methods `{}`", resolved.name)));
            }
            if let Some(other) = methods.iter().find(|other| other.id.is_some() && other.id == resolved.id) {
                let reason = format!("`{}` and `{}` have the same id", other.name, resolved.name);
                return Err(fail(file, method.name.at, reason));
            }
            if methods.first().is_some_and(|first| first.id.is_some() != resolved.id.is_some()) {
                let reason = "either every method of a service has an id, or none".to_owned();
                return Err(fail(file, method.name.at, reason));
            }
            methods.push(resolved);
        }
        let head = &decl.head;
        Ok(Service {
            docs: head.docs.clone(),
            namespace: head.namespace.clone(),
            name: head.name.value.clone(),
            methods,
            file: at,
        })
    }

    fn method(&self, file: &Loaded, decl: &MethodDecl, namespace: &str) -> Result<Method, Error> {
        self.check_attributes(file, &decl.attributes)?;
        let table = |name: &Spot<String>| match self.names.find(&name.value, namespace) {
            Some(Named::Table(table)) => Ok(table),
            Some(_) => Err(fail(file, name.at, format!("`{}` is no table", name.value))),
            None => Err(fail(file, name.at, format!("there is no `{}`", name.value))),
        };
        let id = match find(&decl.attributes, "id") {
            None => None,
            Some(attribute) => Some(method_id(file, attribute)?),
        };
        let (client_streams, server_streams) = match find(&decl.attributes, "streaming") {
            None => (false, false),
            Some(attribute) => streaming(file, attribute)?,
        };
        Ok(Method {
            docs: decl.docs.clone(),
            name: decl.name.value.clone(),
            request: table(&decl.request)?,
            response: table(&decl.response)?,
            id,
            client_streams,
            server_streams,
            at: (decl.name.at.line, decl.name.at.column),
        })
    }

    fn roots(&mut self) -> Result<(), Error> {
        for (at, file) in self.files.iter().enumerate() {
            let Some((name, namespace)) = &file.declared.root else {
                if let Some(identifier) = &file.declared.identifier {
                    identifier_of(file, identifier)?;
                }
                continue;
            };
            let Some(Named::Table(table)) = self.names.find(&name.value, namespace) else {
                return Err(fail(file, name.at, format!("there is no table `{}`", name.value)));
            };
            self.schema.files[at].root = Some(table);
            if let Some(identifier) = &file.declared.identifier {
                self.schema.tables[table].identifier = Some(identifier_of(file, identifier)?);
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------------ types and attributes

    fn ty(&self, file: &Loaded, decl: &TypeDecl, namespace: &str) -> Result<Type, Error> {
        match &decl.kind {
            TypeKind::Named(name) => self.named(file, name, decl.at, namespace),
            TypeKind::Vector(element) => match self.ty(file, element, namespace)? {
                Type::Vector(_) | Type::Array(..) => {
                    Err(fail(file, element.at, "a vector of vectors needs a table between them".into()))
                }
                element => Ok(Type::Vector(Box::new(element))),
            },
            TypeKind::Array(element, count) => {
                let len = integer(file, count)?;
                let len = u16::try_from(len).ok().filter(|len| *len > 0);
                let len =
                    len.ok_or_else(|| fail(file, count.at, "an array has 1 to 65535 elements".into()))?;
                match self.ty(file, element, namespace)? {
                    Type::Vector(_) | Type::Array(..) => {
                        Err(fail(file, element.at, "an array of arrays needs a struct between them".into()))
                    }
                    element => Ok(Type::Array(Box::new(element), len)),
                }
            }
        }
    }

    fn named(&self, file: &Loaded, name: &str, at: Position, namespace: &str) -> Result<Type, Error> {
        if name == "string" {
            return Ok(Type::Text);
        }
        if let Some(scalar) = scalar(name) {
            return Ok(Type::Scalar(scalar));
        }
        let found = self.names.find(name, namespace).map(Named::ty);
        found.ok_or_else(|| fail(file, at, format!("there is no type `{name}`")))
    }

    fn check_attributes(&self, file: &Loaded, attributes: &[Attribute]) -> Result<(), Error> {
        for attribute in attributes {
            let name = &attribute.name;
            if !self.names.attributes.contains(name.value.as_str()) {
                let reason =
                    format!("there is no attribute `{0}`; declare yours: `attribute \"{0}\";`", name.value);
                return Err(fail(file, name.at, reason));
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    Declared,
    Begun,
    Done,
}

fn held_struct(ty: &Type) -> Option<usize> {
    match ty {
        Type::Struct(at) => Some(*at),
        Type::Array(element, _) => held_struct(element),
        _ => None,
    }
}

/// Gives every field its id: in order, or as the schema says.
fn assign_ids(file: &Loaded, decl: &Object, fields: &mut [Field]) -> Result<(), Error> {
    let given = decl.fields.iter().filter(|field| has(&field.attributes, "id")).count();
    let mut next: u16 = 0;
    for (field, decl) in fields.iter_mut().zip(&decl.fields) {
        let at = decl.name.at;
        let union = holds_unions(&field.ty);
        if given == 0 {
            field.id = next + u16::from(union);
        } else {
            let Some(attribute) = find(&decl.attributes, "id") else {
                return Err(fail(file, at, "either every field of a table has an id, or none".into()));
            };
            let id = attribute.value.as_ref().map(|literal| integer(file, literal)).transpose()?;
            let id = id.and_then(|id| u16::try_from(id).ok()).filter(|id| *id >= u16::from(union));
            field.id = id
                .ok_or_else(|| fail(file, attribute.name.at, "want an id from 0, a union's from 1".into()))?;
        }
        next = next.saturating_add(1 + u16::from(union));
        if next > MOST_FIELDS {
            return Err(fail(file, at, "the table has too many fields".into()));
        }
    }
    fields.sort_by_key(|field| field.id);
    let mut wanted = 0;
    for field in fields.iter() {
        wanted += u16::from(holds_unions(&field.ty));
        if field.id != wanted {
            let reason =
                format!("the ids have no {wanted}, or have it twice; a union's type has the id before it");
            return Err(fail(file, decl.head.name.at, reason));
        }
        wanted += 1;
    }
    Ok(())
}

/// Whether a field has another before it, for the type.
fn holds_unions(ty: &Type) -> bool {
    match ty {
        Type::Union(_) => true,
        Type::Vector(element) => matches!(**element, Type::Union(_)),
        _ => false,
    }
}

fn check_names(file: &Loaded, decl: &Object, fields: &[Field]) -> Result<(), Error> {
    let mut names: HashSet<String> = HashSet::new();
    let at = |name: &str| {
        decl.fields
            .iter()
            .rev()
            .find(|field| field.name.value == name)
            .map_or(decl.head.name.at, |field| field.name.at)
    };
    for field in fields {
        let own = [Some(field.name.clone()), holds_unions(&field.ty).then(|| format!("{}_type", field.name))];
        for name in own.into_iter().flatten() {
            if !names.insert(name.clone()) {
                return Err(fail(file, at(&field.name), format!("there are two fields `{name}`")));
            }
        }
    }
    if fields.iter().filter(|field| field.key).count() > 1 {
        return Err(fail(file, decl.head.name.at, "a table has one key at most".into()));
    }
    Ok(())
}

fn enum_value(
    file: &Loaded,
    decl: &ValueDecl,
    number: i128,
    base: Scalar,
    bit_flags: bool,
) -> Result<EnumValue, Error> {
    let value = match bit_flags {
        false => number,
        true => {
            let bit = u32::try_from(number).ok().filter(|bit| *bit < 8 * base.size() as u32);
            let bit = bit.ok_or_else(|| fail(file, decl.name.at, "the type has no such bit".into()))?;
            let value = 1_i128 << bit;
            // The highest bit of a signed type is its sign.
            let (_, most) = base.range().unwrap_or((0, 1));
            if value > most { value - (1 << (8 * base.size())) } else { value }
        }
    };
    let (least, most) = base.range().unwrap_or((0, 1));
    if value < least || value > most {
        return Err(fail(file, decl.name.at, format!("{value} is no value of the type")));
    }
    Ok(EnumValue { docs: decl.docs.clone(), name: decl.name.value.clone(), value })
}

fn scalar_default(file: &Loaded, literal: &Literal, scalar: Scalar) -> Result<Default, Error> {
    let wrong = |reason: &str| fail(file, literal.at, reason.to_owned());
    match (scalar, &literal.value) {
        (Scalar::Bool, Value::Word(word)) if word == "true" => Ok(Default::Integer(1)),
        (Scalar::Bool, Value::Word(word)) if word == "false" => Ok(Default::Integer(0)),
        (Scalar::Bool, _) => Ok(Default::Integer(i128::from(integer(file, literal)? != 0))),
        (Scalar::F32 | Scalar::F64, value) => {
            float(value).map(Default::Float).ok_or_else(|| wrong("want a number"))
        }
        (_, _) => {
            let value = integer(file, literal)?;
            let (least, most) = scalar.range().unwrap_or_default();
            match value >= least && value <= most {
                true => Ok(Default::Integer(value)),
                false => Err(wrong("the type has no such number")),
            }
        }
    }
}

fn enum_default(file: &Loaded, literal: &Literal, known: &Enum) -> Result<Default, Error> {
    let wrong = |name: &str| fail(file, literal.at, format!("`{}` has no value {name}", known.name));
    let value = |name: &str| {
        let own = name.strip_prefix(&known.name).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
        known.values.iter().find(|value| value.name == own).map(|value| value.value)
    };
    let value = match &literal.value {
        Value::Word(word) => value(word).ok_or_else(|| wrong(word))?,
        Value::Text(words) => {
            let flags = words.split_whitespace().map(|word| value(word).ok_or_else(|| wrong(word)));
            flags.reduce(|set, flag| Ok(set? | flag?)).unwrap_or(Ok(0))?
        }
        _ => {
            let number = integer(file, literal)?;
            let (least, most) = known.base.range().unwrap_or_default();
            let declared = known.values.iter().any(|value| value.value == number);
            if !(declared || known.bit_flags && number >= least && number <= most) {
                return Err(wrong(&number.to_string()));
            }
            number
        }
    };
    Ok(Default::Integer(value))
}

fn hash(file: &Loaded, decl: &FieldDecl, ty: &Type) -> Result<Option<Hash>, Error> {
    let Some(attribute) = find(&decl.attributes, "hash") else { return Ok(None) };
    let Some(Value::Text(name)) = attribute.value.as_ref().map(|literal| &literal.value) else {
        return Err(fail(file, attribute.name.at, "want a function: `hash: \"fnv1a_32\"`".into()));
    };
    let (function, bits) = name.rsplit_once('_').unwrap_or((name, ""));
    let hash = match (function, bits.parse()) {
        ("fnv1", Ok(bits @ (16 | 32 | 64))) => Some(Hash { bits, alternate: false }),
        ("fnv1a", Ok(bits @ (16 | 32 | 64))) => Some(Hash { bits, alternate: true }),
        _ => None,
    };
    let hash =
        hash.ok_or_else(|| fail(file, attribute.name.at, format!("there is no hash function `{name}`")))?;
    let fits = match ty {
        Type::Scalar(scalar) => !scalar.is_float() && scalar.size() * 8 == usize::from(hash.bits),
        Type::Vector(element) => {
            matches!(&**element, Type::Scalar(scalar) if !scalar.is_float() && scalar.size() * 8 == usize::from(hash.bits))
        }
        _ => false,
    };
    match fits {
        true => Ok(Some(hash)),
        false => {
            Err(fail(file, attribute.name.at, format!("`{name}` wants an integer of {} bits", hash.bits)))
        }
    }
}

fn force_align(file: &Loaded, attribute: &Attribute, natural: usize) -> Result<usize, Error> {
    let align = attribute.value.as_ref().map(|literal| integer(file, literal)).transpose()?;
    let align = align.and_then(|align| usize::try_from(align).ok());
    let fits = |align: &usize| align.is_power_of_two() && *align >= natural && *align <= MOST_ALIGNED;
    align.filter(fits).ok_or_else(|| {
        let reason = format!("want a power of two from {natural} to {MOST_ALIGNED}");
        fail(file, attribute.name.at, reason)
    })
}

fn method_id(file: &Loaded, attribute: &Attribute) -> Result<u32, Error> {
    let id = attribute.value.as_ref().map(|literal| integer(file, literal)).transpose()?;
    let id = id.and_then(|id| i32::try_from(id).ok()).and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| fail(file, attribute.name.at, "want an id from 0 to 2147483647".into()))
}

fn streaming(file: &Loaded, attribute: &Attribute) -> Result<(bool, bool), Error> {
    match attribute.value.as_ref().map(|literal| &literal.value) {
        Some(Value::Text(text)) if text == "none" => Ok((false, false)),
        Some(Value::Text(text)) if text == "client" => Ok((true, false)),
        Some(Value::Text(text)) if text == "server" => Ok((false, true)),
        Some(Value::Text(text)) if text == "bidi" => Ok((true, true)),
        _ => Err(fail(file, attribute.name.at, "want \"none\", \"client\", \"server\" or \"bidi\"".into())),
    }
}

fn identifier_of(file: &Loaded, identifier: &Spot<String>) -> Result<[u8; 4], Error> {
    let bytes = <[u8; 4]>::try_from(identifier.value.as_bytes());
    bytes.map_err(|_| fail(file, identifier.at, "a file's identifier has four letters".into()))
}

fn integer(file: &Loaded, literal: &Literal) -> Result<i128, Error> {
    let parsed = match &literal.value {
        Value::Number(number) => parse_integer(number),
        Value::Text(number) => parse_integer(number.trim()),
        Value::Word(word) if word == "true" => Some(1),
        Value::Word(word) if word == "false" => Some(0),
        _ => None,
    };
    parsed.ok_or_else(|| fail(file, literal.at, "want an integer".into()))
}

fn parse_integer(number: &str) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number),
    };
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    Some(if negative { -i128::from(value) } else { value.into() })
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => parse_integer(number)
            .map(|integer| integer as f64)
            .or_else(|| hexadecimal_float(number))
            .or_else(|| number.parse().ok()),
        Value::Word(word) => match word.as_str() {
            "nan" => Some(f64::NAN),
            "-nan" => Some(-f64::NAN),
            "inf" | "infinity" => Some(f64::INFINITY),
            "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        Value::Text(_) | Value::Empty => None,
    }
}

/// `0x1.8p1`, as C writes it.
fn hexadecimal_float(number: &str) -> Option<f64> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, number),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    let (mantissa, exponent) = digits.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa = format!("{whole}{fraction}")
        .chars()
        .try_fold(0.0, |sum, c| c.to_digit(16).map(|digit| sum * 16.0 + f64::from(digit)))?;
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    Some(sign * mantissa * 2.0_f64.powi(exponent))
}

fn scalar(name: &str) -> Option<Scalar> {
    Some(match name {
        "bool" => Scalar::Bool,
        "byte" | "int8" => Scalar::I8,
        "ubyte" | "uint8" => Scalar::U8,
        "short" | "int16" => Scalar::I16,
        "ushort" | "uint16" => Scalar::U16,
        "int" | "int32" => Scalar::I32,
        "uint" | "uint32" => Scalar::U32,
        "long" | "int64" => Scalar::I64,
        "ulong" | "uint64" => Scalar::U64,
        "float" | "float32" => Scalar::F32,
        "double" | "float64" => Scalar::F64,
        _ => return None,
    })
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    find(attributes, name).is_some()
}

fn find<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Attribute> {
    attributes.iter().find(|attribute| attribute.name.value == name)
}

#[cold]
fn fail(file: &Loaded, at: Position, reason: String) -> Error {
    Kind::Schema { at: Place::new(&file.name, at), reason }.into()
}

/// What flatc knows without a declaration (flatbuffers `idl.h`, `known_attributes_`), whether or not it means
/// anything here.
const ATTRIBUTES: [&str; 28] = [
    "bit_flags",
    "cpp_ptr_type",
    "cpp_ptr_type_get",
    "cpp_str_flex_ctor",
    "cpp_str_type",
    "cpp_type",
    "csharp_partial",
    "deprecated",
    "flexbuffer",
    "force_align",
    "hash",
    "id",
    "idempotent",
    "key",
    "native_custom_alloc",
    "native_default",
    "native_inline",
    "native_type",
    "native_type_pack_name",
    "nested_flatbuffer",
    "offset64",
    "original_order",
    "private",
    "python_disable_type_annotation",
    "required",
    "shared",
    "streaming",
    "vector64",
];

/// A vtable counts its own bytes in 16 bits.
const MOST_FIELDS: u16 = 32_766;

/// As flatc allows.
const MOST_ALIGNED: usize = 256;
