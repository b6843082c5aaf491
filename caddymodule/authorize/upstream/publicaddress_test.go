package upstream

import (
	"net/netip"
	"testing"
)

// What is public can be connected to: nobody's own provider is shut out.
func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "198.17.255.255", "223.255.255.255",
		"2606:4700::1", "2a00:1450::1", "2001:200::1", "::ffff:1.1.1.1",
	} {
		if !isPublic(netip.MustParseAddr(address)) {
			t.Errorf("%s is refused", address)
		}
	}
}
