package http

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errBlocked is wrapped by all refusals: they are final.
var errBlocked = errors.New("refused")

func blocked(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errBlocked}, args...)...)
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// special are the addresses that are not of the public internet.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"::/96",                            // unspecified, loopback, and IPv4 in the oldest way
	"::ffff:0:0/96", "::ffff:0:0:0/96", // IPv4 mapped and translated
	"64:ff9b::/96", "64:ff9b:1::/48", // NAT64
	"100::/64", "2001::/23", "2002::/16", // discard, Teredo and other protocols, 6to4
	"2001:db8::/32", "3fff::/20", "5f00::/16",
	"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)

// metadata are the addresses at which clouds serve credentials to whoever asks.
var metadata = prefixes(
	"169.254.169.254/32", "169.254.169.253/32", "169.254.170.2/32", "169.254.170.23/32", "169.254.0.23/32",
	"fd00:ec2::254/128", "fd00:ec2::253/128", "fd00:ec2::23/128", "fd20:ce::254/128", "fe80::a9fe:a9fe/128",
	"100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
)

// wraps are the ways an IPv4 address lies in an IPv6 one: at which byte.
var wraps = []struct {
	in netip.Prefix
	at int
}{
	{netip.MustParsePrefix("::/96"), 12},
	{netip.MustParsePrefix("::ffff:0:0/96"), 12},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12},
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// inner is the IPv4 address that lies in a, or a.
func inner(a netip.Addr) netip.Addr {
	for _, w := range wraps {
		if a.Is6() && w.in.Contains(a) {
			b := a.As16()
			return netip.AddrFrom4([4]byte(b[w.at : w.at+4]))
		}
	}
	return a
}

// check tells why an address may not be called, or is nil.
func (c Config) check(a netip.Addr) error {
	if a.Zone() != "" {
		return blocked("address %s has a zone", a)
	}
	a = a.Unmap() // how the system dials it
	if within(metadata, a) || within(metadata, inner(a)) {
		return blocked("address %s is one where a cloud serves credentials", a)
	}
	if (within(special, a) || !a.IsGlobalUnicast()) && !within(c.AllowPrivate, a) {
		return blocked("address %s is not of the public internet and the worker does not allow it (AllowPrivate)", a)
	}
	return nil
}

// checkHost refuses names that the configuration does not have, and the spellings of addresses
// that programs read differently: 2130706433, 0x7f.1, 0177.0.0.1.
func (c Config) checkHost(host string) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" {
		return blocked("the url has no host")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if err := c.check(a); err != nil {
			return err
		}
	} else if last := host[strings.LastIndexByte(host, '.')+1:]; numeric(last) {
		return blocked("host %q is neither a name nor an address in its usual form", host)
	}
	if len(c.AllowHosts) > 0 && !slices.ContainsFunc(c.AllowHosts, func(p string) bool {
		p = strings.ToLower(p)
		if below, ok := strings.CutPrefix(p, "*."); ok {
			return strings.HasSuffix(host, "."+below)
		}
		return host == p
	}) {
		return blocked("the worker does not allow host %q (AllowHosts)", host)
	}
	return nil
}

func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

// dial resolves the host, checks what it got, and dials exactly that.
func (c Config) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := c.checkHost(host); err != nil {
		return nil, err
	}
	addrs, err := c.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second, Control: c.control}
	var refused, failed []error
	for _, a := range addrs {
		if err := c.check(a); err != nil {
			refused = append(refused, err)
			continue
		}
		conn, err := d.DialContext(ctx, network, net.JoinHostPort(a.Unmap().String(), port))
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(failed) > 0 { // another attempt may have more luck with these
		return nil, errors.Join(failed...)
	}
	return nil, errors.Join(refused...)
}

func (c Config) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	addrs, err := c.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("resolve %q: %w", host, err)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("resolve %q: it has no address", host)
	}
	return addrs[:min(len(addrs), 8)], nil
}

// control is the last look, at the address the socket is about to be connected to.
func (c Config) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return blocked("address %q cannot be read", address)
	}
	return c.check(at.Addr())
}
