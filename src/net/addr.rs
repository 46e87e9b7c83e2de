//! What can be connected or bound to, and the lookup of names.
//! Knows no sockets.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::vec;

use crate::blocking::try_unblock;

/// What stands for socket addresses, as [`std::net::ToSocketAddrs`], but for lookups that do not
/// block.
///
/// Addresses in letters (`"127.0.0.1:80"`, `("::1", 80)`) are read at once. Names
/// (`"example.org:80"`) are looked up by the system's resolver, on a thread of the crate `blocking`.
///
/// To have it for a type of one's own, make [`Addrs`] of what it holds.
///
/// # Examples
/// ```
/// use paceline::net::{Addrs, ToSocketAddrs, lookup_host};
///
/// struct Service(String);
///
/// impl ToSocketAddrs for Service {
///     fn to_addrs(&self) -> std::io::Result<Addrs> {
///         (self.0.as_str(), 8080).to_addrs()
///     }
/// }
///
/// let addrs = paceline::block_on(lookup_host(Service("127.0.0.1".into())))?;
/// assert_eq!(addrs, ["127.0.0.1:8080".parse().unwrap()]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait ToSocketAddrs {
    /// The addresses, or the name to be looked up.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for what is neither.
    fn to_addrs(&self) -> io::Result<Addrs>;
}

/// What [`ToSocketAddrs`] is made into: some addresses, or a name that has them.
#[derive(Clone, Debug)]
pub struct Addrs(Kind);

#[derive(Clone, Debug)]
enum Kind {
    One(SocketAddr),
    Many(Vec<SocketAddr>),
    Name(String, u16),
}

impl Addrs {
    /// The addresses of `host`, with that port.
    pub fn of_name(host: impl Into<String>, port: u16) -> Self {
        Addrs(Kind::Name(host.into(), port))
    }

    /// The addresses, looked up if need be.
    pub(super) async fn resolve(self) -> io::Result<Resolved> {
        Ok(match self.0 {
            Kind::One(addr) => Resolved::One(Some(addr).into_iter()),
            Kind::Many(addrs) => Resolved::Many(addrs.into_iter()),
            Kind::Name(host, port) => Resolved::Many(look_up(host, port).await?.into_iter()),
        })
    }
}

impl From<SocketAddr> for Addrs {
    fn from(addr: SocketAddr) -> Self {
        Addrs(Kind::One(addr))
    }
}

impl From<Vec<SocketAddr>> for Addrs {
    fn from(addrs: Vec<SocketAddr>) -> Self {
        Addrs(Kind::Many(addrs))
    }
}

/// One address needs no allocation.
pub(super) enum Resolved {
    One(std::option::IntoIter<SocketAddr>),
    Many(vec::IntoIter<SocketAddr>),
}

impl Iterator for Resolved {
    type Item = SocketAddr;

    fn next(&mut self) -> Option<SocketAddr> {
        match self {
            Resolved::One(addr) => addr.next(),
            Resolved::Many(addrs) => addrs.next(),
        }
    }
}

async fn look_up(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    let lookup = move || {
        let addrs = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
        addrs.map(Iterator::collect).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot look up the host {host:?}: {error}"))
        })
    };
    try_unblock(lookup)?.await
}

/// The addresses that `addrs` stands for. Does not block: a name is looked up on another thread.
///
/// # Errors
/// If it is not the form of an address or a name with a port, or if the resolver finds nothing.
///
/// # Cancel safety
/// Nothing is lost if it is dropped. A lookup that has begun goes on, and its result is dropped.
///
/// # Examples
/// ```
/// let addrs = paceline::block_on(paceline::net::lookup_host("localhost:80"))?;
/// assert!(addrs.iter().all(|addr| addr.ip().is_loopback()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn lookup_host(addrs: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    Ok(addrs.to_addrs()?.resolve().await?.collect())
}

