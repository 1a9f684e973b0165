//! A compiled type: its literal, its code, and the encoding of each of its parts.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use serde_core::de::DeserializeOwned;

use super::types::{Character, Layout, Placement, Scalar, Struct, Type};
use super::{Error, MAX_TYPE_DEPTH, fast, head, literal};

/// A [`Type`] compiled for encoding and decoding its values.
#[derive(Debug)]
pub struct Plan {
    ty: Type,
    literal: Box<[u8]>,
    code: u32,
    nodes: Box<[Node]>,
}

impl Plan {
    /// Compiles a type.
    ///
    /// # Errors
    ///
    /// [`Error::Type`] if it directly contains itself, or if peers cannot compile it: a struct without members, an
    /// array without items.
    pub fn new(ty: Type) -> Result<Self, Error> {
        let nodes = Compiler::default().compile(&ty)?;
        let literal = ty.literal().into_boxed_slice();
        let code = literal::code(&literal);
        Ok(Self { ty, literal, code, nodes })
    }

    /// Compiles the type of a Rust type, once per thread.
    ///
    /// # Errors
    ///
    /// See [`Type::for_type`].
    pub fn for_type<T: DeserializeOwned + 'static>() -> Result<Arc<Self>, Error> {
        thread_local! {
            static PLANS: RefCell<HashMap<TypeId, Result<Arc<Plan>, Error>>> = RefCell::default();
        }
        let known = PLANS.with_borrow(|plans| plans.get(&TypeId::of::<T>()).cloned());
        known.unwrap_or_else(|| {
            let plan = Type::for_type::<T>().and_then(Self::new).map(Arc::new);
            PLANS.with_borrow_mut(|plans| plans.insert(TypeId::of::<T>(), plan.clone()));
            plan
        })
    }

    /// Compiles the type whose literal precedes the value in these bytes; `None` if the writer omitted it.
    ///
    /// # Errors
    ///
    /// [`Error::Truncated`] if the bytes are too short, otherwise see [`Type::from_literal`] and [`Plan::new`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let Some(literal) = head::read(bytes)?.literal else { return Ok(None) };
        Type::from_literal(literal).and_then(Self::new).map(Some)
    }

    /// Returns the type.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Returns its literal.
    pub fn literal(&self) -> &[u8] {
        &self.literal
    }

    /// Returns its code, which precedes every value of it.
    pub fn code(&self) -> u32 {
        self.code
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id.0]
    }
}

/// Index of a node in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(usize);

impl Id {
    pub(super) const ROOT: Self = Self(0);
}

/// A part of a type, and its encoding.
#[derive(Debug)]
pub(super) enum Node {
    /// Nothing, or one byte in a memory image.
    Unit {
        size: usize,
    },
    Scalar(Scalar),
    String(Character),
    Array {
        item: Id,
        count: usize,
        min_size: usize,
    },
    /// A list or a set; an item takes at least `min_size` bytes.
    List {
        item: Id,
        min_size: usize,
    },
    Map {
        entry: [Member; 2],
        min_size: usize,
    },
    Optional(Id),
    Variant(Box<[Id]>),
    Expected {
        value: Id,
        error: Id,
    },
    /// Its members, and the integers that precede them.
    Struct {
        members: Box<[Member]>,
        fast: Box<[Scalar]>,
    },
}

/// A member of a struct, and the padding after it in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) id: Id,
    pub(super) gap: usize,
}

#[derive(Default)]
struct Compiler {
    /// `None` while the parts of a node are being compiled.
    nodes: Vec<Option<Node>>,
    /// Enclosing nodes, outermost first, and whether recursion may end there: an empty list, an absent value.
    around: Vec<(Id, bool)>,
}

impl Compiler {
    fn compile(mut self, ty: &Type) -> Result<Box<[Node]>, Error> {
        self.node(ty, false)?;
        let mut nodes: Vec<_> =
            self.nodes.into_iter().map(|node| node.expect("every node is compiled")).collect();
        let sizes: Vec<_> = nodes.iter().map(|node| node.min_item_size(&nodes)).collect();
        for (node, size) in nodes.iter_mut().zip(sizes) {
            if let Node::Array { min_size, .. } | Node::List { min_size, .. } | Node::Map { min_size, .. } =
                node
            {
                *min_size = size;
            }
        }
        Ok(nodes.into())
    }

    /// `image`: the value is encoded as its memory image.
    fn node(&mut self, ty: &Type, image: bool) -> Result<Id, Error> {
        if let Type::Recursive(levels) = ty {
            return self.ancestor(*levels);
        }
        if self.around.len() >= MAX_TYPE_DEPTH {
            return Err(Error::TooDeep);
        }
        let id = Id(self.nodes.len());
        self.nodes.push(None);
        self.around.push((id, may_end(ty)));
        let node = self.parts(ty, image)?;
        self.around.pop();
        self.nodes[id.0] = Some(node);
        Ok(id)
    }

    fn parts(&mut self, ty: &Type, image: bool) -> Result<Node, Error> {
        let min_size = 0;
        Ok(match ty {
            Type::Unit => Node::Unit { size: image.into() },
            Type::Scalar(scalar) if scalar.is_fast() => {
                return Err(Error::ty("an integer before its struct has no struct"));
            }
            Type::Scalar(scalar) => Node::Scalar(*scalar),
            Type::String(character) => Node::String(*character),
            Type::Array(_, 0) => return Err(Error::ty("an array has no items")),
            Type::Array(item, count) => {
                let id = self.node(item, item.layout().is_some())?;
                Node::Array { item: id, count: *count, min_size }
            }
            Type::List(item) => Node::List { item: self.node(item, item.layout().is_some())?, min_size },
            // Unlike those of a vector, the items of a set are not contiguous in memory.
            Type::Set(item) => Node::List { item: self.node(item, false)?, min_size },
            Type::Map(key, value) => Node::Map { entry: self.entry(key, value)?, min_size },
            Type::Optional(value) => Node::Optional(self.node(value, false)?),
            Type::Variant(alternatives) => Node::Variant(self.alternatives(alternatives)?),
            Type::Expected(value, error) => {
                Node::Expected { value: self.node(value, false)?, error: self.node(error, false)? }
            }
            Type::Struct(this) => {
                Node::Struct { members: self.members(this)?, fast: fast::scalars(&this.members) }
            }
            Type::Recursive(_) => unreachable!("it is no node of its own"),
        })
    }

