use std::mem::size_of;

/// A type of struct_pack, which is a C++ type.
///
/// [`Type::for_type`] returns the type of a Rust type; [`str::parse`] parses C++ names, and [`Type::from_literal`] the
/// literal that peers put before a value.
///
/// ```
/// use polyrpc_payload::struct_pack::Type;
///
/// let ty: Type = "tuple<int32, vector<string>>".parse()?;
/// assert_eq!(ty, Type::for_type::<(i32, Vec<String>)>()?);
/// # Ok::<(), polyrpc_payload::struct_pack::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// `std::monostate`, or `void` within `expected`.
    Unit,
    /// A number, a boolean, or a character.
    Scalar(Scalar),
    /// `std::string` and similar types.
    String(Character),
    /// `std::array`, or a C array, with its number of items.
    Array(Box<Self>, usize),
    /// `std::vector` and other containers.
    List(Box<Self>),
    /// `std::set` and similar types.
    Set(Box<Self>),
    /// `std::map` and similar types: of keys and values.
    Map(Box<Self>, Box<Self>),
    /// `std::optional` or `std::unique_ptr`.
    Optional(Box<Self>),
    /// `std::variant`.
    Variant(Vec<Self>),
    /// `std::expected`: of a value or an error.
    Expected(Box<Self>, Box<Self>),
    /// A struct, `std::pair` or `std::tuple`.
    Struct(Struct),
    /// A recursive reference to the type this many levels further out than the enclosing one: 0 is the type that
    /// contains the enclosing type.
    Recursive(usize),
}

impl Type {
    /// Creates a `std::tuple` of these types.
    pub fn tuple(members: Vec<Self>) -> Self {
        Self::Struct(Struct { members, image: Image::Never, id: None })
    }

    /// Creates a struct with members of these types.
    pub fn structure(members: Vec<Self>) -> Self {
        Self::Struct(Struct { members, image: Image::Natural, id: None })
    }

    /// Whether it is `std::tuple`, like a list of arguments.
    pub fn is_tuple(&self) -> bool {
        matches!(self, Self::Struct(Struct { image: Image::Never, id: None, .. }))
    }

    /// Whether rest_rpc sends it as a text when it is the only value: a number, a boolean, a character or a string.
    pub fn is_basic(&self) -> bool {
        match self {
            Self::Scalar(scalar) => scalar.size().is_some(),
            Self::String(Character::Char) => true,
            Self::Array(item, _) => **item == Self::Scalar(Scalar::Char),
            _ => false,
        }
    }

    /// Returns the memory layout of a value, if it is encoded as its memory image ("trivially serializable").
    pub(super) fn layout(&self) -> Option<Layout> {
        match self {
            Self::Unit => Some(Layout { size: 1, align: 1 }),
            Self::Scalar(scalar) => scalar.size().map(|size| Layout { size, align: size }),
            Self::Array(item, count) => {
                let Layout { size, align } = item.layout()?;
                Some(Layout { size: size.checked_mul(*count)?, align })
            }
            Self::Struct(this) => this.placement().map(|placement| placement.layout),
            Self::String(_)
            | Self::List(_)
            | Self::Set(_)
            | Self::Map(..)
            | Self::Optional(_)
            | Self::Variant(_)
            | Self::Expected(..)
            | Self::Recursive(_) => None,
        }
    }
}

/// A struct, `std::pair` or `std::tuple`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Struct {
    /// Types of its members, in order.
    pub members: Vec<Type>,
    /// Whether it may be encoded as its memory image.
    pub image: Image,
    /// Number that distinguishes it from structs with the same members (`struct_pack_id`).
    pub id: Option<u64>,
}

impl Struct {
    /// Returns the positions of its members, if it is encoded as its memory image.
    pub(super) fn placement(&self) -> Option<Placement> {
        let layouts = self.members.iter().map(Type::layout).collect::<Option<Vec<_>>>()?;
        let natural = layouts.iter().map(|layout| layout.align).max()?;
        match self.image {
            Image::Never => None,
            Image::Natural => Placement::new(&layouts, natural, natural),
            Image::Packed { pack, align } => Placement::new(&layouts, pack, align),
        }
    }
}

/// Whether a struct is encoded as its memory image, if all its members are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Image {
    /// Member by member: `std::tuple`, and structs that are registered by `YLT_REFL`.
    Never,
    /// With the natural alignment of its members.
    Natural,
    /// With `#pragma pack` or `alignas`.
    Packed {
        /// Maximum alignment of a member in bytes.
        pack: usize,
        /// Alignment of the struct in bytes.
        align: usize,
    },
}

/// Size and alignment of a value in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) size: usize,
    pub(super) align: usize,
}

/// Positions of a struct's members in memory.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) layout: Layout,
    /// Maximum alignment of a member.
    pub(super) pack: usize,
    /// Padding after each member in bytes.
    pub(super) gaps: Vec<usize>,
}