/// Tries one address after the other. The first success counts, else the last error.
pub(super) async fn first<R, F>(
    what: &str,
    addrs: io::Result<Addrs>,
    mut attempt: impl FnMut(SocketAddr) -> F,
) -> io::Result<R>
where
    F: Future<Output = io::Result<R>>,
{
    let mut failed = None;
    for addr in addrs?.resolve().await? {
        match attempt(addr).await {
            Ok(result) => return Ok(result),
            Err(error) => failed = Some(explain(what, addr, &error)),
        }
    }
    Err(failed.unwrap_or_else(|| no_addrs(what)))
}

/// The error, with what was tried.
pub(super) fn explain(what: &str, at: impl Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what} {at}: {error}"))
}

pub(super) fn no_addrs(what: &str) -> io::Error {
    let message = format!("cannot {what} anything: no address was given");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Implements the trait for what an address is made of.
macro_rules! addrs {
    ($($type:ty),*) => {$(
        impl ToSocketAddrs for $type {
            fn to_addrs(&self) -> io::Result<Addrs> {
                Ok(SocketAddr::from(*self).into())
            }
        }
    )*};
}

addrs!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToSocketAddrs for (&str, u16) {
    fn to_addrs(&self) -> io::Result<Addrs> {
        let (host, port) = *self;
        Ok(match host.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, port).into(),
            Err(_) => Addrs::of_name(host, port),
        })
    }
}

impl ToSocketAddrs for (String, u16) {
    fn to_addrs(&self) -> io::Result<Addrs> {
        (self.0.as_str(), self.1).to_addrs()
    }
}

impl ToSocketAddrs for str {
    fn to_addrs(&self) -> io::Result<Addrs> {
        if let Ok(addr) = self.parse::<SocketAddr>() {
            return Ok(addr.into());
        }
        let parts = self.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parts else {
            let message = format!("{self:?} is no address: host:port is, as in \"localhost:80\"");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        Ok(Addrs::of_name(host, port))
    }
}

impl ToSocketAddrs for String {
    fn to_addrs(&self) -> io::Result<Addrs> {
        self.as_str().to_addrs()
    }
}

impl ToSocketAddrs for [SocketAddr] {
    fn to_addrs(&self) -> io::Result<Addrs> {
        Ok(self.to_vec().into())
    }
}

impl<const N: usize> ToSocketAddrs for [SocketAddr; N] {
    fn to_addrs(&self) -> io::Result<Addrs> {
        self.as_slice().to_addrs()
    }
}

impl ToSocketAddrs for Vec<SocketAddr> {
    fn to_addrs(&self) -> io::Result<Addrs> {
        self.as_slice().to_addrs()
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_addrs(&self) -> io::Result<Addrs> {
        T::to_addrs(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None if it would have to be looked up.
    fn read(addrs: impl ToSocketAddrs) -> Option<Vec<SocketAddr>> {
        match addrs.to_addrs().unwrap().0 {
            Kind::One(addr) => Some(vec![addr]),
            Kind::Many(addrs) => Some(addrs),
            Kind::Name(..) => None,
        }
    }

    #[test]
    fn literals_are_read_and_names_are_not() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let (addr4, addr6) = (SocketAddr::from((v4, 80)), SocketAddr::from((v6, 80)));
        for read in [
            read(addr4),
            read((v4, 80)),
            read((IpAddr::from(v4), 80)),
            read(SocketAddrV4::new(v4, 80)),
            read("127.0.0.1:80"),
            read(("127.0.0.1", 80)),
            read(&("127.0.0.1".to_owned(), 80)),
            read(String::from("127.0.0.1:80")),
        ] {
            assert_eq!(read, Some(vec![addr4]));
        }
        let by_reference = &addr6;
        for read in [read(by_reference), read((v6, 80)), read("[::1]:80"), read(("::1", 80))] {
            assert_eq!(read, Some(vec![addr6]));
        }
        let both = [addr4, addr6];
        for read in [read(&both[..]), read(both), read(both.to_vec())] {
            assert_eq!(read, Some(both.to_vec()));
        }
        assert_eq!((read("localhost:80"), read(("localhost", 80))), (None, None));
    }

    #[test]
    fn what_is_no_address_is_named() {
        for wrong in ["", "localhost", "localhost:", "localhost:65536", "127.0.0.1", "[::1]"] {
            let error = wrong.to_addrs().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("{wrong:?} is no address")), "{error}");
        }
    }
}
