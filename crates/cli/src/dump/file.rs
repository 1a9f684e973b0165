//! Files of captured packets: pcap, and pcapng.

use std::io::{self, BufRead, Read};

/// A captured packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// In nanoseconds since 1970 (UTC).
    pub(super) at: u64,
    /// Kind of the link, by its number of the registry of pcap's `LINKTYPE_`s.
    pub(super) link: u32,
    pub(super) bytes: Vec<u8>,
    /// Part of the packet was not captured.
    pub(super) is_cut: bool,
}

/// Reads the packets of a file, one at a time.
pub(super) struct Packets<R> {
    file: R,
    kind: Kind,
}

enum Kind {
    Pcap { order: Order, link: u32, nanos_per_unit: u64 },
    Pcapng { order: Order, interfaces: Vec<Interface> },
}

/// Order of the bytes of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        if self == Self::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        if self == Self::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}

/// An interface of a pcapng file.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    /// Units of a second.
    units: u64,
}

impl<R: BufRead> Packets<R> {
    /// Reads the head of a file.
    ///
    /// # Errors
    ///
    /// If it is neither of the formats, or cannot be read.
    pub(super) fn new(mut file: R) -> io::Result<Self> {
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(|_| no_capture())?;
        let pcap = |order, nanos_per_unit| Some((order, nanos_per_unit));
        let found = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => pcap(Order::Little, 1000),
            [0xa1, 0xb2, 0xc3, 0xd4] => pcap(Order::Big, 1000),
            [0x4d, 0x3c, 0xb2, 0xa1] => pcap(Order::Little, 1),
            [0xa1, 0xb2, 0x3c, 0x4d] => pcap(Order::Big, 1),
            SECTION => None,
            _ => return Err(no_capture()),
        };
        let kind = match found {
            Some((order, nanos_per_unit)) => {
                let head: [u8; 20] = read_exact(&mut file)?;
                // The upper bits describe checksums at the end of frames.
                let link = order.u32(four_bytes(&head, 16)) & 0x0fff_ffff;
                Kind::Pcap { order, link, nanos_per_unit }
            }
            None => {
                let order = read_section(&mut file)?;
                Kind::Pcapng { order, interfaces: Vec::new() }
            }
        };
        Ok(Self { file, kind })
    }

    /// Returns the next packet; `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// If the file is damaged or ends within a packet.
    pub(super) fn next_packet(&mut self) -> io::Result<Option<Packet>> {
        match &mut self.kind {
            Kind::Pcap { order, link, nanos_per_unit } => {
                let Some(head) = read_head::<16, _>(&mut self.file)? else { return Ok(None) };
                let number = |at| order.u32(four_bytes(&head, at));
                let (captured, length) = (number(8), number(12));
                let bytes = read_content(&mut self.file, captured)?;
                let at = u64::from(number(0)) * 1_000_000_000 + u64::from(number(4)) * *nanos_per_unit;
                Ok(Some(Packet { at, link: *link, bytes, is_cut: captured < length }))
            }
            Kind::Pcapng { order, interfaces } => next_block(&mut self.file, order, interfaces),
        }
    }
}

/// Reads blocks up to the next packet.
fn next_block(
    file: &mut impl BufRead,
    order: &mut Order,
    interfaces: &mut Vec<Interface>,
) -> io::Result<Option<Packet>> {
    loop {
        let Some(kind) = read_head::<4, _>(file)? else { return Ok(None) };
        if kind == SECTION {
            *order = read_section(file)?;
            interfaces.clear();
            continue;
        }
        let length = order.u32(read_exact(file)?);
        if length < 12 || !length.is_multiple_of(4) {
            return Err(damaged("a block has no length"));
        }
        let body = read_content(file, length - 12)?;
        let _end: [u8; 4] = read_exact(file)?;
        let number = |at: usize| body.get(at..at + 4).map(|bytes| order.u32(four_bytes(bytes, 0)));
        match order.u32(kind) {
            INTERFACE => {
                if interfaces.len() >= MAX_INTERFACES {
                    return Err(damaged("there are too many interfaces"));
                }
                let link = body.get(..2).map_or(0, |bytes| u32::from(order.u16([bytes[0], bytes[1]])));
                let options = body.get(8..).unwrap_or_default();
                interfaces.push(Interface { link, units: parse_resolution(options, *order) });
            }
            ENHANCED_PACKET => {
                let numbers = || Some([number(0)?, number(4)?, number(8)?, number(12)?, number(16)?]);
                let [interface, high, low, captured, length] =
                    numbers().ok_or_else(|| damaged("a packet is too short"))?;
                let known = interfaces.get(interface as usize);
                let Interface { link, units } = *known.ok_or_else(|| damaged("a packet has no interface"))?;
                let bytes = body.get(20..).and_then(|rest| rest.get(..captured as usize));
                let bytes = bytes.ok_or_else(|| damaged("a packet is longer than its block"))?.to_vec();
                let count = u64::from(high) << 32 | u64::from(low);
                let at = u128::from(count) * 1_000_000_000 / u128::from(units);
                let at = u64::try_from(at).unwrap_or(u64::MAX);
                return Ok(Some(Packet { at, link, bytes, is_cut: captured < length }));
            }
            SIMPLE_PACKET => {
                let length = number(0).ok_or_else(|| damaged("a packet is too short"))?;
                let Interface { link, .. } =
                    *interfaces.first().ok_or_else(|| damaged("a packet has no interface"))?;
                let rest = body.get(4..).unwrap_or_default();
                let captured = rest.len().min(length as usize);
                let bytes = rest[..captured].to_vec();
                return Ok(Some(Packet { at: 0, link, bytes, is_cut: captured < length as usize }));
            }
            // Names, statistics, comments, and what others define.
            _ => {}
        }
    }
}

