//! The addresses to which a notary may connect: globally reachable ones.
//!
//! A notary that connected to whatever a name resolves to would fetch from inside its own network
//! for anyone who owns a name. So an address is checked after resolution, and the notary connects
//! to exactly the address that was checked.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

/// A block of addresses, written `ADDRESS` or `ADDRESS/PREFIX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressBlock {
    address: IpAddr,
    prefix: u8,
}

/// The reason for which a text is not an address block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "address block `{got}` is not usable: wanted ADDRESS or ADDRESS/PREFIX, with no bit set after \
     the prefix"
)]
pub struct AddressBlockError {
    /// The text.
    pub got: String,
}

impl AddressBlock {
    /// Whether `address` lies in this block. An IPv4-mapped IPv6 address lies in no IPv4 block.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(block), IpAddr::V4(address)) => is_in_v4(address, block, self.prefix),
            (IpAddr::V6(block), IpAddr::V6(address)) => {
                let differs = u128::from(block) ^ u128::from(address);
                self.prefix == 0 || differs >> (128 - u32::from(self.prefix)) == 0
            }
            _ => false,
        }
    }
}

fn is_in_v4(address: Ipv4Addr, block: Ipv4Addr, prefix: u8) -> bool {
    let differs = u32::from(block) ^ u32::from(address);
    prefix == 0 || differs >> (32 - u32::from(prefix)) == 0
}

impl FromStr for AddressBlock {
    type Err = AddressBlockError;

    fn from_str(text: &str) -> Result<Self, AddressBlockError> {
        let wrong = || AddressBlockError { got: text.into() };
        let (address, prefix) = match text.split_once('/') {
            None => (text, None),
            Some((address, prefix)) => (address, Some(prefix)),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => whole,
            Some(digits) => {
                let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                let prefix: u8 = digits.parse().map_err(|_| wrong())?;
                if !plain || prefix > whole { Err(wrong())? } else { prefix }
            }
        };
        let bits_beyond = u32::from(whole - prefix);
        let is_first = match address {
            IpAddr::V4(address) => u32::from(address).trailing_zeros() >= bits_beyond,
            IpAddr::V6(address) => u128::from(address).trailing_zeros() >= bits_beyond,
        };
        if is_first { Ok(Self { address, prefix }) } else { Err(wrong()) }
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Whether `address` is globally reachable.
///
/// Sources: IANA's registries of special-purpose addresses for IPv4 and IPv6 (RFC 6890 and
/// updates). IPv4 excludes the special-purpose blocks. IPv6 includes only what is allocated for
/// global unicast, without the blocks that embed IPv4 addresses or have a special purpose.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !SPECIAL_V4.iter().any(|(block, prefix)| is_in_v4(address, (*block).into(), *prefix))
        }
        IpAddr::V6(address) => {
            let segments = address.segments();
            let is_global_unicast = segments[0] & 0xe000 == 0x2000;
            is_global_unicast && !is_special_v6(segments)
        }
    }
}

const SPECIAL_V4: &[([u8; 4], u8)] = &[
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    // Shared by carriers (RFC 6598).
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Link-local, with the metadata services of clouds, which hand out credentials.
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 31, 196, 0], 24),
    ([192, 52, 193, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([192, 175, 48, 0], 24),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast, reserved, broadcast.
    ([224, 0, 0, 0], 3),
];

fn is_special_v6(segments: [u16; 8]) -> bool {
    let [first, second, ..] = segments;
    // 2001::/23 protocol assignments (Teredo, benchmarking, ORCHID), 2001:db8::/32 documentation,
    // 2002::/16 6to4, 2620:4f:8000::/48 AS112, 3fff::/20 documentation.
    (first == 0x2001 && (second < 0x200 || second == 0xdb8))
        || first == 0x2002
        || (first == 0x2620 && second == 0x4f && segments[2] == 0x8000)
        || (first == 0x3fff && second < 0x1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_whole_internet_are_public() {
        for public in ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.32.0.1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for public in ["192.0.1.1", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::5"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for special in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "::8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(special.parse().unwrap()), "{special}");
        }
    }

    #[test]
    fn a_block_holds_its_addresses_and_no_others() {
        let holds = |block: &str, address: &str| {
            block.parse::<AddressBlock>().unwrap().contains(address.parse().unwrap())
        };
        assert!(holds("127.0.0.1", "127.0.0.1") && !holds("127.0.0.1", "127.0.0.2"));
        assert!(holds("10.1.0.0/16", "10.1.255.255") && !holds("10.1.0.0/16", "10.2.0.0"));
        assert!(holds("0.0.0.0/0", "9.9.9.9") && !holds("0.0.0.0/0", "::1"));
        assert!(holds("fd00::/8", "fdff::1") && !holds("fd00::/8", "fe00::1"));
        assert!(holds("::/0", "::1") && !holds("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert_eq!("127.0.0.1".parse::<AddressBlock>().unwrap().to_string(), "127.0.0.1/32");
    }

    #[test]
    fn other_texts_are_no_blocks() {
        for text in ["", "10.0.0.0/33", "10.0.0.1/8", "::1/129", "fe80::1/10", "h/8", "10.0.0.0/+8"]
        {
            assert!(text.parse::<AddressBlock>().is_err(), "{text}");
        }
    }
}
