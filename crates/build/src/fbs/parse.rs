//! Parser: from tokens to declarations.

use super::ast::{
    Attribute, Declared, EnumDecl, FieldDecl, Head, Literal, Located, MethodDecl, Object, ServiceDecl,
    TypeDecl, TypeKind, Value, ValueDecl,
};
use super::lex::{self, Kind, SyntaxError, Token};
use crate::error::Position;

/// Parses the declarations of a file.
pub(super) fn parse(text: &str) -> Result<Declared, SyntaxError> {
    let tokens = lex::tokens(text)?;
    let mut parser = Parser { tokens, next: 0, namespace: String::new(), declared: Declared::default() };
    while parser.peek().kind != Kind::End {
        parser.declaration()?;
    }
    Ok(parser.declared)
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
    namespace: String,
    declared: Declared,
}

impl Parser {
    fn declaration(&mut self) -> Result<(), SyntaxError> {
        let docs = self.peek().docs.clone();
        let keyword = self.name("a declaration")?;
        match keyword.value.as_str() {
            "include" => {
                let file = self.text()?;
                self.declared.includes.push(file);
                self.expect_symbol(';')
            }
            // Used only by C++.
            "native_include" => self.text().and_then(|_| self.expect_symbol(';')),
            "namespace" => {
                self.namespace = if self.is_at_symbol(';') { String::new() } else { self.path()?.value };
                self.expect_symbol(';')
            }
            "attribute" => {
                let name = match self.peek().kind {
                    Kind::Text(_) => self.text()?,
                    _ => self.name("an attribute's name")?,
                };
                self.declared.attributes.push(name.value);
                self.expect_symbol(';')
            }
            "table" => self.object(docs, false),
            "struct" => self.object(docs, true),
            "enum" => self.enumeration(docs, false),
            "union" => self.enumeration(docs, true),
            "rpc_service" => self.service(docs),
            "root_type" => {
                let root = self.path()?;
                self.declared.root = Some((root, self.namespace.clone()));
                self.expect_symbol(';')
            }
            "file_identifier" => {
                self.declared.identifier = Some(self.text()?);
                self.expect_symbol(';')
            }
            "file_extension" => {
                self.declared.extension = Some(self.text()?.value);
                self.expect_symbol(';')
            }
            "proto_option" | "message" | "option" | "import" => {
                let reason = format!("`{}` belongs in a .proto file, and this is a .fbs file", keyword.value);
                Err(syntax_error(keyword.at, reason))
            }
            other => Err(syntax_error(keyword.at, format!("unknown declaration `{other}`"))),
        }
    }

    fn object(&mut self, docs: Vec<String>, fixed: bool) -> Result<(), SyntaxError> {
        let head = self.head(docs)?;
        self.expect_symbol('{')?;
        let mut fields = Vec::new();
        while !self.take_symbol('}') {
            fields.push(self.field()?);
        }
        self.declared.objects.push(Object { head, fixed, fields });
        Ok(())
    }

    fn field(&mut self) -> Result<FieldDecl, SyntaxError> {
        let docs = self.peek().docs.clone();
        let name = self.name("a field's name or `}`")?;
        self.expect_symbol(':')?;
        let ty = self.ty()?;
        let default = if self.take_symbol('=') { Some(self.literal()?) } else { None };
        let attributes = self.attributes()?;
        self.expect_symbol(';')?;
        Ok(FieldDecl { docs, name, ty, default, attributes })
    }

    fn ty(&mut self) -> Result<TypeDecl, SyntaxError> {
        self.nested_ty(MAX_TYPE_DEPTH)
    }

    /// Parses a type with at most this number of vectors and arrays in each other.
    fn nested_ty(&mut self, depth: usize) -> Result<TypeDecl, SyntaxError> {
        let at = self.peek().at;
        if !self.take_symbol('[') {
            let path = self.path()?;
            return Ok(TypeDecl { at, kind: TypeKind::Named(path.value) });
        }
        let Some(depth) = depth.checked_sub(1) else {
            return Err(syntax_error(at, "vectors are nested too deeply".to_owned()));
        };
        let element = Box::new(self.nested_ty(depth)?);
        let kind = match self.take_symbol(':') {
            true => TypeKind::Array(element, self.literal()?),
            false => TypeKind::Vector(element),
        };
        self.expect_symbol(']')?;
        Ok(TypeDecl { at, kind })
    }

    fn enumeration(&mut self, docs: Vec<String>, union: bool) -> Result<(), SyntaxError> {
        let name = self.name("a name")?;
        let base = if self.take_symbol(':') { Some(self.ty()?) } else { None };
        let attributes = self.attributes()?;
        let head = Head { docs, name, namespace: self.namespace.clone(), attributes };
        self.expect_symbol('{')?;
        let mut values = Vec::new();
        while !self.take_symbol('}') {
            values.push(self.value(union)?);
            if !self.take_symbol(',') {
                self.expect_symbol('}')?;
                break;
            }
        }
        self.declared.enums.push(EnumDecl { head, union, base, values });
        Ok(())
    }