/// Reads the rest of the head of a section, whose own bytes say their order.
fn read_section(file: &mut impl Read) -> io::Result<Order> {
    let [length, magic]: [[u8; 4]; 2] = [read_exact(file)?, read_exact(file)?];
    let order = match magic {
        [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
        [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
        _ => return Err(damaged("a section does not say the order of its bytes")),
    };
    let length = order.u32(length);
    if length < 28 {
        return Err(damaged("a section has no length"));
    }
    read_content(file, length - 12)?;
    Ok(order)
}

/// Units of a second, as the option `if_tsresol` says; microseconds without it.
fn parse_resolution(mut options: &[u8], order: Order) -> u64 {
    while let [a, b, c, d, rest @ ..] = options {
        let (code, length) = (order.u16([*a, *b]), usize::from(order.u16([*c, *d])));
        let Some(value) = rest.get(..length) else { break };
        if let (9, [resolution]) = (code, value) {
            let power = u32::from(resolution & 0x7f);
            let units =
                if resolution & 0x80 == 0 { 10_u64.checked_pow(power) } else { 1_u64.checked_shl(power) };
            return units.filter(|units| *units > 0).unwrap_or(1_000_000);
        }
        options = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    1_000_000
}

/// Reads the head of the next packet or block; `None` if the file ends before it.
fn read_head<const N: usize, R: BufRead>(file: &mut R) -> io::Result<Option<[u8; N]>> {
    if file.fill_buf()?.is_empty() { Ok(None) } else { read_exact(file).map(Some) }
}

fn read_exact<const N: usize>(file: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    match file.read_exact(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged("it ends within a packet")),
        Err(error) => Err(error),
    }
}

fn read_content(file: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    if length > MAX_PACKET_BYTES {
        return Err(damaged("a packet is too long"));
    }
    let mut bytes = Vec::new();
    file.take(u64::from(length)).read_to_end(&mut bytes)?;
    if bytes.len() < length as usize { Err(damaged("it ends within a packet")) } else { Ok(bytes) }
}

fn four_bytes(bytes: &[u8], at: usize) -> [u8; 4] {
    let mut four = [0; 4];
    if let Some(found) = bytes.get(at..at + 4) {
        four.copy_from_slice(found);
    }
    four
}

fn no_capture() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is neither a pcap nor a pcapng file")
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is damaged: {why}"))
}

/// The block that begins a section reads the same in both orders.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Maximum length of a packet or a block.
const MAX_PACKET_BYTES: u32 = 16 << 20;
const MAX_INTERFACES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> io::Result<Vec<Packet>> {
        let mut packets = Packets::new(bytes)?;
        std::iter::from_fn(|| packets.next_packet().transpose()).collect()
    }

    fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
        let number = |n: u32| if order == Order::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        let length = number(body.len() as u32 + 12);
        [&number(kind)[..], &length, body, &length].concat()
    }

    fn pcapng(order: Order) -> Vec<u8> {
        let number = |n: u32| if order == Order::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        let short = |n: u16| if order == Order::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        let head = [&number(0x1a2b_3c4d)[..], &short(1), &short(0), &[0xff; 8]].concat();
        // Nanoseconds.
        let option = [&short(9)[..], &short(1), &[9, 0, 0, 0], &[0; 4]].concat();
        let interface = [&short(1)[..], &short(0), &number(0), &option].concat();
        let packet = [number(0), number(1), number(5), number(3), number(4)].concat();
        [
            block(order, 0x0a0d_0d0a, &head),
            block(order, INTERFACE, &interface),
            block(order, 0xbad, b"skip"),
            block(order, ENHANCED_PACKET, &[&packet[..], b"abc\0"].concat()),
        ]
        .concat()
    }

    #[test]
    fn packets_of_both_formats_and_orders_are_read() {
        for order in [Order::Little, Order::Big] {
            let packet = Packet { at: (1 << 32) + 5, link: 1, bytes: b"abc".to_vec(), is_cut: true };
            assert_eq!(read_all(&pcapng(order)).unwrap(), [packet]);
        }
        let mut pcap = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        pcap.extend([[0; 4], [0; 4], [0, 0, 4, 0], [101, 0, 0, 0], [2, 0, 0, 0], [7, 0, 0, 0]].concat());
        pcap.extend([[1, 0, 0, 0], [1, 0, 0, 0]].concat());
        pcap.push(0x45);
        let packet = Packet { at: 2_000_007_000, link: 101, bytes: vec![0x45], is_cut: false };
        assert_eq!(read_all(&pcap).unwrap(), [packet]);
    }

    #[test]
    fn file_that_is_cut_or_damaged_is_an_error_and_no_panic() {
        let whole = pcapng(Order::Little);
        for length in 0..whole.len() {
            // Between blocks it is a shorter file.
            let _ = read_all(&whole[..length]);
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = read_all(&damaged);
            }
        }
        assert!(read_all(b"GET / HTTP/1.1\r\n").unwrap_err().to_string().contains("neither"));
        assert!(read_all(&whole[..whole.len() - 5]).unwrap_err().to_string().contains("ends within"));
    }
}
