//! Random header blocks, most of them from valid parts.

use polyrpc_wire::http::h2::hpack::{Indexing, stateless_field};

/// Reproducible random numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn below(&mut self, bound: u8) -> u8 {
        (self.next() % u64::from(bound)) as u8
    }

    fn bytes(&mut self, most: u8) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }

    fn text(&mut self, most: u8) -> Vec<u8> {
        (0..self.below(most)).map(|_| b'a' + self.below(26)).collect()
    }
}

/// The input of a conversation: up to eight steps.
pub(crate) fn conversation(random: &mut Random) -> Vec<u8> {
    let mut input = Vec::new();
    for _ in 0..=random.below(8) {
        let (kind, step) = match random.below(8) {
            0 => (2, random.bytes(200)),
            1 => (3, random.bytes(7)),
            _ => (0, block(random)),
        };
        let step = &step[..step.len().min(255)];
        input.extend_from_slice(&[kind, step.len() as u8]);
        input.extend_from_slice(step);
    }
    input
}

fn block(random: &mut Random) -> Vec<u8> {
    let mut block = Vec::new();
    if random.below(8) == 0 {
        block.extend((0..=random.below(3)).flat_map(|_| [0x3f, random.below(255) | 0x80, random.below(40)]));
    }
    for _ in 0..random.below(8) {
        match random.below(8) {
            0 => block.extend(random.bytes(6)),
            // An index into the static table or into added entries.
            1 | 2 => block.push(0x80 | (1 + random.below(70))),
            3 => {
                block.push([0x40, 0x00, 0x10][usize::from(random.below(3))] | random.below(15));
                string(random, &mut block);
            }
            _ => {
                let (name, value) = (random.text(12), random.text(40));
                let start = block.len();
                stateless_field(&name, &value, Indexing::Unlikely, &mut block);
                // With incremental indexing, if the name is a literal.
                if block[start] == 0 && random.below(2) == 0 {
                    block[start] = 0x40;
                }
            }
        }
    }
    if !block.is_empty() && random.below(6) == 0 {
        let at = random.next() as usize % block.len();
        block[at] = random.next() as u8;
    }
    block
}

fn string(random: &mut Random, block: &mut Vec<u8>) {
    let text = if random.below(4) == 0 { random.bytes(20) } else { random.text(20) };
    let coded = if random.below(8) == 0 { 0x80 } else { 0 };
    block.push(coded | text.len() as u8);
    block.extend(text);
}
