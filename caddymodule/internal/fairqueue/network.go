package fairqueue

import "net/netip"

// Network returns the least that a provider gives to a customer: an IPv4 address, or the /64 of an IPv6 address. Anything
// but an IP address is returned unchanged.
func Network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
