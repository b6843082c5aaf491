package account

import "testing"

// The network is shown only for addresses that are not loopback.
func TestNetwork(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "2001:db8:1:2:3::4": "2001:db8:1:2::/64", "127.0.0.1": "", "::1": "",
	} {
		if got := network(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