    fn value(&mut self, union: bool) -> Result<ValueDecl, SyntaxError> {
        let docs = self.peek().docs.clone();
        let name = if union { self.path()? } else { self.name("a value's name or `}`")? };
        let ty = if union && self.take_symbol(':') { Some(self.ty()?) } else { None };
        let value = if self.take_symbol('=') { Some(self.literal()?) } else { None };
        // They do not affect readers and writers.
        self.attributes()?;
        Ok(ValueDecl { docs, name, ty, value })
    }

    fn service(&mut self, docs: Vec<String>) -> Result<(), SyntaxError> {
        let head = self.head(docs)?;
        self.expect_symbol('{')?;
        let mut methods = Vec::new();
        while !self.take_symbol('}') {
            methods.push(self.method()?);
        }
        self.declared.services.push(ServiceDecl { head, methods });
        Ok(())
    }

    fn method(&mut self) -> Result<MethodDecl, SyntaxError> {
        let docs = self.peek().docs.clone();
        let name = self.name("a method's name or `}`")?;
        self.expect_symbol('(')?;
        let request = self.path()?;
        self.expect_symbol(')')?;
        self.expect_symbol(':')?;
        let response = self.path()?;
        let attributes = self.attributes()?;
        self.expect_symbol(';')?;
        Ok(MethodDecl { docs, name, request, response, attributes })
    }

    fn head(&mut self, docs: Vec<String>) -> Result<Head, SyntaxError> {
        let name = self.name("a name")?;
        let attributes = self.attributes()?;
        Ok(Head { docs, name, namespace: self.namespace.clone(), attributes })
    }

    /// Parses `(deprecated, id: 4)`, or nothing.
    fn attributes(&mut self) -> Result<Vec<Attribute>, SyntaxError> {
        let mut attributes = Vec::new();
        if !self.take_symbol('(') {
            return Ok(attributes);
        }
        while !self.take_symbol(')') {
            let name = match self.peek().kind {
                Kind::Text(_) => self.text()?,
                _ => self.name("an attribute or `)`")?,
            };
            let value = if self.take_symbol(':') { Some(self.literal()?) } else { None };
            attributes.push(Attribute { name, value });
            if !self.take_symbol(',') {
                self.expect_symbol(')')?;
                break;
            }
        }
        Ok(attributes)
    }

    fn literal(&mut self) -> Result<Literal, SyntaxError> {
        let Token { kind, at, .. } = self.take();
        let value = match kind {
            Kind::Number(number) => Value::Number(number),
            Kind::Text(text) => Value::Text(text),
            Kind::Word(mut word) => {
                while self.take_symbol('.') {
                    word.push('.');
                    word.push_str(&self.name("a name")?.value);
                }
                Value::Word(word)
            }
            Kind::Symbol('[') => {
                self.expect_symbol(']')?;
                Value::Empty
            }
            Kind::Symbol(sign @ ('-' | '+')) => {
                let sign = if sign == '-' { "-" } else { "" };
                match self.take() {
                    Token { kind: Kind::Number(number), .. } => Value::Number(format!("{sign}{number}")),
                    Token { kind: Kind::Word(word), .. } => Value::Word(format!("{sign}{word}")),
                    other => return Err(unexpected(&other, "a number")),
                }
            }
            kind => return Err(unexpected(&Token { kind, at, docs: Vec::new() }, "a value")),
        };
        Ok(Located { value, at })
    }

    /// `a.b.C`
    fn path(&mut self) -> Result<Located<String>, SyntaxError> {
        let mut path = self.name("a name")?;
        while self.take_symbol('.') {
            path.value.push('.');
            path.value.push_str(&self.name("a name")?.value);
        }
        Ok(path)
    }

    fn name(&mut self, wanted: &str) -> Result<Located<String>, SyntaxError> {
        match self.take() {
            Token { kind: Kind::Word(value), at, .. } => Ok(Located { value, at }),
            other => Err(unexpected(&other, wanted)),
        }
    }

    fn text(&mut self) -> Result<Located<String>, SyntaxError> {
        match self.take() {
            Token { kind: Kind::Text(value), at, .. } => Ok(Located { value, at }),
            other => Err(unexpected(&other, "a string in quotes")),
        }
    }

    fn expect_symbol(&mut self, symbol: char) -> Result<(), SyntaxError> {
        match self.take() {
            token if token.kind == Kind::Symbol(symbol) => Ok(()),
            other => Err(unexpected(&other, &format!("`{symbol}`"))),
        }
    }

    fn take_symbol(&mut self, symbol: char) -> bool {
        let here = self.is_at_symbol(symbol);
        if here {
            self.next += 1;
        }
        here
    }

    fn is_at_symbol(&self, symbol: char) -> bool {
        self.peek().kind == Kind::Symbol(symbol)
    }

    /// Takes a token; the end of the file is never consumed.
    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        if token.kind != Kind::End {
            self.next += 1;
        }
        token
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.next]
    }
}

/// Depth of types. A vector of vectors is an error anyway, but one that is found later, by recursion, too.
const MAX_TYPE_DEPTH: usize = 16;

fn unexpected(token: &Token, wanted: &str) -> SyntaxError {
    syntax_error(token.at, format!("expected {wanted}, not {}", token.kind.describe()))
}

fn syntax_error(at: Position, reason: String) -> SyntaxError {
    SyntaxError { at, reason }
}
