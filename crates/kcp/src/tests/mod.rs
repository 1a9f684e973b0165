//! By topic: `ciphers` and `correction` against what `kcp-go` wrote, `link` for conversations over links that lose,
//! double and reorder, `hostile` for what no honest peer sends.

mod ciphers;
mod correction;
mod hostile;
mod link;
mod validation;