impl Placement {
    /// Computes the positions; `None` if the size overflows.
    pub(super) fn new(members: &[Layout], pack: usize, align: usize) -> Option<Self> {
        let mut gaps = Vec::with_capacity(members.len());
        let mut offset = 0usize;
        for (at, member) in members.iter().enumerate() {
            offset = offset.checked_add(member.size)?;
            let next = members.get(at + 1).map_or(align, |next| next.align.min(pack));
            let aligned = offset.checked_next_multiple_of(next)?;
            gaps.push(aligned - offset);
            offset = aligned;
        }
        Some(Self { layout: Layout { size: offset, align }, pack, gaps })
    }
}

/// Character type of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Character {
    /// `std::string`: bytes.
    Char,
    /// `std::u16string`: UTF-16.
    Char16,
    /// `std::u32string`: UTF-32.
    Char32,
}

impl Character {
    pub(super) fn size(self) -> usize {
        match self {
            Self::Char => size_of::<u8>(),
            Self::Char16 => size_of::<u16>(),
            Self::Char32 => size_of::<u32>(),
        }
    }

    pub(super) fn scalar(self) -> Scalar {
        match self {
            Self::Char => Scalar::Char,
            Self::Char16 => Scalar::Char16,
            Self::Char32 => Scalar::Char32,
        }
    }
}

macro_rules! scalars {
    ($($variant:ident = $id:literal, $size:expr, $name:literal, $doc:literal;)*) => {
        /// A type without component types.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Scalar {
            $(#[doc = $doc] $variant,)*
        }

        impl Scalar {
            /// All scalars.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns its byte in the literal.
            pub(super) fn id(self) -> u8 {
                match self {
                    $(Self::$variant => $id,)*
                }
            }

            pub(super) fn from_id(id: u8) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns its C++ name, without `std::` and `_t`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns its size in bytes, if it is fixed.
            pub(super) fn size(self) -> Option<usize> {
                match self {
                    $(Self::$variant => $size,)*
                }
            }
        }
    };
}

impl Scalar {
    /// Whether it precedes its struct, together with others of its kind.
    pub(super) fn is_fast(self) -> bool {
        matches!(self, Self::FastI32 | Self::FastI64 | Self::FastU32 | Self::FastU64)
    }
}

// struct_pack/type_id.hpp. Omitted: `wchar_t` and `std::bitset`, which a peer supports only with portability disabled;
// 16-bit floats, which it does not support; `long double`, which it does not compile if it is wider than `double`.
scalars! {
    I32 = 0x01, Some(4), "int32", "`int32_t`, `int`";
    U32 = 0x02, Some(4), "uint32", "`uint32_t`, `unsigned`";
    I64 = 0x03, Some(8), "int64", "`int64_t`, `long`, `long long`";
    U64 = 0x04, Some(8), "uint64", "`uint64_t`, `size_t`";
    I8 = 0x05, Some(1), "int8", "`int8_t`, `signed char`";
    U8 = 0x06, Some(1), "uint8", "`uint8_t`, `unsigned char`";
    I16 = 0x07, Some(2), "int16", "`int16_t`, `short`";
    U16 = 0x08, Some(2), "uint16", "`uint16_t`, `unsigned short`";
    I128 = 0x09, Some(16), "int128", "`__int128`";
    U128 = 0x0a, Some(16), "uint128", "`unsigned __int128`";
    Bool = 0x0b, Some(1), "bool", "`bool`";
    Char = 0x0c, Some(1), "char", "`char`, which is no number of 8 bits here";
    Char16 = 0x0d, Some(2), "char16", "`char16_t`";
    Char32 = 0x0e, Some(4), "char32", "`char32_t`";
    F32 = 0x11, Some(4), "float", "`float`";
    F64 = 0x12, Some(8), "double", "`double`";
    VarI32 = 0x14, None, "var_int32", "`struct_pack::var_int32_t`";
    VarI64 = 0x15, None, "var_int64", "`struct_pack::var_int64_t`";
    VarU32 = 0x16, None, "var_uint32", "`struct_pack::var_uint32_t`";
    VarU64 = 0x17, None, "var_uint64", "`struct_pack::var_uint64_t`";
    FastI32 = 0x18, None, "fast_int32", "`int32_t` in a struct with `USE_FAST_VARINT`";
    FastI64 = 0x19, None, "fast_int64", "`int64_t` in a struct with `USE_FAST_VARINT`";
    FastU32 = 0x1a, None, "fast_uint32", "`uint32_t` in a struct with `USE_FAST_VARINT`";
    FastU64 = 0x1b, None, "fast_uint64", "`uint64_t` in a struct with `USE_FAST_VARINT`";
}