    fn alternatives(&mut self, alternatives: &[Type]) -> Result<Box<[Id]>, Error> {
        if !(1..=255).contains(&alternatives.len()) {
            return Err(Error::ty("a variant has 1 to 255 alternatives"));
        }
        alternatives.iter().map(|alternative| self.node(alternative, false)).collect()
    }

    fn members(&mut self, this: &Struct) -> Result<Box<[Member]>, Error> {
        if this.members.is_empty() {
            return Err(Error::ty("a struct has no members"));
        }
        let placement = this.placement();
        let gaps = placement.as_ref().map_or(&[][..], |placement| &placement.gaps);
        let gaps = gaps.iter().copied().chain(std::iter::repeat(0));
        let members = this.members.iter().zip(gaps);
        members.map(|(ty, gap)| Ok(Member { id: self.member(ty, placement.is_some())?, gap })).collect()
    }

    fn member(&mut self, ty: &Type, image: bool) -> Result<Id, Error> {
        match ty {
            Type::Scalar(scalar) if scalar.is_fast() => {
                self.nodes.push(Some(Node::Scalar(*scalar)));
                Ok(Id(self.nodes.len() - 1))
            }
            _ => self.node(ty, image),
        }
    }

    /// Peers encode the entries of a map as `std::pair`, which may be a memory image with padding.
    fn entry(&mut self, key: &Type, value: &Type) -> Result<[Member; 2], Error> {
        let layouts = key.layout().zip(value.layout());
        let placement = layouts.and_then(|(key, value)| pair_placement(key, value));
        let gap =
            |at: usize| placement.as_ref().and_then(|placement| placement.gaps.get(at)).copied().unwrap_or(0);
        Ok([
            Member { id: self.node(key, placement.is_some())?, gap: gap(0) },
            Member { id: self.node(value, placement.is_some())?, gap: gap(1) },
        ])
    }

    fn ancestor(&self, levels: usize) -> Result<Id, Error> {
        let steps = levels.checked_add(2).ok_or_else(|| Error::ty("a type refers to an undefined type"))?;
        let at = self
            .around
            .len()
            .checked_sub(steps)
            .ok_or_else(|| Error::ty("a type refers to an undefined type"))?;
        match self.around.get(at..) {
            Some(between @ [(ancestor, _), ..]) if between.iter().any(|(_, may_end)| *may_end) => {
                Ok(*ancestor)
            }
            _ => Err(Error::ty("a type contains itself without end")),
        }
    }
}

fn pair_placement(key: Layout, value: Layout) -> Option<Placement> {
    let align = key.align.max(value.align);
    Placement::new(&[key, value], align, align)
}

/// Whether a value of the type may lack some or all of its parts.
fn may_end(ty: &Type) -> bool {
    match ty {
        Type::List(_)
        | Type::Set(_)
        | Type::Map(..)
        | Type::Optional(_)
        | Type::Variant(_)
        | Type::Expected(..) => true,
        Type::Unit
        | Type::Scalar(_)
        | Type::String(_)
        | Type::Array(..)
        | Type::Struct(_)
        | Type::Recursive(_) => false,
    }
}

impl Node {
    /// Returns its description for error texts.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::Unit { .. } => "nothing",
            Self::Scalar(scalar) => scalar.as_str(),
            Self::String(_) => "a string",
            Self::Array { .. } => "an array",
            Self::List { .. } => "a list",
            Self::Map { .. } => "a map",
            Self::Optional(_) => "an optional value",
            Self::Variant(_) => "a variant",
            Self::Expected { .. } => "a value or an error",
            Self::Struct { .. } => "a struct",
        }
    }

    /// Returns the minimum number of bytes of its repeated part.
    fn min_item_size(&self, nodes: &[Self]) -> usize {
        match self {
            Self::Array { item, .. } | Self::List { item, .. } => nodes[item.0].min_size(nodes),
            Self::Map { entry, .. } => min_size_of(entry, nodes),
            _ => 0,
        }
    }

    /// Returns its minimum number of bytes. This terminates: every recursion contains a node that takes one.
    fn min_size(&self, nodes: &[Self]) -> usize {
        match self {
            Self::Unit { size } => *size,
            Self::Scalar(scalar) if scalar.is_fast() => 0,
            Self::Scalar(scalar) => scalar.size().unwrap_or(1),
            Self::Array { item, count, .. } => nodes[item.0].min_size(nodes).saturating_mul(*count),
            Self::Struct { members, .. } => min_size_of(members, nodes),
            Self::String(_)
            | Self::List { .. }
            | Self::Map { .. }
            | Self::Optional(_)
            | Self::Variant(_)
            | Self::Expected { .. } => 1,
        }
    }
}

fn min_size_of(members: &[Member], nodes: &[Node]) -> usize {
    members.iter().fold(0, |sum: usize, member| {
        sum.saturating_add(nodes[member.id.0].min_size(nodes)).saturating_add(member.gap)
    })
}
