//! The roles that a member's certificate vouches for, as URIs among its names. Not who the member says that it is.

use std::fmt;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;
use wire::Peer;

/// Begins each URI that names a role.
const SCHEME: &str = "distcache:";
const ROLES: [&str; 3] = ["node", "shim", "router"];

/// The roles that a certificate vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VouchedRoles([bool; 3]);

impl VouchedRoles {
    /// A certificate that names no role is for all of them, and so is a connection without one.
    pub const ALL: VouchedRoles = VouchedRoles([true; 3]);

    /// What the names of a verified certificate say: `distcache:node`, `distcache:shim`, `distcache:router`.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> VouchedRoles {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return VouchedRoles([false; 3]) };
        VouchedRoles::named(certificate.valid_uri_names())
    }

    pub(crate) fn named<'a>(names: impl Iterator<Item = &'a str>) -> VouchedRoles {
        let words: Vec<&str> = names.filter_map(|name| name.strip_prefix(SCHEME)).collect();
        match words.is_empty() {
            true => VouchedRoles::ALL,
            // One that this release does not know is none of these.
            false => VouchedRoles(ROLES.map(|role| words.contains(&role))),
        }
    }

    /// Whether whoever shows the certificate may be this peer.
    pub(crate) fn allow(self, peer: Peer) -> bool {
        let [node, shim, router] = self.0;
        match peer {
            Peer::Node(_) => node,
            Peer::Shim(_) => shim,
            Peer::Router(_) => router,
        }
    }
}

impl fmt::Display for VouchedRoles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<&str> =
            ROLES.iter().zip(self.0).filter(|(_, on)| *on).map(|(role, _)| *role).collect();
        f.write_str(if roles.is_empty() { "nobody" } else { "" })?;
        f.write_str(&roles.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::VouchedRoles;
    use wire::{NodeId, Peer, RouterId, ShimId};

    #[test]
    fn names_say_which_roles_a_certificate_is_for() {
        let named = |names: &[&str]| VouchedRoles::named(names.iter().copied());
        let peers = [Peer::Node(NodeId(0)), Peer::Shim(ShimId(0)), Peer::Router(RouterId(0))];
        let check = |names: &[&str], allowed: [bool; 3], text: &str| {
            let roles = named(names);
            assert_eq!(peers.map(|peer| roles.allow(peer)), allowed, "{names:?}");
            assert_eq!(roles.to_string(), text, "{names:?}");
        };
        check(&[], [true; 3], "node and shim and router");
        check(&["spiffe://x/distcache:node"], [true; 3], "node and shim and router");
        check(&["distcache:node"], [true, false, false], "node");
        check(
            &["spiffe://x/y", "distcache:shim", "distcache:router"],
            [false, true, true],
            "shim and router",
        );
        check(&["distcache:controller"], [false; 3], "nobody");
        check(&["distcache:", "distcache:NODE"], [false; 3], "nobody");
    }
}
